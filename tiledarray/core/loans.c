/* Memory that others look at: `twin_loans.py` in Python.

   Who asks for an array's memory (`numpy.asarray(x)`, a buffer) gets NumPy's array over that of the
   settled value, whose base is a `Loan`.  As long as somebody has that, anything may be written
   there at any time.  So the array stays settled: what is recorded of it reads copies, made again
   where the memory has changed, and a value that is given to it as a whole is computed and written
   there at once (`keep_lent`), as NumPy's own would be. */

#include "handle.h"

struct Loan {
    PyObject_HEAD
    PyObject *array;          /* which has the memory */
    Handle *root;             /* whose settled value that is; NULL once it is not */
    PyObject *node;           /* of a copy of what lies there, or lay */
    PyObject *kept;           /* what had the memory alone: the root's again, when it ends */
    PyObject *previous;       /* an earlier loan that lasts */
};

static PyObject *name_plan, *name_elsewhere; /* attributes of buffers */

static void loan_dealloc(PyObject *self)
{
    Loan *loan = (Loan *)self;
    if (loan->root) {
        loan->root->loan = NULL;
        if (!loan->root->node && loan->root->array == loan->array) {
            loan->root->node = loan->kept;
            loan->root->copied = 0;
            loan->kept = NULL;
        }
    }
    Py_XDECREF(loan->kept);
    Py_XDECREF(loan->node);
    Py_XDECREF(loan->array);
    PyObject *previous = loan->previous;
    PyObject_Free(self);
    while (previous && Py_REFCNT(previous) == 1) { /* one by one: they may be very many */
        Loan *earlier = (Loan *)previous;
        previous = earlier->previous;
        earlier->previous = NULL;
        Py_DECREF((PyObject *)earlier);
    }
    Py_XDECREF(previous);
}

/* What has the memory: `memory_of` in `devices/storage.py` asks whose array it is. */
static PyObject *loan_base(Loan *loan, void *unused) { return Py_NewRef(loan->array); }

static PyGetSetDef loan_attributes[] = {
    {"base", (getter)loan_base, NULL, "The array that has the memory."},
    {NULL}};

static PyTypeObject LoanType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tiledarray.core._core.Loan",
    .tp_doc = "Memory of an array, as long as somebody else looks at it.",
    .tp_basicsize = sizeof(Loan),
    .tp_dealloc = loan_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_getset = loan_attributes,
};

/* The loan of a settled array of its own: a new reference. */
static Loan *loan_of(Handle *root)
{
    if (root->loan)
        return (Loan *)Py_NewRef((PyObject *)root->loan);
    Loan *loan = PyObject_New(Loan, &LoanType);
    if (loan) {
        loan->array = Py_NewRef(root->array);
        loan->root = root;
        loan->node = loan->kept = loan->previous = NULL;
        root->loan = loan;
    }
    return loan;
}

/* An array of its own has another value, or dies: who looks at the old one keeps that. */
void end_loan(Handle *root)
{
    Loan *loan = root->loan;
    if (!loan)
        return;
    root->loan = NULL;
    loan->root = NULL;
    Py_CLEAR(loan->kept);
    Py_CLEAR(loan->node); /* what is there may be one that lasts: the array has it still */
}

/* ---- lending -------------------------------------------------------------------------------- */

/* Have a settled array of its own in memory that nothing recorded reads; 0 with an error set. */
static int move_away(Handle *root)
{
    PyObject *copy = settle_steps(root) < 0 || !root->array
                         ? NULL : PyArray_NewCopy((PyArrayObject *)root->array, NPY_CORDER);
    if (!copy)
        return !PyErr_Occurred();
    drop_arrays(root);
    PyObject *node = root->node;
    root->array = copy;
    root->node = NULL;
    root->copied = 0;
    Py_XDECREF(node);
    return 1;
}

/* Have a node that tells how a value was computed be the array's again when the loan ends.  What the
   other side has of it is not true for long. */
static int keep_node(Loan *loan, PyObject *node)
{
    PyObject *buffer = is_node(node) ? ((Node *)node)->buffer : NULL;
    PyObject *plan = buffer ? PyObject_GetAttr(buffer, name_plan) : NULL;
    if (plan && plan != Py_None && !PyObject_SetAttr(buffer, name_elsewhere, Py_None))
        Py_XSETREF(loan->kept, Py_NewRef(node));
    Py_XDECREF(plan);
    return PyErr_Occurred() ? -1 : 0;
}

/* The settled value, in memory that may be written: a new reference; NULL, with an error set or
   not. */
static PyObject *alone(Handle *handle, PyObject **kept)
{
    enum { TRIES = 4 }; /* other threads write meanwhile */
    for (int k = 0; k < TRIES; k++) {
        PyObject *array = find_array(handle);
        if (!array || !is_array(array))
            return NULL;
        Py_INCREF(array); /* another thread may give the handle its next value meanwhile */
        int may = unshared(handle, array, kept);
        if (may == 1)
            return array;
        Py_DECREF(array);
        if (may)
            return NULL;
        Handle *root = (Handle *)Py_NewRef((PyObject *)root_of(handle));
        int moved = !(root->array && root->node && is_array(root->array)) || move_away(root);
        Py_DECREF(root);
        if (!moved)
            return NULL;
    }
    return NULL;
}

/* NumPy's array over the memory of a value: a new reference; NULL without an error where that
   cannot be (it is not on the host, has a history, or stands for a scalar).  With `lasts` the
   memory stays where it is as long as the array lives. */
PyObject *lend(Handle *handle, int lasts)
{
    PyObject *array = find_array(handle);
    if (!array && !PyErr_Occurred()) {
        PyObject *done = PyObject_CallOneArg(callbacks[LOOK], (PyObject *)handle);
        Py_XDECREF(done);
        if (!done)
            return NULL;
    }
    if (PyErr_Occurred())
        return NULL;
    begin_change();
    PyObject *kept = NULL, *found = alone(handle, &kept);
    Handle *root = root_of(handle);
    Loan *loan = found && root->array && (handle->array == found) ? loan_of(root) : NULL;
    if (loan && kept && keep_node(loan, kept) < 0)
        Py_CLEAR(loan);
    Py_XDECREF(kept);
    PyObject *view = NULL;
    if (loan) {
        PyArrayObject *of = (PyArrayObject *)found;
        view = PyArray_NewFromDescr(
            &PyArray_Type, (PyArray_Descr *)Py_NewRef((PyObject *)PyArray_DESCR(of)),
            PyArray_NDIM(of), PyArray_DIMS(of), PyArray_STRIDES(of), PyArray_DATA(of),
            PyArray_FLAGS(of) & NPY_ARRAY_WRITEABLE, NULL);
        if (view && lasts && root->lasting != (PyObject *)loan) {
            loan->previous = root->lasting;
            root->lasting = Py_NewRef((PyObject *)loan);
        }
        if (view && PyArray_SetBaseObject((PyArrayObject *)view, (PyObject *)loan) < 0)
            Py_CLEAR(view);
        else if (!view)
            Py_DECREF((PyObject *)loan);
    }
    Py_XDECREF(found);
    end_change();
    return view;
}

/* What reads the settled value of an array whose memory others have: a node of a copy. */
PyObject *lent_node(Handle *root)
{
    Loan *loan = (Loan *)Py_NewRef((PyObject *)root->loan);
    PyObject *before = Py_NewRef(loan->node ? loan->node : Py_None);
    PyObject *kept = Py_NewRef(loan->kept ? loan->kept : Py_None);
    PyObject *node = PyObject_CallFunctionObjArgs(
        callbacks[COPIED], loan->array, before, kept, NULL);
    Py_DECREF(kept);
    if (node && loan->root)
        Py_XSETREF(loan->node, Py_NewRef(node));
    Py_DECREF(before);
    Py_DECREF((PyObject *)loan);
    return node;
}

/* Whether the node is what reads the memory now, as far as is known. */
int is_lent_node(const Handle *root, const void *node)
{
    return root->loan && (const void *)root->loan->node == node;
}

/* Write a value into the memory that others have of the array: 1, or 0 if it cannot be there, and
   the array is to have it otherwise; -1 with an error set.  With `upon` it was made of what was
   there, and what others have written meanwhile stays. */
int keep_lent(Handle *root, PyObject *node, int upon)
{
    Loan *loan = (Loan *)Py_NewRef((PyObject *)root->loan);
    PyObject *before = Py_NewRef(upon && loan->node ? loan->node : Py_None);
    PyObject *done = PyObject_CallFunctionObjArgs(callbacks[GIVE], loan->array, node, before, NULL);
    int kept = done ? done == Py_True && loan->root == root : -1;
    Py_CLEAR(loan->node);
    Py_CLEAR(loan->kept);
    Py_XDECREF(done);
    Py_DECREF(before);
    Py_DECREF((PyObject *)loan);
    return kept;
}

/* Have an array of its own be a view of `base`, a new one of the same value, which gets all that it
   has: 1, or 0 if it has another value by now; -1 with an error set.  Nothing comes in between. */
static int move_below(Handle *handle, Handle *base)
{
    if (settle_steps(handle) < 0)
        return -1;
    for (Handle *view = handle->views; view; view = view->next)
        if (!view->steps)
            return 0;
    PyObject *node = handle->loan ? handle->loan->node : handle->node;
    if (handle->base || base->base || base->array || !node || node != base->node)
        return 0;
    PyObject *array = handle->array, *seen = handle->seen, *steps = handle->steps;
    handle->array = handle->node = handle->seen = NULL;
    base->array = Py_XNewRef(array);
    base->copied = handle->copied;
    base->lasting = handle->lasting;
    handle->lasting = NULL;
    if (handle->loan) { /* the node is of a copy, and the loan's */
        base->loan = handle->loan;
        base->loan->root = base;
        handle->loan = NULL;
        base->node = NULL;
    }
    handle->copied = 0;
    handle->steps = Py_NewRef(no_steps);
    begin_view(handle, base);
    drop_arrays(handle);
    Py_DECREF(node); /* the handle's, or the base's where that is not kept */
    Py_XDECREF(array);
    Py_XDECREF(seen);
    Py_XDECREF(steps);
    return 1;
}

static PyObject *begin_below(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !is_handle(args[0]) || !is_handle(args[1])) {
        PyErr_SetString(PyExc_TypeError, "two arrays are wanted");
        return NULL;
    }
    int done = move_below((Handle *)args[0], (Handle *)args[1]);
    return done < 0 ? NULL : PyBool_FromLong(done);
}

static PyObject *lend_array(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count < 1 || count > 2 || !is_handle(args[0])) {
        PyErr_SetString(PyExc_TypeError, "an array is wanted");
        return NULL;
    }
    PyObject *array = lend((Handle *)args[0], count == 2 && args[1] == Py_True);
    return array || PyErr_Occurred() ? array : Py_NewRef(Py_None);
}

static PyObject *is_lent(PyObject *module, PyObject *x)
{
    return PyBool_FromLong(is_handle(x) && root_of((Handle *)x)->loan);
}

static PyMethodDef functions[] = {
    {"lend", (PyCFunction)(void (*)(void))lend_array, METH_FASTCALL,
     "Return NumPy's array over the memory of an array; None where that cannot be."},
    {"move_below", (PyCFunction)(void (*)(void))begin_below, METH_FASTCALL,
     "Have an array be a view of a new one of its value, if it still has that."},
    {"is_lent", is_lent, METH_O, "Whether others have the memory of an array."},
    {NULL}};

int add_loans(PyObject *module)
{
    name_plan = PyUnicode_InternFromString("plan");
    name_elsewhere = PyUnicode_InternFromString("elsewhere");
    if (!name_plan || !name_elsewhere || PyType_Ready(&LoanType) < 0)
        return -1;
    return PyModule_AddFunctions(module, functions);
}
