/* Lists and tuples as NumPy takes them: `twin_sequences.py` in Python. */

#include "handle.h"

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
        } else if (is_plain(part) || PyArray_IsScalar(part, Number) || is_array(part))
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
