/* Memory of what is computed at once, kept for the next array of about that size.

   NumPy computes `a + b * c` of temporaries in their own memory, which it may: nobody else has
   them.  A handle's array is not NumPy's to take over, so each result asks the system for memory
   that has to be mapped and cleared page by page, which takes longer than the arithmetic.  (See
   NEP 49 for what NumPy asks of a handler.) */

#include "core.h"

#include <stdlib.h>
#include <string.h>
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#include <numpy/arrayobject.h>

#define ALIGNMENT 64
#define LEAST_KEPT ((size_t)1 << 15) /* bytes; smaller blocks are the allocator's own business */
#ifdef __SANITIZE_ADDRESS__
#define MOST_KEPT ((size_t)0) /* whoever looks at what has died is found out */
#else
#define MOST_KEPT ((size_t)1 << 25) /* bytes of all that is kept */
#endif
#define SHELVES 32

/* Lies before the data. */
typedef struct {
    void *block;
    size_t capacity;
} Header;

static struct {
    char *data;
    size_t capacity;
} kept[SHELVES]; /* the one that died last is the last */
static int kept_count;
static size_t kept_bytes;
static PyThread_type_lock lock; /* only ever tried: a fork may leave it locked for good */
static PyObject *handler;

static Header *header_of(void *data) { return (Header *)data - 1; }

static char *fresh(size_t size, int cleared)
{
    size_t capacity = size >= LEAST_KEPT ? (size + 4095) & ~(size_t)4095 : size;
    if (capacity < size || capacity + ALIGNMENT + sizeof(Header) < capacity)
        return NULL;
    size_t whole = capacity + ALIGNMENT + sizeof(Header);
    char *block = cleared ? calloc(1, whole) : malloc(whole);
    if (!block)
        return NULL;
    char *data = block + sizeof(Header);
    data += (ALIGNMENT - (uintptr_t)data % ALIGNMENT) % ALIGNMENT;
    *header_of(data) = (Header){block, capacity};
    return data;
}

/* Of a block that died, and fits; NULL if there is none. */
static char *used(size_t size)
{
    char *found = NULL;
    if (size < LEAST_KEPT || !PyThread_acquire_lock(lock, NOWAIT_LOCK))
        return NULL;
    for (int k = kept_count - 1; k >= 0 && !found; k--) {
        if (kept[k].capacity < size || kept[k].capacity - size > size / 4 + 4096)
            continue;
        found = kept[k].data;
        kept_bytes -= kept[k].capacity;
        kept_count--;
        memmove(kept + k, kept + k + 1, (size_t)(kept_count - k) * sizeof *kept);
    }
    PyThread_release_lock(lock);
    return found;
}

static void *handler_malloc(void *context, size_t size)
{
    char *data = used(size);
    return data ? data : fresh(size, 0);
}

static void *handler_calloc(void *context, size_t count, size_t each)
{
    if (each && count > SIZE_MAX / each)
        return NULL;
    char *data = used(count * each);
    return data ? memset(data, 0, count * each) : fresh(count * each, 1);
}

static void handler_free(void *context, void *data, size_t size)
{
    if (!data)
        return;
    void *dropped = header_of(data)->block;
    size_t capacity = header_of(data)->capacity;
    if (capacity >= LEAST_KEPT && capacity <= MOST_KEPT / 4 &&
        PyThread_acquire_lock(lock, NOWAIT_LOCK)) {
        dropped = NULL;
        if (kept_count == SHELVES || kept_bytes + capacity > MOST_KEPT) { /* the oldest goes */
            dropped = header_of(kept[0].data)->block;
            kept_bytes -= kept[0].capacity;
            kept_count--;
            memmove(kept, kept + 1, (size_t)kept_count * sizeof *kept);
        }
        kept[kept_count].data = data;
        kept[kept_count++].capacity = capacity;
        kept_bytes += capacity;
        PyThread_release_lock(lock);
    }
    free(dropped);
}

static void *handler_realloc(void *context, void *data, size_t size)
{
    if (data && header_of(data)->capacity >= size)
        return data;
    char *larger = fresh(size, 0);
    if (larger && data) {
        memcpy(larger, data, header_of(data)->capacity);
        handler_free(context, data, 0);
    }
    return larger;
}

static PyDataMem_Handler ours = {
    "tiledarray", 1, {NULL, handler_malloc, handler_calloc, handler_realloc, handler_free}};

/* Have NumPy take memory from here; what it took it from before, NULL with an error. */
PyObject *take_memory_here(void) { return PyDataMem_SetHandler(handler); }

/* Have NumPy take memory from there again.  Steals; keeps the error that is set. */
void take_memory_there(PyObject *before)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *here = PyDataMem_SetHandler(before);
    if (!here)
        PyErr_WriteUnraisable(before);
    Py_XDECREF(here);
    Py_DECREF(before);
    PyErr_Restore(type, value, traceback);
}

/* Give all that is kept back to the system. */
static PyObject *forget_memory(PyObject *module, PyObject *nothing)
{
    if (PyThread_acquire_lock(lock, NOWAIT_LOCK)) {
        while (kept_count)
            free(header_of(kept[--kept_count].data)->block);
        kept_bytes = 0;
        PyThread_release_lock(lock);
    }
    Py_RETURN_NONE;
}

static PyObject *kept_memory(PyObject *module, PyObject *nothing)
{
    return PyLong_FromSize_t(kept_bytes);
}

static PyMethodDef functions[] = {
    {"forget_memory", forget_memory, METH_NOARGS, "Give memory that is kept for reuse back."},
    {"kept_memory", kept_memory, METH_NOARGS, "Bytes that are kept for reuse."},
    {NULL}};

int add_memory(PyObject *module)
{
    import_array1(-1);
    lock = PyThread_allocate_lock();
    handler = PyCapsule_New(&ours, "mem_handler", NULL);
    if (!lock || !handler || PyModule_AddIntConstant(module, "MOST_KEPT", (long)MOST_KEPT) < 0)
        return -1;
    return PyModule_AddFunctions(module, functions);
}
