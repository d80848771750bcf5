/* Calls of functions that NumPy computes at once if all their arguments are small and settled:
   `twin_calls.py` in Python, where what is common is done by `twin_at_once.py` without it. */

#include "calls.h"
#include "pace.h"
#include "watch.h"

#include <numpy/ufuncobject.h>

static void release(Arguments *arguments)
{
    while (arguments->count)
        Py_DECREF(arguments->values[arguments->count--]);
}

/* Whether a value has no arrays in it, nor anything that NumPy would ask for one. */
static int is_bare(PyObject *x, int depth)
{
    if (is_common_scalar(x) || is_plain(x) || x == Py_None || PyUnicode_CheckExact(x) ||
        (PyType_Check(x) && !PyType_IsSubtype((PyTypeObject *)x, &HandleType)) ||
        x == Py_Ellipsis || PyArray_IsScalar(x, Number) || PyArray_IsScalar(x, Bool) ||
        PyArray_DescrCheck(x) || (PySlice_Check(x) && basic_part(x)))
        return 1;
    if (depth && (PyTuple_CheckExact(x) || PyList_CheckExact(x))) {
        Py_ssize_t n = PySequence_Fast_GET_SIZE(x);
        for (Py_ssize_t k = 0; k < n; k++)
            if (!is_bare(PySequence_Fast_GET_ITEM(x, k), depth - 1))
                return 0;
        return 1;
    }
    return 0;
}

static int take_array(Arguments *arguments, PyObject *array, npy_intp most, const AtOnce *function)
{
    const int broadcasts = !(function->kind & LIBRARY);
    npy_intp size = size_of(array);
    arguments->arrays = 1;
    if (size > most && !(function->kind & VIEWS && PyArray_Check(array) &&
                         PyArray_IS_C_CONTIGUOUS((PyArrayObject *)array)))
        return 0;
    arguments->product *= (double)size;
    if (PyArray_Check(array)) {
        if (!arguments->first)
            arguments->first = array;
        else if (broadcasts && !fit(arguments->first, array))
            return 0;
    }
    return 1;
}

/* Add one argument; 0 if the call has to go the recorded way (perhaps with an error set). */
static int take_argument(Arguments *arguments, PyObject *x, const AtOnce *function)
{
    npy_intp most = function->kind & READS ? NPY_MAX_INTP
                    : function->kind & LOOKS ? at_most(LIBRARY_FACTOR) /* NumPy does it anyway */
                    : function->kind & COSTLY ? Py_MIN(COSTLY_ELEMENTS, at_most(library_factor))
                    : function->kind & SHARED ? Py_MIN(SHARED_ELEMENTS, at_most(library_factor))
                    : function->kind & LIBRARY ? at_most(library_factor) : limit;
    PyObject *value = NULL;
    if (is_handle(x)) {
        PyObject *array = settled((Handle *)x);
        if (!array && !PyErr_Occurred() && function->kind & WRITES && !arguments->count)
            array = make_constant((Handle *)x);
        if (!array && !PyErr_Occurred() && function->kind & LOOKS)
            array = looked_at((Handle *)x);
        if (!array)
            return 0;
        arguments->handles = 1;
        if (!take_array(arguments, array, most, function))
            return 0;
        value = Py_NewRef(array);
    } else if (is_array(x)) {
        if (!take_array(arguments, x, most, function))
            return 0;
        value = Py_NewRef(x);
    } else if (is_bare(x, 0)) {
        value = Py_NewRef(x);
    } else if (PyTuple_CheckExact(x) || PyList_CheckExact(x)) {
        if (PySequence_Fast_GET_SIZE(x) > limit)
            return 0;
        if (is_bare(x, 3)) {
            arguments->arrays |= PyList_CheckExact(x);
            value = Py_NewRef(x);
        } else if (function->kind & ALIKE && most <= NPY_MAX_INTP / (limit + 1)) {
            npy_intp room = most * PySequence_Fast_GET_SIZE(x);
            value = plain_sequence(arguments, x, arguments->total + room, 3);
        } else
            value = plain_sequence(arguments, x, Py_MAX(most, at_most(WRITE_FACTOR)), 3);
    } else if (PyRange_Check(x)) {
        const Py_ssize_t length = PyObject_Size(x);
        if (length < 0)
            PyErr_Clear(); /* beyond what has a length */
        if (length < 0 || length > limit)
            return 0;
        arguments->arrays = 1;
        value = Py_NewRef(x);
    }
    if (!value)
        return 0;
    arguments->values[++arguments->count] = value;
    return 1;
}

static double number_or(PyObject *x, double otherwise)
{
    if (x && (PyLong_CheckExact(x) || PyFloat_CheckExact(x) || PyArray_IsScalar(x, Number))) {
        double value = PyLong_CheckExact(x) ? PyLong_AsDouble(x) : PyFloat_AsDouble(x);
        if (value != -1.0 || !PyErr_Occurred())
            return value;
        PyErr_Clear();
    }
    return otherwise;
}

/* Elements of the array that a function creates; a huge number if that is not known. */
static double created_size(const AtOnce *function, PyObject *const *values, Py_ssize_t positional,
                           PyObject *names)
{
    const double huge = 1e300;
    if (function->size == ANY_SIZE || function->size == OF_DATA)
        return 0;
    if (!positional)
        return huge;
    PyObject *first = values[0];
    if (function->size == OF_SHAPE) {
        if (!PyTuple_CheckExact(first) && !PyList_CheckExact(first))
            return number_or(first, huge);
        double size = 1;
        for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(first); k++)
            size *= number_or(PySequence_Fast_GET_ITEM(first, k), huge);
        return size;
    }
    if (function->size == OF_SQUARE) {
        double side = number_or(first, huge);
        return side * (positional > 1 ? number_or(values[1], side) : side);
    }
    if (function->size == OF_COUNT) {
        double count = positional > 2 ? number_or(values[2], huge) : 50;
        for (Py_ssize_t k = 0; names && k < PyTuple_GET_SIZE(names); k++)
            if (!PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, k), "num"))
                count = number_or(values[positional + k], huge);
        return count;
    }
    for (Py_ssize_t k = 0; names && k < PyTuple_GET_SIZE(names); k++)
        if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, k), "dtype"))
            return huge; /* start=, stop=, step= */
    double start = 0, stop = number_or(first, huge), step = 1;
    if (positional > 1) {
        start = stop;
        stop = number_or(values[1], huge);
    }
    if (positional > 2)
        step = number_or(values[2], huge);
    return step ? (stop - start) / step : huge;
}

/* Names of arguments by which a call is ours.  `out` gets the place of that name among them, if one
   array is given by it; -1 without it. */
static int has_name_of_ours(PyObject *names, PyObject *const *values, Py_ssize_t *out)
{
    for (Py_ssize_t k = 0; names && k < PyTuple_GET_SIZE(names); k++) {
        PyObject *name = PyTuple_GET_ITEM(names, k);
        if (!PyUnicode_CompareWithASCIIString(name, "out") && values[k] != Py_None) {
            if (!is_handle(values[k]))
                return 1;
            *out = k;
        }
        if (!PyUnicode_CompareWithASCIIString(name, "device") ||
            !PyUnicode_CompareWithASCIIString(name, "like"))
            return 1;
    }
    return 0;
}

/* The ends of the memory in which an array lies. */
static void ends_of(PyArrayObject *array, char **low, char **high)
{
    *low = *high = PyArray_BYTES(array);
    for (int k = 0; k < PyArray_NDIM(array); k++) {
        npy_intp length = PyArray_DIM(array, k);
        if (!length) {
            *high = *low;
            return;
        }
        npy_intp reach = (length - 1) * PyArray_STRIDE(array, k);
        if (reach < 0)
            *low += reach;
        else
            *high += reach;
    }
    *high += PyArray_ITEMSIZE(array);
}

static int overlap(PyObject *x, PyObject *y)
{
    if (!PyArray_Check(x) || !PyArray_Check(y))
        return 0;
    char *low, *high, *other_low, *other_high;
    ends_of((PyArrayObject *)x, &low, &high);
    ends_of((PyArrayObject *)y, &other_low, &other_high);
    return low < other_high && other_low < high;
}

/* Whether an argument, or one in it, is the result or shares memory with it. */
static int shares(PyObject *value, PyObject *result)
{
    if (PyList_CheckExact(value) || PyTuple_CheckExact(value)) {
        for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(value); k++)
            if (shares(PySequence_Fast_GET_ITEM(value, k), result))
                return 1;
        return 0;
    }
    return value == result || (PyArray_BASE((PyArrayObject *)result) && overlap(value, result));
}

static int is_related(PyObject *result, const Arguments *arguments)
{
    PyArrayObject *array = (PyArrayObject *)result;
    if (!PyArray_SIZE(array))
        return 0; /* there are no elements to share */
    if (PyArray_BASE(array) && !PyArray_ISWRITEABLE(array))
        return 1;
    for (Py_ssize_t k = 1; k <= arguments->count; k++)
        if (shares(arguments->values[k], result))
            return 1;
    return 0;
}

/* A result as a handle: 1, or 0 if it has to be had the recorded way.  Steals the result. */
int give(PyObject *result, const Arguments *arguments, PyObject **given)
{
    *given = NULL;
    if (is_array(result)) {
        if (is_related(result, arguments)) {
            Py_DECREF(result);
            return 0;
        }
        *given = own(result);
        return 1;
    }
    if (PyTuple_Check(result) || PyList_CheckExact(result)) {
        Py_ssize_t n = PySequence_Fast_GET_SIZE(result);
        PyObject *made = PyTuple_Check(result) ? PyTuple_New(n) : PyList_New(n);
        for (Py_ssize_t k = 0; made && k < n; k++) {
            PyObject *part = NULL, *item = PySequence_Fast_GET_ITEM(result, k);
            for (Py_ssize_t j = 0; j < k && !part; j++) /* the same array again is one of ours */
                if (PySequence_Fast_GET_ITEM(result, j) == item)
                    part = Py_NewRef(PySequence_Fast_GET_ITEM(made, j));
            if (!part && !give(Py_NewRef(item), arguments, &part)) {
                Py_DECREF(made);
                Py_DECREF(result);
                return 0;
            }
            if (!part)
                Py_CLEAR(made);
            else if (PyTuple_CheckExact(made))
                PyTuple_SET_ITEM(made, k, part);
            else
                PyList_SET_ITEM(made, k, part);
        }
        if (made && PyTuple_Check(result) && !PyTuple_CheckExact(result)) /* with names */
            Py_SETREF(made, PyObject_CallObject((PyObject *)Py_TYPE(result), made));
        Py_DECREF(result);
        *given = made;
        return 1;
    }
    if (is_bare(result, 0)) {
        *given = own(result);
        return 1;
    }
    Py_DECREF(result); /* it may hold an argument */
    return 0;
}

/* An argument that nobody can change any more: a new reference, NULL without an error if there is
   none. */
static PyObject *lasting(PyObject *x)
{
    if (is_bare(x, 0))
        return Py_NewRef(x);
    if (!is_bare(x, 1))
        return NULL;
    return PyTuple_CheckExact(x) ? Py_NewRef(x) : PyList_AsTuple(x);
}

/* How a view was had of the first argument (see `arrays.settled.steps_of`), but for which of several
   results it is; NULL without an error where that cannot be said. */
static PyObject *how_of(const AtOnce *function, PyObject *const *args, Py_ssize_t positional,
                        PyObject *names)
{
    PyObject *rest = PyTuple_New(positional - 1), *options = NULL, *how = NULL, *x = NULL;
    if (rest && names && !(options = PyDict_New()))
        Py_CLEAR(rest);
    for (Py_ssize_t k = 1; rest && k < positional; k++) {
        if (!(x = lasting(args[k])))
            Py_CLEAR(rest);
        else
            PyTuple_SET_ITEM(rest, k - 1, x);
    }
    for (Py_ssize_t k = 0; rest && names && k < PyTuple_GET_SIZE(names); k++) {
        x = lasting(args[positional + k]);
        if (!x || PyDict_SetItem(options, PyTuple_GET_ITEM(names, k), x))
            Py_CLEAR(rest);
        Py_XDECREF(x);
    }
    if (rest)
        how = PyTuple_Pack(4, function->fallback, rest, options ? options : Py_None, Py_None);
    Py_XDECREF(options);
    Py_XDECREF(rest);
    return how;
}

/* A view of the first argument. */
static PyObject *view_of(PyObject *array, const Arguments *arguments, PyObject *parent,
                         PyObject *how)
{
    return take_view((Handle *)parent, arguments->values[1], Py_NewRef(array), 0, how);
}

static int is_view(PyObject *x, const Arguments *arguments)
{
    return is_array(x) && PyArray_BASE((PyArrayObject *)x) && overlap(x, arguments->values[1]);
}

/* The same for each of several results; all are views. */
static PyObject *views_of(PyObject *parts, const Arguments *arguments, PyObject *parent,
                          PyObject *how)
{
    Py_ssize_t count = PySequence_Fast_GET_SIZE(parts);
    PyObject *views = PyTuple_CheckExact(parts) ? PyTuple_New(count) : PyList_New(count);
    for (Py_ssize_t k = 0; views && k < count; k++) {
        PyObject *number = PyLong_FromSsize_t(k), *view = NULL, *of_part = NULL;
        if (number)
            of_part = PyTuple_Pack(4, PyTuple_GET_ITEM(how, 0), PyTuple_GET_ITEM(how, 1),
                                   PyTuple_GET_ITEM(how, 2), number);
        if (of_part)
            view = view_of(PySequence_Fast_GET_ITEM(parts, k), arguments, parent, of_part);
        Py_XDECREF(number);
        Py_XDECREF(of_part);
        if (!view)
            Py_CLEAR(views);
        else if (PyTuple_CheckExact(parts))
            PyTuple_SET_ITEM(views, k, view);
        else
            PyList_SET_ITEM(views, k, view);
    }
    return views;
}

/* Whether there are several results, each a view of the first argument. */
static int are_views(PyObject *result, const Arguments *arguments)
{
    if (!PyTuple_CheckExact(result) && !PyList_CheckExact(result))
        return 0;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(result);
    for (Py_ssize_t k = 0; k < count; k++) {
        PyObject *part = PySequence_Fast_GET_ITEM(result, k);
        if (part == arguments->values[1] || !is_view(part, arguments))
            return 0;
    }
    return count > 0;
}

/* What is a view of the first argument, or views; NULL without an error if it is none. */
static PyObject *given_view(const AtOnce *function, PyObject *result, const Arguments *arguments,
                            PyObject *const *args, Py_ssize_t positional, PyObject *names)
{
    if (!positional || !is_handle(args[0]) || function->kind & (WRITES | BOUND))
        return NULL;
    if (result == arguments->values[1])
        return Py_NewRef(args[0]);
    if (function->kind & OUTER) /* ours are copies */
        return NULL;
    int several = are_views(result, arguments);
    if (!several && !is_view(result, arguments))
        return NULL;
    PyObject *how = how_of(function, args, positional, names);
    if (!how)
        return NULL;
    PyObject *given = several ? views_of(result, arguments, args[0], how)
                              : view_of(result, arguments, args[0], how);
    Py_DECREF(how);
    return given;
}

/* An array of its own.  Steals. */
static PyObject *copied(PyObject *array)
{
    PyObject *copy = PyArray_NewCopy((PyArrayObject *)array, NPY_CORDER);
    Py_DECREF(array);
    return copy;
}

/* The length of an axis, counted from the last, of which there may be fewer. */
static double length_of(PyObject *array, int place)
{
    const int axes = PyArray_NDIM((PyArrayObject *)array);
    return place <= axes ? (double)PyArray_DIM((PyArrayObject *)array, axes - place) : 1;
}

/* Elements of `x @ y`: rows, columns, and the axes in front of them, broadcast. */
double elements_of_product(PyObject *x, PyObject *y)
{
    const int axes[2] = {PyArray_NDIM((PyArrayObject *)x), PyArray_NDIM((PyArrayObject *)y)};
    double found = (axes[0] > 1 ? length_of(x, 2) : 1) * (axes[1] > 1 ? length_of(y, 1) : 1);
    for (int k = 3; k <= Py_MAX(axes[0], axes[1]); k++)
        found *= Py_MAX(length_of(x, k), length_of(y, k));
    return found;
}

/* Elements of a sum in Einstein's notation; 0 where that leaves letters out. */
static double elements_of_sum(PyObject *text, PyObject *const *operands, Py_ssize_t count)
{
    const char *at = PyUnicode_AsUTF8(text);
    double lengths[128] = {0}, found = 1;
    Py_ssize_t operand = 0;
    int axis = 0;
    if (!at)
        PyErr_Clear();
    for (; at && *at && strncmp(at, "->", 2); at++) {
        PyArrayObject *array = operand < count && PyArray_Check(operands[operand])
                                   ? (PyArrayObject *)operands[operand] : NULL;
        if (*at == ',') {
            operand++;
            axis = 0;
        } else if (*at != ' ') {
            if (!Py_ISALPHA(*at) || !array || axis >= PyArray_NDIM(array))
                return 0;
            lengths[(int)*at] = Py_MAX(lengths[(int)*at], (double)PyArray_DIM(array, axis));
            axis++;
        }
    }
    if (!at || !*at)
        return 0;
    for (at += 2; *at; at++)
        if (*at != ' ')
            found *= Py_ISALPHA(*at) ? lengths[(int)*at] : 0;
    return found;
}

/* Elements of the product that a function makes of its arguments; 0 if that is not known. */
static double elements_of_result(const AtOnce *function, const Arguments *arguments)
{
    PyObject *const *values = arguments->values + 1;
    if (arguments->count && PyUnicode_CheckExact(values[0]))
        return elements_of_sum(values[0], values + 1, arguments->count - 1);
    if (arguments->count < 2 || !PyArray_Check(values[0]) || !PyArray_Check(values[1]))
        return 0;
    if (function->kind & UFUNC)
        return elements_of_product(values[0], values[1]);
    const double summed = Py_MAX(length_of(values[0], 1), 1); /* `dot` has the axes of both */
    return arguments->product / (summed * summed);
}

/* The arguments as NumPy takes them: 1, or 0 for the recorded way (perhaps with an error set).
   `created` gets the elements of what is created. */
static int take_arguments(Arguments *arguments, const AtOnce *function, PyObject *const *args,
                          Py_ssize_t positional, PyObject *names, double *created)
{
    Py_ssize_t total = positional + (names ? PyTuple_GET_SIZE(names) : 0);
    Py_ssize_t k = function->kind & BOUND && positional;
    if (k)
        arguments->values[++arguments->count] = Py_NewRef(args[0]);
    for (; k < total; k++)
        if (!take_argument(arguments, args[k], function))
            return 0;
    *created = created_size(function, args, positional, names);
    if (*created > (double)limit)
        return 0;
    if (function->size == ANY_SIZE && !arguments->handles &&
        !(function->kind & UFUNC && !arguments->arrays) && !births)
        return 0;
    if (function->kind & PRODUCT &&
        elements_of_result(function, arguments) > (double)at_most(library_factor))
        return 0;
    return !(function->kind & OUTER && arguments->product > (double)limit);
}

/* Whether NumPy may write into the argument at a place: 1, 0 if not, -1 with an error set. */
static int may_be_written(const Arguments *arguments, PyObject *const *args, Py_ssize_t at)
{
    PyObject *array = arguments->values[at + 1];
    return is_handle(args[at]) && is_array(array) ? writable((Handle *)args[at], array) : 0;
}

/* Which argument a function of kind WRITES writes into. */
static Py_ssize_t place_written(const AtOnce *function)
{
    return (function->kind & BOUND) != 0;
}

/* Whether NumPy may write where a call has it write; as `may_be_written`. */
static int may_write(const AtOnce *function, const Arguments *arguments, PyObject *const *args,
                     Py_ssize_t positional, Py_ssize_t out)
{
    int may = 1;
    if (function->kind & WRITES) {
        Py_ssize_t at = place_written(function);
        may = positional > at ? may_be_written(arguments, args, at) : 0;
    }
    return may == 1 && out >= 0 ? may_be_written(arguments, args, out) : may;
}

/* Whether a ufunc has a loop of two operands of a dtype: in others a number counts as another. */
static int has_loop_of_two(PyObject *x, int type)
{
    const PyUFuncObject *ufunc = (const PyUFuncObject *)x;
    int found = 0;
    if (ufunc->nin != 2 || ufunc->core_enabled)
        return 0;
    for (int k = 0; k < ufunc->ntypes && !found; k++) {
        const char *types = ufunc->types + k * ufunc->nargs;
        found = types[0] == type && types[1] == type;
    }
    return found;
}

/* Call a ufunc of NumPy's.  Numbers in `values` may be replaced. */
PyObject *call_ufunc(PyObject *ufunc, PyObject **values, size_t flags)
{
    const int two = PyVectorcall_NARGS(flags) == 2, at = two && PyArray_Check(values[0]);
    if (!two || at != !PyArray_Check(values[1]) ||
        !has_loop_of_two(ufunc, PyArray_TYPE((PyArrayObject *)values[!at])))
        return PyObject_Vectorcall(ufunc, values, flags, NULL);
    PyObject *given = values[at], *result = NULL;
    values[at] = number_beside(given, values[!at], 1);
    if (values[at])
        result = PyObject_Vectorcall(ufunc, values, flags, NULL);
    drop_number(values[at]);
    values[at] = given;
    return result;
}

/* Whether a call asks for nothing but an array's reduction, perhaps along an axis; of objects
   `any` and `all` are not the ufuncs' reductions. */
static int only_reduces(const AtOnce *function, const Arguments *arguments, PyObject *names)
{
    return function->reduce && arguments->count && arguments->count <= 2 &&
           is_array(arguments->values[1]) &&
           PyArray_TYPE((PyArrayObject *)arguments->values[1]) != NPY_OBJECT &&
           (!names || (PyTuple_GET_SIZE(names) == 1 && arguments->count == 2 &&
                       !PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "axis")));
}

/* Reduce an array as NumPy does once its functions in Python have found out what is asked for. */
static PyObject *reduced(const AtOnce *function, const Arguments *arguments)
{
    PyObject *axis = arguments->count == 2 ? arguments->values[2] : Py_None;
    PyObject *values[3] = {NULL, arguments->values[1], axis};
    return PyObject_Vectorcall(
        function->reduce, values + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
}

/* Call NumPy's function, past the dispatcher that looks for other kinds of arrays. */
static PyObject *undispatched(const AtOnce *function, PyObject *const *values, size_t flags,
                              PyObject *names)
{
    if (!function->behind)
        return PyObject_Vectorcall(function->target, values, flags, names);
    PyObject *result = PyObject_Vectorcall(function->behind, values, flags, names);
    if (!result && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear(); /* of missing arguments, or no sequence, the dispatcher has other words */
        result = PyObject_Vectorcall(function->target, values, flags, names);
    }
    return result;
}

/* Call a method of an array, or of one of NumPy's scalars. */
static PyObject *called_method(const AtOnce *function, PyObject *const *values, size_t flags,
                               PyObject *names)
{
    if (function->behind && is_array(values[0]))
        return PyObject_Vectorcall(function->behind, values, flags, names);
    return PyObject_VectorcallMethod(function->target, values, flags, names);
}

/* What NumPy returns; `created`: the elements of what it creates. */
static PyObject *returned(const AtOnce *function, Arguments *arguments, Py_ssize_t positional,
                          PyObject *names, double created)
{
    PyObject **values = arguments->values + 1, *before, *result = NULL;
    size_t flags = (size_t)positional | PY_VECTORCALL_ARGUMENTS_OFFSET;
    int spacious = created * sizeof(double) >= SPACIOUS;
    const int reduces = only_reduces(function, arguments, names);
    for (Py_ssize_t k = 0; k < arguments->count && !spacious; k++)
        spacious = is_spacious(values[k]) && !(reduces && arguments->count == 1);
    if (begin_keeping(spacious, &before))
        result = reduces ? reduced(function, arguments)
                 : function->kind & METHOD
                     ? called_method(function, values, flags, names)
                 : (function->kind & (UFUNC | DRAWS)) == UFUNC && !names
                     ? call_ufunc(function->target, values, flags)
                     : undispatched(function, values, flags, names);
    end_keeping(before);
    return result;
}

/* Give what NumPy has returned: 1 and the result (NULL with an error), or 0 for the recorded way.
   Steals it. */
static int finish(const AtOnce *function, PyObject *result, const Arguments *arguments,
                  PyObject *const *args, Py_ssize_t positional, PyObject *names, Py_ssize_t out,
                  PyObject **given)
{
    if (out >= 0 && result == arguments->values[out + 1]) {
        Py_DECREF(result);
        *given = Py_NewRef(args[out]);
        return 1;
    }
    int scalar = is_common_scalar(result) || !(PyArray_Check(result) || PyTuple_Check(result));
    if (function->kind & READS ||
        (scalar && (function->kind & DRAWS || (function->kind & UFUNC && !arguments->arrays)))) {
        *given = result;
        return 1;
    }
    *given = given_view(function, result, arguments, args, positional, names);
    if (*given || PyErr_Occurred()) {
        Py_DECREF(result);
        return 1;
    }
    if (out >= 0 || function->kind & WRITES) { /* it has been written */
        *given = is_array(result) ? own(copied(result)) : result;
        return 1;
    }
    return give(result, arguments, given);
}

/* Whether the last argument by position is one array of ours, which a ufunc writes its result to. */
static int has_output(const AtOnce *function, PyObject *const *args, Py_ssize_t positional)
{
    return positional == function->most + 1 && (function->kind & (UFUNC | DRAWS)) == UFUNC &&
           ((PyUFuncObject *)function->target)->nout == 1 && is_handle(args[function->most]);
}

/* The arguments, in `room` with one array of ours itself where a ufunc is given `out=(array,)`. */
static PyObject *const *with_output(const AtOnce *function, PyObject *const *args,
                                    Py_ssize_t positional, PyObject *names, PyObject **room)
{
    if ((function->kind & (UFUNC | DRAWS)) != UFUNC ||
        ((PyUFuncObject *)function->target)->nout != 1)
        return args;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(names); k++) {
        PyObject *value = args[positional + k];
        if (PyTuple_CheckExact(value) && PyTuple_GET_SIZE(value) == 1 &&
            is_handle(PyTuple_GET_ITEM(value, 0)) &&
            !PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, k), "out")) {
            memcpy(room, args, (size_t)(positional + PyTuple_GET_SIZE(names)) * sizeof *args);
            room[positional + k] = PyTuple_GET_ITEM(value, 0);
            return room;
        }
    }
    return args;
}

/* Call NumPy: 1 and the result (NULL with an error), or 0 for the recorded way. */
static int call_numpy(const AtOnce *function, PyObject *const *args, Py_ssize_t positional,
                      PyObject *names, PyObject **given)
{
    Py_ssize_t total = positional + (names ? PyTuple_GET_SIZE(names) : 0), out = -1;
    PyObject *room[MOST_ARGUMENTS];
    *given = NULL;
    if (held || !limit || total > MOST_ARGUMENTS)
        return 0;
    if (names) {
        args = with_output(function, args, positional, names, room);
        if (has_name_of_ours(names, args + positional, &out))
            return 0;
    }
    if (out >= 0)
        out += positional;
    if (positional > function->most) {
        if (out >= 0 || !has_output(function, args, positional))
            return 0;
        out = function->most;
    }
    if ((function->size != ANY_SIZE || function->kind & DRAWS) && !births)
        return 0;
    Arguments arguments;
    double created;
    begin_arguments(&arguments);
    int done = take_arguments(&arguments, function, args, positional, names, &created);
    if (done)
        done = may_write(function, &arguments, args, positional, out);
    if (done == 1) {
        Handle *first =
            function->kind & WRITES ? begin_write((Handle *)args[place_written(function)]) : NULL;
        Handle *second = out >= 0 ? begin_write((Handle *)args[out]) : NULL;
        PyObject *result = returned(function, &arguments, positional, names, created);
        if (first)
            end_write(first);
        if (second)
            end_write(second);
        if (result)
            done = finish(function, result, &arguments, args, positional, names, out, given);
    }
    release(&arguments);
    return done || PyErr_Occurred();
}

/* Whether a call is of a ufunc alone with operands, of which some are arrays of ours. */
static int only_computes(const AtOnce *function, PyObject *const *args, Py_ssize_t count,
                         PyObject *names)
{
    return (function->kind & (UFUNC | DRAWS | LIBRARY)) == UFUNC && !names && count > 0 &&
           count <= 2 && count == function->most && limit && !held &&
           (is_handle(args[0]) || is_handle(args[count - 1]));
}

static PyObject *at_once_work(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    const AtOnce *function = (AtOnce *)self;
    const Py_ssize_t count = PyVectorcall_NARGS(flags);
    PyObject *result;
    if (!keep_pace())
        return NULL;
    const double before = paced;
    if (names && !PyTuple_GET_SIZE(names))
        names = NULL;
    if (only_computes(function, args, count, names) &&
        ufunc_at_once(function->target, args, count, &result))
        return counted(result, before);
    if (PyErr_Occurred())
        return NULL;
    if (call_numpy(function, args, count, names, &result))
        return counted(result, before);
    if (function->kind & UFUNC && !names) {
        result = record_ufunc(function->target, args, count);
        if (result || PyErr_Occurred())
            return counted(result, before);
    }
    return counted(function->kind & RECORDS
                       ? record_call(function->fallback, args, flags, names)
                       : PyObject_Vectorcall(function->fallback, args, flags, names), before);
}

PyObject *at_once_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    if (watching)
        return watched_call(at_once_work, ((AtOnce *)self)->kind & READS, self, args, flags, names);
    return at_once_work(self, args, flags, names);
}
