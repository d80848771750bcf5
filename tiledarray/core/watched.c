/* Calls of a class of arrays, counted while it is watched; what becomes of that is in watch.c. */

#define PY_SSIZE_T_CLEAN
#include "watch.h"
#include "watching.h"
#include <pythread.h>
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#include <numpy/arrayobject.h>

#define LARGE (1 << 16)       /* bytes: memory that goes back to the system, not to a list */

static size_t array_offset = 0;
static PyTypeObject *watched_type = NULL, *iterator_type = NULL;

/* ---- what comes of a call --------------------------------------------------------------------- */

static inline PyObject *array_of(PyObject *x)
{
    return *(PyObject **)((char *)x + array_offset);
}

static inline npy_intp size_of(PyObject *value)
{
    return value && PyArray_CheckExact(value) ? PyArray_SIZE((PyArrayObject *)value) : 1;
}

/* Elements of a settled array of ours; 1 of anything else. */
static inline npy_intp elements_of(PyObject *x)
{
    return x && Py_TYPE(x) == watched_type ? size_of(array_of(x)) : 1;
}

/* Elements of what is recorded and has been computed, as large random numbers are; else 0. */
static npy_intp computed_elements(PyObject *x)
{
    PyObject *node = PyObject_GetAttrString(x, "_recorded"), *size = NULL;
    PyObject *buffer = node ? PyObject_GetAttrString(node, "buffer") : NULL;
    if (buffer && buffer != Py_None)
        size = PyObject_GetAttrString(x, "size");
    npy_intp elements = size ? PyLong_AsSsize_t(size) : 0;
    PyErr_Clear(); /* a view's `_recorded` is None */
    Py_XDECREF(node);
    Py_XDECREF(buffer);
    Py_XDECREF(size);
    return elements > 0 ? elements : 0;
}

/* Count a call by what came of it; it works on `elements`, or as many as the result has. */
static void end_with(const Call *call, PyObject *result, int otherwise, npy_intp elements)
{
    PyObject *x = result;
    if (x && (PyTuple_CheckExact(x) || PyList_CheckExact(x)) && PySequence_Fast_GET_SIZE(x))
        x = PySequence_Fast_GET_ITEM(x, 0);
    npy_intp made = elements_of(x);
    if (made > elements)
        elements = made;
    if (!x || Py_TYPE(x) != watched_type)
        end(call, otherwise, elements);
    else if (array_of(x))
        end(call, AT_ONCE, elements);
    else {
        npy_intp computed = call->started ? computed_elements(x) : 0;
        Place *place = place_of(call);
        if (place && call->started)
            place->computed = computed;
        else if (place)
            computed = place->computed;
        end(call, computed ? AT_ONCE : RECORDED, computed ? computed : 1);
    }
}

static inline npy_intp larger(npy_intp x, npy_intp y) { return x > y ? x : y; }

/* ---- slots ------------------------------------------------------------------------------------ */

#define BINARIES(X) \
    X(add) X(subtract) X(multiply) X(true_divide) X(floor_divide) X(remainder) X(and) X(or) X(xor) \
    X(lshift) X(rshift) X(matrix_multiply) X(inplace_add) X(inplace_subtract) X(inplace_multiply) \
    X(inplace_true_divide) X(inplace_floor_divide) X(inplace_remainder) X(inplace_and) \
    X(inplace_or) X(inplace_xor) X(inplace_lshift) X(inplace_rshift) X(inplace_matrix_multiply)
#define UNARIES(X) X(negative) X(positive) X(absolute) X(invert)
#define CONVERSIONS(X) X(float) X(int) X(index)

#define NAME(name) SLOT_##name,
enum { BINARIES(NAME) UNARIES(NAME) CONVERSIONS(NAME) SLOT_power, SLOT_inplace_power, SLOT_bool,
       SLOT_read, SLOT_write, SLOT_compare, SLOT_next, SLOT_function };

static PyNumberMethods numbers;
static PyMappingMethods mappings;
static richcmpfunc compares;
static iternextfunc next_element;
static destructor deallocate;

#define BINARY(name) \
    static PyObject *count_##name(PyObject *x, PyObject *y) \
    { \
        Call call; \
        if (!begin(&call, SLOT_##name)) \
            return numbers.nb_##name(x, y); \
        PyObject *result = numbers.nb_##name(x, y); \
        end_with(&call, result, AT_ONCE, larger(elements_of(x), elements_of(y))); \
        return result; \
    }
BINARIES(BINARY)

#define UNARY(name, kind) \
    static PyObject *count_##name(PyObject *x) \
    { \
        Call call; \
        if (!begin(&call, SLOT_##name)) \
            return numbers.nb_##name(x); \
        PyObject *result = numbers.nb_##name(x); \
        end_with(&call, result, kind, 1); \
        return result; \
    }
#define OF_UNARY(name) UNARY(name, AT_ONCE)
#define OF_CONVERSION(name) UNARY(name, LOOK)
UNARIES(OF_UNARY)
CONVERSIONS(OF_CONVERSION)

#define POWER(name) \
    static PyObject *count_##name(PyObject *x, PyObject *y, PyObject *modulus) \
    { \
        Call call; \
        if (!begin(&call, SLOT_##name)) \
            return numbers.nb_##name(x, y, modulus); \
        PyObject *result = numbers.nb_##name(x, y, modulus); \
        end_with(&call, result, AT_ONCE, larger(elements_of(x), elements_of(y))); \
        return result; \
    }
POWER(power)
POWER(inplace_power)

static int count_bool(PyObject *x)
{
    Call call;
    if (!begin(&call, SLOT_bool))
        return numbers.nb_bool(x);
    int truth = numbers.nb_bool(x);
    end(&call, LOOK, 1);
    return truth;
}

static PyObject *count_read(PyObject *x, PyObject *key)
{
    Call call;
    if (!begin(&call, SLOT_read))
        return mappings.mp_subscript(x, key);
    PyObject *result = mappings.mp_subscript(x, key);
    if (result && Py_TYPE(result) == watched_type && array_of(result) &&
        !PyArray_CheckExact(array_of(result)))
        end(&call, ELEMENT, 1);
    else
        end_with(&call, result, AT_ONCE, 1);
    return result;
}

static int is_place(PyObject *key)
{
    if (PyTuple_CheckExact(key)) {
        for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(key); k++)
            if (!is_place(PyTuple_GET_ITEM(key, k)))
                return 0;
        return 1;
    }
    return PyLong_CheckExact(key) || PyArray_IsScalar(key, Integer) ||
           (Py_TYPE(key) == watched_type && array_of(key) &&
            PyArray_IsScalar(array_of(key), Integer));
}

static int count_write(PyObject *x, PyObject *key, PyObject *value)
{
    Call call;
    if (!begin(&call, SLOT_write))
        return mappings.mp_ass_subscript(x, key, value);
    int scalar = value && is_place(key) &&
                 (Py_TYPE(value) != watched_type || size_of(array_of(value)) == 1);
    int result = mappings.mp_ass_subscript(x, key, value);
    PyObject *array = array_of(x);
    if (!array)
        end(&call, RECORDED, 1);
    else if (scalar && PyArray_CheckExact(array) &&
             (PyTuple_CheckExact(key) ? PyTuple_GET_SIZE(key) : 1) ==
                 PyArray_NDIM((PyArrayObject *)array))
        end(&call, ELEMENT, 1);
    else
        end(&call, AT_ONCE, elements_of(value));
    return result;
}

static PyObject *count_compare(PyObject *x, PyObject *y, int op)
{
    Call call;
    if (!begin(&call, SLOT_compare))
        return compares(x, y, op);
    PyObject *result = compares(x, y, op);
    end_with(&call, result, AT_ONCE, larger(elements_of(x), elements_of(y)));
    return result;
}

static PyObject *count_next(PyObject *iterator)
{
    Call call;
    if (!begin(&call, SLOT_next))
        return next_element(iterator);
    PyObject *result = next_element(iterator);
    if (!result)
        depth = 0; /* there are no more */
    else if (Py_TYPE(result) == watched_type)
        end_with(&call, result, AT_ONCE, 1);
    else
        end(&call, ELEMENT, 1);
    return result;
}

/* An array that dies: giving back what is large takes as long as an operation. */
static void count_dealloc(PyObject *x)
{
    PyObject *array = array_of(x);
    if (depth || height || !array || !PyArray_CheckExact(array) ||
        !PyArray_CHKFLAGS((PyArrayObject *)array, NPY_ARRAY_OWNDATA) ||
        PyArray_NBYTES((PyArrayObject *)array) < LARGE || PyThread_get_thread_ident() != owner) {
        deallocate(x);
        return;
    }
    settle(now());
    stack[height++] = releases;
    deallocate(x);
    if (watching && height) {
        settle(now());
        height--;
    }
}

PyObject *watched_call(vectorcallfunc work, int reads, PyObject *self, PyObject *const *args,
                       size_t flags, PyObject *names)
{
    Call call;
    if (!begin(&call, SLOT_function))
        return work(self, args, flags, names);
    PyObject *result = work(self, args, flags, names);
    npy_intp elements = 1;
    for (Py_ssize_t k = 0; k < PyVectorcall_NARGS(flags); k++)
        elements = larger(elements, elements_of(args[k]));
    end_with(&call, result, reads ? LOOK : AT_ONCE, elements);
    return result;
}

void exchange(PyTypeObject *type)
{
    watched_type = type;
    PyNumberMethods *number = type->tp_as_number;
    numbers = *number;
    mappings = *type->tp_as_mapping;
    compares = type->tp_richcompare;
    next_element = iterator_type->tp_iternext;
    deallocate = type->tp_dealloc;
#define SET(name) number->nb_##name = count_##name;
    BINARIES(SET)
    UNARIES(SET)
    CONVERSIONS(SET)
    SET(power)
    SET(inplace_power)
    SET(bool)
    type->tp_as_mapping->mp_subscript = count_read;
    type->tp_as_mapping->mp_ass_subscript = count_write;
    type->tp_richcompare = count_compare;
    iterator_type->tp_iternext = count_next;
    type->tp_dealloc = count_dealloc;
}

void give_back(void)
{
    PyTypeObject *type = watched_type;
    PyNumberMethods *number = type->tp_as_number;
#define RESET(name) number->nb_##name = numbers.nb_##name;
    BINARIES(RESET)
    UNARIES(RESET)
    CONVERSIONS(RESET)
    RESET(power)
    RESET(inplace_power)
    RESET(bool)
    type->tp_as_mapping->mp_subscript = mappings.mp_subscript;
    type->tp_as_mapping->mp_ass_subscript = mappings.mp_ass_subscript;
    type->tp_richcompare = compares;
    iterator_type->tp_iternext = next_element;
    type->tp_dealloc = deallocate;
}

int add_watched(size_t array_at, PyTypeObject *iterator)
{
    import_array1(-1);
    array_offset = array_at;
    iterator_type = iterator;
    return 0;
}
