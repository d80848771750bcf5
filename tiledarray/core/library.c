/* Library calls in programs: operands as NumPy's arrays, and what comes back.

   The instruction, behind its kind: its length; the number of what is called among the program's
   objects; the value whose memory the result is written into, or -1; how many results there are, and
   the value that each becomes (-1: it is not asked for); how many operands, and these:

       WHOLE, value
       VIEW, value, axes, lengths, strides in bytes, bytes from the start, terms
       SCALAR, number of the parameter
       OBJECT, number among the program's objects

   What is called returns buffers, unless it writes into memory that it is given last.  It is not
   told what was computed before, so a failure leaves nothing behind. */

#include "handle.h"
#include "running.h"

#define MOST_OPERANDS 8

enum { WHOLE, VIEW, SCALAR, OBJECT };

static PyObject *array_name;
static PyObject *silence, *buffer_type, *device;

/* A small array of NumPy's own, which is quicker than the pool's: as `set_pointer`. */
int make_array(Frame *frame, Py_ssize_t value)
{
    PyObject *kind = PyTuple_GET_ITEM(frame->program->shapes, value);
    PyObject *shape = PyTuple_GET_ITEM(kind, 0), *made;
    npy_intp lengths[NPY_MAXDIMS];
    int axes = (int)PyTuple_GET_SIZE(shape);
    for (int k = 0; k < axes; k++)
        lengths[k] = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, k));
    PyObject *array = PyArray_Empty(
        axes, lengths, (PyArray_Descr *)Py_NewRef(PyTuple_GET_ITEM(kind, 1)), 0);
    const int no_room = !array && PyErr_ExceptionMatches(PyExc_MemoryError);
    PyObject *address = array ? PyLong_FromVoidPtr(PyArray_DATA((PyArrayObject *)array)) : NULL;
    if (address) {
        PyObject *arguments[4] = {NULL, array, address, device};
        made = PyObject_Vectorcall(
            buffer_type, arguments + 1, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
        frame->buffers[value] = made;
        frame->pointers[value] = (int64_t)(intptr_t)PyArray_DATA((PyArrayObject *)array);
    }
    Py_XDECREF(address);
    Py_XDECREF(array);
    if (frame->buffers[value])
        return 1;
    if (!no_room)
        return -1; /* of a signal handler, perhaps: making a buffer runs Python */
    PyErr_Clear();
    return 0;
}

/* The array of a buffer: a new reference. */
static PyObject *array_of(const Frame *frame, int64_t value)
{
    return PyObject_GetAttr(frame->buffers[value], array_name);
}

/* A strided view of a buffer's memory, which it keeps; `*at` is moved behind it.  NULL without an
   error if a parameter is unusual. */
static PyObject *view_of(const Frame *frame, const int64_t **at)
{
    const int64_t *words = *at;
    int axes = (int)words[2];
    npy_intp lengths[NPY_MAXDIMS], strides[NPY_MAXDIMS];
    for (int k = 0; k < axes; k++) {
        lengths[k] = (npy_intp)words[3 + k];
        strides[k] = (npy_intp)words[3 + axes + k];
    }
    const int64_t *start = words + 3 + 2 * axes;
    int64_t offset = start[0];
    *at = start + 2 + 2 * start[1];
    if (!add_terms(frame, start + 1, &offset))
        return NULL;
    PyObject *array = array_of(frame, words[1]);
    if (!array)
        return NULL;
    PyArray_Descr *dtype = PyArray_DESCR((PyArrayObject *)array);
    Py_INCREF(dtype);
    PyObject *view = PyArray_NewFromDescr(
        &PyArray_Type, dtype, axes, lengths, strides,
        PyArray_BYTES((PyArrayObject *)array) + offset, NPY_ARRAY_WRITEABLE, NULL);
    if (!view || PyArray_SetBaseObject((PyArrayObject *)view, Py_NewRef(array)) < 0)
        Py_CLEAR(view);
    Py_DECREF(array);
    return view;
}

/* One operand: a new reference; as `view_of`. */
static PyObject *operand_of(const Frame *frame, const int64_t **at)
{
    const int64_t *words = *at;
    if (words[0] == VIEW)
        return view_of(frame, at);
    *at += 2;
    switch (words[0]) {
    case WHOLE:
        return array_of(frame, words[1]);
    case SCALAR:
        return Py_NewRef(frame->params[words[1]]);
    default:
        return Py_NewRef(PyTuple_GET_ITEM(frame->program->objects, words[1]));
    }
}

/* What a call has returned become the values of the results: as `set_pointer`. */
static int keep_results(Frame *frame, PyObject *result, const int64_t *values, Py_ssize_t count)
{
    int several = PyTuple_CheckExact(result);
    if (several && PyTuple_GET_SIZE(result) != count) {
        PyErr_SetString(PyExc_SystemError, "a library call has returned too few results, or many");
        return -1;
    }
    for (Py_ssize_t k = 0; k < count; k++) {
        PyObject *part = several ? PyTuple_GET_ITEM(result, k) : result;
        if (values[k] < 0)
            continue;
        if (!PyObject_TypeCheck(part, (PyTypeObject *)buffer_type)) {
            PyErr_SetString(PyExc_SystemError, "a library call has returned no buffer");
            return -1;
        }
        Py_XSETREF(frame->buffers[values[k]], Py_NewRef(part));
        if (set_pointer(frame, (Py_ssize_t)values[k]) < 0)
            return -1;
    }
    return 1;
}

/* Have NumPy warn of nothing from here on; -1 with an error set.  What says so is a variable of the
   context, set and reset by C alone: no handler can come in between. */
static int begin_silence(Frame *frame)
{
    if (!frame->silence)
        frame->silence = PyContextVar_Set(PyTuple_GET_ITEM(silence, 0),
                                          PyTuple_GET_ITEM(silence, 1));
    return frame->silence ? 0 : -1;
}

/* Have it warn as before; the error that is set, if one is, stays so. */
void end_silence(Frame *frame)
{
    PyObject *type, *value, *traceback;
    if (!frame->silence)
        return;
    PyErr_Fetch(&type, &value, &traceback);
    if (PyContextVar_Reset(PyTuple_GET_ITEM(silence, 0), frame->silence))
        PyErr_Clear(); /* another context is current: this one is silent no longer anyhow */
    PyErr_Restore(type, value, traceback);
    Py_CLEAR(frame->silence);
}

/* Do it: as `set_pointer`. */
int call_library(Frame *frame, const int64_t *at)
{
    PyObject *operands[MOST_OPERANDS + 2], *result = NULL; /* the first is vectorcall's to use */
    Py_ssize_t results = (Py_ssize_t)at[4], taken = 0;
    const int64_t *words = at + 5 + results;
    Py_ssize_t count = (Py_ssize_t)*words++;
    int into = at[3] >= 0;
    if (count > MOST_OPERANDS || begin_silence(frame))
        return after_failure();
    while (taken < count && (operands[taken + 1] = operand_of(frame, &words)))
        taken++;
    if (taken == count && into && (operands[taken + 1] = array_of(frame, at[3])))
        taken++;
    if (taken == count + into)
        result = PyObject_Vectorcall(PyTuple_GET_ITEM(frame->program->objects, at[2]), operands + 1,
                                     (size_t)taken | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    while (taken)
        Py_DECREF(operands[taken--]);
    if (!result)
        return after_failure();
    int done = into ? 1 : keep_results(frame, result, at + 5, results);
    Py_DECREF(result);
    return done;
}

int install_library(PyObject *found)
{
    /* A variable of the context and its value; or None, and then no program has calls. */
    return set_from(found, "silence", &silence) || set_from(found, "buffer", &buffer_type) ||
           set_from(found, "device", &device)
               ? -1 : 0;
}

int add_library(void)
{
    array_name = PyUnicode_InternFromString("array");
    return array_name ? 0 : -1;
}
