/* Elements of arrays, and arrays as sequences: what NumPy does, and the end of `twin_index.py` in
   Python. */

#include "handle.h"

/* ---- an element, sooner than NumPy finds it ------------------------------------------------- */

/* An index that names a place on an axis, Python's int, NumPy's or ours; `NPY_MIN_INTP` for NumPy to
   take. */
static inline npy_intp place_on_axis(PyObject *item)
{
    if (PyLong_CheckExact(item)) {
        int overflow;
        const long long k = PyLong_AsLongLongAndOverflow(item, &overflow);
        return !overflow && k >= NPY_MIN_INTP && k <= NPY_MAX_INTP ? (npy_intp)k : NPY_MIN_INTP;
    }
    if (is_handle(item) && !((Handle *)item)->base && ((Handle *)item)->array)
        item = ((Handle *)item)->array; /* of a scalar it is one */
    return Py_IS_TYPE(item, &PyInt64ArrType_Type) ? (npy_intp)PyArrayScalar_VAL(item, Int64)
                                                  : NPY_MIN_INTP;
}

/* Where the element lies that an index of ints names; NULL for NumPy to find it. */
static char *place_of_element(PyArrayObject *array, PyObject *key)
{
    const int is_tuple = PyTuple_CheckExact(key), ndim = PyArray_NDIM(array);
    if ((is_tuple ? PyTuple_GET_SIZE(key) : 1) != ndim || !PyArray_ISBEHAVED_RO(array))
        return NULL;
    char *place = PyArray_BYTES(array);
    for (int axis = 0; axis < ndim; axis++) {
        PyObject *item = is_tuple ? PyTuple_GET_ITEM(key, axis) : key;
        npy_intp k = place_on_axis(item);
        const npy_intp length = PyArray_DIM(array, axis);
        k += k < 0 ? length : 0;
        if (k < 0 || k >= length)
            return NULL;
        place += k * PyArray_STRIDE(array, axis);
    }
    return place;
}

/* The number or truth value that an index names, as NumPy's scalar; NULL, perhaps with an error
   set, for NumPy to read. */
PyObject *read_element(PyObject *array, PyObject *key)
{
    const int type = PyArray_TYPE((PyArrayObject *)array);
    char *place = PyTypeNum_ISNUMBER(type) || PyTypeNum_ISBOOL(type)
                      ? place_of_element((PyArrayObject *)array, key) : NULL;
    if (!place)
        return NULL;
    if (type != NPY_DOUBLE && type != NPY_INT64)
        return PyArray_ToScalar(place, (PyArrayObject *)array);
    PyObject *made = type == NPY_DOUBLE ? PyArrayScalar_New(Double) : PyArrayScalar_New(Int64);
    if (made && type == NPY_DOUBLE)
        PyArrayScalar_ASSIGN(made, Double, *(const npy_double *)place);
    else if (made)
        PyArrayScalar_ASSIGN(made, Int64, *(const npy_int64 *)place);
    return made;
}

/* Write a number of the array's dtype, or one of Python's, where an index names an element: 1 done,
   0 for NumPy to write, -1 with an error set. */
int write_element(Handle *handle, PyObject *array, PyObject *key, PyObject *value)
{
    const int type = PyArray_TYPE((PyArrayObject *)array);
    npy_double real = 0;
    npy_int64 whole = 0;
    if (is_handle(value) && !(value = ((Handle *)value)->array))
        return 0;
    if (type == NPY_DOUBLE && Py_IS_TYPE(value, &PyDoubleArrType_Type))
        real = PyArrayScalar_VAL(value, Double);
    else if (type == NPY_DOUBLE && PyFloat_CheckExact(value))
        real = PyFloat_AS_DOUBLE(value);
    else if (type == NPY_INT64 && Py_IS_TYPE(value, &PyInt64ArrType_Type))
        whole = PyArrayScalar_VAL(value, Int64);
    else if (type == NPY_INT64 && PyLong_CheckExact(value)) {
        int overflow;
        whole = PyLong_AsLongLongAndOverflow(value, &overflow);
        if (overflow)
            return 0;
    } else
        return 0;
    char *place = place_of_element((PyArrayObject *)array, key);
    if (!place)
        return 0;
    if (PyArray_FailUnlessWriteable((PyArrayObject *)array, "assignment destination"))
        return -1;
    const int may = writable(handle, array);
    if (may != 1)
        return may;
    if (type == NPY_DOUBLE)
        *(npy_double *)place = real;
    else
        *(npy_int64 *)place = whole;
    return 1;
}

/* ---- sequences ------------------------------------------------------------------------------ */

Py_ssize_t handle_length(PyObject *self)
{
    PyObject *array = settled((Handle *)self);
    if (array && PyArray_Check(array) && PyArray_NDIM((PyArrayObject *)array))
        return PyArray_DIM((PyArrayObject *)array, 0);
    PyObject *result = PyErr_Occurred() ? NULL : PyObject_CallOneArg(recorded[LEN], self);
    if (!result)
        return -1;
    Py_ssize_t length = PyLong_AsSsize_t(result);
    Py_DECREF(result);
    return length;
}

static PyObject *handle_item(PyObject *self, Py_ssize_t place)
{
    PyObject *key = PyLong_FromSsize_t(place);
    if (!key)
        return NULL;
    PyObject *result = handle_getitem(self, key);
    Py_DECREF(key);
    return result;
}

PyMappingMethods handle_as_mapping = {
    .mp_length = handle_length, .mp_subscript = handle_getitem, .mp_ass_subscript = handle_setitem};
PySequenceMethods handle_as_sequence = {.sq_length = handle_length, .sq_item = handle_item};

/* The elements of an array with one axis, as NumPy's scalars, and the rows of others; each is what
   it is by then. */

typedef struct {
    PyObject_HEAD
    Handle *handle;
    Py_ssize_t place;
    int elements;             /* whether the array has one axis */
} Iterator;

/* The element of an array with one axis that has become recorded. */
static PyObject *recorded_element(Handle *handle, Py_ssize_t place)
{
    PyObject *element = handle_item((PyObject *)handle, place), *array, *scalar = NULL;
    if (!element || !is_handle(element))
        return element;
    array = PyObject_CallMethod(element, "__array__", NULL);
    Py_DECREF(element);
    if (array) {
        scalar = PyObject_GetItem(array, no_steps);
        Py_DECREF(array);
    }
    return scalar;
}

static PyObject *iterator_next(Iterator *iterator)
{
    Handle *handle = iterator->handle;
    if (!handle)
        return NULL;
    Py_ssize_t length = handle_length((PyObject *)handle);
    if (length < 0)
        return NULL;
    if (iterator->place >= length) {
        Py_CLEAR(iterator->handle);
        return NULL;
    }
    Py_ssize_t place = iterator->place++;
    if (!iterator->elements)
        return handle_item((PyObject *)handle, place);
    PyObject *array = settled(handle);
    if (!array)
        return PyErr_Occurred() ? NULL : recorded_element(handle, place);
    if (!is_array(array) || PyArray_NDIM((PyArrayObject *)array) != 1)
        return handle_item((PyObject *)handle, place);
    return PyArray_ToScalar(PyArray_GETPTR1((PyArrayObject *)array, place), (PyArrayObject *)array);
}

static void iterator_dealloc(Iterator *iterator)
{
    Py_XDECREF(iterator->handle);
    PyObject_Free(iterator);
}

static PyMemberDef iterator_members[] = {
    {"index", T_PYSSIZET, offsetof(Iterator, place), READONLY, "How many it has given."}, {NULL}};

PyTypeObject IteratorType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tiledarray.core._core.Iterator",
    .tp_basicsize = sizeof(Iterator),
    .tp_dealloc = (destructor)iterator_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_iter = PyObject_SelfIter,
    .tp_iternext = (iternextfunc)iterator_next,
    .tp_members = iterator_members,
};

PyObject *handle_iter(PyObject *self)
{
    PyObject *array = settled((Handle *)self);
    if (!array || !is_array(array) || !PyArray_NDIM((PyArrayObject *)array))
        return PyErr_Occurred() ? NULL : PyObject_CallOneArg(recorded[ITER], self);
    int elements = PyArray_NDIM((PyArrayObject *)array) == 1;
    Iterator *iterator = PyObject_New(Iterator, &IteratorType);
    if (!iterator)
        return NULL;
    iterator->handle = (Handle *)Py_NewRef(self);
    iterator->place = 0;
    iterator->elements = elements;
    return (PyObject *)iterator;
}

int add_elements(void) { return PyType_Ready(&IteratorType); }
