/* Reading by an index, and what indices are to NumPy: half of `twin_index.py` in Python. */

#include "handle.h"

static PyObject *name_kind;   /* an attribute of devices */

/* ---- indices as NumPy takes them ------------------------------------------------------------ */

/* A bound of a slice, or an index in a list, as NumPy takes it; NULL without an error if it is not
   there. */
static PyObject *plain_bound(PyObject *x)
{
    if (is_bound(x) || PyBool_Check(x))
        return Py_NewRef(x);
    if (!is_handle(x))
        return NULL;
    PyObject *value = settled((Handle *)x);
    return value && PyArray_IsScalar(value, Integer) ? Py_NewRef(value) : NULL;
}

static PyObject *plain_slice(PySliceObject *slice)
{
    PyObject *start = plain_bound(slice->start), *stop = start ? plain_bound(slice->stop) : NULL;
    PyObject *step = stop ? plain_bound(slice->step) : NULL, *plain = NULL;
    if (step) /* as ints: the index may be kept, and is compared */
        plain = PySlice_New(start, stop, step);
    Py_XDECREF(start);
    Py_XDECREF(stop);
    Py_XDECREF(step);
    return plain;
}

static PyObject *plain_list(PyObject *list)
{
    Py_ssize_t n = PyList_GET_SIZE(list);
    PyObject *plain = PyList_New(n);
    for (Py_ssize_t k = 0; plain && k < n; k++) {
        PyObject *part = plain_bound(PyList_GET_ITEM(list, k));
        if (!part || part == Py_None) {
            Py_XDECREF(part);
            Py_CLEAR(plain);
        } else
            PyList_SET_ITEM(plain, k, part);
    }
    return plain;
}

/* A range or a tuple, as a list: as `plain_list`. */
static PyObject *plain_like_list(PyObject *item)
{
    Py_ssize_t n = PySequence_Size(item);
    if (n < 0)
        PyErr_Clear(); /* a range beyond what has a length */
    PyObject *list = n < 0 || n > limit ? NULL : PySequence_List(item);
    PyObject *plain = list ? plain_list(list) : NULL;
    Py_XDECREF(list);
    return plain;
}

/* Elements that index arrays may name for NumPy to read them at once. */
static inline npy_intp most_read(void)
{
    return at_most(Py_MIN(WRITE_FACTOR, library_factor));
}

/* The same for writing.  The recorded way copies an array that is there: half of it is no fewer. */
npy_intp most_written(PyObject *array)
{
    return limit > 1 ? Py_MAX(most_read(), size_of(array) / 2) : most_read();
}

/* Whether an index's array is taken as it is: a mask always, for its values decide on the shape. */
static int is_taken(PyObject *value, npy_intp most)
{
    return size_of(value) <= most || (limit > 1 && is_mask(value));
}

/* An item of an index as NumPy takes it; a new reference, NULL without an error if that needs the
   recorded way. */
static PyObject *plain_item(PyObject *item, npy_intp most)
{
    if (is_handle(item)) {
        PyObject *value = settled((Handle *)item);
        if (!value || !is_taken(value, most))
            return NULL;
        /* An array without axes is no scalar: by it an index is not basic. */
        if (PyArray_Check(value) && !PyArray_NDIM((PyArrayObject *)value))
            return NULL;
        return Py_NewRef(value);
    }
    if (basic_part(item) || (is_array(item) && is_taken(item, most)))
        return Py_NewRef(item);
    if (PySlice_Check(item))
        return plain_slice((PySliceObject *)item);
    if (PyList_CheckExact(item) && PyList_GET_SIZE(item) <= limit)
        return plain_list(item);
    if (PyTuple_CheckExact(item) || PyRange_Check(item)) /* in a tuple they are arrays, too */
        return plain_like_list(item);
    return NULL;
}

/* An index as NumPy takes it, of index arrays of that many elements at most; as `plain_item`. */
PyObject *plain_index(PyObject *key, npy_intp most)
{
    if (!PyTuple_CheckExact(key))
        return plain_item(key, most);
    Py_ssize_t n = PyTuple_GET_SIZE(key);
    PyObject *plain = PyTuple_New(n);
    for (Py_ssize_t k = 0; plain && k < n; k++) {
        PyObject *item = plain_item(PyTuple_GET_ITEM(key, k), most);
        if (!item) {
            Py_DECREF(plain);
            return NULL;
        }
        PyTuple_SET_ITEM(plain, k, item);
    }
    return plain;
}

/* Whether a plain index has a mask. */
static int has_mask(PyObject *key)
{
    if (!PyTuple_CheckExact(key))
        return is_mask(key);
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(key); k++)
        if (is_mask(PyTuple_GET_ITEM(key, k)))
            return 1;
    return 0;
}

/* The axes of a list as an index: 1, or -1 of one that holds lists. */
static int rank_of_list(PyObject *list)
{
    return PyList_GET_SIZE(list) && PyList_CheckExact(PyList_GET_ITEM(list, 0)) ? -1 : 1;
}

/* How many elements a plain index with arrays names, at most; a huge number if not known. */
static double named_elements(PyArrayObject *array, PyObject *key)
{
    int is_tuple = PyTuple_CheckExact(key), ndim = PyArray_NDIM(array), axis = 0, covered = ndim;
    Py_ssize_t n = is_tuple ? PyTuple_GET_SIZE(key) : 1;
    double kept = 1, named = 1;
    int flat = 1; /* all have one axis */
    for (Py_ssize_t k = 0; k < n; k++) {
        PyObject *item = is_tuple ? PyTuple_GET_ITEM(key, k) : key;
        covered -= item != Py_None && item != Py_Ellipsis;
    }
    for (Py_ssize_t k = 0; k < n; k++) {
        PyObject *item = is_tuple ? PyTuple_GET_ITEM(key, k) : key;
        if (item == Py_None)
            continue;
        if (item == Py_Ellipsis) {
            for (; covered > 0; covered--)
                kept *= axis < ndim ? (double)PyArray_DIM(array, axis++) : 1;
            continue;
        }
        if (axis >= ndim)
            return 1e300; /* NumPy raises */
        if (PySlice_Check(item))
            kept *= (double)PyArray_DIM(array, axis);
        else if (is_array(item) && PyArray_TYPE((PyArrayObject *)item) == NPY_BOOL)
            return 1e300;
        else if (is_array(item) || PyList_CheckExact(item)) {
            int rank = is_array(item) ? PyArray_NDIM((PyArrayObject *)item) : rank_of_list(item);
            double size = is_array(item) ? (double)PyArray_SIZE((PyArrayObject *)item)
                                         : (double)PyList_GET_SIZE(item);
            if (rank < 0)
                return 1e300;
            flat = flat && rank == 1;
            named = flat && size == named ? named : named * size; /* they are broadcast together */
        }
        axis++;
    }
    for (; axis < ndim; axis++)
        kept *= (double)PyArray_DIM(array, axis);
    return kept * named;
}

/* Whether reading by a plain index that is not basic is done at once, or writing what has axes.
   By a mask NumPy does it, whatever the size: no plan is found again that depends on the length. */
int is_index_at_once(PyObject *array, PyObject *key, int has_axes, npy_intp most)
{
    return (has_axes && limit > 1 && has_mask(key)) || size_of(array) <= at_most(WRITE_FACTOR) ||
           (limit > 1 && named_elements((PyArrayObject *)array, key) <= (double)most);
}

/* ---- reading -------------------------------------------------------------------------------- */

/* What NumPy gives of the elements that a plain index with arrays names. */
static PyObject *elements(PyObject *array, PyObject *key)
{
    const double bytes = named_elements((PyArrayObject *)array, key) *
                         (double)PyArray_ITEMSIZE((PyArrayObject *)array);
    PyObject *before, *result = NULL;
    if (begin_keeping(bytes >= SPACIOUS && is_spacious(array), &before))
        result = PyObject_GetItem(array, key);
    end_keeping(before);
    return result;
}

/* The elements that an index other than a plain basic one names; NULL without an error for the
   recorded way. */
static PyObject *taken(Handle *handle, PyObject *array, PyObject *key)
{
    PyObject *plain = NULL, *result;
    if (is_handle(key) && size_of(array) > limit) {
        /* By a mask: the result's shape depends on it, so it is read. */
        PyObject *mask = settled((Handle *)key);
        plain = mask && is_mask(mask) ? Py_NewRef(mask) : NULL;
    }
    if (!plain && !PyErr_Occurred())
        plain = plain_index(key, most_read());
    if (!plain)
        return NULL;
    int basic = basic_index(plain);
    if (!basic && !is_mask(plain) && !is_index_at_once(array, plain, 1, most_read())) {
        Py_DECREF(plain);
        return NULL;
    }
    result = basic ? PyObject_GetItem(array, plain) : elements(array, plain);
    if (result && is_array(result)) {
        if (basic) {
            result = take_view(handle, array, result, 1, plain);
            Py_DECREF(plain);
            return result;
        }
        /* A new array, though NumPy may give it as a view of one that nobody has. */
    }
    Py_DECREF(plain);
    return own(result);
}

/* Make what is recorded as a constant (`zeros`), for something is written into it; as `settled`.
   Another thread may do so meanwhile: recorded, what is written into the one array would be lost in
   the other. */
PyObject *make_constant(Handle *handle)
{
    Handle *root = root_of(handle);
    if (root->array)
        return settled(handle);
    if (held || limit <= 1 || !root->node || !is_constant(root->node))
        return NULL;
    Py_INCREF(root);
    PyObject *node = Py_NewRef(root->node), *array = new_constant(node);
    int done = array && is_array(array);
    if (done && root->node == node && !root->array) {
        root->array = Py_NewRef(array);
        root->copied = 0;
        Py_CLEAR(root->node);
    }
    Py_DECREF(node);
    Py_XDECREF(array);
    done = done || (root->array && !PyErr_Occurred());
    Py_DECREF(root);
    return done ? settled(handle) : NULL;
}

/* Compute what is recorded; as `settled`. */
PyObject *looked_at(Handle *handle)
{
    if (held || !limit)
        return NULL;
    PyObject *done = PyObject_CallOneArg(callbacks[LOOK], (PyObject *)handle);
    Py_XDECREF(done);
    return done ? settled(handle) : NULL;
}

/* Compute a large array on the host, for one of its elements is read or written: more will be, and
   each would be recorded.  As `settled`; NULL without an error for another index. */
PyObject *looked_at_element(Handle *handle, PyObject *key)
{
    PyObject *node = handle->node;
    if (held || limit <= 1 || handle->base || !node || !is_node(node) || !is_pending(node))
        return NULL;
    const Kind *kind = ((Node *)node)->form->kind;
    Py_ssize_t count = PyTuple_CheckExact(key) ? PyTuple_GET_SIZE(key) : 1;
    if (kind->size <= limit || count != PyTuple_GET_SIZE(kind->shape) || basic_index(key) != 1)
        return NULL;
    PyObject *place = PyObject_GetAttr(kind->device, name_kind);
    int here = place && PyUnicode_Check(place) && !PyUnicode_CompareWithASCIIString(place, "cpu");
    Py_XDECREF(place);
    return here ? looked_at(handle) : NULL;
}

PyObject *handle_getitem(PyObject *self, PyObject *key)
{
    Handle *handle = (Handle *)self;
    PyObject *array = settled(handle), *result;
    if (!array && !PyErr_Occurred() && basic_index(key) != 2)
        array = make_constant(handle); /* elements are read: they will be written too */
    if (!array && !PyErr_Occurred())
        array = looked_at_element(handle, key);
    if (array && is_array(array)) {
        result = read_element(array, key);
        if (result || PyErr_Occurred())
            return own(result);
        Py_INCREF(array);
        if (basic_index(key)) {
            result = PyArray_Type.tp_as_mapping->mp_subscript(array, key);
            if (result && is_array(result))
                result = take_view(handle, array, result, 1, key);
            else
                result = own(result);
            Py_DECREF(array);
            return result;
        }
        result = taken(handle, array, key);
        Py_DECREF(array);
        if (result)
            return result;
    }
    if (PyErr_Occurred())
        return NULL;
    result = array ? NULL : record_getitem(handle, key);
    if (result || PyErr_Occurred())
        return result;
    return PyObject_CallFunctionObjArgs(recorded[GETITEM], self, key, NULL);
}
int add_index(void)
{
    name_kind = PyUnicode_InternFromString("kind");
    return name_kind ? 0 : -1;
}
