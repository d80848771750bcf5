/* The two states of a handle, and making handles: `twin_state.py` in Python.

   A handle is *settled* while its value is a NumPy array on the host (`array`): its views hold
   NumPy's own views of it, and what is small and settled NumPy computes at once.  Otherwise it is
   *recorded*: `node` says how its value is to be computed, or has it.  A small settled value goes
   into the graph as a copy (`node`, with `copied` set), which the next write drops; a large one by
   reference: then both have the same memory, and `writable` says whether it may be written. */

#include "handle.h"

#include <string.h>
#ifdef _WIN32
#include <windows.h>
#define wait_a_little() Sleep(1)
#else
#include <unistd.h>
#define wait_a_little() usleep(20)
#endif

#define DEEPEST 16            /* views without steps of views without steps; see `take_view` */

PyTypeObject *handle_class = &HandleType;
Py_ssize_t limit = 0;
long held = 0;
int births = 0;
npy_intp library_factor = LIBRARY_FACTOR;
PyObject *callbacks[CALLBACKS];

/* Attributes of buffers and devices. */
static PyObject *name_device, *name_on_host;

/* ---- the two states ------------------------------------------------------------------------ */

void unlink_view(Handle *view)
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
int settle_steps(Handle *root)
{
    int done = 0;
    Py_INCREF(root); /* whoever views it may come to view another meanwhile */
    for (Handle *view = root->views; view && !done; view = root->views) {
        while (view && view->steps)
            view = view->next;
        if (!view)
            break;
        Py_INCREF(view);
        done = steps_of(view) ? 0 : -1;
        Py_DECREF(view);
    }
    Py_DECREF(root);
    return done;
}

/* Forget the memory of an array of its own, and that of its views, which know their steps. */
void drop_arrays(Handle *root)
{
    end_loan(root);
    while (root->views) {
        Handle *view = root->views;
        unlink_view(view);
        Py_INCREF(view);
        Py_CLEAR(view->array);
        Py_DECREF(view);
    }
    Py_CLEAR(root->array);
}

/* Where an error may be set: 0 if it is one of the call's, which Python tells when it makes the
   call again, and none is set any more; -1 if a handler of the program's has raised it, which is to
   be seen. */
int after_failure(void)
{
    PyObject *type, *value, *traceback;
    if (!PyErr_Occurred())
        return 0;
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return -1;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback)
        PyException_SetTraceback(value, traceback);
    PyObject *outside = PyObject_CallOneArg(callbacks[OUTSIDE], value);
    if (outside != Py_True) { /* or another error has come meanwhile */
        Py_DECREF(type);
        Py_DECREF(value);
        Py_XDECREF(traceback);
        Py_XDECREF(outside);
        return outside ? 0 : -1;
    }
    Py_DECREF(outside);
    PyErr_Restore(type, value, traceback);
    return -1;
}

/* Whether a node is known to have no value that can settle its array: that is asked for every
   operand of what is recorded; -1 with an error set. */
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
    return after_failure() < 0 ? -1 : far;
}

/* One thread at a time finds a value or makes it writable: else each would see the others hold what
   nobody keeps, and record what they write in place.  Others wait, but not for ever: the thread may
   wait for what they have locked, or be gone in a process that was forked. */
enum { LONGEST_WAIT = 5000 };
static unsigned long changing = 0;
static int depth = 0;

void begin_change(void)
{
    const unsigned long here = PyThread_get_thread_ident();
    for (int k = 0; changing && changing != here && k < LONGEST_WAIT; k++) {
        Py_BEGIN_ALLOW_THREADS
        wait_a_little();
        Py_END_ALLOW_THREADS
    }
    if (changing != here) {
        changing = here;
        depth = 0;
    }
    depth++;
}

void end_change(void)
{
    if (changing == PyThread_get_thread_ident() && --depth == 0)
        changing = 0;
}

/* Call Python to make a constant (`zeros`) as a new array; None of what is better left as it is. */
PyObject *new_constant(PyObject *node)
{
    PyObject *array = NULL, *before;
    const Py_ssize_t size = ((Node *)node)->form->kind->size;
    /* Kept memory has to be filled; of many zeros the system makes those pages that are touched. */
    if (begin_keeping(
            size >= SPACIOUS / (Py_ssize_t)sizeof(double) && size <= MOST_FILLED, &before))
        array = PyObject_CallOneArg(callbacks[MADE], node);
    end_keeping(before);
    return array;
}

/* Give an array of its own its settled value, if its node has one. */
static void settle_own(Handle *root)
{
    if (root->array || !root->node || is_far(root->node))
        return;
    PyObject *node = Py_NewRef(root->node);
    int own = is_node(node) && is_constant(node); /* so that it can be written without a look */
    PyObject *array = own ? new_constant(node) : NULL;
    if (array == Py_None)
        Py_CLEAR(array);
    if (!array && !PyErr_Occurred()) {
        own = 0;
        array = PyObject_CallOneArg(callbacks[VALUE], node);
    }
    if (array && (is_array(array) || PyArray_IsScalar(array, Generic)) && !root->array &&
        root->node == node) {
        root->array = Py_NewRef(array);
        root->copied = (char)own;
    }
    Py_XDECREF(array);
    Py_DECREF(node);
}

/* As `find_array`, of a handle whose root is held. */
static PyObject *found_array(Handle *handle, Handle *root)
{
    if (!root->array) {
        if (!root->node || is_far(root->node))
            return NULL;
        begin_change();
        settle_own(root);
        end_change();
        if (!root->array || PyErr_Occurred())
            return NULL;
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
        Py_INCREF(steps);
        PyObject *array = PyObject_CallFunctionObjArgs(callbacks[VIEW_ON], of, steps, NULL);
        Py_DECREF(steps);
        Py_DECREF(of);
        if (!array)
            return NULL;
        if (array == Py_None || handle->array || root->array != of || root_of(handle) != root ||
            handle->steps != steps) {
            Py_DECREF(array);
            return handle->array;
        }
        handle->array = array;
        link_view(root, handle);
    }
    return handle->array;
}

/* The settled value, borrowed; NULL if there is none, with an error set or not. */
PyObject *find_array(Handle *handle)
{
    Handle *root = (Handle *)Py_NewRef((PyObject *)root_of(handle));
    PyObject *array = found_array(handle, root);
    if (handle->base && root_of(handle) == root && array != handle->array)
        array = NULL; /* it is the root's, which another thread has changed meanwhile */
    Py_DECREF(root);
    return array;
}

/* As `settled`, of what has no array now. */
PyObject *find_settled(Handle *handle)
{
    PyObject *array = find_array(handle);
    if (!array)
        after_failure(); /* a signal handler's error: the caller sees it */
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

/* As `writable`.  With `kept` the node that has the memory alone is put there, where it is to be the
   array's again. */
static int make_root_writable(Handle *handle, Handle *root, PyObject *array, PyObject **kept)
{
    if (!root->node)
        return handle->array == array;
    if (root->copied) {
        root->copied = 0;
        Py_CLEAR(root->node);
        return handle->array == array;
    }
    if (handle->array != array) /* another thread has recorded what it writes */
        return 0;
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
    root->node = Py_NewRef(after); /* what dies with the other may run Python, and other threads */
    Py_DECREF(before);
    Py_DECREF(before);
    PyObject *alone = PyObject_CallOneArg(callbacks[ALONE], after);
    int may = alone == Py_True && root->node == after && handle->array == array;
    Py_DECREF(after); /* the root has it, or nobody */
    Py_XDECREF(alone);
    if (!alone)
        return -1;
    if (may && kept) {
        *kept = root->node;
        root->node = NULL;
    } else if (may)
        Py_CLEAR(root->node);
    return may;
}

static int make_writable(Handle *handle, PyObject *array, PyObject **kept)
{
    Handle *root = (Handle *)Py_NewRef((PyObject *)root_of(handle));
    int may = make_root_writable(handle, root, array, kept);
    if (may == 1 && root_of(handle) != root)
        may = 0; /* it is a view of another meanwhile */
    Py_DECREF(root);
    return may;
}

/* Whether `array`, a settled value, may be written: 1, 0 if not, -1 with an error set. */
int writable(Handle *handle, PyObject *array)
{
    return unshared(handle, array, NULL);
}

/* The same; `make_root_writable` says what `kept` is for. */
int unshared(Handle *handle, PyObject *array, PyObject **kept)
{
    if (!root_of(handle)->node)
        return handle->array == array;
    begin_change();
    const int may = make_writable(handle, array, kept);
    end_change();
    return may;
}

/* Wait until nobody writes into the settled value, but not for ever, and not twice: see
   `begin_change`. */
void wait_for_writers(Handle *root)
{
    for (int k = 0; root->writers && k < LONGEST_WAIT; k++) {
        Py_BEGIN_ALLOW_THREADS
        wait_a_little();
        Py_END_ALLOW_THREADS
    }
    root->writers = 0;
}

/* ---- making handles ------------------------------------------------------------------------ */

#define MOST_FREE 64
static Handle *free_handles[MOST_FREE];
static int free_count = 0;

PyObject *handle_alloc(PyTypeObject *type, Py_ssize_t items)
{
    Handle *handle = PyObject_New(Handle, type);
    if (handle)
        memset((char *)handle + sizeof(PyObject), 0, sizeof(Handle) - sizeof(PyObject));
    return (PyObject *)handle;
}

Handle *new_handle(void)
{
    if (!free_count)
        return (Handle *)handle_alloc(handle_class, 0);
    Handle *handle = free_handles[--free_count];
    memset((char *)handle + sizeof(PyObject), 0, sizeof(Handle) - sizeof(PyObject));
    PyObject_Init((PyObject *)handle, handle_class);
    return handle;
}

/* Kernels compute with it, so it can be in an array of ours; others stay NumPy's. */
static inline int is_known_type(int number)
{
    return number <= NPY_ULONGLONG || number == NPY_FLOAT || number == NPY_DOUBLE ||
           number == NPY_CFLOAT || number == NPY_CDOUBLE || number == NPY_HALF;
}

/* A handle that owns what NumPy has computed; what is no number stays NumPy's.  Steals. */
PyObject *own(PyObject *value)
{
    if (!value)
        return NULL;
    if (is_common_scalar(value)) {
        /* it is taken as it is */
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
PyObject *take_view(Handle *parent, PyObject *of, PyObject *array, int by_index,
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

void handle_dealloc(PyObject *self)
{
    Handle *handle = (Handle *)self;
    PyTypeObject *type = Py_TYPE(self);
    unlink_view(handle);
    forget_note(&handle->noted);
    if (handle->weak) /* callbacks are Python's: by then nothing may find the handle any more */
        PyObject_ClearWeakRefs(self);
    end_loan(handle);
    Py_CLEAR(handle->array);
    Py_CLEAR(handle->node);
    Py_CLEAR(handle->steps);
    Py_CLEAR(handle->seen);
    Py_CLEAR(handle->how);
    Py_CLEAR(handle->parent);
    Py_CLEAR(handle->lasting);
    if (handle->base)
        handle->base->parts--;
    Py_CLEAR(handle->base);
    if (type == handle_class && free_count < MOST_FREE)
        free_handles[free_count++] = handle;
    else
        type->tp_free(self);
    if (handle_class != &HandleType &&
        (type == handle_class || PyType_IsSubtype(type, handle_class)))
        Py_DECREF(type); /* for others `subtype_dealloc` does it, which has called this */
}

int add_state(void)
{
    name_device = PyUnicode_InternFromString("device");
    name_on_host = PyUnicode_InternFromString("on_host");
    return name_device && name_on_host ? 0 : -1;
}
