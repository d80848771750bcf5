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

/* NumPy makes an array of a number at every call, and looks for how; an array without axes it takes
   as it is, which makes `x * 2.5` of few elements a third quicker.  One of either dtype is kept
   while no call has it: a thread may be in the middle of one. */
enum { REAL_SPARE, WHOLE_SPARE, SPARES };
static PyObject *spares[SPARES];

/* What stands for a number beside an array of NumPy's in an operation whose loops have operands of
   one dtype: a new reference to an array without axes where the dtypes are as with the number, else
   to the very operand; NULL with an error.  `floats`: integers may become floats, as operators have
   it.  It goes by `drop_number`. */
PyObject *number_beside(PyObject *x, PyObject *other, int floats)
{
    if (PyArray_Check(x) || !PyArray_CheckExact(other) || !PyArray_NDIM((PyArrayObject *)other) ||
        !PyArray_ISNOTSWAPPED((PyArrayObject *)other))
        return Py_NewRef(x);
    Number number = number_of(x), none = {.kind = REAL};
    int type = PyArray_TYPE((PyArrayObject *)other), spare = REAL_SPARE;
    if (type == NPY_INT64 && number.kind & WHOLE)
        spare = WHOLE_SPARE;
    else if (type != NPY_DOUBLE || !number.kind || (number.kind & WHOLE && !floats) ||
             !as_reals(&number, &none))
        return Py_NewRef(x);
    PyObject *array = spares[spare];
    spares[spare] = NULL;
    if (!array)
        array = PyArray_SimpleNew(0, NULL, spare == REAL_SPARE ? NPY_DOUBLE : NPY_INT64);
    if (array && spare == REAL_SPARE)
        *(double *)PyArray_DATA((PyArrayObject *)array) = number.real;
    else if (array)
        *(npy_int64 *)PyArray_DATA((PyArrayObject *)array) = number.whole;
    return array;
}

/* Let go of what `number_beside` gave, or NULL. */
void drop_number(PyObject *x)
{
    if (x && Py_REFCNT(x) == 1 && PyArray_CheckExact(x) && !PyArray_NDIM((PyArrayObject *)x)) {
        int spare = PyArray_TYPE((PyArrayObject *)x) == NPY_DOUBLE ? REAL_SPARE : WHOLE_SPARE;
        if (!spares[spare]) {
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
