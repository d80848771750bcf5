/* What is called at once, the type AtOnce, and ufuncs of NumPy's: `twin_at_once.py` in Python. */

#include "calls.h"

#include <string.h>

static PyTypeObject AtOnceType, StaticType;

static int is_at_once(PyObject *x)
{
    return Py_TYPE(x) == &AtOnceType || Py_TYPE(x) == &StaticType;
}

static PyObject *at_once_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"target", "fallback", "kind", "size", "most", "attributes", "reduce",
                            "behind", NULL};
    PyObject *target, *fallback, *attributes = NULL, *reduce = NULL, *behind = NULL;
    int kind = 0, size = ANY_SIZE, most = MOST_ARGUMENTS;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "OO|iiiO!OO", names, &target, &fallback, &kind, &size, &most,
            &PyDict_Type, &attributes, &reduce, &behind))
        return NULL;
    if (kind & STATIC)
        type = &StaticType;
    AtOnce *function = (AtOnce *)type->tp_alloc(type, 0);
    if (!function)
        return NULL;
    function->target = Py_NewRef(target);
    function->fallback = Py_NewRef(fallback);
    function->attributes = Py_XNewRef(attributes);
    function->reduce = reduce == Py_None ? NULL : Py_XNewRef(reduce);
    function->behind = behind == Py_None ? NULL : Py_XNewRef(behind);
    function->kind = kind;
    function->size = size;
    function->most = most;
    function->call = at_once_call;
    return (PyObject *)function;
}

static int at_once_traverse(AtOnce *function, visitproc visit, void *arg)
{
    Py_VISIT(function->target);
    Py_VISIT(function->fallback);
    Py_VISIT(function->attributes);
    Py_VISIT(function->reduce);
    Py_VISIT(function->behind);
    return 0;
}

static int at_once_clear(AtOnce *function)
{
    Py_CLEAR(function->target);
    Py_CLEAR(function->fallback);
    Py_CLEAR(function->attributes);
    Py_CLEAR(function->reduce);
    Py_CLEAR(function->behind);
    return 0;
}

static void at_once_dealloc(AtOnce *function)
{
    PyObject_GC_UnTrack(function);
    at_once_clear(function);
    Py_TYPE(function)->tp_free((PyObject *)function);
}

static PyObject *at_once_attribute(PyObject *self, PyObject *name)
{
    AtOnce *function = (AtOnce *)self;
    PyObject *found;
    if (function->attributes && (found = PyDict_GetItemWithError(function->attributes, name)))
        return Py_NewRef(found);
    if (PyErr_Occurred())
        return NULL;
    if (!PyUnicode_CompareWithASCIIString(name, "__class__") ||
        !PyUnicode_CompareWithASCIIString(name, "__call__") ||
        !PyUnicode_CompareWithASCIIString(name, "__get__") ||
        !PyUnicode_CompareWithASCIIString(name, "__reduce_ex__") ||
        !PyUnicode_CompareWithASCIIString(name, "fallback"))
        return PyObject_GenericGetAttr(self, name);
    return PyObject_GetAttr(function->fallback, name);
}

static PyObject *at_once_bind(PyObject *self, PyObject *object, PyObject *type)
{
    return !object || object == Py_None ? Py_NewRef(self) : PyMethod_New(self, object);
}

static PyObject *static_bind(PyObject *self, PyObject *object, PyObject *type)
{
    return Py_NewRef(self);
}

static PyObject *at_once_repr(PyObject *self) { return PyObject_Repr(((AtOnce *)self)->fallback); }

static PyObject *at_once_compare(PyObject *x, PyObject *y, int op)
{
    if (x == y || (op != Py_EQ && op != Py_NE))
        return x == y && op == Py_EQ ? Py_NewRef(Py_True)
               : x == y && op == Py_NE ? Py_NewRef(Py_False) : Py_NewRef(Py_NotImplemented);
    if (!is_at_once(x))
        Py_RETURN_NOTIMPLEMENTED;
    PyObject *other = is_at_once(y) ? ((AtOnce *)y)->fallback : y;
    return PyObject_RichCompare(((AtOnce *)x)->fallback, other, op);
}

static Py_hash_t at_once_hash(PyObject *self) { return PyObject_Hash(((AtOnce *)self)->fallback); }

/* What pickle finds it by: its place in the class of arrays, or in the module of `fallback`. */
static PyObject *at_once_reduce(PyObject *self, PyObject *protocol)
{
    AtOnce *function = (AtOnce *)self;
    if (function->kind & METHOD) {
        PyObject *builtins = PyEval_GetBuiltins(); /* borrowed */
        PyObject *get = builtins ? PyMapping_GetItemString(builtins, "getattr") : NULL;
        return get ? Py_BuildValue("N(OO)", get, handle_class, function->target) : NULL;
    }
    if (PyFunction_Check(function->fallback))
        return PyObject_GetAttrString(function->fallback, "__qualname__");
    return PyObject_CallMethod(function->fallback, "__reduce_ex__", "O", protocol);
}

static PyMethodDef at_once_methods[] = {
    {"__reduce_ex__", at_once_reduce, METH_O, "What pickle finds it by."}, {NULL}};

static PyMemberDef at_once_members[] = {
    {"fallback", T_OBJECT, offsetof(AtOnce, fallback), READONLY, "What does the rest."}, {NULL}};

static PyTypeObject AtOnceType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tiledarray.core._core.AtOnce",
    .tp_doc = "A function of NumPy's, called at once where all arguments are small and settled.",
    .tp_basicsize = sizeof(AtOnce),
    .tp_dealloc = (destructor)at_once_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC |
                Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_vectorcall_offset = offsetof(AtOnce, call),
    .tp_call = PyVectorcall_Call,
    .tp_traverse = (traverseproc)at_once_traverse,
    .tp_clear = (inquiry)at_once_clear,
    .tp_descr_get = at_once_bind,
    .tp_getattro = at_once_attribute,
    .tp_members = at_once_members,
    .tp_methods = at_once_methods,
    .tp_repr = at_once_repr,
    .tp_richcompare = at_once_compare,
    .tp_hash = at_once_hash,
    .tp_new = at_once_new,
};

/* Python calls what has Py_TPFLAGS_METHOD_DESCRIPTOR with the object and does not ask tp_descr_get. */
static PyTypeObject StaticType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tiledarray.core._core.AtOnce",
    .tp_base = &AtOnceType,
    .tp_basicsize = sizeof(AtOnce),
    .tp_dealloc = (destructor)at_once_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC,
    .tp_vectorcall_offset = offsetof(AtOnce, call),
    .tp_call = PyVectorcall_Call,
    .tp_traverse = (traverseproc)at_once_traverse,
    .tp_clear = (inquiry)at_once_clear,
    .tp_descr_get = static_bind,
};

/* Call a ufunc of one to three operands, if all are what NumPy computes with at once: 1 and the
   result (NULL with an error), else 0 (perhaps with an error set). */
int ufunc_at_once(PyObject *ufunc, PyObject *const *args, Py_ssize_t inputs, PyObject **result)
{
    PyObject *values[4], *first = NULL, *memory;
    Py_ssize_t known = 0;
    int fits = 1, spacious = 0, done = 0;
    for (; known < inputs; known++) {
        PyObject *value = operand_or_list(args[known]);
        if (!value)
            break;
        values[known + 1] = value;
        if (PyArray_Check(value)) {
            fits = fits && (!first || fit(first, value));
            spacious |= is_spacious(value);
            first = value;
        }
    }
    if (known == inputs && fits) {
        Arguments arguments;
        begin_arguments(&arguments);
        *result = NULL;
        if (begin_keeping(spacious, &memory))
            *result = call_ufunc(
                ufunc, values + 1, (size_t)inputs | PY_VECTORCALL_ARGUMENTS_OFFSET);
        end_keeping(memory);
        done = *result ? give(*result, &arguments, result) : 1;
    }
    while (known)
        Py_DECREF(values[known--]);
    return done;
}

#define INTO_NUMPYS (1 << 20) /* elements of NumPy's arrays that a ufunc writes at once */

/* The array that an output is, to be written: a new reference; NULL, perhaps with an error set, if
   it is none at once. */
static PyObject *output(PyObject *x)
{
    if (is_array(x))
        return PyArray_SIZE((PyArrayObject *)x) <= INTO_NUMPYS ? Py_NewRef(x) : NULL;
    PyObject *array = is_handle(x) ? Py_XNewRef(settled((Handle *)x)) : NULL;
    if (array && !(is_array(array) && size_of(array) <= limit &&
                   writable((Handle *)x, array) == 1))
        Py_CLEAR(array);
    return array;
}

/* Call a ufunc whose outputs are small, or NumPy's own, of which nothing is recorded, with operands
   that are there: 1 and the result (NULL with an error), else 0 (perhaps with an error set). */
static int ufunc_into(PyObject *ufunc, PyObject *const *args, Py_ssize_t inputs, PyObject *out,
                      PyObject *names, PyObject **result)
{
    PyObject *values[5];
    Handle *written[MOST_ARGUMENTS] = {0};
    Py_ssize_t known = 0;
    const Py_ssize_t count = PyTuple_CheckExact(out) ? PyTuple_GET_SIZE(out) : 0;
    if (held || !count || count > MOST_ARGUMENTS)
        return 0;
    PyObject *arrays = PyTuple_New(count);
    for (Py_ssize_t k = 0; arrays && k < count; k++) {
        PyObject *array = output(PyTuple_GET_ITEM(out, k));
        if (array)
            PyTuple_SET_ITEM(arrays, k, array);
        else
            Py_CLEAR(arrays);
    }
    if (!arrays)
        return 0;
    while (known < inputs && (values[known + 1] = settled_operand(args[known])))
        known++;
    int done = known == inputs;
    if (done) {
        for (Py_ssize_t k = 0; k < count; k++)
            if (is_handle(PyTuple_GET_ITEM(out, k)))
                written[k] = begin_write((Handle *)PyTuple_GET_ITEM(out, k));
        values[known + 1] = arrays; /* borrowed */
        *result = PyObject_Vectorcall(
            ufunc, values + 1, (size_t)inputs | PY_VECTORCALL_ARGUMENTS_OFFSET, names);
        for (Py_ssize_t k = 0; k < count; k++)
            if (written[k])
                end_write(written[k]);
        if (*result)
            Py_SETREF(*result, Py_NewRef(count == 1 ? PyTuple_GET_ITEM(out, 0) : out));
    }
    while (known)
        Py_DECREF(values[known--]);
    Py_DECREF(arrays);
    return done;
}

/* NumPy's ufuncs come here with arrays of ours. */
PyObject *handle_array_ufunc(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                    PyObject *names)
{
    PyObject *result;
    Py_ssize_t inputs = count - 2;
    if (!names && inputs > 0 && inputs < 4 &&
        !PyUnicode_CompareWithASCIIString(args[1], "__call__")) {
        if (ufunc_at_once(args[0], args + 2, inputs, &result))
            return result;
        if (PyErr_Occurred())
            return NULL;
        result = record_ufunc(args[0], args + 2, inputs);
        if (result || PyErr_Occurred())
            return result;
    }
    if (names && PyTuple_GET_SIZE(names) == 1 && inputs > 0 && inputs < 4 &&
        !PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "out") &&
        !PyUnicode_CompareWithASCIIString(args[1], "__call__")) {
        if (ufunc_into(args[0], args + 2, inputs, args[count], names, &result))
            return result;
        if (PyErr_Occurred())
            return NULL;
    }
    PyObject *given[MOST_ARGUMENTS + 1];
    Py_ssize_t total = count + (names ? PyTuple_GET_SIZE(names) : 0);
    if (total > MOST_ARGUMENTS) {
        PyErr_SetString(PyExc_TypeError, "too many arguments for a ufunc");
        return NULL;
    }
    given[0] = self;
    memcpy(given + 1, args, (size_t)total * sizeof *args);
    return PyObject_Vectorcall(recorded[ARRAY_UFUNC], given, (size_t)count + 1, names);
}

static PyObject *numpys_zeros_like, *numpys_zeros, *numpys_empty, *numpys_empty_like;

/* What `numpy.zeros_like` does, which finds out the shape and the dtype in Python. */
static PyObject *zeros_like(PyObject *module, PyObject *const *args, Py_ssize_t count,
                            PyObject *names)
{
    if (count != 1 || names || !is_array(args[0]) ||
        !PyArray_IS_C_CONTIGUOUS((PyArrayObject *)args[0]))
        return PyObject_Vectorcall(numpys_zeros_like, args, (size_t)count, names);
    PyArrayObject *array = (PyArrayObject *)args[0];
    PyArray_Descr *dtype = PyArray_DESCR(array);
    Py_INCREF(dtype);
    return PyArray_Zeros(PyArray_NDIM(array), PyArray_DIMS(array), dtype, 0);
}

/* What is there instead of an array with any content: zeros, but of objects None. */
static PyObject *without_objects(PyObject *zeros, PyObject *numpys, PyObject *const *args,
                                 Py_ssize_t count, PyObject *names)
{
    if (!zeros || !PyArray_Check(zeros) || !PyDataType_REFCHK(PyArray_DESCR((PyArrayObject *)zeros)))
        return zeros;
    Py_DECREF(zeros);
    return PyObject_Vectorcall(numpys, args, (size_t)count, names);
}

static PyObject *empty(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *zeros = PyObject_Vectorcall(numpys_zeros, args, (size_t)count, names);
    return without_objects(zeros, numpys_empty, args, count, names);
}

static PyObject *empty_like(PyObject *module, PyObject *const *args, Py_ssize_t count,
                            PyObject *names)
{
    PyObject *zeros = zeros_like(module, args, count, names);
    return without_objects(zeros, numpys_empty_like, args, count, names);
}

static PyMethodDef functions[] = {
    {"empty", (PyCFunction)(void *)empty, METH_FASTCALL | METH_KEYWORDS,
     "Do what `numpy.empty` does, with zeros."},
    {"empty_like", (PyCFunction)(void *)empty_like, METH_FASTCALL | METH_KEYWORDS,
     "Do what `numpy.empty_like` does, with zeros."},
    {"zeros_like", (PyCFunction)(void *)zeros_like, METH_FASTCALL | METH_KEYWORDS,
     "Do what `numpy.zeros_like` does."},
    {NULL}};

int add_at_once(PyObject *module)
{
    static const struct {
        const char *name;
        int value;
    } kinds[] = {
        {"METHOD", METHOD}, {"WRITES", WRITES}, {"READS", READS}, {"LIBRARY", LIBRARY},
        {"UFUNC", UFUNC}, {"OUTER", OUTER}, {"DRAWS", DRAWS}, {"BOUND", BOUND}, {"LOOKS", LOOKS},
        {"RECORDS", RECORDS}, {"PRODUCT", PRODUCT},
        {"SHARED", SHARED}, {"COSTLY", COSTLY}, {"ALIKE", ALIKE}, {"VIEWS", VIEWS},
        {"STATIC", STATIC},
        {"ANY_SIZE", ANY_SIZE}, {"OF_SHAPE", OF_SHAPE}, {"OF_RANGE", OF_RANGE},
        {"OF_COUNT", OF_COUNT}, {"OF_SQUARE", OF_SQUARE}, {"OF_DATA", OF_DATA}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        if (PyModule_AddIntConstant(module, kinds[k].name, kinds[k].value) < 0)
            return -1;
    PyObject *numpy = PyImport_ImportModule("numpy");
    numpys_zeros_like = numpy ? PyObject_GetAttrString(numpy, "zeros_like") : NULL;
    numpys_zeros = numpy ? PyObject_GetAttrString(numpy, "zeros") : NULL;
    numpys_empty = numpy ? PyObject_GetAttrString(numpy, "empty") : NULL;
    numpys_empty_like = numpy ? PyObject_GetAttrString(numpy, "empty_like") : NULL;
    Py_XDECREF(numpy);
    if (!numpys_zeros_like || !numpys_zeros || !numpys_empty || !numpys_empty_like ||
        PyModule_AddFunctions(module, functions) < 0)
        return -1;
    if (PyType_Ready(&AtOnceType) < 0 || PyType_Ready(&StaticType) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "AtOnce", (PyObject *)&AtOnceType);
}
