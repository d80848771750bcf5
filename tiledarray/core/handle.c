/* The type of handles, and their attributes: the class in `twin.py`, the rest of `twin_state.py`.

   Whatever cannot be done at once is handed to Python: the functions in `recorded`, and the
   callbacks.  What is changed here is changed in the twin. */

#include "handle.h"

PyObject *recorded[OTHERS];
PyObject *no_steps;
static PyObject *how_transposed, *as_numpys, *name_name;

/* ---- what the recording in Python sees ------------------------------------------------------ */

PyObject *get_node(Handle *handle, void *unused)
{
    if (handle->writers)
        wait_for_writers(handle);
    if (handle->node)
        return Py_NewRef(handle->node);
    if (is_deferred(handle)) {
        PyObject *done = PyObject_CallOneArg(callbacks[RESOLVE], (PyObject *)handle);
        Py_XDECREF(done);
        if (!done || handle->node)
            return done ? Py_NewRef(handle->node) : NULL;
    }
    if (handle->base || !handle->array) {
        PyErr_SetString(PyExc_AttributeError, "_node");
        return NULL;
    }
    begin_change(); /* two nodes of one memory would each take it for theirs alone */
    PyObject *node = Py_XNewRef(handle->node);
    PyObject *array = node ? NULL : Py_XNewRef(handle->array);
    if (array && handle->loan) {
        node = lent_node(handle);
        Py_DECREF(array);
    } else if (array) {
        int small = size_of(array) <= of_nodes();
        node = PyObject_CallFunction(callbacks[LEAF], "Oi", array, small);
        if (node && !handle->node && handle->array == array) {
            handle->node = Py_NewRef(node);
            handle->copied = (char)(small || !is_node(node) || !((Node *)node)->buffer);
        } else if (node && handle->node) /* a loan has ended: each would take the memory for its own */
            Py_SETREF(node, Py_NewRef(handle->node));
        Py_DECREF(array); /* not before: another could have its address */
    }
    end_change();
    if (!node && !PyErr_Occurred()) /* another thread is about to give it the next value */
        PyErr_SetString(PyExc_AttributeError, "_node");
    return node;
}

int set_node(Handle *handle, PyObject *node, void *unused)
{
    if (!handle->base) {
        int kept = handle->loan && node ? keep_lent(handle, node, 0) : 0;
        if (kept)
            return kept < 0 ? -1 : 0;
        if (settle_steps(handle))
            return -1;
        drop_arrays(handle);
    }
    handle->copied = 0;
    PyObject *old = handle->node;
    handle->node = Py_XNewRef(node);
    Py_XDECREF(old);
    return 0;
}

static PyObject *get_recorded(Handle *handle, void *unused)
{
    PyObject *node = handle->copied ? NULL : handle->node;
    return Py_NewRef(node ? node : Py_None);
}

static PyObject *get_base(Handle *handle, void *unused)
{
    return Py_NewRef(handle->base ? (PyObject *)handle->base : Py_None);
}

static int set_base(Handle *handle, PyObject *base, void *unused)
{
    if (base == Py_None)
        base = NULL;
    if (base && !is_handle(base)) {
        PyErr_SetString(PyExc_TypeError, "the base of a view is an array");
        return -1;
    }
    if (!handle->base) {
        if (settle_steps(handle))
            return -1;
        drop_arrays(handle);
        if (base) {
            handle->copied = 0;
            Py_CLEAR(handle->node);
        }
    } else if (root_of(handle->base) != (base ? root_of((Handle *)base) : NULL)) {
        unlink_view(handle);
        Py_CLEAR(handle->array);
    }
    Handle *old = handle->base;
    handle->base = (Handle *)Py_XNewRef(base);
    if (base)
        handle->base->parts++;
    if (old)
        old->parts--;
    Py_XDECREF((PyObject *)old);
    return 0;
}

static PyObject *get_steps(Handle *handle, void *unused)
{
    if (!handle->base)
        return Py_NewRef(no_steps);
    return Py_XNewRef(steps_of(handle));
}

static int set_steps(Handle *handle, PyObject *steps, void *unused)
{
    if (handle->array && handle->base) { /* other views may be of this one */
        if (settle_steps(root_of(handle)))
            return -1;
        unlink_view(handle);
        Py_CLEAR(handle->array);
    }
    PyObject *old = handle->steps;
    handle->steps = Py_XNewRef(steps);
    Py_XDECREF(old);
    return 0;
}

static PyObject *get_seen(Handle *handle, void *unused)
{
    return Py_NewRef(handle->seen ? handle->seen : Py_None);
}

static int set_seen(Handle *handle, PyObject *seen, void *unused)
{
    PyObject *old = handle->seen;
    handle->seen = seen == Py_None ? NULL : Py_XNewRef(seen);
    Py_XDECREF(old);
    return 0;
}

static PyObject *get_array(Handle *handle, void *unused)
{
    PyObject *array = settled(handle);
    if (!array && PyErr_Occurred())
        return NULL;
    return Py_NewRef(array ? array : Py_None);
}

static PyObject *get_viewed(Handle *handle, void *unused)
{
    return PyBool_FromLong(handle->parts > 0);
}

/* Attributes that NumPy's arrays have. */

#define SETTLED_OR(handle, fallback) \
    PyObject *array = settled(handle); \
    if (!array) \
        return PyErr_Occurred() ? NULL : PyObject_CallOneArg(fallback, (PyObject *)handle)

static PyObject *get_shape(Handle *handle, void *unused)
{
    SETTLED_OR(handle, recorded[SHAPE]);
    if (!PyArray_Check(array))
        return PyTuple_New(0);
    int ndim = PyArray_NDIM((PyArrayObject *)array);
    PyObject *shape = PyTuple_New(ndim);
    for (int k = 0; shape && k < ndim; k++) {
        PyObject *length = PyLong_FromSsize_t(PyArray_DIM((PyArrayObject *)array, k));
        if (!length)
            Py_CLEAR(shape);
        else
            PyTuple_SET_ITEM(shape, k, length);
    }
    return shape;
}

/* Assign an attribute by what Python does for it; NULL, to delete it, is refused as NumPy does. */
static int assigned(Handle *handle, PyObject *value, PyObject *assign, const char *name)
{
    if (!value) {
        PyErr_Format(PyExc_AttributeError, "Cannot delete array %s", name);
        return -1;
    }
    PyObject *done = PyObject_CallFunctionObjArgs(assign, handle, value, NULL);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

static int set_shape(Handle *handle, PyObject *shape, void *unused)
{
    return assigned(handle, shape, recorded[ASSIGN_SHAPE], "shape");
}

static int set_dtype(Handle *handle, PyObject *dtype, void *unused)
{
    return assigned(handle, dtype, recorded[ASSIGN_DTYPE], "dtype");
}

static PyObject *get_ndim(Handle *handle, void *unused)
{
    SETTLED_OR(handle, recorded[NDIM]);
    return PyLong_FromLong(PyArray_Check(array) ? PyArray_NDIM((PyArrayObject *)array) : 0);
}

static PyObject *get_size(Handle *handle, void *unused)
{
    SETTLED_OR(handle, recorded[SIZE]);
    return PyLong_FromSsize_t(size_of(array));
}

static PyObject *get_dtype(Handle *handle, void *unused)
{
    SETTLED_OR(handle, recorded[DTYPE]);
    if (PyArray_Check(array))
        return Py_NewRef((PyObject *)PyArray_DESCR((PyArrayObject *)array));
    return (PyObject *)PyArray_DescrFromScalar(array);
}

static PyObject *get_transposed(Handle *handle, void *unused)
{
    SETTLED_OR(handle, recorded[T]);
    if (!PyArray_Check(array))
        return PyObject_CallOneArg(recorded[T], (PyObject *)handle);
    Py_INCREF(array);
    PyObject *view = PyArray_Transpose((PyArrayObject *)array, NULL);
    PyObject *result = view ? take_view(handle, array, view, 0, how_transposed) : NULL;
    Py_DECREF(array);
    return result;
}

/* What `isinstance` asks: the class, but NumPy's for packages that ask it of what they could work
   with (`arrays/tiledarray.py` names them). */
static PyObject *get_class(Handle *handle, void *unused)
{
    PyFrameObject *frame = as_numpys ? PyEval_GetFrame() : NULL;
    PyObject *globals = frame ? PyFrame_GetGlobals(frame) : NULL;
    PyObject *name = globals && PyDict_CheckExact(globals)
                         ? PyDict_GetItemWithError(globals, name_name) : NULL;
    int passes = 0;
    if (name && PyUnicode_Check(name)) {
        Py_ssize_t end = PyUnicode_FindChar(name, '.', 0, PyUnicode_GET_LENGTH(name), 1);
        PyObject *package = end < 0 ? Py_NewRef(name) : PyUnicode_Substring(name, 0, end);
        passes = package ? PySet_Contains(as_numpys, package) : -1;
        Py_XDECREF(package);
    }
    Py_XDECREF(globals);
    if (passes < 0 || PyErr_Occurred())
        return NULL;
    return Py_NewRef(passes ? (PyObject *)&PyArray_Type : (PyObject *)Py_TYPE(handle));
}

PyGetSetDef handle_attributes[] = {
    {"__class__", (getter)get_class, NULL, "The class; NumPy's, for packages that ask for that."},
    {"_node", (getter)get_node, (setter)set_node, "The recorded value of an array of its own."},
    {"_recorded", (getter)get_recorded, NULL, "The same; None while it is settled."},
    {"_base", (getter)get_base, (setter)set_base, "What a view is a view of, else None."},
    {"_steps", (getter)get_steps, (setter)set_steps, "The steps from there to the view."},
    {"_seen", (getter)get_seen, (setter)set_seen, "What a view last read."},
    {"_array", (getter)get_array, NULL, "The settled value, else None."},
    {"_viewed", (getter)get_viewed, NULL, "Whether an array has live views."},
    {"shape", (getter)get_shape, (setter)set_shape,
     "Lengths of the axes.  Assigning reshapes in place where that needs no copy."},
    {"ndim", (getter)get_ndim, NULL, "Number of axes."},
    {"size", (getter)get_size, NULL, "Number of elements."},
    {"dtype", (getter)get_dtype, (setter)set_dtype,
     "Data type of the elements.  Assigning reads the same memory as another one."},
    {"T", (getter)get_transposed, NULL, "View with the axes in reverse order."},
    {NULL}};

/* ---- the type ------------------------------------------------------------------------------- */

/* Refuse: the core makes handles without it. */
static int handle_init(PyObject *self, PyObject *args, PyObject *names)
{
    PyErr_Format(PyExc_TypeError,
                 "%s is not called: arrays are made by ndarray(shape), zeros, asarray and the "
                 "other functions", Py_TYPE(self)->tp_name);
    return -1;
}

/* Give the buffer of the settled value, or what Python finds. */
static int handle_buffer(PyObject *self, Py_buffer *view, int flags)
{
    Handle *handle = (Handle *)self;
    view->obj = NULL;
    if (flags == PyBUF_FULL_RO) {
        /* As `lending.buffer` says, but sooner: NumPy asks so each time, before `__array__`. */
        PyErr_SetString(PyExc_TypeError, "memoryview() and bytearray() want x.data, or "
                                         "numpy.asarray(x): the array's own memory");
        return -1;
    }
    PyObject *array = settled(handle), *given = NULL;
    if (array && is_array(array))
        given = lend(handle, (flags & (PyBUF_WRITABLE | PyBUF_FORMAT)) == PyBUF_WRITABLE);
    if (!given && !PyErr_Occurred())
        given = PyObject_CallFunction(recorded[BUFFER], "Oi", self, flags);
    int result = given ? PyObject_GetBuffer(given, view, flags) : -1;
    Py_XDECREF(given);
    return result;
}

static PyBufferProcs handle_as_buffer = {.bf_getbuffer = handle_buffer};

static PyMethodDef handle_methods[] = {
    {"__array_ufunc__", (PyCFunction)(void (*)(void))handle_array_ufunc,
     METH_FASTCALL | METH_KEYWORDS, "Apply one of NumPy's ufuncs."},
    {NULL}};

PyTypeObject HandleType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tiledarray.core._core.Base",
    .tp_doc = "An array's handle: settled, or recorded.",
    .tp_basicsize = sizeof(Handle),
    .tp_dealloc = handle_dealloc,
    .tp_alloc = handle_alloc,
    .tp_new = PyType_GenericNew,
    .tp_init = handle_init,
    .tp_free = PyObject_Free,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_as_number = &handle_as_number,
    .tp_as_mapping = &handle_as_mapping,
    .tp_as_sequence = &handle_as_sequence,
    .tp_as_buffer = &handle_as_buffer,
    .tp_richcompare = handle_compare,
    .tp_hash = handle_hash,
    .tp_iter = handle_iter,
    .tp_getset = handle_attributes,
    .tp_methods = handle_methods,
    .tp_weaklistoffset = offsetof(Handle, weak),
};

/* ---- what Python tells ---------------------------------------------------------------------- */

static const char *const other_names[OTHERS] = {
    "__neg__", "__pos__", "__abs__", "__invert__", "__float__", "__int__", "__index__", "__bool__",
    "__hash__", "__len__", "__iter__", "__getitem__", "__setitem__", "assign_shape",
    "assign_dtype", "shape", "ndim", "size", "dtype", "T", "__array_ufunc__",
    "buffer"};
static const char *const callback_names[CALLBACKS] = {
    "leaf", "value", "made", "look", "steps_of", "view_on", "hold_of", "alone", "is_outside",
    "resolve", "copied", "give"};

int set_from(PyObject *found, const char *name, PyObject **slot)
{
    PyObject *value = PyDict_GetItemString(found, name);
    if (!value) {
        PyErr_Format(PyExc_KeyError, "%s", name);
        return -1;
    }
    Py_XSETREF(*slot, Py_NewRef(value));
    return 0;
}

int install_handles(PyTypeObject *type, PyObject *functions, PyObject *how)
{
    for (int k = 0; k < OTHERS; k++)
        if (set_from(functions, other_names[k], &recorded[k]))
            return -1;
    for (int k = 0; k < CALLBACKS; k++)
        if (set_from(functions, callback_names[k], &callbacks[k]))
            return -1;
    if (set_from(how, "transposed", &how_transposed) || set_from(how, "as_numpys", &as_numpys))
        return -1;
    if (type->tp_basicsize != sizeof(Handle)) {
        PyErr_SetString(PyExc_TypeError, "the class of arrays has slots of its own");
        return -1;
    }
    handle_class = (PyTypeObject *)Py_NewRef((PyObject *)type);
    /* A class made by Python takes part in garbage collection.  Handles refer to arrays, nodes and
       handles that are older, so they are in no cycles, and are as cheap as NumPy's arrays. */
    handle_class->tp_flags &= ~Py_TPFLAGS_HAVE_GC;
    handle_class->tp_alloc = handle_alloc;
    handle_class->tp_free = PyObject_Free;
    handle_class->tp_dealloc = handle_dealloc;
    handle_class->tp_traverse = NULL;
    handle_class->tp_clear = NULL;
    PyType_Modified(handle_class);
    return 0;
}

int add_handles(PyObject *module)
{
    no_steps = PyTuple_New(0);
    name_name = PyUnicode_InternFromString("__name__");
    if (!no_steps || !name_name || PyType_Ready(&HandleType) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "Base", (PyObject *)&HandleType);
}
