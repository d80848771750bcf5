/* Recording what basic indices do: views, what is read through them and what is written.

   Steps are Python's (`arrays/views.py`): one of the type `Affine` is (axes, steps, starts, shape).
   Which step an index makes of an array is asked of Python once for each shape.  Whatever is not
   usual is left to Python; `arrays/recorded.py` and `arrays/handle.py` do the same. */

#include "core.h"

#include <string.h>

/* What Python gives `install_slices`. */
enum { STEP_OF, EXTEND, VIEW_FORM, UPDATE_FORM, FULL_FORM, AFFINE, FOUND };
static const char *const found_names[FOUND] = {
    "step_of", "extend", "view_form", "update_form", "full_form", "affine"};
static PyObject *found[FOUND];

enum { AXES, STEPS, STARTS, SHAPE };
#define is_affine(step) ((PyObject *)Py_TYPE(step) == found[AFFINE] && PyTuple_GET_SIZE(step) == 4)

/* ---- steps that were met before -------------------------------------------------------------- */

#define MOST_WORDS 48
#define MOST_STEPS 4096

/* An index of an array of some shape. */
typedef struct {
    int64_t *words;           /* the shape and the index */
    int count;
    size_t hash;
    PyObject *steps;          /* a tuple with one step; NULL: none of those known here */
} Place;

static Place *places = NULL;  /* a table of open addresses */
static int places_known = 0;
static PyObject *kept_steps;  /* a dict: steps by themselves */

/* An index in words: 1, or 0 if it has something in it that is not usual. */
static int put_item(int64_t *words, int *count, PyObject *item)
{
    if (*count > MOST_WORDS - 5)
        return 0;
    int beyond = 0;
    if (PyLong_CheckExact(item)) {
        words[(*count)++] = 1;
        words[(*count)++] = PyLong_AsLongLongAndOverflow(item, &beyond);
        return !beyond;
    }
    if (item == Py_None || item == Py_Ellipsis) {
        words[(*count)++] = item == Py_None ? 2 : 3;
        return 1;
    }
    if (!PySlice_Check(item))
        return 0;
    PySliceObject *slice = (PySliceObject *)item;
    PyObject *bounds[3] = {slice->start, slice->stop, slice->step};
    int64_t *known = words + (*count)++;
    *known = 4;
    for (int k = 0; k < 3; k++) {
        if (bounds[k] == Py_None)
            continue;
        if (!PyLong_CheckExact(bounds[k]))
            return 0;
        *known |= 8 << k;
        words[(*count)++] = PyLong_AsLongLongAndOverflow(bounds[k], &beyond);
        if (beyond)
            return 0;
    }
    return 1;
}

static int put_index(int64_t *words, int *count, PyObject *key)
{
    if (!PyTuple_CheckExact(key))
        return put_item(words, count, key);
    words[(*count)++] = 5;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(key); k++)
        if (!put_item(words, count, PyTuple_GET_ITEM(key, k)))
            return 0;
    return 1;
}

static int put_shape(int64_t *words, int *count, PyObject *shape)
{
    Py_ssize_t ndim = PyTuple_GET_SIZE(shape);
    if (ndim > MOST_WORDS / 4)
        return 0;
    words[(*count)++] = ndim;
    for (Py_ssize_t k = 0; k < ndim; k++)
        words[(*count)++] = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, k));
    return 1;
}

static Place *place_of(const int64_t *words, int count, size_t hash)
{
    const size_t mask = 2 * MOST_STEPS - 1;
    for (size_t at = hash;; at++) {
        Place *place = places + (at & mask);
        if (!place->words || (place->hash == hash && place->count == count &&
                              !memcmp(place->words, words, (size_t)count * sizeof *words)))
            return place;
    }
}

static void drop_places(void)
{
    Place *old = places;
    places = NULL;
    places_known = 0;
    for (int k = 0; old && k < 2 * MOST_STEPS; k++) {
        PyMem_Free(old[k].words);
        Py_XDECREF(old[k].steps);
    }
    PyMem_Free(old);
}

/* Keep steps in their place; -1 with an error set. */
static int remember(const int64_t *words, int count, size_t hash, PyObject *steps)
{
    if (places_known >= MOST_STEPS)
        drop_places();
    if (!places && !(places = PyMem_Calloc(2 * MOST_STEPS, sizeof(Place)))) {
        PyErr_NoMemory();
        return -1;
    }
    Place *place = place_of(words, count, hash);
    if (place->words)
        return 0; /* another thread has asked meanwhile */
    int64_t *own = PyMem_Malloc((size_t)count * sizeof *own);
    if (!own) {
        PyErr_NoMemory();
        return -1;
    }
    memcpy(own, words, (size_t)count * sizeof *own);
    *place = (Place){own, count, hash, Py_XNewRef(steps)};
    places_known++;
    return 0;
}

/* Ask Python which step an index is; a tuple of it, NULL without an error for something else. */
static PyObject *ask_for_steps(const int64_t *words, int count, size_t hash, PyObject *key)
{
    PyObject *shape = PyTuple_New(words[0]), *steps = NULL;
    for (int64_t k = 0; shape && k < words[0]; k++) {
        PyObject *length = PyLong_FromLongLong(words[1 + k]);
        if (!length)
            Py_CLEAR(shape);
        else
            PyTuple_SET_ITEM(shape, k, length);
    }
    PyObject *step = shape ? PyObject_CallFunctionObjArgs(found[STEP_OF], key, shape, NULL) : NULL;
    Py_XDECREF(shape);
    if (!step)
        return NULL;
    if (is_affine(step))
        steps = PyTuple_Pack(1, step);
    Py_DECREF(step);
    if (!PyErr_Occurred() && remember(words, count, hash, steps))
        Py_CLEAR(steps);
    return steps;
}

/* The step that an index makes of an array of the shape that the words begin with, in a tuple: a
   new reference, NULL without an error if that is not known here. */
static PyObject *find_steps(int64_t *words, int count, PyObject *key)
{
    if (!found[AFFINE] || !put_index(words, &count, key))
        return NULL;
    uint64_t hash = 0x9e3779b97f4a7c15ULL;
    for (int k = 0; k < count; k++) {
        hash = (hash ^ (uint64_t)words[k]) * 0xff51afd7ed558ccdULL;
        hash ^= hash >> 32;
    }
    Place *place = places ? place_of(words, count, (size_t)hash) : NULL;
    if (place && place->words)
        return Py_XNewRef(place->steps);
    return ask_for_steps(words, count, (size_t)hash, key);
}

static PyObject *steps_of_index(const Kind *kind, PyObject *key)
{
    int64_t words[MOST_WORDS + 8];
    int count = 0;
    return put_shape(words, &count, kind->shape) ? find_steps(words, count, key) : NULL;
}

/* The steps of a view that is taken of an array by an index: a new reference, NULL without an error
   if Python has to find them. */
static PyObject *extended(Handle *parent, PyObject *steps)
{
    if (!parent->base)
        return Py_NewRef(steps);
    PyObject *before = steps_of(parent);
    if (!before)
        return NULL;
    Py_INCREF(before);
    PyObject *after = PyObject_CallFunctionObjArgs(
        found[EXTEND], before, PyTuple_GET_ITEM(steps, 0), NULL);
    Py_DECREF(before);
    return after;
}

PyObject *steps_by_index(Handle *parent, const Py_ssize_t *shape, int ndim, PyObject *key)
{
    int64_t words[MOST_WORDS + 8];
    int count = 0;
    if (ndim > MOST_WORDS / 4)
        return NULL;
    words[count++] = ndim;
    for (int k = 0; k < ndim; k++)
        words[count++] = shape[k];
    PyObject *steps = find_steps(words, count, key);
    PyObject *after = steps ? extended(parent, steps) : NULL;
    Py_XDECREF(steps);
    return after;
}

/* The same step for all that are equal, a new reference: forms are remembered by its identity. */
static PyObject *one_of_its_kind(PyObject *step)
{
    if (PyDict_GET_SIZE(kept_steps) >= MOST_STEPS)
        PyDict_Clear(kept_steps);
    return Py_XNewRef(PyDict_SetDefault(kept_steps, step, step));
}

/* The form of reading or writing through a step what is of a kind; NULL if Python has to see to it.
   1, or -1 with an error set. */
static int form_of_step(int which, PyObject *step, Kind *kind, Form **form)
{
    if (known_form(found[which], step, (PyObject *)kind, form))
        return 1;
    PyObject *known = one_of_its_kind(step);
    int done = known ? find_form(found[which], known, (PyObject *)kind, found[which], form) : -1;
    Py_XDECREF(known);
    return done;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* The node of what a step gives; NULL without an error if Python has to record it. */
static Node *read_step(Node *node, PyObject *step)
{
    Form *form;
    if (!is_affine(step) || form_of_step(VIEW_FORM, step, node->form->kind, &form) < 0)
        return NULL;
    if (!form)
        return NULL;
    Py_INCREF(form); /* the table that it is from may change */
    Node *view = must_record(form, node, NULL) ? record_node(form) : NULL;
    Py_DECREF(form);
    if (view) {
        view->left = Py_NewRef((PyObject *)node);
        PyObject *starts = PyTuple_GET_ITEM(step, STARTS);
        if (PyTuple_GET_SIZE(starts))
            view->rest = Py_NewRef(starts);
        inherit(view);
    }
    return view;
}

/* What a view reads now; see `Handle.node`. */
Node *view_node(Handle *view)
{
    Handle *root = (Handle *)Py_NewRef((PyObject *)root_of(view));
    Node *base = present_node(root);
    Py_DECREF(root);
    if (!base)
        return NULL;
    PyObject *seen = view->seen;
    if (seen && PyTuple_CheckExact(seen) && PyTuple_GET_ITEM(seen, 0) == (PyObject *)base) {
        PyObject *node = PyTuple_GET_ITEM(seen, 1);
        Py_DECREF(base); /* `seen` has it, and the root */
        return is_node(node) ? (Node *)Py_NewRef(node) : NULL;
    }
    PyObject *steps = Py_XNewRef(found[AFFINE] ? steps_of(view) : NULL);
    Node *node = steps ? (Node *)Py_NewRef((PyObject *)base) : NULL;
    for (Py_ssize_t k = 0; node && k < PyTuple_GET_SIZE(steps); k++) {
        Node *next = read_step(node, PyTuple_GET_ITEM(steps, k));
        Py_DECREF(node);
        node = next;
    }
    Py_XDECREF(steps);
    seen = node ? PyTuple_Pack(2, base, node) : NULL;
    Py_DECREF(base);
    if (!seen || note_reader(view)) {
        Py_XDECREF(seen);
        Py_XDECREF(node);
        return NULL;
    }
    Py_XSETREF(view->seen, seen);
    return node;
}

PyObject *record_getitem(Handle *handle, PyObject *key)
{
    if (held || !found[AFFINE])
        return NULL;
    Node *node = present_node(handle);
    if (!node)
        return NULL;
    PyObject *steps = PyTuple_GET_SIZE(node->form->kind->shape)
                          ? steps_of_index(node->form->kind, key) : NULL;
    Py_DECREF(node);
    if (!steps)
        return NULL;
    PyObject *step = PyTuple_GET_ITEM(steps, 0);
    int is_element = !PyTuple_GET_SIZE(PyTuple_GET_ITEM(step, SHAPE));
    PyObject *after = is_element ? NULL : extended(handle, steps);
    Py_DECREF(steps);
    if (!after)
        return NULL;
    Handle *view = new_handle();
    if (view) {
        begin_view(view, root_of(handle));
        view->steps = after;
    } else
        Py_DECREF(after);
    return (PyObject *)view;
}

/* ---- writing -------------------------------------------------------------------------------- */

/* Write a value of the view's kind, or one number, through a step into a part of an array: 1, 0 if
   Python has to do it, -1 with an error set. */
static int write_step(Handle *root, PyObject *step, Node *value)
{
    Node *old = present_node(root);
    Form *form = NULL;
    int done = 0;
    if (!old)
        return PyErr_Occurred() ? -1 : 0;
    if (!PyTuple_GET_SIZE(old->form->kind->shape)) { /* Python says that it stays an array */
        Py_DECREF(old);
        return 0;
    }
    if (form_of_step(UPDATE_FORM, step, old->form->kind, &form) < 0)
        done = -1;
    Py_XINCREF(form); /* the table that it is from may change */
    if (form && value->form->kind->device == old->form->kind->device &&
             (value->form->kind->size > of_nodes() || !(done = note_small())) &&
             must_record(form, old, value)) {
        Node *node = record_node(form);
        if (node) {
            node->left = Py_NewRef((PyObject *)old);
            node->right = Py_NewRef((PyObject *)value);
            node->rest = Py_NewRef(PyTuple_GET_ITEM(step, STARTS));
            inherit(node);
            done = rebind(root, (PyObject *)node, (PyObject *)old);
            Py_DECREF(node);
        }
    }
    Py_XDECREF(form);
    Py_XDECREF(old);
    return PyErr_Occurred() ? -1 : done;
}

/* Write what has been computed of a view back to it; as `write_step`. */
int write_view(Handle *view, Node *value)
{
    PyObject *steps = steps_of(view);
    if (!steps)
        return -1;
    if (PyTuple_GET_SIZE(steps) != 1 || !is_affine(PyTuple_GET_ITEM(steps, 0)))
        return 0;
    PyObject *step = Py_NewRef(PyTuple_GET_ITEM(steps, 0));
    int alike = PyObject_RichCompareBool(
        PyTuple_GET_ITEM(step, SHAPE), value->form->kind->shape, Py_EQ);
    if (alike != 1) { /* another thread has given it another shape */
        Py_DECREF(step);
        return alike;
    }
    Handle *root = (Handle *)Py_NewRef((PyObject *)root_of(view));
    Py_CLEAR(view->seen); /* what it last read would be a reader of the old value */
    int done = write_step(root, step, value);
    Py_DECREF(root);
    Py_DECREF(step);
    return done;
}

/* The node of one number beside, or to be written into, an array of float64; NULL as
   `present_node`. */
Node *number_node(const Kind *kind, PyObject *number)
{
    Form *form;
    if (!found[FULL_FORM])
        return NULL;
    if (find_form(found[FULL_FORM], (PyObject *)kind, Py_None, found[FULL_FORM], &form) < 0 ||
        !form)
        return NULL;
    double of = PyFloat_AsDouble(number);
    PyObject *value = of == -1.0 && PyErr_Occurred() ? NULL : PyFloat_FromDouble(of);
    if (!value) {
        if (PyErr_ExceptionMatches(PyExc_OverflowError))
            PyErr_Clear(); /* Python tells it in NumPy's words */
        return NULL;
    }
    Node *node = record_node(form);
    if (node)
        node->left = value;
    else
        Py_DECREF(value);
    return node;
}

/* `x[key] = value`: as `write_step`. */
int record_setitem(Handle *handle, PyObject *key, PyObject *value)
{
    if (held || !found[AFFINE] || handle->base)
        return 0;
    Node *old = present_node(handle), *new = NULL;
    if (!old)
        return PyErr_Occurred() ? -1 : 0;
    Kind *kind = (Kind *)Py_NewRef((PyObject *)old->form->kind);
    Py_DECREF(old); /* who holds the value itself while it is written makes it a copy */
    PyObject *steps = PyTuple_GET_SIZE(kind->shape) ? steps_of_index(kind, key) : NULL;
    PyObject *step = steps ? PyTuple_GET_ITEM(steps, 0) : NULL;
    Form *form = NULL;
    int done = 0;
    if (!step || !PyTuple_GET_SIZE(PyTuple_GET_ITEM(step, SHAPE)))
        goto leave;
    if (is_handle(value)) {
        Handle *given = (Handle *)value;
        if (given->base && root_of(given) == handle) {
            PyObject *its = steps_of(given);
            if (!its || (PyTuple_GET_SIZE(its) == 1 && PyTuple_GET_ITEM(its, 0) == step)) {
                done = its ? 1 : -1; /* the second half of `a[key] += b`: written already */
                goto leave;
            }
        }
        if (form_of_step(VIEW_FORM, step, kind, &form) < 0)
            goto leave;
        PyObject *wanted = form ? Py_NewRef((PyObject *)form->kind) : NULL;
        new = wanted ? present_node(given) : NULL;
        if (new && (PyObject *)new->form->kind != wanted)
            Py_CLEAR(new);
        Py_XDECREF(wanted);
    } else if (PyFloat_CheckExact(value) || PyLong_CheckExact(value))
        new = number_node(kind, value);
    if (new)
        done = write_step(handle, step, new);
leave:
    Py_XDECREF(new);
    Py_XDECREF(steps);
    Py_DECREF(kind);
    return PyErr_Occurred() ? -1 : done;
}

/* ---- the module ----------------------------------------------------------------------------- */

static PyObject *install_slices(PyObject *module, PyObject *given)
{
    for (int k = 0; k < FOUND; k++) {
        PyObject *value = PyDict_Check(given) ? PyDict_GetItemString(given, found_names[k]) : NULL;
        if (!value) {
            PyErr_SetString(PyExc_KeyError, found_names[k]);
            return NULL;
        }
        Py_XSETREF(found[k], Py_NewRef(value));
    }
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"install_slices", install_slices, METH_O, "Say what Python does of views."}, {NULL}};

int add_slices(PyObject *module)
{
    kept_steps = PyDict_New();
    return kept_steps ? PyModule_AddFunctions(module, functions) : -1;
}
