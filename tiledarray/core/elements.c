/* Arrays as sequences, and iterating over them: the end of `twin_index.py` in Python. */

#include "handle.h"

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

PyTypeObject IteratorType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tiledarray.core._core.Iterator",
    .tp_basicsize = sizeof(Iterator),
    .tp_dealloc = (destructor)iterator_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_iter = PyObject_SelfIter,
    .tp_iternext = (iternextfunc)iterator_next,
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
