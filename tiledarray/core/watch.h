/* How the core is watched while somebody asks where the time goes; see watch.c. */

#ifndef TILEDARRAY_WATCH_H
#define TILEDARRAY_WATCH_H

#include <Python.h>
#include <stddef.h>

extern int watching;          /* whether calls are counted: 0 in every run that nobody explains */

/* Call a function of NumPy's or ours that `work` finds, and count it; `reads`: it makes no array. */
PyObject *watched_call(vectorcallfunc work, int reads, PyObject *self, PyObject *const *args,
                       size_t flags, PyObject *names);

/* Give the module what starts and ends the watch. `array_at`: where a handle has its array. */
int add_watch(PyObject *module, size_t array_at, PyTypeObject *iterator);

#endif
