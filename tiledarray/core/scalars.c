/* Arithmetic of NumPy's scalars: what NumPy does, without finding out each time what it is about.

   Loops over elements are made of it.  Whatever NumPy might warn of, or that needs another dtype,
   is left to NumPy. */

#include "core.h"

#include <float.h>
#include <math.h>
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>

#define EXACT 9007199254740992 /* integers up to here are doubles */

enum { NOTHING, NUMPYS = 1, PYTHONS = 2, REAL = 4, WHOLE = 8 };

typedef struct {
    double real;
    npy_int64 whole;
    int kind;
} Number;

/* What a float64, an int64 or one of Python's numbers is; a handle for its value. */
static inline Number number_of(PyObject *x)
{
    Number number = {0, 0, NOTHING};
    if (is_handle(x) && !(x = ((Handle *)x)->array))
        return number;
    if (Py_IS_TYPE(x, &PyDoubleArrType_Type)) {
        number.real = PyArrayScalar_VAL(x, Double);
        number.kind = NUMPYS | REAL;
    } else if (PyFloat_CheckExact(x)) {
        number.real = PyFloat_AS_DOUBLE(x);
        number.kind = PYTHONS | REAL;
    } else if (Py_IS_TYPE(x, &PyInt64ArrType_Type)) {
        number.whole = PyArrayScalar_VAL(x, Int64);
        number.kind = NUMPYS | WHOLE;
    } else if (PyLong_CheckExact(x)) {
        int overflow;
        number.whole = PyLong_AsLongLongAndOverflow(x, &overflow);
        number.kind = overflow ? NOTHING : PYTHONS | WHOLE;
    }
    return number;
}

/* Have both as doubles; 0 if one is none exactly. */
static inline int as_reals(Number *x, Number *y)
{
    for (int k = 0; k < 2; k++) {
        Number *each = k ? y : x;
        if (each->kind & REAL)
            continue;
        if (each->whole > EXACT || each->whole < -EXACT)
            return 0;
        each->real = (double)each->whole;
    }
    return 1;
}

/* Both numbers, if NumPy would compute with them in float64 (REAL) or int64 (WHOLE). */
static inline int kind_of_two(PyObject *left, PyObject *right, Number *x, Number *y)
{
    *x = number_of(left);
    if (!x->kind)
        return NOTHING;
    *y = number_of(right);
    if (!y->kind || !((x->kind | y->kind) & NUMPYS))
        return NOTHING;
    if (x->kind & y->kind & WHOLE)
        return WHOLE;
    return as_reals(x, y) ? REAL : NOTHING;
}

static PyObject *real_result(int op, double x, double y)
{
    double result;
    if (op == SCALAR_ADD)
        result = x + y;
    else if (op == SCALAR_SUB)
        result = x - y;
    else if (op == SCALAR_MUL)
        result = x * y;
    else if (y != 0)
        result = x / y;
    else
        return NULL;
    if (!isfinite(result))
        return NULL;
    if (fabs(result) < DBL_MIN && op >= SCALAR_MUL && x != 0)
        return NULL; /* an underflow */
    PyObject *made = PyArrayScalar_New(Double);
    if (made)
        PyArrayScalar_ASSIGN(made, Double, result);
    return made;
}

static PyObject *whole_result(int op, npy_int64 x, npy_int64 y)
{
    npy_int64 most = op == SCALAR_MUL ? (npy_int64)1 << 31 : (npy_int64)1 << 62;
    if (op == SCALAR_TRUEDIV || x >= most || x <= -most || y >= most || y <= -most)
        return NULL;
    npy_int64 result = op == SCALAR_ADD ? x + y : op == SCALAR_SUB ? x - y : x * y;
    PyObject *made = PyArrayScalar_New(Int64);
    if (made)
        PyArrayScalar_ASSIGN(made, Int64, result);
    return made;
}

/* The result as NumPy's scalar; NULL, perhaps with an error set, if NumPy itself has to compute. */
PyObject *scalar_binary(int op, PyObject *left, PyObject *right)
{
    Number x, y;
    int kind = kind_of_two(left, right, &x, &y);
    if (kind == REAL)
        return real_result(op, x.real, y.real);
    return kind == WHOLE ? whole_result(op, x.whole, y.whole) : NULL;
}

/* As `scalar_binary`, of a comparison as `tp_richcompare` numbers them. */
PyObject *scalar_compare(PyObject *left, PyObject *right, int op)
{
    Number x, y;
    int kind = kind_of_two(left, right, &x, &y);
    if (!kind)
        return NULL;
    int less = kind == REAL ? x.real < y.real : x.whole < y.whole;
    int equal = kind == REAL ? x.real == y.real : x.whole == y.whole;
    int greater = kind == REAL ? x.real > y.real : x.whole > y.whole;
    int found = op == Py_LT ? less : op == Py_LE ? less || equal : op == Py_EQ ? equal
                : op == Py_NE ? !equal : op == Py_GT ? greater : greater || equal;
    return Py_NewRef(found ? PyArrayScalar_True : PyArrayScalar_False);
}

/* ---- numbers beside arrays ------------------------------------------------------------------ */

/* NumPy makes an array of a number at every call, and looks for how.  An array without axes it takes
   as it is, which makes `x * 2.5` of few elements a third quicker.  One of each dtype is kept while
   no call has it: a thread may be in the middle of one. */
enum { SPARES = 3 };
static const int spare_types[SPARES] = {NPY_DOUBLE, NPY_FLOAT, NPY_INT64};
static PyObject *spares[SPARES];

static int spare_of(int type)
{
    for (int k = 0; k < SPARES; k++)
        if (spare_types[k] == type)
            return k;
    return -1;
}

/* Whether a number is as well one of an array's dtype: to NumPy it counts as such there. */
static int counts_as(Number *number, int type, int floats)
{
    Number none = {.kind = REAL};
    if (type == NPY_INT64)
        return number->kind & WHOLE;
    if (!number->kind || (number->kind & WHOLE && !floats) || !as_reals(number, &none))
        return 0;
    const double size = fabs(number->real); /* in float32, what NumPy would not warn of */
    return type == NPY_DOUBLE || (number->kind & PYTHONS && (!size || isnan(size) ||
                                  isinf(size) || (size >= FLT_MIN && size <= FLT_MAX)));
}

/* What stands for a number beside an array in an operation that has loops of two of its dtype: a
   new reference to an array without axes if that comes to the same, else to the very operand; NULL
   with an error.  `floats`: integers count as floats there, as in operators.  It goes by
   `drop_number`. */
PyObject *number_beside(PyObject *x, PyObject *other, int floats)
{
    if (PyArray_Check(x) || !PyArray_CheckExact(other) || !PyArray_NDIM((PyArrayObject *)other) ||
        !PyArray_ISNOTSWAPPED((PyArrayObject *)other))
        return Py_NewRef(x);
    Number number = number_of(x);
    const int type = PyArray_TYPE((PyArrayObject *)other), spare = spare_of(type);
    if (spare < 0 || !counts_as(&number, type, floats))
        return Py_NewRef(x);
    PyObject *array = spares[spare];
    spares[spare] = NULL;
    if (!array && !(array = PyArray_SimpleNew(0, NULL, type)))
        return NULL;
    void *data = PyArray_DATA((PyArrayObject *)array);
    if (type == NPY_DOUBLE)
        *(double *)data = number.real;
    else if (type == NPY_FLOAT)
        *(float *)data = (float)number.real;
    else
        *(npy_int64 *)data = number.whole;
    return array;
}

/* Let go of what `number_beside` gave, or NULL. */
void drop_number(PyObject *x)
{
    if (x && Py_REFCNT(x) == 1 && PyArray_CheckExact(x) && !PyArray_NDIM((PyArrayObject *)x)) {
        const int spare = spare_of(PyArray_TYPE((PyArrayObject *)x));
        if (spare >= 0 && !spares[spare]) {
            spares[spare] = x;
            return;
        }
    }
    Py_XDECREF(x);
}

int add_scalars(void)
{
    import_array1(-1);
    return 0;
}
