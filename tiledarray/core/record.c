/* Operations of handles that become nodes at once.

   Only what is usual is done here: elementwise operators and functions of arrays and numbers;
   slices are in `slices.c`.  Everything else, errors included, is left to Python, which records it by the
   same rules (`recording/record.py`, `arrays/operators.py`, `arrays/recorded.py`) and is asked here
   once for each combination of kinds.  There is no twin of this file: Python does it anyhow. */

#include "core.h"

#include <string.h>

/* What Python gives `install_recording`. */
enum { COMPUTE, FORM_OF_CALL, FLOAT64, CALLBACKS };
static const char *const callback_names[CALLBACKS] = {"compute", "form_of_call", "float64"};
static PyObject *callbacks[CALLBACKS];
static PyObject *ufuncs[2];   /* of one and of two operands, each with its op */
static PyObject *short_powers[5]; /* square, positive, reciprocal, sqrt, multiply */
static PyObject *kind_name, *itemsize_name;

/* ---- the nodes of operands ------------------------------------------------------------------ */

/* The node of an array's present value, a new reference; NULL without an error if Python has to
   find it. */
Node *present_node(Handle *handle)
{
    if (handle->base)
        return view_node(handle);
    if (is_deferred(handle))
        return NULL;
    PyObject *node = handle->node ? Py_NewRef(handle->node) : get_node(handle, NULL);
    if (node && !is_node(node))
        Py_CLEAR(node);
    return (Node *)node;
}

/* ---- calls that were met before ------------------------------------------------------------- */

enum { AS_IT_IS, AS_FLOAT, AS_INTEGER, BY_CALL };

/* An op of operands of certain kinds; a number's kind is its type. */
typedef struct {
    PyObject *op, *left, *right; /* the key */
    Form *form;
    PyObject *convert;        /* makes the number what the loop takes */
    int64_t low, high;        /* numbers that are that already, AS_INTEGER */
    int how;
} Call;

#define MOST_CALLS (1 << 15)

static Call *calls = NULL;    /* a table of open addresses */
static Py_ssize_t calls_room = 0, calls_known = 0;

static inline Call *place_of(PyObject *op, PyObject *left, PyObject *right)
{
    size_t mask = (size_t)calls_room - 1;
    size_t at = ((size_t)op >> 4) * 31 + ((size_t)left >> 4) * 0x9e3779b1u +
                ((size_t)right >> 4) * 0x85ebca6bu;
    for (at ^= at >> 15;; at++) {
        Call *call = calls + (at & mask);
        if (!call->op || (call->op == op && call->left == left && call->right == right))
            return call;
    }
}

static void drop_calls(void)
{
    Call *old = calls;
    Py_ssize_t room = calls_room;
    calls = NULL;
    calls_room = calls_known = 0;
    for (Py_ssize_t k = 0; k < room; k++)
        if (old[k].op) {
            Py_DECREF(old[k].op);
            Py_DECREF(old[k].left);
            Py_XDECREF(old[k].right);
            Py_XDECREF(old[k].form);
            Py_XDECREF(old[k].convert);
        }
    PyMem_Free(old);
}

/* Make room for one more call; -1 with an error set. */
static int make_room(void)
{
    if (calls_known >= MOST_CALLS)
        drop_calls();
    if (2 * (calls_known + 1) <= calls_room)
        return 0;
    Call *old = calls;
    Py_ssize_t room = calls_room;
    Call *found = PyMem_Calloc(room ? (size_t)(4 * room) : 256, sizeof(Call));
    if (!found) {
        PyErr_NoMemory();
        return -1;
    }
    calls = found;
    calls_room = room ? 4 * room : 256;
    for (Py_ssize_t k = 0; k < room; k++)
        if (old[k].op)
            *place_of(old[k].op, old[k].left, old[k].right) = old[k];
    PyMem_Free(old);
    return 0;
}

/* Work out how a number becomes what the loop takes. */
static int say_how(Call *call, PyObject *loop, int is_exponent)
{
    call->how = BY_CALL;
    if (call->convert == (PyObject *)&PyFloat_Type) {
        call->how = AS_FLOAT;
        return 0;
    }
    PyObject *kind = PyObject_GetAttr(loop, kind_name), *itemsize;
    if (!kind)
        return -1;
    int is_signed = PyUnicode_CompareWithASCIIString(kind, "i") == 0;
    int is_integer = is_signed || PyUnicode_CompareWithASCIIString(kind, "u") == 0;
    Py_DECREF(kind);
    if (!is_integer)
        return 0;
    itemsize = PyObject_GetAttr(loop, itemsize_name);
    long bits = itemsize ? 8 * PyLong_AsLong(itemsize) : -1;
    Py_XDECREF(itemsize);
    if (bits <= 0 || bits > 64)
        return PyErr_Occurred() ? -1 : 0;
    call->how = AS_INTEGER;
    call->high = bits == 64 ? INT64_MAX : (INT64_C(1) << (is_signed ? bits - 1 : bits)) - 1;
    call->low = is_signed && !is_exponent ? -call->high - 1 : 0;
    return 0;
}

/* Put a call in the table, unless it is there; NULL with an error set. */
static Call *remember(const Call *call)
{
    if (make_room())
        return NULL;
    Call *place = place_of(call->op, call->left, call->right);
    if (!place->op) {
        Py_INCREF(call->op);
        Py_INCREF(call->left);
        Py_XINCREF(call->right);
        Py_XINCREF(call->form);
        Py_XINCREF(call->convert);
        *place = *call;
        calls_known++;
    }
    return place;
}

/* The form that `find_form` has remembered: 1, or 0 if it has not. */
int known_form(PyObject *op, PyObject *left, PyObject *right, Form **form)
{
    Call *place = calls ? place_of(op, left, right) : NULL;
    if (!place || !place->op)
        return 0;
    *form = place->form;
    return 1;
}

/* What `callback(left, right)` says the form is, remembered; NULL where it said None.  1, or -1
   with an error set. */
int find_form(PyObject *op, PyObject *left, PyObject *right, PyObject *callback, Form **form)
{
    if (known_form(op, left, right, form))
        return 1;
    PyObject *found = PyObject_CallFunctionObjArgs(callback, left, right, NULL);
    if (!found)
        return -1;
    Call call = {op, left, right, Py_TYPE(found) == &FormType ? (Form *)found : NULL, NULL, 0, 0,
                 AS_IT_IS};
    Call *place = remember(&call);
    Py_DECREF(found);
    if (!place)
        return -1;
    *form = place->form;
    return 1;
}

/* Ask Python for the form, and remember it; NULL as `find_call`. */
static Call *ask_for_call(PyObject *op, PyObject *left, PyObject *right, PyObject *x, PyObject *y)
{
    PyObject *found = PyObject_CallFunctionObjArgs(callbacks[FORM_OF_CALL], op, x, y, NULL);
    PyObject *form, *converters;
    int may_be_exponent;
    if (!found || found == Py_None ||
        !PyArg_ParseTuple(found, "O!O!p", &FormType, &form, &PyTuple_Type, &converters,
                          &may_be_exponent)) {
        Py_XDECREF(found);
        return NULL;
    }
    Call call = {op, left, right, (Form *)form, NULL, 0, 0, AS_IT_IS};
    PyObject *loops = call.form->attrs;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(converters); k++)
        if (PyTuple_GET_ITEM(converters, k) != Py_None) {
            call.convert = PyTuple_GET_ITEM(converters, k);
            if (!PyTuple_CheckExact(loops) || k >= PyTuple_GET_SIZE(loops) ||
                say_how(&call, PyTuple_GET_ITEM(loops, k), may_be_exponent && k == 1))
                break;
        }
    Call *place = NULL;
    if (!PyErr_Occurred())
        place = remember(&call);
    Py_DECREF(found);
    return place;
}

static inline PyObject *kind_of_operand(PyObject *x)
{
    return is_node(x) ? (PyObject *)((Node *)x)->form->kind : (PyObject *)Py_TYPE(x);
}

/* The call of an op with a node and perhaps something else; NULL without an error if Python has to
   record it. */
static inline Call *find_call(PyObject *op, PyObject *x, PyObject *y)
{
    PyObject *left = kind_of_operand(x), *right = y ? kind_of_operand(y) : NULL;
    Call *call = calls ? place_of(op, left, right) : NULL;
    if (!call || !call->op)
        call = ask_for_call(op, left, right, x, y);
    return call;
}

/* Whether values of histories may be let go: Python computes them again. */
static int lets_go = 0;

/* Whether an operation has to be recorded, as `at_once.compute` says of the usual ones: it is
   large, or waits for something pending.  0 (perhaps with an error set): ask Python. */
int must_record(const Form *form, const Node *left, const Node *right)
{
    const Node *inputs[2] = {left, right};
    return must_record_of(form, inputs, 2);
}

/* The same of any number of inputs, of which those that are no nodes are NULL. */
int must_record_of(const Form *form, const Node *const *inputs, int count)
{
    const Py_ssize_t most = of_nodes();
    if (form->kind->size > most)
        return 1;
    for (int k = 0; k < count && form->kind->size > most_with_history; k++)
        if (inputs[k] && inputs[k]->keeps)
            return 1;
    int moves = form->roles & MOVES; /* views are read at once of arrays of any size */
    for (int k = 0; k < count; k++) {
        if (!inputs[k])
            continue;
        if (!moves && inputs[k]->form->kind->size > most)
            return 1;
        if (!inputs[k]->buffer)
            return !(lets_go && inputs[k]->keeps) && is_pending((PyObject *)inputs[k]) &&
                   !note_small();
    }
    return 0;
}

/* A number as the loop takes it, a new reference; NULL without an error if it cannot be. */
static inline PyObject *converted(const Call *call, PyObject *x)
{
    PyObject *value = NULL;
    if (call->how == AS_FLOAT) {
        if (PyFloat_CheckExact(x))
            return Py_NewRef(x);
    } else if (call->how == AS_INTEGER && PyLong_CheckExact(x)) {
        int beyond;
        long long number = PyLong_AsLongLongAndOverflow(x, &beyond);
        if (!beyond && number >= call->low && number <= call->high)
            return Py_NewRef(x);
    }
    value = PyObject_CallOneArg(call->convert, x);
    if (!value && (PyErr_ExceptionMatches(PyExc_OverflowError) ||
                   PyErr_ExceptionMatches(PyExc_ValueError)))
        PyErr_Clear(); /* Python raises it again, or knows what a comparison gives */
    return value;
}

/* ---- elementwise operations ----------------------------------------------------------------- */

/* An operand: a node or a number, a new reference; NULL as `present_node`. */
static PyObject *operand_node(PyObject *x)
{
    if (is_handle(x))
        return (PyObject *)present_node((Handle *)x);
    return is_plain(x) ? Py_NewRef(x) : NULL;
}

/* The node of a scalar of NumPy's beside an array; NULL as `present_node`. */
static PyObject *scalar_node(PyObject *x, PyObject *beside)
{
    if ((PyObject *)Py_TYPE(x) != callbacks[FLOAT64] || !beside || !is_node(beside))
        return NULL;
    return (PyObject *)number_node(((Node *)beside)->form->kind, x);
}

/* Both operands, one at least a node: 1 and new references, or 0 and what there is of them. */
static int operand_nodes(PyObject *x, PyObject *y, PyObject **left, PyObject **right)
{
    *left = operand_node(x);
    *right = *left || !PyErr_Occurred() ? operand_node(y) : NULL;
    if (!*left && *right && !PyErr_Occurred())
        *left = scalar_node(x, *right);
    else if (*left && !*right && !PyErr_Occurred())
        *right = scalar_node(y, *left);
    return *left && *right && (is_node(*left) || is_node(*right));
}

/* The node of an op of two operands, one at least a node.  `kept`, if given, is the kind that the
   result has to have.  NULL without an error if Python has to record it. */
static Node *binary_node(PyObject *op, PyObject *x, PyObject *y, const Kind *kept)
{
    const Call *found = find_call(op, x, y);
    if (!found || (kept && found->form->kind != kept))
        return NULL;
    const Call call = *found; /* what follows may run Python, which may change the table */
    Py_INCREF(call.form);
    Py_XINCREF(call.convert);
    PyObject *left = NULL, *right = NULL;
    Node *node = NULL;
    if (must_record(call.form, is_node(x) ? (Node *)x : NULL, is_node(y) ? (Node *)y : NULL)) {
        left = is_node(x) ? Py_NewRef(x) : converted(&call, x);
        right = !left ? NULL : is_node(y) ? Py_NewRef(y) : converted(&call, y);
        node = right ? record_node(call.form) : NULL;
    }
    if (node) {
        node->left = left;
        node->right = right;
        inherit(node);
    } else {
        Py_XDECREF(left);
        Py_XDECREF(right);
    }
    Py_XDECREF(call.convert);
    Py_DECREF(call.form);
    return node;
}

static inline PyObject *wrapped(Node *node)
{
    PyObject *handle = node ? wrap_node((PyObject *)node) : NULL;
    Py_XDECREF(node);
    return handle;
}

PyObject *record_binary(PyObject *op, PyObject *x, PyObject *y)
{
    if (held || !op)
        return NULL;
    PyObject *left, *right;
    Node *node = NULL;
    if (operand_nodes(x, y, &left, &right))
        node = binary_node(op, left, right, NULL);
    Py_XDECREF(left);
    Py_XDECREF(right);
    return wrapped(node);
}

PyObject *record_unary(PyObject *op, PyObject *x)
{
    if (held || !op || !is_handle(x))
        return NULL;
    Node *operand = present_node((Handle *)x), *node = NULL;
    if (!operand)
        return NULL;
    const Call *call = find_call(op, (PyObject *)operand, NULL);
    Form *form = call ? (Form *)Py_NewRef((PyObject *)call->form) : NULL; /* the table may change */
    if (form && must_record(form, operand, NULL) && (node = record_node(form))) {
        node->left = Py_NewRef((PyObject *)operand);
        inherit(node);
    }
    Py_XDECREF(form);
    Py_DECREF(operand);
    return wrapped(node);
}

/* The third or fourth power, as products; see operators.py. */
static PyObject *record_products(PyObject *x, int exponent)
{
    PyObject *squared = record_unary(short_powers[0], x), *result = NULL;
    if (squared)
        result = exponent == 4 ? record_unary(short_powers[0], squared)
                               : record_binary(short_powers[4], squared, x);
    Py_XDECREF(squared);
    return result;
}

/* `x ** y`: some exponents have functions of their own. */
PyObject *record_power(PyObject *op, PyObject *x, PyObject *y)
{
    double exponent;
    if (PyFloat_CheckExact(y))
        exponent = PyFloat_AS_DOUBLE(y);
    else if (PyLong_CheckExact(y)) {
        int beyond;
        exponent = (double)PyLong_AsLongLongAndOverflow(y, &beyond);
        if (beyond) /* and -1 */
            return record_binary(op, x, y);
    } else
        return record_binary(op, x, y);
    int products = exponent == 3 || exponent == 4;
    int place = products || exponent == 2 ? 0 : exponent == 1 ? 1 : exponent == -1 ? 2
                : exponent == 0.5 ? 3 : 4;
    if (place == 4)
        return record_binary(op, x, y);
    Node *node = !held && is_handle(x) ? present_node((Handle *)x) : NULL;
    if (!node)
        return NULL;
    PyObject *kind = PyObject_GetAttr(node->form->kind->dtype, kind_name);
    PyObject *itemsize = PyObject_GetAttr(node->form->kind->dtype, itemsize_name);
    Py_DECREF(node);
    long bytes = itemsize ? PyLong_AsLong(itemsize) : 0;
    Py_XDECREF(itemsize);
    if (!kind || bytes <= 0) {
        Py_XDECREF(kind);
        return NULL;
    }
    if (products) {
        int single = !PyUnicode_CompareWithASCIIString(kind, "f") && (bytes == 4 || bytes == 8);
        Py_DECREF(kind);
        return single ? record_products(x, (int)exponent) : record_binary(op, x, y);
    }
    int inexact = !PyUnicode_CompareWithASCIIString(kind, "f") ||
                  !PyUnicode_CompareWithASCIIString(kind, "c");
    Py_DECREF(kind);
    return inexact ? record_unary(short_powers[place], x) : NULL;
}

/* `x += y`, where that changes neither the kind nor a view. */
PyObject *record_update(PyObject *op, PyObject *x, PyObject *y)
{
    if (held || !op || !is_handle(x))
        return NULL;
    Handle *handle = (Handle *)x;
    Node *left = present_node(handle), *node = NULL;
    PyObject *right = left && PyTuple_GET_SIZE(left->form->kind->shape) ? operand_node(y) : NULL;
    if (left && !right && !PyErr_Occurred())
        right = scalar_node(y, (PyObject *)left);
    if (right)
        node = binary_node(op, (PyObject *)left, right, left->form->kind);
    int done = node && (handle->base ? write_view(handle, node) == 1
                                     : rebind(handle, (PyObject *)node, (PyObject *)left) == 1);
    Py_XDECREF(left);
    Py_XDECREF(right);
    Py_XDECREF(node);
    return done ? Py_NewRef(x) : NULL;
}

/* A call of one of NumPy's ufuncs, with operands alone. */
PyObject *record_ufunc(PyObject *ufunc, PyObject *const *args, Py_ssize_t count)
{
    if (held || count < 1 || count > 2 || !ufuncs[count - 1])
        return NULL;
    PyObject *op = PyDict_GetItemWithError(ufuncs[count - 1], ufunc);
    if (!op)
        return NULL;
    return count == 1 ? record_unary(op, args[0]) : record_binary(op, args[0], args[1]);
}

/* ---- the module ----------------------------------------------------------------------------- */

static PyObject *record_install(PyObject *module, PyObject *found)
{
    static const char *const ufunc_names[2] = {"unary_ufuncs", "binary_ufuncs"};
    static const char *const power_names[5] = {"square", "positive", "reciprocal", "sqrt",
                                               "multiply"};
    struct {
        int count;
        const char *const *names;
        PyObject **slots;
    } groups[3] = {{CALLBACKS, callback_names, callbacks}, {2, ufunc_names, ufuncs},
                   {5, power_names, short_powers}};
    if (!PyDict_Check(found)) {
        PyErr_SetString(PyExc_TypeError, "a dict is wanted");
        return NULL;
    }
    for (int group = 0; group < 3; group++)
        for (int k = 0; k < groups[group].count; k++) {
            PyObject *value = PyDict_GetItemString(found, groups[group].names[k]);
            if (!value) {
                PyErr_SetString(PyExc_KeyError, groups[group].names[k]);
                return NULL;
            }
            Py_XSETREF(groups[group].slots[k], Py_NewRef(value));
        }
    Py_XSETREF(compute, Py_NewRef(callbacks[COMPUTE]));
    Py_RETURN_NONE;
}

static PyObject *record_set_lets_go(PyObject *module, PyObject *value)
{
    int wanted = PyObject_IsTrue(value);
    if (wanted < 0)
        return NULL;
    lets_go = wanted;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"set_lets_go", record_set_lets_go, METH_O, "Whether values of histories may be let go."},
    {"install_recording", record_install, METH_O, "Say what Python does of the recording."},
    {NULL}};

int add_record(PyObject *module)
{
    kind_name = PyUnicode_InternFromString("kind");
    itemsize_name = PyUnicode_InternFromString("itemsize");
    return kind_name && itemsize_name ? PyModule_AddFunctions(module, functions) : -1;
}
