/* How nodes become the values of handles, and operations nodes.

   `twin_record.py` is this file and `recorder.c` in Python: what is changed here is changed there. */

#include "handle.h"
#include "recorder.h"

PyObject *compute;
static PyObject *consider_name, *node_name;

static int note_site(Recorder *recorder, const Node *node)
{
    if (recorder->noted == recorder->room) {
        Py_ssize_t room = recorder->room ? 2 * recorder->room : 512;
        Site *sites = PyMem_Realloc(recorder->sites, (size_t)room * sizeof(Site));
        if (!sites) {
            PyErr_NoMemory();
            return -1;
        }
        recorder->sites = sites;
        recorder->room = room;
    }
    recorder->sites[recorder->noted++] = (Site){Py_XNewRef(node->code), node->instruction};
    return 0;
}

/* ---- nodes become values of handles --------------------------------------------------------- */

/* Let the recorder flush where it is time to; before the node is a handle's. */
static inline int consider(Recorder *recorder, PyObject *node)
{
    if (recorder->count < recorder->most)
        return 0;
    if (recorder->state == EMPTY) {
        set_anchor(recorder, (Node *)node);
        enter(recorder, GATHERING);
        return 0;
    }
    if (recorder->state == DUE && recorder->count < 4 * recorder->cut &&
        !is_at_anchor(recorder, (Node *)node))
        return 0;
    PyObject *done = PyObject_CallMethodOneArg((PyObject *)recorder, consider_name, node);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* Make a pending node the value of a handle, and let the recorder know. */
static int give_pending(Recorder *recorder, Handle *handle, PyObject *node)
{
    if (note_site(recorder, (Node *)node)) /* first: for want of memory nothing is changed */
        return -1;
    /* While functions are traced, Python has a descriptor in the slot's place. */
    if (held ? PyObject_SetAttr((PyObject *)handle, node_name, node) : set_node(handle, node, NULL))
        return -1;
    note_in(&recorder->handles, handle);
    return 0;
}

/* A new array whose value is the node. */
PyObject *wrap_node(PyObject *node)
{
    Handle *handle;
    if (((Node *)node)->buffer) {
        handle = new_handle();
        if (handle && (held ? PyObject_SetAttr((PyObject *)handle, node_name, node)
                            : set_node(handle, node, NULL)))
            Py_CLEAR(handle);
        return (PyObject *)handle;
    }
    Recorder *recorder = present_recorder();
    if (!recorder)
        return NULL;
    handle = consider(recorder, node) ? NULL : new_handle();
    if (handle && give_pending(recorder, handle, node))
        Py_CLEAR(handle);
    Py_DECREF(recorder);
    return (PyObject *)handle;
}

static PyObject *record_wrap(PyObject *module, PyObject *node)
{
    if (!is_node(node)) {
        PyErr_SetString(PyExc_TypeError, "a node is wanted");
        return NULL;
    }
    return wrap_node(node);
}

/* First, for Python does it, and other threads run meanwhile. */
static int settle_own_steps(Handle *root)
{
    return !root->base && settle_steps(root) < 0 ? -1 : 0;
}

/* Make the node the value of an array that is no view: 1, or 0 if that has not the value `before`
   any more, where one is given; -1 with an error set.  The recording may be evaluated first, and
   meanwhile handlers and other threads write. */
int rebind(Handle *root, PyObject *node, const PyObject *before)
{
    int failed;
    if (before && !held && is_lent_node(root, before)) {
        int kept = keep_lent(root, node, 1);
        if (kept)
            return kept;
        before = NULL; /* it has no node, and was lent until now */
    }
    if (((Node *)node)->buffer) {
        if (before && !held && (settle_own_steps(root) || root->node != before))
            return PyErr_Occurred() ? -1 : 0;
        failed = held ? PyObject_SetAttr((PyObject *)root, node_name, node)
                      : set_node(root, node, NULL);
        return failed ? -1 : 1;
    }
    Recorder *recorder = present_recorder();
    if (!recorder)
        return -1;
    failed = consider(recorder, node) || (!held && settle_own_steps(root));
    int suits = !before || held || root->node == before;
    if (!failed && suits)
        failed = give_pending(recorder, root, node);
    Py_DECREF(recorder);
    return failed ? -1 : suits;
}

static PyObject *record_rebind(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count < 2 || count > 3 || !is_handle(args[0]) || !is_node(args[1])) {
        PyErr_SetString(PyExc_TypeError, "an array and a node are wanted");
        return NULL;
    }
    void *before = count == 3 ? PyLong_AsVoidPtr(args[2]) : NULL; /* its id: nobody holds it */
    int done = PyErr_Occurred() ? -1 : rebind((Handle *)args[0], args[1], before);
    return done < 0 ? NULL : PyBool_FromLong(done);
}

/* A pending node, counted, of this line; its inputs are still to be given. */
Node *record_node(Form *form)
{
    Py_INCREF(form); /* the table that it is from may change */
    Recorder *recorder = present_recorder();
    Node *node = recorder ? new_node(form) : NULL;
    if (node) {
        recorder->count++;
        say_site(node);
    }
    Py_XDECREF(recorder);
    Py_DECREF(form);
    return node;
}

static int any_keeps(PyObject *inputs)
{
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(inputs); k++) {
        PyObject *x = PyTuple_GET_ITEM(inputs, k);
        if (is_node(x) && ((Node *)x)->keeps)
            return 1;
    }
    return 0;
}

/* `record(form, inputs, pending=False)`: the node of one more operation, for the functions in
   Python; as part of something larger it is not computed at once. */
static PyObject *record_record(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count < 2 || count > 3 || Py_TYPE(args[0]) != &FormType || !PyTuple_CheckExact(args[1])) {
        PyErr_SetString(PyExc_TypeError, "a form and its inputs are wanted");
        return NULL;
    }
    Form *form = (Form *)args[0];
    PyObject *inputs = args[1];
    int kept = any_keeps(inputs), pending = count == 3 && args[2] == Py_True;
    const Py_ssize_t most = kept ? Py_MIN(of_nodes(), most_with_history) : of_nodes();
    if (!pending && form->kind->size <= most) {
        PyObject *value = PyObject_CallFunctionObjArgs(compute, form, inputs, NULL);
        if (!value)
            return NULL;
        if (value != Py_None) {
            Node *node = new_node(form);
            if (!node) {
                Py_DECREF(value);
                return NULL;
            }
            node->buffer = value;
            if (kept) {
                node->rest = Py_NewRef(inputs);
                say_site(node);
                inherit(node);
                forget_inputs(node);
            }
            return (PyObject *)node;
        }
        Py_DECREF(value);
    }
    Node *node = record_node(form);
    if (node && PyTuple_GET_SIZE(inputs))
        node->rest = Py_NewRef(inputs);
    if (node)
        inherit(node);
    return (PyObject *)node;
}

/* ---- the module ----------------------------------------------------------------------------- */

static PyMethodDef functions[] = {
    {"wrap", record_wrap, METH_O, "Return a new array whose value is the node."},
    {"rebind", (PyCFunction)(void (*)(void))record_rebind, METH_FASTCALL,
     "Make the node the value of an array that is no view, if that still has the value with this id."},
    {"record", (PyCFunction)(void (*)(void))record_record, METH_FASTCALL,
     "Return the node of one more operation, recorded at the user's line."},
    {NULL}};

int add_values(PyObject *module)
{
    consider_name = PyUnicode_InternFromString("consider");
    node_name = PyUnicode_InternFromString("_node");
    return consider_name && node_name ? PyModule_AddFunctions(module, functions) : -1;
}
