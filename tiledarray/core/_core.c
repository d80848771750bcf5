/* The handle of an array, and what NumPy does at once.

   A handle is *settled* while its value is a NumPy array on the host (`array`): its views hold
   NumPy's own views of it, and what is small and settled NumPy computes at once.  Otherwise it is
   *recorded*: `node` says how its value is to be computed, or has it.  A small settled value goes
   into the graph as a copy (`node`, with `copied` set), which the next write drops; a large one by
   reference: then both have the same memory, and `writable` says whether it may be written.

   Whatever cannot be done at once is handed to Python: the functions in `recorded`, and the
   callbacks below.  `twin.py` is this file in Python: what is changed here is changed there. */

#include "core.h"

#include <string.h>
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>
#include <numpy/ufuncobject.h>
#include "watch.h"

#define DEEPEST 16            /* views without steps of views without steps; see `take_view` */
#define MOST_ARGUMENTS 16
#define SPACIOUS (1 << 15)    /* bytes */
#define WRITE_FACTOR 4        /* parts of settled arrays are written at once if no larger by this */
#define LIBRARY_FACTOR 64     /* library calls are at once for arrays larger by at most this */

static PyTypeObject IteratorType, AtOnceType;
PyTypeObject *handle_class = &HandleType;
Py_ssize_t limit = 0;
long held = 0;
static int births = 0;        /* whether new arrays are born on the host */
static npy_intp library_factor = LIBRARY_FACTOR;

#define is_array(x) PyArray_CheckExact(x)

/* What Python gives `install`. */
enum {
    ADD = SCALAR_ADD, SUB = SCALAR_SUB, MUL = SCALAR_MUL, TRUEDIV = SCALAR_TRUEDIV, FLOORDIV, MOD,
    POW, AND, OR, XOR, LSHIFT, RSHIFT, MATMUL, OPERATORS
};
static const char *const operator_names[OPERATORS] = {
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift",
    "rshift", "matmul"};
static const char *const comparison_names[6] = {"lt", "le", "eq", "ne", "gt", "ge"};
static PyObject *forward[OPERATORS], *reflected[OPERATORS], *in_place[OPERATORS], *compared[6];
enum {
    NEG, POS, ABS, INVERT, FLOAT, INT, INDEX, BOOL, HASH, LEN, ITER, GETITEM, SETITEM, ASSIGN_SHAPE,
    SHAPE, NDIM, SIZE, DTYPE, T, ARRAY_UFUNC, OTHERS
};
static const char *const other_names[OTHERS] = {
    "__neg__", "__pos__", "__abs__", "__invert__", "__float__", "__int__", "__index__", "__bool__",
    "__hash__", "__len__", "__iter__", "__getitem__", "__setitem__", "assign_shape", "shape",
    "ndim", "size", "dtype", "T", "__array_ufunc__"};
static PyObject *recorded[OTHERS];
enum { LEAF, VALUE, MADE, LOOK, STEPS_OF, VIEW_ON, HOLD_OF, ALONE, CALLBACKS };
static const char *const callback_names[CALLBACKS] = {
    "leaf", "value", "made", "look", "steps_of", "view_on", "hold_of", "alone"};
static PyObject *callbacks[CALLBACKS];
static PyObject *ops[OPERATORS], *compared_ops[6]; /* what records them, NULL: Python alone */
static PyObject *unary_ops[HASH];
static PyObject *no_steps;    /* () */
static PyObject *how_transposed;
/* Attributes of buffers and devices. */
static PyObject *name_device, *name_on_host, *name_kind;

/* ---- the two states ------------------------------------------------------------------------ */

static inline npy_intp size_of(PyObject *value)
{
    return PyArray_Check(value) ? PyArray_SIZE((PyArrayObject *)value) : 1;
}

/* Elements up to which something is done at once that pays for larger arrays too. */
static inline npy_intp at_most(npy_intp factor) { return limit > 1 ? limit * factor : limit; }

static void unlink_view(Handle *view)
{
    if (view->link) {
        *view->link = view->next;
        if (view->next)
            view->next->link = view->link;
        view->link = NULL;
        view->next = NULL;
    }
}

static void link_view(Handle *root, Handle *view)
{
    view->next = root->views;
    view->link = &root->views;
    if (root->views)
        root->views->link = &view->next;
    root->views = view;
}

static PyObject *found_steps(Handle *view)
{
    Handle *parent = (Handle *)Py_NewRef((PyObject *)view->parent);
    PyObject *how = Py_NewRef(view->how), *array = Py_XNewRef(parent->array), *steps = NULL;
    if (view->by_index && array && is_array(array))
        steps = steps_by_index(parent, PyArray_DIMS((PyArrayObject *)array),
                               PyArray_NDIM((PyArrayObject *)array), how);
    if (!steps && !PyErr_Occurred())
        steps = PyObject_CallFunction(callbacks[STEPS_OF], "OOi", parent, how, (int)view->by_index);
    Py_XDECREF(array);
    Py_DECREF(how);
    Py_DECREF(parent);
    return steps;
}

/* The steps of a view, borrowed; NULL with an error set. */
PyObject *steps_of(Handle *view)
{
    if (!view->steps) {
        if (!view->parent) {
            PyErr_SetString(PyExc_SystemError, "a view does not know how it lies in its base");
            return NULL;
        }
        PyObject *steps = found_steps(view);
        if (!steps)
            return NULL;
        if (view->steps) { /* asked again meanwhile */
            Py_DECREF(steps);
            return view->steps;
        }
        view->steps = steps;
        Py_CLEAR(view->parent);
        Py_CLEAR(view->how);
    }
    return view->steps;
}

/* Let every settled view know its steps, for what it was taken of will change. */
static int settle_steps(Handle *root)
{
    for (;;) {
        Handle *view = root->views;
        while (view && view->steps)
            view = view->next;
        if (!view)
            return 0;
        Py_INCREF(view);
        PyObject *steps = steps_of(view);
        Py_DECREF(view);
        if (!steps)
            return -1;
    }
}

/* Forget the memory of an array of its own, and that of its views, which know their steps. */
static void drop_arrays(Handle *root)
{
    while (root->views) {
        Handle *view = root->views;
        unlink_view(view);
        Py_INCREF(view);
        Py_CLEAR(view->array);
        Py_DECREF(view);
    }
    Py_CLEAR(root->array);
}

/* Whether a node is known to have no value that can settle its array: that is asked for every
   operand of what is recorded. */
static int is_far(PyObject *x)
{
    if (!is_node(x))
        return 0;
    Node *node = (Node *)x;
    if (node->form->kind->size == PY_SSIZE_T_MAX || is_pending(x) || node->keeps)
        return 1;
    if (!node->buffer)
        return node->form->kind->size > limit;
    if (PyTuple_Check(node->buffer))
        return 0;
    PyObject *device = PyObject_GetAttr(node->buffer, name_device);
    PyObject *on_host = device ? PyObject_GetAttr(device, name_on_host) : NULL;
    int far = on_host == Py_False;
    Py_XDECREF(on_host);
    Py_XDECREF(device);
    if (PyErr_Occurred())
        PyErr_Clear();
    return far;
}

static PyObject *find_array(Handle *handle)
{
    Handle *root = root_of(handle);
    if (!root->array) {
        if (!root->node || is_far(root->node))
            return NULL;
        PyObject *node = Py_NewRef(root->node);
        PyObject *array = PyObject_CallOneArg(callbacks[VALUE], node);
        int changed = root->node != node; /* by another thread, meanwhile */
        Py_DECREF(node);
        if (!array)
            return NULL;
        if (!(is_array(array) || PyArray_IsScalar(array, Generic)) || root->array || changed) {
            Py_DECREF(array);
            if (!root->array)
                return NULL;
        } else {
            root->array = array;
            root->copied = 0;
        }
    }
    if (handle == root)
        return root->array;
    if (!handle->array) {
        PyObject *steps = steps_of(handle);
        if (!steps)
            return NULL;
        PyObject *of = root->array;
        if (!of) /* another thread has written meanwhile */
            return NULL;
        Py_INCREF(of);
        PyObject *array = PyObject_CallFunctionObjArgs(callbacks[VIEW_ON], of, steps, NULL);
        Py_DECREF(of);
        if (!array)
            return NULL;
        if (array == Py_None || handle->array || root->array != of) {
            Py_DECREF(array);
            return handle->array;
        }
        handle->array = array;
        link_view(root, handle);
    }
    return handle->array;
}

/* The settled value, borrowed; NULL without an error if it is recorded, or nothing is at once. */
static inline PyObject *settled(Handle *handle)
{
    if (held || !limit)
        return NULL;
    if (handle->array)
        return handle->array;
    PyObject *array = find_array(handle);
    if (!array && PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_Exception))
            return NULL; /* a signal handler's: the caller sees it */
        PyErr_Clear();
    }
    return array;
}

/* Forget what the views have read, which refers to the node. */
static void forget_all_seen(Handle *root)
{
    Handle *view = root->views;
    while (view) {
        if (!view->seen) {
            view = view->next;
            continue;
        }
        Py_INCREF(view);
        Py_CLEAR(view->seen); /* what dies with it may have views die, too */
        Py_DECREF(view);
        view = root->views;
    }
}

/* Whether `array`, a settled value, may be written: 1, 0 if not, -1 with an error set. */
static int writable(Handle *handle, PyObject *array)
{
    Handle *root = root_of(handle);
    if (!root->node)
        return handle->array == array;
    if (root->copied) {
        root->copied = 0;
        Py_CLEAR(root->node);
        return handle->array == array;
    }
    forget_all_seen(root);
    /* The array gets a node of its own over the memory.  If the one it had dies, nobody else held
       that; and if nobody else holds the memory, it is the array's alone. */
    PyObject *before = Py_NewRef(root->node);
    PyObject *after = PyObject_CallOneArg(callbacks[HOLD_OF], before);
    if (!after || root->node != before) {
        Py_DECREF(before);
        Py_XDECREF(after);
        return after ? 0 : -1;
    }
    root->node = after;
    Py_DECREF(before);
    Py_DECREF(before);
    PyObject *alone = PyObject_CallOneArg(callbacks[ALONE], after);
    if (!alone)
        return -1;
    int may = alone == Py_True && root->node == after && handle->array == array;
    Py_DECREF(alone);
    if (may)
        Py_CLEAR(root->node);
    return may;
}

/* ---- making handles ------------------------------------------------------------------------ */

#define MOST_FREE 64
static Handle *free_handles[MOST_FREE];
static int free_count = 0;

Handle *new_handle(void)
{
    Handle *handle;
    if (free_count) {
        handle = free_handles[--free_count];
        memset((char *)handle + sizeof(PyObject), 0, sizeof(Handle) - sizeof(PyObject));
        PyObject_Init((PyObject *)handle, handle_class);
    } else {
        handle = PyObject_New(Handle, handle_class);
        if (handle)
            memset((char *)handle + sizeof(PyObject), 0, sizeof(Handle) - sizeof(PyObject));
    }
    return handle;
}

/* Kernels compute with it, so it can be in an array of ours; others stay NumPy's. */
static inline int is_known_type(int number)
{
    return number <= NPY_ULONGLONG || number == NPY_FLOAT || number == NPY_DOUBLE ||
           number == NPY_CFLOAT || number == NPY_CDOUBLE || number == NPY_HALF;
}

/* A handle that owns what NumPy has computed; what is no number stays NumPy's.  Steals. */
static PyObject *own(PyObject *value)
{
    if (!value)
        return NULL;
    PyTypeObject *type = Py_TYPE(value);
    if (type == &PyDoubleArrType_Type || type == &PyLongArrType_Type ||
        type == &PyBoolArrType_Type) {
        /* what most scalars are */
    } else if (is_array(value)) {
        PyArrayObject *array = (PyArrayObject *)value;
        if (!is_known_type(PyArray_TYPE(array)) || !PyArray_ISNOTSWAPPED(array))
            return value;
        if (!PyArray_IS_C_CONTIGUOUS(array) || !PyArray_ISALIGNED(array)) {
            PyObject *dense = PyArray_NewCopy(array, NPY_CORDER); /* owners are row-major */
            Py_DECREF(value);
            if (!dense)
                return NULL;
            value = dense;
        }
    } else if (!PyArray_IsScalar(value, Number) && !PyArray_IsScalar(value, Bool)) {
        return value;
    } else if (PyArray_IsScalar(value, LongDouble) || PyArray_IsScalar(value, CLongDouble) ||
               PyArray_IsScalar(value, Timedelta)) {
        return value; /* NumPy counts times among the integers */
    }
    Handle *handle = new_handle();
    if (!handle) {
        Py_DECREF(value);
        return NULL;
    }
    handle->array = value;
    return (PyObject *)handle;
}

/* A handle of a view: `array`, which was taken of the array `of`.  Steals `array`. */
static PyObject *take_view(Handle *parent, PyObject *of, PyObject *array, int by_index,
                           PyObject *how)
{
    Handle *view = new_handle();
    if (!view) {
        Py_DECREF(array);
        return NULL;
    }
    Handle *root = root_of(parent);
    begin_view(view, root);
    view->parent = (Handle *)Py_NewRef((PyObject *)parent);
    view->how = Py_NewRef(how);
    view->by_index = (char)by_index;
    view->depth = parent->parent ? parent->depth + 1 : 0;
    if (parent->array == of) {
        view->array = array;
        link_view(root, view);
    } else /* another thread has changed the root meanwhile */
        Py_DECREF(array);
    /* `x = x[1:]` in a loop keeps no more than so many alive. */
    if (view->depth >= DEEPEST && !steps_of(view)) {
        Py_DECREF(view);
        return NULL;
    }
    return (PyObject *)view;
}

static void handle_dealloc(PyObject *self)
{
    Handle *handle = (Handle *)self;
    PyTypeObject *type = Py_TYPE(self);
    unlink_view(handle);
    forget_note(&handle->noted);
    if (handle->weak) /* callbacks are Python's: by then nothing may find the handle any more */
        PyObject_ClearWeakRefs(self);
    Py_CLEAR(handle->array);
    Py_CLEAR(handle->node);
    Py_CLEAR(handle->steps);
    Py_CLEAR(handle->seen);
    Py_CLEAR(handle->how);
    Py_CLEAR(handle->parent);
    if (handle->base)
        handle->base->parts--;
    Py_CLEAR(handle->base);
    if (type == handle_class && free_count < MOST_FREE)
        free_handles[free_count++] = handle;
    else
        type->tp_free(self);
    if (handle_class != &HandleType && (type == handle_class || PyType_IsSubtype(type, handle_class)))
        Py_DECREF(type); /* for others `subtype_dealloc` does it, which has called this */
}

static PyObject *handle_alloc(PyTypeObject *type, Py_ssize_t items)
{
    Handle *handle = PyObject_New(Handle, type);
    if (handle)
        memset((char *)handle + sizeof(PyObject), 0, sizeof(Handle) - sizeof(PyObject));
    return (PyObject *)handle;
}

/* ---- what the recording in Python sees ------------------------------------------------------ */

PyObject *get_node(Handle *handle, void *unused)
{
    if (handle->node)
        return Py_NewRef(handle->node);
    if (handle->base || !handle->array) {
        PyErr_SetString(PyExc_AttributeError, "_node");
        return NULL;
    }
    int small = size_of(handle->array) <= limit;
    PyObject *array = Py_NewRef(handle->array);
    PyObject *node = PyObject_CallFunction(callbacks[LEAF], "Oi", array, small);
    if (node && !handle->node && handle->array == array) {
        handle->node = Py_NewRef(node);
        handle->copied = (char)small;
    }
    Py_DECREF(array); /* not before: another could have its address */
    return node;
}

int set_node(Handle *handle, PyObject *node, void *unused)
{
    if (!handle->base) {
        if (settle_steps(handle))
            return -1;
        drop_arrays(handle);
    }
    handle->copied = 0;
    PyObject *old = handle->node;
    handle->node = Py_XNewRef(node);
    Py_XDECREF(old);
    return 0;
}

static PyObject *get_recorded(Handle *handle, void *unused)
{
    PyObject *node = handle->copied ? NULL : handle->node;
    return Py_NewRef(node ? node : Py_None);
}

static PyObject *get_base(Handle *handle, void *unused)
{
    return Py_NewRef(handle->base ? (PyObject *)handle->base : Py_None);
}

static int set_base(Handle *handle, PyObject *base, void *unused)
{
    if (base == Py_None)
        base = NULL;
    if (base && !is_handle(base)) {
        PyErr_SetString(PyExc_TypeError, "the base of a view is an array");
        return -1;
    }
    if (!handle->base) {
        if (settle_steps(handle))
            return -1;
        drop_arrays(handle);
        if (base) {
            handle->copied = 0;
            Py_CLEAR(handle->node);
        }
    } else if (root_of(handle->base) != (base ? root_of((Handle *)base) : NULL)) {
        unlink_view(handle);
        Py_CLEAR(handle->array);
    }
    Handle *old = handle->base;
    handle->base = (Handle *)Py_XNewRef(base);
    if (base)
        handle->base->parts++;
    if (old)
        old->parts--;
    Py_XDECREF((PyObject *)old);
    return 0;
}

static PyObject *get_steps(Handle *handle, void *unused)
{
    if (!handle->base)
        return Py_NewRef(no_steps);
    return Py_XNewRef(steps_of(handle));
}

static int set_steps(Handle *handle, PyObject *steps, void *unused)
{
    if (handle->array && handle->base) { /* other views may be of this one */
        if (settle_steps(root_of(handle)))
            return -1;
        unlink_view(handle);
        Py_CLEAR(handle->array);
    }
    PyObject *old = handle->steps;
    handle->steps = Py_XNewRef(steps);
    Py_XDECREF(old);
    return 0;
}

static PyObject *get_seen(Handle *handle, void *unused)
{
    return Py_NewRef(handle->seen ? handle->seen : Py_None);
}

static int set_seen(Handle *handle, PyObject *seen, void *unused)
{
    PyObject *old = handle->seen;
    handle->seen = seen == Py_None ? NULL : Py_XNewRef(seen);
    Py_XDECREF(old);
    return 0;
}

static PyObject *get_array(Handle *handle, void *unused)
{
    PyObject *array = settled(handle);
    if (!array && PyErr_Occurred())
        return NULL;
    return Py_NewRef(array ? array : Py_None);
}

static PyObject *get_viewed(Handle *handle, void *unused)
{
    return PyBool_FromLong(handle->parts > 0);
}

/* Attributes that NumPy's arrays have. */

#define SETTLED_OR(handle, fallback) \
    PyObject *array = settled(handle); \
    if (!array) \
        return PyErr_Occurred() ? NULL : PyObject_CallOneArg(fallback, (PyObject *)handle)

static PyObject *get_shape(Handle *handle, void *unused)
{
    SETTLED_OR(handle, recorded[SHAPE]);
    if (!PyArray_Check(array))
        return PyTuple_New(0);
    int ndim = PyArray_NDIM((PyArrayObject *)array);
    PyObject *shape = PyTuple_New(ndim);
    for (int k = 0; shape && k < ndim; k++) {
        PyObject *length = PyLong_FromSsize_t(PyArray_DIM((PyArrayObject *)array, k));
        if (!length)
            Py_CLEAR(shape);
        else
            PyTuple_SET_ITEM(shape, k, length);
    }
    return shape;
}

static int set_shape(Handle *handle, PyObject *shape, void *unused)
{
    if (!shape) {
        PyErr_SetString(PyExc_AttributeError, "Cannot delete array shape");
        return -1;
    }
    PyObject *done = PyObject_CallFunctionObjArgs(recorded[ASSIGN_SHAPE], handle, shape, NULL);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

static PyObject *get_ndim(Handle *handle, void *unused)
{
    SETTLED_OR(handle, recorded[NDIM]);
    return PyLong_FromLong(PyArray_Check(array) ? PyArray_NDIM((PyArrayObject *)array) : 0);
}

static PyObject *get_size(Handle *handle, void *unused)
{
    SETTLED_OR(handle, recorded[SIZE]);
    return PyLong_FromSsize_t(size_of(array));
}

static PyObject *get_dtype(Handle *handle, void *unused)
{
    SETTLED_OR(handle, recorded[DTYPE]);
    if (PyArray_Check(array))
        return Py_NewRef((PyObject *)PyArray_DESCR((PyArrayObject *)array));
    return (PyObject *)PyArray_DescrFromScalar(array);
}

static PyObject *get_transposed(Handle *handle, void *unused)
{
    SETTLED_OR(handle, recorded[T]);
    if (!PyArray_Check(array))
        return PyObject_CallOneArg(recorded[T], (PyObject *)handle);
    Py_INCREF(array);
    PyObject *view = PyArray_Transpose((PyArrayObject *)array, NULL);
    PyObject *result = view ? take_view(handle, array, view, 0, how_transposed) : NULL;
    Py_DECREF(array);
    return result;
}

static PyGetSetDef handle_attributes[] = {
    {"_node", (getter)get_node, (setter)set_node, "The recorded value of an array of its own."},
    {"_recorded", (getter)get_recorded, NULL, "The same; None while it is settled."},
    {"_base", (getter)get_base, (setter)set_base, "What a view is a view of, else None."},
    {"_steps", (getter)get_steps, (setter)set_steps, "The steps from there to the view."},
    {"_seen", (getter)get_seen, (setter)set_seen, "What a view last read."},
    {"_array", (getter)get_array, NULL, "The settled value, else None."},
    {"_viewed", (getter)get_viewed, NULL, "Whether an array has live views."},
    {"shape", (getter)get_shape, (setter)set_shape,
     "Lengths of the axes.  Assigning reshapes in place where that needs no copy."},
    {"ndim", (getter)get_ndim, NULL, "Number of axes."},
    {"size", (getter)get_size, NULL, "Number of elements."},
    {"dtype", (getter)get_dtype, NULL, "Data type of the elements."},
    {"T", (getter)get_transposed, NULL, "View with the axes in reverse order."},
    {NULL}};

/* ---- operands ------------------------------------------------------------------------------ */

/* What NumPy computes with at once, a new reference; NULL without an error for the recorded way. */
static inline PyObject *operand(PyObject *x)
{
    if (is_handle(x)) {
        PyObject *array = settled((Handle *)x);
        return array && size_of(array) <= limit ? Py_NewRef(array) : NULL;
    }
    if (is_plain(x) || PyArray_IsScalar(x, Number) || PyArray_IsScalar(x, Bool) ||
        (is_array(x) && PyArray_SIZE((PyArrayObject *)x) <= limit))
        return limit && !held ? Py_NewRef(x) : NULL;
    return NULL;
}

/* Whether what two operands broadcast to is small too. */
static int fit(PyObject *x, PyObject *y)
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

/* Both operands, if NumPy computes with them at once: 1, and new references. */
static inline int operands(PyObject *x, PyObject *y, PyObject **left, PyObject **right)
{
    *left = operand(x);
    if (!*left)
        return 0;
    *right = operand(y);
    if (*right) {
        if (fit(*left, *right))
            return 1;
        Py_DECREF(*right);
    }
    Py_DECREF(*left);
    return 0;
}

/* Arguments as NumPy takes them. */
typedef struct {
    PyObject *values[MOST_ARGUMENTS + 1]; /* the first stays free, as vectorcall wants it */
    Py_ssize_t count;
    PyObject *first;          /* the first array; borrowed */
    npy_intp product, total;  /* of the arrays' sizes; of those in sequences */
    int handles, arrays;      /* whether there are handles, and anything that makes an array */
} Arguments;

/* A list or a tuple with arrays of ours in it, with NumPy's in their place; NULL without an error
   for the recorded way. */
static PyObject *plain_sequence(Arguments *arguments, PyObject *x, npy_intp most, int depth)
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

/* Whether the results of an array's size are worth keeping their memory (see memory.c). */
static inline int is_spacious(PyObject *x)
{
    return is_array(x) && PyArray_NBYTES((PyArrayObject *)x) >= SPACIOUS;
}

/* Call NumPy with two operands. */
static inline PyObject *with_two(binaryfunc function, PyObject *x, PyObject *y)
{
    if (!is_spacious(x) && !is_spacious(y))
        return function(x, y);
    PyObject *before = take_memory_here(), *result = before ? function(x, y) : NULL;
    if (before)
        take_memory_there(before);
    return result;
}

static PyObject *binary(int op, PyObject *x, PyObject *y)
{
    PyObject *left, *right;
    if (op <= TRUEDIV && limit && !held) {
        PyObject *scalar = scalar_binary(op, x, y);
        if (scalar || PyErr_Occurred())
            return own(scalar);
    }
    if (operands(x, y, &left, &right)) {
        PyObject *result = own(with_two(numpys[op], left, right));
        Py_DECREF(left);
        Py_DECREF(right);
        return result;
    }
    if (PyErr_Occurred())
        return NULL;
    PyObject *result = op == POW ? record_power(ops[op], x, y) : record_binary(ops[op], x, y);
    if (result || PyErr_Occurred())
        return result;
    if (is_handle(x))
        return PyObject_CallFunctionObjArgs(forward[op], x, y, NULL);
    return PyObject_CallFunctionObjArgs(reflected[op], y, x, NULL);
}

static PyObject *update(int op, PyObject *x, PyObject *y)
{
    PyObject *left, *right;
    if (op <= TRUEDIV && limit && !held) { /* NumPy's scalars are immutable */
        PyObject *scalar = scalar_binary(op, x, y);
        if (scalar || PyErr_Occurred())
            return own(scalar);
    }
    if (operands(x, y, &left, &right)) {
        PyObject *result = NULL;
        int may = 1;
        if (!is_array(left))
            result = own(numpys[op](left, right));
        else if ((may = writable((Handle *)x, left)) == 1) {
            result = numpys_in_place[op](left, right);
            if (result == left) {
                Py_DECREF(result);
                result = Py_NewRef(x);
            } else if (result)
                result = own(result);
        }
        Py_DECREF(left);
        Py_DECREF(right);
        if (may)
            return result;
    } else if (PyErr_Occurred())
        return NULL;
    PyObject *result = op == POW ? NULL : record_update(ops[op], x, y);
    if (result || PyErr_Occurred())
        return result;
    return PyObject_CallFunctionObjArgs(in_place[op], x, y, NULL);
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
    if (right)
        result = own(PyNumber_MatrixMultiply(left, right));
    int done = right != NULL;
    Py_XDECREF(left);
    Py_XDECREF(right);
    if (done || PyErr_Occurred())
        return result;
    if (is_handle(x))
        return PyObject_CallFunctionObjArgs(forward[MATMUL], x, y, NULL);
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
    PyObject *value = operand(x), *result = NULL;
    if (!value) {
        if (!PyErr_Occurred())
            result = record_unary(unary_ops[which], x);
        return result || PyErr_Occurred() ? result : PyObject_CallOneArg(recorded[which], x);
    }
    if (is_spacious(value)) {
        PyObject *before = take_memory_here();
        result = before ? own(function(value)) : NULL;
        if (before)
            take_memory_there(before);
    } else
        result = own(function(value));
    Py_DECREF(value);
    return result;
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

static PyNumberMethods handle_as_number = {
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

static PyObject *handle_compare(PyObject *x, PyObject *y, int op)
{
    PyObject *left, *right;
    if (limit && !held) {
        PyObject *scalar = scalar_compare(x, y, op);
        if (scalar)
            return own(scalar);
    }
    if (operands(x, y, &left, &right)) {
        PyObject *result = own(with_two(comparisons[op], left, right));
        Py_DECREF(left);
        Py_DECREF(right);
        return result;
    }
    if (PyErr_Occurred())
        return NULL;
    PyObject *result = record_binary(compared_ops[op], x, y);
    if (result || PyErr_Occurred())
        return result;
    return PyObject_CallFunctionObjArgs(compared[op], x, y, NULL);
}

static Py_hash_t handle_hash(PyObject *x)
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

/* ---- indexing ------------------------------------------------------------------------------ */

static inline int is_bound(PyObject *x)
{
    return x == Py_None || PyLong_CheckExact(x) || PyArray_IsScalar(x, Integer);
}

/* Part of a basic index: 1 an int, 2 what leaves an axis, 0 something else. */
static inline int basic_part(PyObject *key)
{
    if (PyLong_CheckExact(key) || PyArray_IsScalar(key, Integer))
        return 1;
    if (PySlice_Check(key)) {
        PySliceObject *slice = (PySliceObject *)key;
        return is_bound(slice->start) && is_bound(slice->stop) && is_bound(slice->step) ? 2 : 0;
    }
    return key == Py_None || key == Py_Ellipsis ? 2 : 0;
}

/* An index: 1 ints alone, 2 basic, 0 another. */
static inline int basic_index(PyObject *key)
{
    if (!PyTuple_CheckExact(key))
        return basic_part(key);
    int all = 1;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(key); k++) {
        int part = basic_part(PyTuple_GET_ITEM(key, k));
        if (!part)
            return 0;
        if (part > all)
            all = part;
    }
    return all;
}

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

static int is_mask(PyObject *x)
{
    return is_array(x) && PyArray_TYPE((PyArrayObject *)x) == NPY_BOOL &&
           PyArray_NDIM((PyArrayObject *)x);
}

/* Elements that index arrays may name for NumPy to read or write them at once. */
static inline npy_intp most_named(void)
{
    return at_most(Py_MIN(WRITE_FACTOR, library_factor));
}

/* Whether an index's array is taken as it is: a mask always, for its values decide on the shape. */
static int is_taken(PyObject *value)
{
    return size_of(value) <= most_named() || (limit > 1 && is_mask(value));
}

/* An item of an index as NumPy takes it; a new reference, NULL without an error if that needs the
   recorded way. */
static PyObject *plain_item(PyObject *item)
{
    if (is_handle(item)) {
        PyObject *value = settled((Handle *)item);
        if (!value || !is_taken(value))
            return NULL;
        /* An array without axes is no scalar: by it an index is not basic. */
        if (PyArray_Check(value) && !PyArray_NDIM((PyArrayObject *)value))
            return NULL;
        return Py_NewRef(value);
    }
    if (basic_part(item) || (is_array(item) && is_taken(item)))
        return Py_NewRef(item);
    if (PySlice_Check(item))
        return plain_slice((PySliceObject *)item);
    if (PyList_CheckExact(item) && PyList_GET_SIZE(item) <= limit)
        return plain_list(item);
    return NULL;
}

static PyObject *plain_index(PyObject *key)
{
    if (!PyTuple_CheckExact(key))
        return plain_item(key);
    Py_ssize_t n = PyTuple_GET_SIZE(key);
    PyObject *plain = PyTuple_New(n);
    for (Py_ssize_t k = 0; plain && k < n; k++) {
        PyObject *item = plain_item(PyTuple_GET_ITEM(key, k));
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

/* How many elements a plain index with arrays names, at most; a huge number if that is not known. */
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
static int is_index_at_once(PyObject *array, PyObject *key, int has_axes)
{
    return (has_axes && limit > 1 && has_mask(key)) || size_of(array) <= at_most(WRITE_FACTOR) ||
           (limit > 1 && named_elements((PyArrayObject *)array, key) <= (double)most_named());
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
        plain = plain_index(key);
    if (!plain)
        return NULL;
    int basic = basic_index(plain);
    if (!basic && !is_mask(plain) && !is_index_at_once(array, plain, 1)) {
        Py_DECREF(plain);
        return NULL;
    }
    result = basic ? PyObject_GetItem(array, plain) : with_two(PyObject_GetItem, array, plain);
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

/* Make what is recorded as a constant (`zeros`), for something is written into it; as `settled`. */
static PyObject *make_constant(Handle *handle)
{
    Handle *root = root_of(handle);
    if (held || limit <= 1 || root->array || !root->node || !is_constant(root->node))
        return NULL;
    PyObject *node = Py_NewRef(root->node);
    PyObject *array = PyObject_CallOneArg(callbacks[MADE], node);
    int done = array && is_array(array);
    if (done && root->node == node && !root->array) {
        root->array = Py_NewRef(array);
        root->copied = 0;
        Py_CLEAR(root->node);
    }
    Py_DECREF(node);
    Py_XDECREF(array);
    return done ? settled(handle) : NULL;
}

/* Compute what is recorded; as `settled`. */
static PyObject *looked_at(Handle *handle)
{
    if (held || !limit)
        return NULL;
    PyObject *done = PyObject_CallOneArg(callbacks[LOOK], (PyObject *)handle);
    Py_XDECREF(done);
    return done ? settled(handle) : NULL;
}

/* Compute a large array on the host, for one of its elements is read or written: more will be, and
   each would be recorded.  As `settled`; NULL without an error for another index. */
static PyObject *looked_at_element(Handle *handle, PyObject *key)
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

static PyObject *handle_getitem(PyObject *self, PyObject *key)
{
    Handle *handle = (Handle *)self;
    PyObject *array = settled(handle), *result;
    if (!array && !PyErr_Occurred() && basic_index(key) != 2)
        array = make_constant(handle); /* elements are read: they will be written too */
    if (!array && !PyErr_Occurred())
        array = looked_at_element(handle, key);
    if (array && is_array(array)) {
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
   By index arrays and masks that may be large. */
static PyObject *written(PyObject *value, int basic)
{
    PyObject *new = operand(value);
    if (new || PyErr_Occurred())
        return new;
    if (PyList_CheckExact(value) || PyTuple_CheckExact(value)) {
        Arguments numbers = {.product = 1};
        return plain_sequence(&numbers, value, limit, 3);
    }
    if (basic || limit <= 1 || held)
        return NULL;
    new = is_handle(value) ? settled((Handle *)value) : value;
    return new && is_array(new) ? Py_NewRef(new) : NULL;
}

/* Write at once: 1 done, 0 for the recorded way, -1 with an error set. */
static int put_at_once(Handle *handle, PyObject *key, PyObject *value)
{
    PyObject *array = settled(handle);
    if (!array && !PyErr_Occurred() && (is_plain(value) || (is_handle(value) && settled((Handle *)value))))
        array = make_constant(handle);
    if (!array && !PyErr_Occurred())
        array = looked_at_element(handle, key);
    if (!array || !is_array(array))
        return PyErr_Occurred() ? -1 : 0;
    int basic = basic_index(key), done = 0;
    Py_INCREF(array);
    if (basic && is_written_back(handle, key, value)) {
        Py_DECREF(array);
        return 1;
    }
    PyObject *new = PyErr_Occurred() ? NULL : written(value, basic);
    if (!new) {
        Py_DECREF(array);
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *plain = NULL, *part = NULL;
    if (basic)
        plain = Py_NewRef(key);
    else {
        plain = plain_index(key);
        basic = plain ? basic_index(plain) : 0;
        int has_axes = is_array(new) && PyArray_NDIM((PyArrayObject *)new);
        if (plain && !basic && !is_index_at_once(array, plain, has_axes))
            Py_CLEAR(plain);
    }
    if (plain && basic == 2 && size_of(array) > limit) { /* a small part of a large array */
        part = PyArray_Type.tp_as_mapping->mp_subscript(array, plain);
        if (part && size_of(part) > at_most(WRITE_FACTOR))
            Py_CLEAR(plain);
        Py_XDECREF(part);
    }
    if (plain && !PyErr_Occurred()) {
        int may = writable(handle, array);
        if (may == 1)
            done = PyArray_Type.tp_as_mapping->mp_ass_subscript(array, plain, new) ? -1 : 1;
        else
            done = may;
    }
    Py_XDECREF(plain);
    Py_DECREF(new);
    Py_DECREF(array);
    return PyErr_Occurred() ? -1 : done;
}

static int handle_setitem(PyObject *self, PyObject *key, PyObject *value)
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

/* Refuse: the core makes handles without it. */
static int handle_init(PyObject *self, PyObject *args, PyObject *names)
{
    PyErr_Format(PyExc_TypeError,
                 "%s is not called: arrays are made by ndarray(shape), zeros, asarray and the "
                 "other functions", Py_TYPE(self)->tp_name);
    return -1;
}

static Py_ssize_t handle_length(PyObject *self)
{
    PyObject *array = settled((Handle *)self);
    if (array && PyArray_Check(array) && PyArray_NDIM((PyArrayObject *)array))
        return PyArray_DIM((PyArrayObject *)array, 0);
    PyObject *result = PyErr_Occurred() ? NULL : PyObject_CallOneArg(recorded[LEN], self);
    if (!result)
        return -1;
    Py_ssize_t length = PyLong_AsSsize_t(result);
    Py_DECREF(result);
    return length;
}

static PyObject *handle_item(PyObject *self, Py_ssize_t place)
{
    PyObject *key = PyLong_FromSsize_t(place);
    if (!key)
        return NULL;
    PyObject *result = handle_getitem(self, key);
    Py_DECREF(key);
    return result;
}

static PyMappingMethods handle_as_mapping = {
    .mp_length = handle_length, .mp_subscript = handle_getitem, .mp_ass_subscript = handle_setitem};
static PySequenceMethods handle_as_sequence = {.sq_length = handle_length, .sq_item = handle_item};

/* The elements of an array with one axis, as NumPy's scalars, and the rows of others; each is what
   it is by then. */

typedef struct {
    PyObject_HEAD
    Handle *handle;
    Py_ssize_t place;
    int elements;             /* whether the array has one axis */
} Iterator;

/* The element of an array with one axis that has become recorded. */
static PyObject *recorded_element(Handle *handle, Py_ssize_t place)
{
    PyObject *element = handle_item((PyObject *)handle, place), *array, *scalar = NULL;
    if (!element || !is_handle(element))
        return element;
    array = PyObject_CallMethod(element, "__array__", NULL);
    Py_DECREF(element);
    if (array) {
        scalar = PyObject_GetItem(array, no_steps);
        Py_DECREF(array);
    }
    return scalar;
}

static PyObject *iterator_next(Iterator *iterator)
{
    Handle *handle = iterator->handle;
    if (!handle)
        return NULL;
    Py_ssize_t length = handle_length((PyObject *)handle);
    if (length < 0)
        return NULL;
    if (iterator->place >= length) {
        Py_CLEAR(iterator->handle);
        return NULL;
    }
    Py_ssize_t place = iterator->place++;
    if (!iterator->elements)
        return handle_item((PyObject *)handle, place);
    PyObject *array = settled(handle);
    if (!array)
        return PyErr_Occurred() ? NULL : recorded_element(handle, place);
    if (!is_array(array) || PyArray_NDIM((PyArrayObject *)array) != 1)
        return handle_item((PyObject *)handle, place);
    return PyArray_ToScalar(PyArray_GETPTR1((PyArrayObject *)array, place), (PyArrayObject *)array);
}

static void iterator_dealloc(Iterator *iterator)
{
    Py_XDECREF(iterator->handle);
    PyObject_Free(iterator);
}

static PyTypeObject IteratorType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tiledarray.core._core.Iterator",
    .tp_basicsize = sizeof(Iterator),
    .tp_dealloc = (destructor)iterator_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_iter = PyObject_SelfIter,
    .tp_iternext = (iternextfunc)iterator_next,
};

static PyObject *handle_iter(PyObject *self)
{
    PyObject *array = settled((Handle *)self);
    if (!array || !is_array(array) || !PyArray_NDIM((PyArrayObject *)array))
        return PyErr_Occurred() ? NULL : PyObject_CallOneArg(recorded[ITER], self);
    int elements = PyArray_NDIM((PyArrayObject *)array) == 1;
    Iterator *iterator = PyObject_New(Iterator, &IteratorType);
    if (!iterator)
        return NULL;
    iterator->handle = (Handle *)Py_NewRef(self);
    iterator->place = 0;
    iterator->elements = elements;
    return (PyObject *)iterator;
}

/* ---- functions that NumPy computes at once if all their arguments are small and settled ------ */

enum {
    METHOD = 1,               /* a method of arrays: `target` is its name */
    WRITES = 2,               /* changes its first argument */
    READS = 4,                /* returns no array: at once whatever the size */
    LIBRARY = 8,              /* fuses with nothing: at once for larger arrays too */
    UFUNC = 16,               /* of scalars alone it returns NumPy's scalar */
    OUTER = 32,               /* the result's size is the product of those of the arguments */
    DRAWS = 64,               /* draws random numbers: what it makes is born like any array */
    LOOKS = 256,              /* computes what is recorded, for only NumPy does it */
    BOUND = 128,              /* the first argument is an object of NumPy's own */
    RECORDS = 512             /* ours does nothing but record, the same for the same kinds */
};
enum { ANY_SIZE, OF_SHAPE, OF_RANGE, OF_COUNT, OF_SQUARE, OF_DATA }; /* what creation looks at */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *target;         /* NumPy's function, or the name of its arrays' method */
    PyObject *fallback;       /* ours */
    PyObject *attributes;     /* a dict, or NULL: other attributes are those of `fallback` */
    int kind, size;
    int most;                 /* arguments by position; one more may be what NumPy writes to */
} AtOnce;

static void release(Arguments *arguments)
{
    while (arguments->count)
        Py_DECREF(arguments->values[arguments->count--]);
}

/* Whether a value has no arrays in it, nor anything that NumPy would ask for one. */
static int is_bare(PyObject *x, int depth)
{
    if (is_plain(x) || x == Py_None || PyUnicode_CheckExact(x) || PyType_Check(x) ||
        x == Py_Ellipsis || PyArray_IsScalar(x, Number) || PyArray_IsScalar(x, Bool) ||
        PyArray_DescrCheck(x))
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

static int take_array(Arguments *arguments, PyObject *array, npy_intp most, int broadcasts)
{
    npy_intp size = size_of(array);
    arguments->arrays = 1;
    if (size > most)
        return 0;
    arguments->product *= size;
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
        if (!take_array(arguments, array, most, !(function->kind & LIBRARY)))
            return 0;
        value = Py_NewRef(array);
    } else if (is_array(x)) {
        if (!take_array(arguments, x, most, !(function->kind & LIBRARY)))
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
        } else
            value = plain_sequence(arguments, x, Py_MAX(most, at_most(WRITE_FACTOR)), 3);
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
    if (function->size == OF_SQUARE)
        return number_or(first, huge) *
               (positional > 1 ? number_or(values[1], number_or(first, huge)) : number_or(first, huge));
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
static int give(PyObject *result, const Arguments *arguments, PyObject **given)
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

/* What is a view of the first argument; NULL without an error if it is none. */
static PyObject *given_view(const AtOnce *function, PyObject *result, const Arguments *arguments,
                            PyObject *const *args, Py_ssize_t positional, PyObject *names)
{
    if (!is_array(result) || !positional || !is_handle(args[0]) || function->kind & (WRITES | BOUND))
        return NULL;
    if (result == arguments->values[1])
        return Py_NewRef(args[0]);
    if (names || !PyArray_BASE((PyArrayObject *)result) || !overlap(result, arguments->values[1]))
        return NULL;
    PyObject *rest = PyTuple_New(positional - 1);
    if (!rest)
        return NULL;
    for (Py_ssize_t k = 1; k < positional; k++) {
        if (!is_bare(args[k], 2)) {
            Py_DECREF(rest);
            return NULL;
        }
        PyTuple_SET_ITEM(rest, k - 1, Py_NewRef(args[k]));
    }
    PyObject *how = PyTuple_Pack(2, function->fallback, rest);
    Py_DECREF(rest);
    if (!how)
        return NULL;
    PyObject *view = take_view(
        (Handle *)args[0], arguments->values[1], Py_NewRef(result), 0, how);
    Py_DECREF(how);
    return view;
}

/* An array of its own.  Steals. */
static PyObject *copied(PyObject *array)
{
    PyObject *copy = PyArray_NewCopy((PyArrayObject *)array, NPY_CORDER);
    Py_DECREF(array);
    return copy;
}

/* Call NumPy: 1 and the result (NULL with an error), or 0 for the recorded way. */
static int call_numpy(const AtOnce *function, PyObject *const *args, Py_ssize_t positional,
                      PyObject *names, PyObject **given)
{
    Py_ssize_t total = positional + (names ? PyTuple_GET_SIZE(names) : 0);
    Arguments arguments = {.product = 1};
    PyObject *result;
    int done = 0;
    *given = NULL;
    Py_ssize_t out = -1;
    if (held || !limit || total > MOST_ARGUMENTS || positional > function->most ||
        (names && has_name_of_ours(names, args + positional, &out)))
        return 0;
    if (out >= 0)
        out += positional;
    if ((function->size != ANY_SIZE || function->kind & DRAWS) && !births)
        return 0;
    Py_ssize_t k = function->kind & BOUND && positional;
    if (k)
        arguments.values[++arguments.count] = Py_NewRef(args[0]);
    for (; k < total; k++)
        if (!take_argument(&arguments, args[k], function))
            goto leave;
    double created = created_size(function, args, positional, names);
    if (created > (double)limit)
        goto leave;
    if (function->size == ANY_SIZE && !arguments.handles &&
        !(function->kind & UFUNC && !arguments.arrays) && !births)
        goto leave;
    if (function->kind & OUTER && arguments.product > limit)
        goto leave;
    if (function->kind & WRITES) {
        Py_ssize_t at = (function->kind & BOUND) != 0;
        if (positional <= at || !is_handle(args[at]) || !is_array(arguments.values[at + 1]))
            goto leave;
        int may = writable((Handle *)args[at], arguments.values[at + 1]);
        if (may != 1) {
            done = may < 0;
            goto leave;
        }
    }
    if (out >= 0) {
        int may = is_array(arguments.values[out + 1]) &&
                  writable((Handle *)args[out], arguments.values[out + 1]);
        if (may != 1) {
            done = may < 0;
            goto leave;
        }
    }
    size_t flags = (size_t)positional | PY_VECTORCALL_ARGUMENTS_OFFSET;
    int spacious = created * sizeof(double) >= SPACIOUS;
    for (k = 1; k <= arguments.count && !spacious; k++)
        spacious = is_spacious(arguments.values[k]);
    PyObject *before = spacious ? take_memory_here() : NULL;
    result = function->kind & METHOD
                 ? PyObject_VectorcallMethod(function->target, arguments.values + 1, flags, names)
                 : PyObject_Vectorcall(function->target, arguments.values + 1, flags, names);
    if (before)
        take_memory_there(before);
    done = 1;
    if (!result)
        goto leave;
    if (out >= 0 && result == arguments.values[out + 1]) {
        Py_DECREF(result);
        *given = Py_NewRef(args[out]);
        goto leave;
    }
    int scalar = !PyArray_Check(result) && !PyTuple_Check(result);
    if (function->kind & READS ||
        (scalar && (function->kind & DRAWS || (function->kind & UFUNC && !arguments.arrays))))
        *given = result;
    else if ((*given = given_view(function, result, &arguments, args, positional, names)))
        Py_DECREF(result);
    else if (PyErr_Occurred())
        Py_DECREF(result);
    else if (out >= 0 || function->kind & WRITES)
        *given = is_array(result) ? own(copied(result)) : result; /* it has been written */
    else
        done = give(result, &arguments, given);
leave:
    release(&arguments);
    return done || PyErr_Occurred();
}

static PyObject *at_once_work(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    const AtOnce *function = (AtOnce *)self;
    PyObject *result;
    if (names && !PyTuple_GET_SIZE(names))
        names = NULL;
    if (call_numpy(function, args, PyVectorcall_NARGS(flags), names, &result))
        return result;
    if (function->kind & UFUNC && !names) {
        result = record_ufunc(function->target, args, PyVectorcall_NARGS(flags));
        if (result || PyErr_Occurred())
            return result;
    }
    if (function->kind & RECORDS)
        return record_call(function->fallback, args, flags, names);
    return PyObject_Vectorcall(function->fallback, args, flags, names);
}

static PyObject *at_once_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    if (watching)
        return watched_call(at_once_work, ((AtOnce *)self)->kind & READS, self, args, flags, names);
    return at_once_work(self, args, flags, names);
}

static PyObject *at_once_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"target", "fallback", "kind", "size", "most", "attributes", NULL};
    PyObject *target, *fallback, *attributes = NULL;
    int kind = 0, size = ANY_SIZE, most = MOST_ARGUMENTS;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "OO|iiiO!", names, &target, &fallback, &kind, &size, &most,
            &PyDict_Type, &attributes))
        return NULL;
    AtOnce *function = (AtOnce *)type->tp_alloc(type, 0);
    if (!function)
        return NULL;
    function->target = Py_NewRef(target);
    function->fallback = Py_NewRef(fallback);
    function->attributes = Py_XNewRef(attributes);
    function->kind = kind;
    function->size = size;
    function->most = most;
    function->call = at_once_call;
    return (PyObject *)function;
}

static int at_once_traverse(AtOnce *function, visitproc visit, void *arg)
{
    Py_VISIT(function->target);
    Py_VISIT(function->fallback);
    Py_VISIT(function->attributes);
    return 0;
}

static int at_once_clear(AtOnce *function)
{
    Py_CLEAR(function->target);
    Py_CLEAR(function->fallback);
    Py_CLEAR(function->attributes);
    return 0;
}

static void at_once_dealloc(AtOnce *function)
{
    PyObject_GC_UnTrack(function);
    at_once_clear(function);
    Py_TYPE(function)->tp_free((PyObject *)function);
}

static PyObject *at_once_attribute(PyObject *self, PyObject *name)
{
    AtOnce *function = (AtOnce *)self;
    PyObject *found;
    if (function->attributes && (found = PyDict_GetItemWithError(function->attributes, name)))
        return Py_NewRef(found);
    if (PyErr_Occurred())
        return NULL;
    if (!PyUnicode_CompareWithASCIIString(name, "__class__") ||
        !PyUnicode_CompareWithASCIIString(name, "__call__") ||
        !PyUnicode_CompareWithASCIIString(name, "__get__") ||
        !PyUnicode_CompareWithASCIIString(name, "__reduce_ex__") ||
        !PyUnicode_CompareWithASCIIString(name, "fallback"))
        return PyObject_GenericGetAttr(self, name);
    return PyObject_GetAttr(function->fallback, name);
}

static PyObject *at_once_bind(PyObject *self, PyObject *object, PyObject *type)
{
    if (!object || object == Py_None || (((AtOnce *)self)->kind & (UFUNC | BOUND)) == UFUNC)
        return Py_NewRef(self);
    return PyMethod_New(self, object);
}

static PyObject *at_once_repr(PyObject *self) { return PyObject_Repr(((AtOnce *)self)->fallback); }

static PyObject *at_once_compare(PyObject *x, PyObject *y, int op)
{
    if (x == y || (op != Py_EQ && op != Py_NE))
        return x == y && op == Py_EQ ? Py_NewRef(Py_True)
               : x == y && op == Py_NE ? Py_NewRef(Py_False) : Py_NewRef(Py_NotImplemented);
    if (Py_TYPE(x) != &AtOnceType)
        Py_RETURN_NOTIMPLEMENTED;
    PyObject *other = Py_TYPE(y) == &AtOnceType ? ((AtOnce *)y)->fallback : y;
    return PyObject_RichCompare(((AtOnce *)x)->fallback, other, op);
}

static Py_hash_t at_once_hash(PyObject *self) { return PyObject_Hash(((AtOnce *)self)->fallback); }

/* What pickle finds it by: its place in the class of arrays, or in the module of `fallback`. */
static PyObject *at_once_reduce(PyObject *self, PyObject *protocol)
{
    AtOnce *function = (AtOnce *)self;
    if (function->kind & METHOD) {
        PyObject *builtins = PyEval_GetBuiltins(); /* borrowed */
        PyObject *get = builtins ? PyMapping_GetItemString(builtins, "getattr") : NULL;
        return get ? Py_BuildValue("N(OO)", get, handle_class, function->target) : NULL;
    }
    if (PyFunction_Check(function->fallback))
        return PyObject_GetAttrString(function->fallback, "__name__");
    return PyObject_CallMethod(function->fallback, "__reduce_ex__", "O", protocol);
}

static PyMethodDef at_once_methods[] = {
    {"__reduce_ex__", at_once_reduce, METH_O, "What pickle finds it by."}, {NULL}};

static PyMemberDef at_once_members[] = {
    {"fallback", T_OBJECT, offsetof(AtOnce, fallback), READONLY, "What does the rest."}, {NULL}};

static PyTypeObject AtOnceType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tiledarray.core._core.AtOnce",
    .tp_doc = "A function of NumPy's, called at once where all arguments are small and settled.",
    .tp_basicsize = sizeof(AtOnce),
    .tp_dealloc = (destructor)at_once_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC |
                Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_vectorcall_offset = offsetof(AtOnce, call),
    .tp_call = PyVectorcall_Call,
    .tp_traverse = (traverseproc)at_once_traverse,
    .tp_clear = (inquiry)at_once_clear,
    .tp_descr_get = at_once_bind,
    .tp_getattro = at_once_attribute,
    .tp_members = at_once_members,
    .tp_methods = at_once_methods,
    .tp_repr = at_once_repr,
    .tp_richcompare = at_once_compare,
    .tp_hash = at_once_hash,
    .tp_new = at_once_new,
};

/* NumPy's ufuncs come here with arrays of ours. */
static PyObject *handle_array_ufunc(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                    PyObject *names)
{
    PyObject *values[4], *result = NULL, *first = NULL;
    Py_ssize_t inputs = count - 2, known = 0;
    int done = 0;
    if (!names && inputs > 0 && inputs < 4 &&
        !PyUnicode_CompareWithASCIIString(args[1], "__call__")) {
        for (; known < inputs; known++) {
            PyObject *value = operand(args[2 + known]);
            if (!value)
                break;
            values[known + 1] = value;
            if (PyArray_Check(value)) {
                done |= first && !fit(first, value);
                first = value;
            }
        }
        if (known == inputs && !done) {
            Arguments arguments = {.product = 1};
            done = 1;
            result = PyObject_Vectorcall(
                args[0], values + 1, (size_t)inputs | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
            if (result)
                done = give(result, &arguments, &result);
        } else
            done = 0;
        while (known)
            Py_DECREF(values[known--]);
        if (done || PyErr_Occurred())
            return result;
        result = record_ufunc(args[0], args + 2, inputs);
        if (result || PyErr_Occurred())
            return result;
    }
    PyObject *given[MOST_ARGUMENTS + 1];
    Py_ssize_t total = count + (names ? PyTuple_GET_SIZE(names) : 0);
    if (total > MOST_ARGUMENTS) {
        PyErr_SetString(PyExc_TypeError, "too many arguments for a ufunc");
        return NULL;
    }
    given[0] = self;
    memcpy(given + 1, args, (size_t)total * sizeof *args);
    return PyObject_Vectorcall(recorded[ARRAY_UFUNC], given, (size_t)count + 1, names);
}

static PyMethodDef handle_methods[] = {
    {"__array_ufunc__", (PyCFunction)(void (*)(void))handle_array_ufunc,
     METH_FASTCALL | METH_KEYWORDS, "Apply one of NumPy's ufuncs."},
    {NULL}};

PyTypeObject HandleType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tiledarray.core._core.Base",
    .tp_doc = "An array's handle: settled, or recorded.",
    .tp_basicsize = sizeof(Handle),
    .tp_dealloc = handle_dealloc,
    .tp_alloc = handle_alloc,
    .tp_new = PyType_GenericNew,
    .tp_init = handle_init,
    .tp_free = PyObject_Free,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_as_number = &handle_as_number,
    .tp_as_mapping = &handle_as_mapping,
    .tp_as_sequence = &handle_as_sequence,
    .tp_richcompare = handle_compare,
    .tp_hash = handle_hash,
    .tp_iter = handle_iter,
    .tp_getset = handle_attributes,
    .tp_methods = handle_methods,
    .tp_weaklistoffset = offsetof(Handle, weak),
};

/* ---- the module ---------------------------------------------------------------------------- */

static int set_from(PyObject *found, const char *name, PyObject **slot)
{
    PyObject *value = PyDict_GetItemString(found, name);
    if (!value) {
        PyErr_Format(PyExc_KeyError, "%s", name);
        return -1;
    }
    Py_XSETREF(*slot, Py_NewRef(value));
    return 0;
}

/* Say which op records an operator, if one does. */
static void set_op(PyObject *found, const char *name, PyObject **slot)
{
    Py_XSETREF(*slot, Py_XNewRef(PyDict_GetItemString(found, name)));
}

static PyObject *module_install(PyObject *module, PyObject *args)
{
    PyObject *type, *functions, *how, *elementwise;
    char name[32];
    if (!PyArg_ParseTuple(args, "O!O!O!", &PyType_Type, &type, &PyDict_Type, &functions,
                          &PyTuple_Type, &how))
        return NULL;
    elementwise = PyDict_GetItemString(functions, "ops");
    if (!elementwise || !PyDict_Check(elementwise)) {
        PyErr_SetString(PyExc_KeyError, "ops");
        return NULL;
    }
    for (int k = 0; k < OPERATORS; k++) {
        PyObject **slots[3] = {&forward[k], &reflected[k], &in_place[k]};
        const char *prefixes[3] = {"", "r", "i"};
        for (int j = 0; j < 3; j++) {
            PyOS_snprintf(name, sizeof name, "__%s%s__", prefixes[j], operator_names[k]);
            if (set_from(functions, name, slots[j]))
                return NULL;
        }
        PyOS_snprintf(name, sizeof name, "__%s__", operator_names[k]);
        set_op(elementwise, name, &ops[k]);
    }
    for (int k = 0; k < 6; k++) {
        PyOS_snprintf(name, sizeof name, "__%s__", comparison_names[k]);
        if (set_from(functions, name, &compared[k]))
            return NULL;
        set_op(elementwise, name, &compared_ops[k]);
    }
    for (int k = NEG; k <= INVERT; k++)
        set_op(elementwise, other_names[k], &unary_ops[k]);
    for (int k = 0; k < OTHERS; k++)
        if (set_from(functions, other_names[k], &recorded[k]))
            return NULL;
    for (int k = 0; k < CALLBACKS; k++)
        if (set_from(functions, callback_names[k], &callbacks[k]))
            return NULL;
    Py_XSETREF(how_transposed, Py_NewRef(how));
    if (((PyTypeObject *)type)->tp_basicsize != sizeof(Handle)) {
        PyErr_SetString(PyExc_TypeError, "the class of arrays has slots of its own");
        return NULL;
    }
    handle_class = (PyTypeObject *)Py_NewRef(type);
    /* A class made by Python takes part in garbage collection.  Handles refer to arrays, nodes and
       handles that are older, so they are in no cycles, and are as cheap as NumPy's arrays. */
    handle_class->tp_flags &= ~Py_TPFLAGS_HAVE_GC;
    handle_class->tp_alloc = handle_alloc;
    handle_class->tp_free = PyObject_Free;
    handle_class->tp_dealloc = handle_dealloc;
    handle_class->tp_traverse = NULL;
    handle_class->tp_clear = NULL;
    PyType_Modified(handle_class);
    Py_RETURN_NONE;
}

static PyObject *module_set_limit(PyObject *module, PyObject *value)
{
    Py_ssize_t found = PyLong_AsSsize_t(value);
    if (found == -1 && PyErr_Occurred())
        return NULL;
    limit = found > NPY_MAX_INTP / LIBRARY_FACTOR ? NPY_MAX_INTP / LIBRARY_FACTOR : found;
    Py_RETURN_NONE;
}

static PyObject *module_hold(PyObject *module, PyObject *change)
{
    long found = PyLong_AsLong(change);
    if (found == -1 && PyErr_Occurred())
        return NULL;
    held += found;
    Py_RETURN_NONE;
}

static PyObject *module_set_births(PyObject *module, PyObject *value)
{
    births = value == Py_True;
    Py_RETURN_NONE;
}

static PyObject *module_set_library_factor(PyObject *module, PyObject *value)
{
    Py_ssize_t found = PyLong_AsSsize_t(value);
    if (found == -1 && PyErr_Occurred())
        return NULL;
    if (found < 1 || found > LIBRARY_FACTOR) {
        PyErr_SetString(PyExc_ValueError, "the factor is 1 to LIBRARY_FACTOR");
        return NULL;
    }
    library_factor = found;
    Py_RETURN_NONE;
}

static PyMethodDef module_methods[] = {
    {"install", module_install, METH_VARARGS,
     "Say which class arrays have, and what does what cannot be done at once."},
    {"set_limit", module_set_limit, METH_O, "Elements up to which a settled array is small."},
    {"hold", module_hold, METH_O, "Change the count of reasons to do nothing at once."},
    {"set_births", module_set_births, METH_O, "Whether new arrays are born on the host."},
    {"set_library_factor", module_set_library_factor, METH_O,
     "For how many times larger arrays than others library calls are at once."},
    {NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_core", "Handles of arrays, and what NumPy does at once.", -1,
    module_methods};

PyMODINIT_FUNC PyInit__core(void)
{
    import_array();
    import_umath();
    no_steps = PyTuple_New(0);
    name_device = PyUnicode_InternFromString("device");
    name_on_host = PyUnicode_InternFromString("on_host");
    name_kind = PyUnicode_InternFromString("kind");
    if (!name_device || !name_on_host || !name_kind || !no_steps || PyType_Ready(&HandleType) < 0 || PyType_Ready(&IteratorType) < 0 ||
        PyType_Ready(&AtOnceType) < 0)
        return NULL;
    PyObject *module = PyModule_Create(&definition);
    if (!module)
        return NULL;
    if (add_graph(module) < 0 || add_walk(module) < 0 || add_recorder(module) < 0 ||
        add_values(module) < 0 || add_record(module) < 0 || add_slices(module) < 0 ||
        add_run(module) < 0 || add_memory(module) < 0 || add_scalars() < 0 ||
        add_watch(module, offsetof(Handle, array), &IteratorType) < 0 ||
        PyModule_AddObjectRef(module, "Base", (PyObject *)&HandleType) < 0 ||
        PyModule_AddObjectRef(module, "AtOnce", (PyObject *)&AtOnceType) < 0 ||
        PyModule_AddIntMacro(module, LIBRARY_FACTOR) < 0 ||
        PyModule_AddIntMacro(module, METHOD) < 0 || PyModule_AddIntMacro(module, WRITES) < 0 ||
        PyModule_AddIntMacro(module, READS) < 0 || PyModule_AddIntMacro(module, LIBRARY) < 0 ||
        PyModule_AddIntMacro(module, UFUNC) < 0 || PyModule_AddIntMacro(module, OUTER) < 0 ||
        PyModule_AddIntMacro(module, DRAWS) < 0 || PyModule_AddIntMacro(module, BOUND) < 0 ||
        PyModule_AddIntMacro(module, RECORDS) < 0 ||
        PyModule_AddIntMacro(module, LOOKS) < 0 || PyModule_AddIntMacro(module, ANY_SIZE) < 0 || PyModule_AddIntMacro(module, OF_SHAPE) < 0 ||
        PyModule_AddIntMacro(module, OF_RANGE) < 0 || PyModule_AddIntMacro(module, OF_COUNT) < 0 ||
        PyModule_AddIntMacro(module, OF_SQUARE) < 0 || PyModule_AddIntMacro(module, OF_DATA) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
