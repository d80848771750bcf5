/* Whose memory a program may overwrite: leaves that nobody but the targets' graph has.

   `execution/taken.py` is the same in Python, and says why nothing is counted: what else may hold a
   leaf, or a node between it and the targets, keeps it from dying when the targets let go of it.
   Here that is tried, and undone (`graph.c`).  From then on the targets have no inputs, so that
   nobody comes by the leaf while Python's code may still run; and the leaf's memory gets a hold of
   its own, which is the only one if nobody had the old one either. */

#include "running.h"

static PyObject *storage_name, *owners_name, *leases_name, *for_ever_name, *another_name;

/* ---- who else has memory --------------------------------------------------------------------- */

static int is_empty(PyObject *storage, PyObject *name, Py_ssize_t wanted)
{
    PyObject *found = PyObject_GetAttr(storage, name);
    if (!found)
        return -1;
    Py_ssize_t size = PyAnySet_Check(found) ? PySet_GET_SIZE(found) : PyLong_AsSsize_t(found);
    Py_DECREF(found);
    return PyErr_Occurred() ? -1 : size == wanted;
}

/* `Buffer.alone`: 1 or 0, -1 with an error set.  All that is asked are slots: no Python code runs. */
static int is_alone(PyObject *buffer)
{
    PyObject *storage = PyObject_GetAttr(buffer, storage_name);
    if (!storage)
        return -1;
    int alone = 1;
    if (storage != Py_None) {
        alone = is_empty(storage, owners_name, 1);
        if (alone == 1)
            alone = is_empty(storage, leases_name, 0);
        if (alone == 1)
            alone = is_empty(storage, for_ever_name, 0);
    }
    Py_DECREF(storage);
    return alone;
}

/* Whether of the leaves that updates write to those may be overwritten that the program was planned
   for, and no others; `own` as `find_own` says: 1, 0, or -1 with an error set. */
int fits(const Program *program, const Walk *walk, uint64_t own, PyObject *buffer_type)
{
    for (Py_ssize_t k = 0; k + 1 < program->updated_count; k += 2) {
        Py_ssize_t number = program->updated[k];
        const Node *leaf = number < walk->count ? walk->nodes[number] : NULL;
        if (!leaf || !leaf->buffer)
            return 0;
        int free = leaf->walk == own &&
                   PyObject_TypeCheck(leaf->buffer, (PyTypeObject *)buffer_type);
        if (free && (free = is_alone(leaf->buffer)) < 0)
            return -1;
        if (free != program->updated[k + 1])
            return 0;
    }
    return 1;
}

/* ---- taking over ----------------------------------------------------------------------------- */

/* Have the targets forget their inputs until they are given back or have values; -1 with an
   error set. */
int steal_inputs(Stolen *stolen, PyObject *targets)
{
    Py_ssize_t count = PyList_GET_SIZE(targets);
    stolen->inputs = PyMem_Calloc((size_t)(3 * count + 1), sizeof *stolen->inputs);
    if (!stolen->inputs) {
        PyErr_NoMemory();
        return -1;
    }
    stolen->targets = targets;
    for (Py_ssize_t k = 0; k < count; k++) {
        Node *node = (Node *)PyList_GET_ITEM(targets, k);
        PyObject **inputs = stolen->inputs + 3 * k;
        inputs[0] = node->left;
        inputs[1] = node->right;
        inputs[2] = node->rest;
        node->left = node->right = node->rest = NULL;
    }
    return 0;
}

/* Give targets that have no values their inputs again, and let go of the others'. */
void return_inputs(Stolen *stolen)
{
    PyObject **inputs = stolen->inputs;
    if (!inputs)
        return;
    stolen->inputs = NULL;
    Py_ssize_t count = PyList_GET_SIZE(stolen->targets);
    for (Py_ssize_t k = 0; k < count; k++) {
        Node *node = (Node *)PyList_GET_ITEM(stolen->targets, k);
        if (node->buffer || node->left || node->right || node->rest)
            continue;
        node->left = inputs[3 * k];
        node->right = inputs[3 * k + 1];
        node->rest = inputs[3 * k + 2];
        inputs[3 * k] = inputs[3 * k + 1] = inputs[3 * k + 2] = NULL;
    }
    for (Py_ssize_t k = 0; k < 3 * count; k++)
        Py_XDECREF(inputs[k]);
    PyMem_Free(inputs);
}

/* A hold on a leaf's memory that is the only one: a new reference, NULL without an error if it is
   not.  The leaf has it from now on. */
PyObject *hold_alone(Node *leaf)
{
    PyObject *old = Py_NewRef(leaf->buffer);
    PyObject *hold = PyObject_CallMethodNoArgs(old, another_name);
    if (!hold || leaf->buffer != old) {
        Py_DECREF(old);
        Py_XDECREF(hold);
        return NULL;
    }
    Py_SETREF(leaf->buffer, Py_NewRef(hold));
    Py_DECREF(old); /* it dies, unless somebody else has it */
    int alone = is_alone(hold);
    if (alone != 1)
        Py_CLEAR(hold);
    return hold;
}

int add_taken(void)
{
    storage_name = PyUnicode_InternFromString("_storage");
    owners_name = PyUnicode_InternFromString("_owners");
    leases_name = PyUnicode_InternFromString("_leases");
    for_ever_name = PyUnicode_InternFromString("_for_ever");
    another_name = PyUnicode_InternFromString("another");
    return storage_name && owners_name && leases_name && for_ever_name && another_name ? 0 : -1;
}
