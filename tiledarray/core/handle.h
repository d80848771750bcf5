/* What the files of handles share: what NumPy does at once, and what of it is hot. */

#ifndef TILEDARRAY_HANDLE_H
#define TILEDARRAY_HANDLE_H

#include "core.h"

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL tiledarray_core_numpy /* imported by _core.c for all of them */
#ifndef IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>

HIDDEN_BEGIN

#define MOST_ARGUMENTS 16
#define SPACIOUS (1 << 15)    /* bytes */
#define MOST_FILLED (1 << 20) /* elements of a constant: more are zeros (`settled.py`) */
#define WRITE_FACTOR 4        /* parts of settled arrays are written at once if no larger by this */
#define SHARED_ELEMENTS (1 << 18) /* what threads share is recorded where it is larger than this */
#define COSTLY_ELEMENTS (1 << 16) /* and what takes long for an element, larger than this */
#define AT_ONCE (1 << 19)     /* elements, if no setting says otherwise */
#define LIBRARY_FACTOR 64     /* library calls are at once for arrays larger by at most this */

#define is_array(x) PyArray_CheckExact(x)

/* What Python gives `install`, and is called for what cannot be done at once. */
enum {
    NEG, POS, ABS, INVERT, FLOAT, INT, INDEX, BOOL, HASH, LEN, ITER, GETITEM, SETITEM, ASSIGN_SHAPE,
    ASSIGN_DTYPE, SHAPE, NDIM, SIZE, DTYPE, T, ARRAY_UFUNC, BUFFER, OTHERS
};
enum {
    LEAF, VALUE, MADE, LOOK, STEPS_OF, VIEW_ON, HOLD_OF, ALONE, OUTSIDE, RESOLVE, COPIED, GIVE,
    CALLBACKS
};
extern PyObject *recorded[OTHERS], *callbacks[CALLBACKS];
extern PyObject *no_steps;    /* () */
extern int births;            /* whether new arrays are born on the host */
extern npy_intp library_factor;

int set_from(PyObject *found, const char *name, PyObject **slot);

/* ---- the two states (state.c) --------------------------------------------------------------- */

PyObject *find_array(Handle *handle);
PyObject *find_settled(Handle *handle);
void begin_change(void);
void end_change(void);
int after_failure(void);
int settle_steps(Handle *root);
void drop_arrays(Handle *root);
void unlink_view(Handle *view);
int writable(Handle *handle, PyObject *array);
int unshared(Handle *handle, PyObject *array, PyObject **kept);
void wait_for_writers(Handle *root);
PyObject *own(PyObject *value);
PyObject *take_view(Handle *parent, PyObject *of, PyObject *array, int by_index, PyObject *how);
void handle_dealloc(PyObject *self);
PyObject *handle_alloc(PyTypeObject *type, Py_ssize_t items);
int add_state(void);

/* What most of NumPy's scalars are, of which it is quickly seen that they are no arrays. */
static inline int is_common_scalar(PyObject *x)
{
    PyTypeObject *type = Py_TYPE(x);
    return type == &PyDoubleArrType_Type || type == &PyLongArrType_Type ||
           type == &PyBoolArrType_Type;
}

static inline npy_intp size_of(PyObject *value)
{
    return !is_common_scalar(value) && PyArray_Check(value) ? PyArray_SIZE((PyArrayObject *)value)
                                                            : 1;
}

/* Elements up to which something is done at once that pays for larger arrays too. */
static inline npy_intp at_most(npy_intp factor)
{
    return limit > 1 ? Py_MAX(limit, of_nodes() * factor) : limit;
}

/* The settled value, borrowed; NULL without an error if it is recorded, or nothing is at once. */
static inline PyObject *settled(Handle *handle)
{
    if (held || !limit)
        return NULL;
    return handle->array ? handle->array : find_settled(handle);
}

/* While NumPy writes into what is writable: other threads run meanwhile, and whoever records what
   is made of the value waits, or it would have the half of what is written.  To be ended. */
static inline Handle *begin_write(Handle *handle)
{
    Handle *root = root_of(handle);
    Py_INCREF(root);
    root->writers++;
    return root;
}

static inline void end_write(Handle *root)
{
    if (root->writers) /* else somebody has waited long enough */
        root->writers--;
    Py_DECREF(root);
}

/* ---- memory that others look at (loans.c) --------------------------------------------------- */

PyObject *lend(Handle *handle, int lasts);
PyObject *lent_node(Handle *root);
int is_lent_node(const Handle *root, const void *node);
int keep_lent(Handle *root, PyObject *node, int upon);
void end_loan(Handle *root);
int add_loans(PyObject *module);

/* ---- the type (handle.c) -------------------------------------------------------------------- */

int install_handles(PyTypeObject *type, PyObject *functions, PyObject *how);
int add_handles(PyObject *module);

/* ---- operands ------------------------------------------------------------------------------- */

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

/* The same of any size: for what NumPy does in its own memory in any case. */
static inline PyObject *settled_operand(PyObject *x)
{
    if (is_handle(x))
        return Py_XNewRef(find_array((Handle *)x));
    return is_plain(x) || PyArray_IsScalar(x, Number) || PyArray_IsScalar(x, Bool) || is_array(x)
               ? Py_NewRef(x) : NULL;
}

PyObject *listed(PyObject *x);

/* The same of what operators and ufuncs take: they make an array of a list. */
static inline PyObject *operand_or_list(PyObject *x)
{
    PyObject *value = operand(x);
    return value || is_handle(x) || PyErr_Occurred() ? value : listed(x);
}

/* Whether the results of an array's size are worth keeping their memory (see memory.c). */
static inline int is_spacious(PyObject *x)
{
    return is_array(x) && PyArray_NBYTES((PyArrayObject *)x) >= SPACIOUS;
}

/* Have NumPy take kept memory if its result will be spacious: 0 with an error set.  Whether or not
   it is then called, `end_keeping` gets what is in `before`. */
static inline int begin_keeping(int spacious, PyObject **before)
{
    *before = spacious ? take_memory_here() : NULL;
    return *before || !spacious;
}

static inline void end_keeping(PyObject *before)
{
    if (before)
        take_memory_there(before);
}

/* Call NumPy with two operands. */
static inline PyObject *with_two(binaryfunc function, PyObject *x, PyObject *y)
{
    PyObject *before, *result = NULL;
    if (begin_keeping(is_spacious(x) || is_spacious(y), &before))
        result = function(x, y);
    end_keeping(before);
    return result;
}

/* ---- operators (operators.c) ---------------------------------------------------------------- */

extern PyNumberMethods handle_as_number;

int fit(PyObject *x, PyObject *y);
PyObject *handle_compare(PyObject *x, PyObject *y, int op);
Py_hash_t handle_hash(PyObject *x);
int install_operators(PyObject *functions);

/* ---- sequences (sequences.c) ---------------------------------------------------------------- */

/* Arguments as NumPy takes them. */
typedef struct {
    PyObject *values[MOST_ARGUMENTS + 1]; /* the first stays free, as vectorcall wants it */
    Py_ssize_t count;
    PyObject *first;          /* the first array; borrowed */
    double product;           /* of the arrays' sizes */
    npy_intp total;           /* of those in sequences */
    int handles, arrays;      /* whether there are handles, and anything that makes an array */
} Arguments;

/* Those of a call, before any is taken.  (The values are not set: that took a tenth of a call.) */
static inline void begin_arguments(Arguments *arguments)
{
    arguments->count = 0;
    arguments->first = NULL;
    arguments->product = 1;
    arguments->total = 0;
    arguments->handles = arguments->arrays = 0;
}

double elements_of_product(PyObject *x, PyObject *y);
PyObject *plain_sequence(Arguments *arguments, PyObject *x, npy_intp most, int depth);

/* ---- indices (index.c, assign.c, elements.c) ------------------------------------------------ */

extern PyMappingMethods handle_as_mapping;
extern PySequenceMethods handle_as_sequence;
extern PyTypeObject IteratorType;

npy_intp most_written(PyObject *array);
PyObject *plain_index(PyObject *key, npy_intp most);
int is_index_at_once(PyObject *array, PyObject *key, int has_axes, npy_intp most);
PyObject *make_constant(Handle *handle);
PyObject *new_constant(PyObject *node);
PyObject *looked_at(Handle *handle);
PyObject *looked_at_element(Handle *handle, PyObject *key);
PyObject *handle_getitem(PyObject *self, PyObject *key);
int handle_setitem(PyObject *self, PyObject *key, PyObject *value);
PyObject *read_element(PyObject *array, PyObject *key);
int write_element(Handle *handle, PyObject *array, PyObject *key, PyObject *value);
Py_ssize_t handle_length(PyObject *self);
PyObject *handle_iter(PyObject *self);
int add_index(void);
int add_elements(void);

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

static inline int is_mask(PyObject *x)
{
    return is_array(x) && PyArray_TYPE((PyArrayObject *)x) == NPY_BOOL &&
           PyArray_NDIM((PyArrayObject *)x);
}

/* ---- calls (at_once.c) ---------------------------------------------------------------------- */

PyObject *handle_array_ufunc(PyObject *self, PyObject *const *args, Py_ssize_t count,
                             PyObject *names);
int add_at_once(PyObject *module);

/* ---- blocks (block.c) ----------------------------------------------------------------------- */

int add_block(PyObject *module);

HIDDEN_END

#endif
