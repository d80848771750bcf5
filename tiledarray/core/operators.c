/* Operators: `twin_operators.py` in Python. */

#include "handle.h"
#include "pace.h"

enum {
    ADD = SCALAR_ADD, SUB = SCALAR_SUB, MUL = SCALAR_MUL, TRUEDIV = SCALAR_TRUEDIV, FLOORDIV, MOD,
    POW, AND, OR, XOR, LSHIFT, RSHIFT, MATMUL, OPERATORS
};
static const char *const operator_names[OPERATORS] = {
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift",
    "rshift", "matmul"};
static const char *const comparison_names[6] = {"lt", "le", "eq", "ne", "gt", "ge"};
static PyObject *forward[OPERATORS], *reflected[OPERATORS], *in_place[OPERATORS], *compared[6];
static PyObject *ops[OPERATORS], *compared_ops[6]; /* what records them, NULL: Python alone */
static PyObject *unary_ops[INVERT + 1];

/* Whether what two operands broadcast to is small too. */
int fit(PyObject *x, PyObject *y)
{
    if (!PyArray_Check(x) || !PyArray_Check(y))
        return 1;
    PyArrayObject *left = (PyArrayObject *)x, *right = (PyArrayObject *)y;
    int m = PyArray_NDIM(left), n = PyArray_NDIM(right), ndim = m > n ? m : n;
    if (m == n && PyArray_CompareLists(PyArray_DIMS(left), PyArray_DIMS(right), m))
        return 1;
    npy_intp size = 1;
    for (int k = 1; k <= ndim; k++) {
        npy_intp a = k <= m ? PyArray_DIM(left, m - k) : 1;
        npy_intp b = k <= n ? PyArray_DIM(right, n - k) : 1;
        size *= a > b ? a : b;
    }
    return size <= limit;
}

/* Both operands, if NumPy computes with them at once: 1, and new references.  Beside an array it
   makes one of a list, which a number repeats or refuses. */
static inline int operands(PyObject *x, PyObject *y, PyObject **left, PyObject **right)
{
    *left = operand(x);
    if (!*left && (is_handle(x) || PyErr_Occurred()))
        return 0;
    *right = operand(y);
    if (!*left && *right && PyArray_Check(*right))
        *left = listed(x);
    else if (!*right && *left && PyArray_Check(*left) && !is_handle(y) && !PyErr_Occurred())
        *right = listed(y);
    if (*left && *right && fit(*left, *right))
        return 1;
    Py_XDECREF(*left);
    Py_XDECREF(*right);
    return 0;
}

/* ---- operators ----------------------------------------------------------------------------- */

static PyObject *power(PyObject *x, PyObject *y) { return PyNumber_Power(x, y, Py_None); }
static PyObject *power_in_place(PyObject *x, PyObject *y)
{
    return PyNumber_InPlacePower(x, y, Py_None);
}

static const binaryfunc numpys[OPERATORS] = {
    PyNumber_Add, PyNumber_Subtract, PyNumber_Multiply, PyNumber_TrueDivide, PyNumber_FloorDivide,
    PyNumber_Remainder, power, PyNumber_And, PyNumber_Or, PyNumber_Xor, PyNumber_Lshift,
    PyNumber_Rshift, PyNumber_MatrixMultiply};
static const binaryfunc numpys_in_place[OPERATORS] = {
    PyNumber_InPlaceAdd, PyNumber_InPlaceSubtract, PyNumber_InPlaceMultiply,
    PyNumber_InPlaceTrueDivide, PyNumber_InPlaceFloorDivide, PyNumber_InPlaceRemainder,
    power_in_place, PyNumber_InPlaceAnd, PyNumber_InPlaceOr, PyNumber_InPlaceXor,
    PyNumber_InPlaceLshift, PyNumber_InPlaceRshift, PyNumber_InPlaceMatrixMultiply};

/* What NumPy makes of two operands, whose loops have operands of one dtype if `alike`. */
static PyObject *computed(binaryfunc function, PyObject *x, PyObject *y, int alike)
{
    if (!alike || PyArray_Check(x) == PyArray_Check(y))
        return with_two(function, x, y);
    PyObject *left = number_beside(x, y, 1), *right = left ? number_beside(y, x, 1) : NULL;
    PyObject *result = right ? with_two(function, left, right) : NULL;
    drop_number(left);
    drop_number(right);
    return result;
}

/* What is made of numbers alone: 1 and the result, NULL with an error; 0 if it is not so. */
static inline int binary_of_scalars(int op, PyObject *x, PyObject *y, PyObject **result)
{
    if (op > TRUEDIV || !limit || held)
        return 0;
    PyObject *scalar = scalar_binary(op, x, y);
    if (!scalar && !PyErr_Occurred())
        return 0;
    *result = own(scalar);
    return 1;
}

static PyObject *binary(int op, PyObject *x, PyObject *y)
{
    PyObject *left, *right, *result;
    if (binary_of_scalars(op, x, y, &result))
        return result;
    if (!keep_pace())
        return NULL;
    const double before = paced;
    if (operands(x, y, &left, &right)) {
        result = own(computed(numpys[op], left, right, op <= MOD));
        Py_DECREF(left);
        Py_DECREF(right);
        return counted(result, before);
    }
    if (PyErr_Occurred())
        return NULL;
    result = op == POW ? record_power(ops[op], x, y) : record_binary(ops[op], x, y);
    if (!result && !PyErr_Occurred())
        result = is_handle(x) ? PyObject_CallFunctionObjArgs(forward[op], x, y, NULL)
                              : PyObject_CallFunctionObjArgs(reflected[op], y, x, NULL);
    return counted(result, before);
}

/* The operands of `x += y` where others have the memory of x: settled, and of any size, for nothing
   is recorded of that.  As `operands`. */
static int operands_lent(PyObject *x, PyObject *y, PyObject **left, PyObject **right)
{
    if (held || !is_handle(x) || !root_of((Handle *)x)->loan)
        return 0;
    *left = Py_XNewRef(find_array((Handle *)x));
    *right = *left ? settled_operand(y) : NULL;
    if (!*right)
        Py_CLEAR(*left);
    return *right != NULL;
}

static PyObject *update(int op, PyObject *x, PyObject *y)
{
    PyObject *left, *right, *result = NULL;
    if (binary_of_scalars(op, x, y, &result)) /* NumPy's are immutable */
        return result;
    if (!keep_pace())
        return NULL;
    const double before = paced;
    if (operands(x, y, &left, &right) ||
        (!PyErr_Occurred() && operands_lent(x, y, &left, &right))) {
        int may = 1;
        if (!is_array(left))
            result = own(numpys[op](left, right));
        else if ((may = writable((Handle *)x, left)) == 1) {
            PyObject *number = op <= MOD ? number_beside(right, left, 1) : Py_NewRef(right);
            Handle *root = begin_write((Handle *)x);
            result = number ? numpys_in_place[op](left, number) : NULL;
            end_write(root);
            drop_number(number);
            if (result == left) {
                Py_DECREF(result);
                result = Py_NewRef(x);
            } else if (result)
                result = own(result);
        }
        Py_DECREF(left);
        Py_DECREF(right);
        if (may)
            return counted(result, before);
    } else if (PyErr_Occurred())
        return NULL;
    result = op == POW ? NULL : record_update(ops[op], x, y);
    if (!result && !PyErr_Occurred())
        result = PyObject_CallFunctionObjArgs(in_place[op], x, y, NULL);
    return counted(result, before);
}

/* What a product takes: settled, and of almost any size. */
static PyObject *factor(PyObject *x)
{
    PyObject *array = NULL;
    if (is_handle(x))
        array = settled((Handle *)x);
    else if (is_array(x) && limit && !held)
        array = x;
    return array && is_array(array) && size_of(array) <= at_most(library_factor)
               ? Py_NewRef(array) : NULL;
}

static PyObject *n_matmul(PyObject *x, PyObject *y)
{
    PyObject *left = factor(x), *right = left ? factor(y) : NULL, *result = NULL;
    int done = right && elements_of_product(left, right) <= (double)at_most(library_factor);
    if (done)
        result = own(PyNumber_MatrixMultiply(left, right));
    Py_XDECREF(left);
    Py_XDECREF(right);
    if (done || PyErr_Occurred())
        return result;
    if (is_handle(x)) {
        PyObject *arguments[2] = {x, y};
        return record_call(forward[MATMUL], arguments, 2, NULL);
    }
    return PyObject_CallFunctionObjArgs(reflected[MATMUL], y, x, NULL);
}

#define OPERATOR(name, op) \
    static PyObject *n_##name(PyObject *x, PyObject *y) { return binary(op, x, y); } \
    static PyObject *i_##name(PyObject *x, PyObject *y) { return update(op, x, y); }
OPERATOR(add, ADD)
OPERATOR(sub, SUB)
OPERATOR(mul, MUL)
OPERATOR(truediv, TRUEDIV)
OPERATOR(floordiv, FLOORDIV)
OPERATOR(mod, MOD)
OPERATOR(and, AND)
OPERATOR(or, OR)
OPERATOR(xor, XOR)
OPERATOR(lshift, LSHIFT)
OPERATOR(rshift, RSHIFT)

static PyObject *i_matmul(PyObject *x, PyObject *y) { return update(MATMUL, x, y); }
static PyObject *n_pow(PyObject *x, PyObject *y, PyObject *modulus)
{
    if (modulus != Py_None)
        Py_RETURN_NOTIMPLEMENTED;
    return binary(POW, x, y);
}
static PyObject *i_pow(PyObject *x, PyObject *y, PyObject *modulus) { return update(POW, x, y); }

static PyObject *unary(PyObject *x, unaryfunc function, int which)
{
    if (!keep_pace())
        return NULL;
    const double before = paced;
    PyObject *value = operand(x), *result = NULL;
    if (!value) {
        if (!PyErr_Occurred())
            result = record_unary(unary_ops[which], x);
        if (!result && !PyErr_Occurred())
            result = PyObject_CallOneArg(recorded[which], x);
        return counted(result, before);
    }
    PyObject *memory;
    if (begin_keeping(is_spacious(value), &memory))
        result = own(function(value));
    end_keeping(memory);
    Py_DECREF(value);
    return counted(result, before);
}

/* Reading the one element: of a settled array of any size, for NumPy refuses the others. */
static PyObject *converted(PyObject *x, unaryfunc function, int which)
{
    PyObject *value = settled((Handle *)x);
    if (!value)
        return PyErr_Occurred() ? NULL : PyObject_CallOneArg(recorded[which], x);
    Py_INCREF(value);
    PyObject *result = function(value);
    Py_DECREF(value);
    return result;
}

static PyObject *n_neg(PyObject *x) { return unary(x, PyNumber_Negative, NEG); }
static PyObject *n_pos(PyObject *x) { return unary(x, PyNumber_Positive, POS); }
static PyObject *n_abs(PyObject *x) { return unary(x, PyNumber_Absolute, ABS); }
static PyObject *n_invert(PyObject *x) { return unary(x, PyNumber_Invert, INVERT); }
static PyObject *n_float(PyObject *x) { return converted(x, PyNumber_Float, FLOAT); }
static PyObject *n_int(PyObject *x) { return converted(x, PyNumber_Long, INT); }
static PyObject *n_index(PyObject *x) { return converted(x, PyNumber_Index, INDEX); }

static int n_bool(PyObject *x)
{
    PyObject *value = settled((Handle *)x);
    if (value) {
        Py_INCREF(value);
        int truth = PyObject_IsTrue(value);
        Py_DECREF(value);
        return truth;
    }
    PyObject *result = PyErr_Occurred() ? NULL : PyObject_CallOneArg(recorded[BOOL], x);
    if (!result)
        return -1;
    int truth = PyObject_IsTrue(result);
    Py_DECREF(result);
    return truth;
}

PyNumberMethods handle_as_number = {
    .nb_add = n_add, .nb_subtract = n_sub, .nb_multiply = n_mul, .nb_true_divide = n_truediv,
    .nb_floor_divide = n_floordiv, .nb_remainder = n_mod, .nb_power = n_pow, .nb_and = n_and,
    .nb_or = n_or, .nb_xor = n_xor, .nb_lshift = n_lshift, .nb_rshift = n_rshift,
    .nb_matrix_multiply = n_matmul, .nb_inplace_add = i_add, .nb_inplace_subtract = i_sub,
    .nb_inplace_multiply = i_mul, .nb_inplace_true_divide = i_truediv,
    .nb_inplace_floor_divide = i_floordiv, .nb_inplace_remainder = i_mod,
    .nb_inplace_power = i_pow, .nb_inplace_and = i_and, .nb_inplace_or = i_or,
    .nb_inplace_xor = i_xor, .nb_inplace_lshift = i_lshift, .nb_inplace_rshift = i_rshift,
    .nb_inplace_matrix_multiply = i_matmul, .nb_negative = n_neg, .nb_positive = n_pos,
    .nb_absolute = n_abs, .nb_invert = n_invert, .nb_bool = n_bool, .nb_float = n_float,
    .nb_int = n_int, .nb_index = n_index};

#define COMPARISON(NAME, OP) \
    static PyObject *NAME(PyObject *x, PyObject *y) { return PyObject_RichCompare(x, y, OP); }
COMPARISON(less, Py_LT)
COMPARISON(less_or_equal, Py_LE)
COMPARISON(equal, Py_EQ)
COMPARISON(not_equal, Py_NE)
COMPARISON(greater, Py_GT)
COMPARISON(greater_or_equal, Py_GE)

static const binaryfunc comparisons[] = {
    [Py_LT] = less, [Py_LE] = less_or_equal, [Py_EQ] = equal,
    [Py_NE] = not_equal, [Py_GT] = greater, [Py_GE] = greater_or_equal};

PyObject *handle_compare(PyObject *x, PyObject *y, int op)
{
    PyObject *left, *right;
    if (limit && !held) {
        PyObject *scalar = scalar_compare(x, y, op);
        if (scalar)
            return own(scalar);
    }
    if (!keep_pace())
        return NULL;
    const double before = paced;
    if (operands(x, y, &left, &right)) {
        PyObject *result = own(computed(comparisons[op], left, right, 1));
        Py_DECREF(left);
        Py_DECREF(right);
        return counted(result, before);
    }
    if (PyErr_Occurred())
        return NULL;
    PyObject *result = record_binary(compared_ops[op], x, y);
    if (!result && !PyErr_Occurred())
        result = PyObject_CallFunctionObjArgs(compared[op], x, y, NULL);
    return counted(result, before);
}

Py_hash_t handle_hash(PyObject *x)
{
    PyObject *value = settled((Handle *)x);
    if (value && !PyArray_Check(value))
        return PyObject_Hash(value);
    PyObject *result = PyErr_Occurred() ? NULL : PyObject_CallOneArg(recorded[HASH], x);
    if (!result)
        return -1;
    Py_hash_t hash = PyLong_AsSsize_t(result);
    Py_DECREF(result);
    return hash == -1 && !PyErr_Occurred() ? -2 : hash;
}

/* ---- what Python tells ---------------------------------------------------------------------- */

/* Say which op records an operator, if one does. */
static void set_op(PyObject *found, const char *name, PyObject **slot)
{
    Py_XSETREF(*slot, Py_XNewRef(PyDict_GetItemString(found, name)));
}

int install_operators(PyObject *functions)
{
    char name[32];
    PyObject *elementwise = PyDict_GetItemString(functions, "ops");
    if (!elementwise || !PyDict_Check(elementwise)) {
        PyErr_SetString(PyExc_KeyError, "ops");
        return -1;
    }
    for (int k = 0; k < OPERATORS; k++) {
        PyObject **slots[3] = {&forward[k], &reflected[k], &in_place[k]};
        const char *prefixes[3] = {"", "r", "i"};
        for (int j = 0; j < 3; j++) {
            PyOS_snprintf(name, sizeof name, "__%s%s__", prefixes[j], operator_names[k]);
            if (set_from(functions, name, slots[j]))
                return -1;
        }
        PyOS_snprintf(name, sizeof name, "__%s__", operator_names[k]);
        set_op(elementwise, name, &ops[k]);
    }
    for (int k = 0; k < 6; k++) {
        PyOS_snprintf(name, sizeof name, "__%s__", comparison_names[k]);
        if (set_from(functions, name, &compared[k]))
            return -1;
        set_op(elementwise, name, &compared_ops[k]);
    }
    static const char *const unary_names[] = {
        [NEG] = "__neg__", [POS] = "__pos__", [ABS] = "__abs__", [INVERT] = "__invert__"};
    for (int k = NEG; k <= INVERT; k++)
        set_op(elementwise, unary_names[k], &unary_ops[k]);
    return 0;
}
