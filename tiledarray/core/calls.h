/* Functions of NumPy's that are made at once: what calls.c and at_once.c share. */

#ifndef TILEDARRAY_CALLS_H
#define TILEDARRAY_CALLS_H

#include "handle.h"

HIDDEN_BEGIN

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
    VIEWS = 1024,             /* gives a view of what lies row after row, or reads little of it: at
                                 once whatever the size */
    RECORDS = 512,            /* ours does nothing but record, the same for the same kinds */
    SHARED = 4096,            /* of the library's, but several threads do it where it is recorded */
    COSTLY = 8192,            /* of these, what takes long for an element */
    ALIKE = 16384,            /* lists are of alternatives: each array is as large as the result */
    STATIC = 32768,           /* as an attribute of a class it is no method */
    PRODUCT = 2048            /* sums over an axis, so the result may be larger than the arguments */
};
enum { ANY_SIZE, OF_SHAPE, OF_RANGE, OF_COUNT, OF_SQUARE, OF_DATA }; /* what creation looks at */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *target;         /* NumPy's function, or the name of its arrays' method */
    PyObject *fallback;       /* ours */
    PyObject *attributes;     /* a dict, or NULL: other attributes are those of `fallback` */
    PyObject *reduce;         /* what NumPy's calls in the end, of an array and an axis; or NULL */
    PyObject *behind;         /* what the dispatcher that `target` is calls, or arrays' method that
                                 it names; or NULL */
    int kind, size;
    int most;                 /* arguments by position; one more may be what NumPy writes to */
} AtOnce;

PyObject *at_once_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names);
PyObject *call_ufunc(PyObject *ufunc, PyObject **values, size_t flags);
int ufunc_at_once(PyObject *ufunc, PyObject *const *args, Py_ssize_t inputs, PyObject **result);
int give(PyObject *result, const Arguments *arguments, PyObject **given);

HIDDEN_END

#endif
