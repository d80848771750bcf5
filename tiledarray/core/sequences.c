/* Lists and tuples as NumPy takes them: `twin_sequences.py` in Python. */

#include "handle.h"

/* Whether a list or a tuple holds numbers alone, also in others. */
static int is_of_numbers(PyObject *x, int depth)
{
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(x); k++) {
        PyObject *part = PySequence_Fast_GET_ITEM(x, k);
        if (is_plain(part) || PyArray_IsScalar(part, Number) || PyArray_IsScalar(part, Bool))
            continue;
        if (!depth || !(PyList_CheckExact(part) || PyTuple_CheckExact(part)) ||
            !is_of_numbers(part, depth - 1))
            return 0;
    }
    return 1;
}

/* The array that NumPy makes of a small list or tuple of numbers; NULL without an error if it is
   none, or NumPy has something against it. */
PyObject *listed(PyObject *x)
{
    if (!(PyList_CheckExact(x) || PyTuple_CheckExact(x)) || !limit || held ||
        PySequence_Fast_GET_SIZE(x) > limit || !is_of_numbers(x, 3))
        return NULL;
    PyObject *array = PyArray_FromAny(x, NULL, 0, 0, 0, NULL);
    if (!array)
        PyErr_Clear();
    else if (!PyArray_Check(array) || PyArray_SIZE((PyArrayObject *)array) > limit)
        Py_CLEAR(array);
    return array;
}

/* A list or a tuple with arrays of ours in it, with NumPy's in their place; NULL without an error
   for the recorded way. */
PyObject *plain_sequence(Arguments *arguments, PyObject *x, npy_intp most, int depth)
{
    Py_ssize_t n = PySequence_Fast_GET_SIZE(x);
    int is_tuple = PyTuple_CheckExact(x); /* an index, perhaps: a list would mean another */
    PyObject *made = is_tuple ? PyTuple_New(n) : PyList_New(n);
    for (Py_ssize_t k = 0; made && k < n; k++) {
        PyObject *part = PySequence_Fast_GET_ITEM(x, k), *value = NULL;
        if (is_handle(part)) {
            value = Py_XNewRef(settled((Handle *)part));
            arguments->handles = 1;
        } else if (is_plain(part) || PyArray_IsScalar(part, Number) || is_array(part) ||
                   (PySlice_Check(part) && basic_part(part)))
            value = Py_NewRef(part);
        else if (depth && (PyList_CheckExact(part) || PyTuple_CheckExact(part)))
            value = plain_sequence(arguments, part, most, depth - 1);
        if (value && !PyList_CheckExact(value) && !PyTuple_CheckExact(value))
            arguments->total += size_of(value);
        if (!value || arguments->total > most) {
            Py_XDECREF(value);
            Py_DECREF(made);
            return NULL;
        }
        if (is_tuple)
            PyTuple_SET_ITEM(made, k, value);
        else
            PyList_SET_ITEM(made, k, value);
    }
    arguments->arrays = 1;
    return made;
}
