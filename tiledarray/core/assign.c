/* Writing by an index: the part of `twin_index.py` from `is_written_back` on in Python. */

#include "handle.h"

/* Whether this is the second half of `a[key] += b`: the view that it made is written already. */
static int is_written_back(Handle *handle, PyObject *key, PyObject *value)
{
    if (!is_handle(value))
        return 0;
    Handle *view = (Handle *)value;
    if (!view->array || view->parent != handle || !view->by_index ||
        !PyArray_Check(view->array) || !PyArray_ISWRITEABLE((PyArrayObject *)view->array))
        return 0;
    return view->how == key || PyObject_RichCompareBool(view->how, key, Py_EQ) == 1;
}

/* What is written, as NumPy takes it; a new reference, NULL without an error for the recorded way.
   By index arrays and masks that may be large; and so where others have the memory. */
static PyObject *written(PyObject *value, int basic, int lent)
{
    PyObject *new = operand(value);
    if (!new && !PyErr_Occurred() && lent)
        new = settled_operand(value);
    if (new || PyErr_Occurred())
        return new;
    if (PyList_CheckExact(value) || PyTuple_CheckExact(value)) {
        Arguments numbers;
        begin_arguments(&numbers);
        return plain_sequence(&numbers, value, limit, 3);
    }
    if (basic || limit <= 1 || held)
        return NULL;
    new = is_handle(value) ? settled((Handle *)value) : value;
    return new && is_array(new) ? Py_NewRef(new) : NULL;
}

/* The settled array, computed if it is known to pay; as `settled`. */
static PyObject *to_be_written(Handle *handle, PyObject *key, PyObject *value)
{
    PyObject *array = settled(handle);
    if (!array && !PyErr_Occurred() &&
        (is_plain(value) || (is_handle(value) && settled((Handle *)value))))
        array = make_constant(handle);
    if (!array && !PyErr_Occurred())
        array = looked_at_element(handle, key);
    return array && is_array(array) ? array : NULL;
}

/* Write at once: 1 done, 0 for the recorded way, -1 with an error set. */
static int put_at_once(Handle *handle, PyObject *key, PyObject *value)
{
    PyObject *array = to_be_written(handle, key, value);
    if (!array)
        return PyErr_Occurred() ? -1 : 0;
    Py_INCREF(array); /* another thread may give the handle its next value meanwhile */
    int done = write_element(handle, array, key, value);
    if (done) {
        Py_DECREF(array);
        return done;
    }
    int basic = basic_index(key);
    if (basic && is_written_back(handle, key, value)) {
        Py_DECREF(array);
        return 1;
    }
    const int lent = root_of(handle)->loan != NULL;
    PyObject *new = PyErr_Occurred() ? NULL : written(value, basic, lent);
    if (!new) {
        Py_DECREF(array);
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *plain = NULL, *part = NULL;
    if (basic)
        plain = Py_NewRef(key);
    else {
        const npy_intp most = most_written(array);
        plain = plain_index(key, most);
        basic = plain ? basic_index(plain) : 0;
        int has_axes = is_array(new) && PyArray_NDIM((PyArrayObject *)new);
        if (plain && !basic && !is_index_at_once(array, plain, has_axes, most))
            Py_CLEAR(plain);
    }
    if (plain && basic == 2 && size_of(array) > limit && !lent) { /* a small part of a large array */
        part = PyArray_Type.tp_as_mapping->mp_subscript(array, plain);
        if (part && size_of(part) > at_most(WRITE_FACTOR))
            Py_CLEAR(plain);
        Py_XDECREF(part);
    }
    if (plain && !PyErr_Occurred()) {
        int may = writable(handle, array);
        if (may == 1) {
            Handle *root = begin_write(handle);
            done = PyArray_Type.tp_as_mapping->mp_ass_subscript(array, plain, new) ? -1 : 1;
            end_write(root);
        } else
            done = may;
    }
    Py_XDECREF(plain);
    Py_DECREF(new);
    Py_DECREF(array);
    return PyErr_Occurred() ? -1 : done;
}

int handle_setitem(PyObject *self, PyObject *key, PyObject *value)
{
    if (!value) {
        PyErr_SetString(PyExc_ValueError, "cannot delete array elements");
        return -1;
    }
    int done = put_at_once((Handle *)self, key, value);
    if (!done)
        done = record_setitem((Handle *)self, key, value);
    if (done)
        return done < 0 ? -1 : 0;
    PyObject *result = PyObject_CallFunctionObjArgs(recorded[SETITEM], self, key, value, NULL);
    Py_XDECREF(result);
    return result ? 0 : -1;
}
