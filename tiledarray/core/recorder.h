/* What each thread records into: for recorder.c and values.c. */

#ifndef TILEDARRAY_RECORDER_H
#define TILEDARRAY_RECORDER_H

#include "core.h"

#include <string.h>

/* What a stretch waits for: its first handle, whose place becomes the anchor; as many operations as
   make a stretch; the anchor to come round again, where it ends; or the next handle, for what is
   pending is small, and evaluated so that more is not. */
enum { EMPTY, GATHERING, DUE, CROWDED };

typedef struct {
    PyObject_HEAD
    Link handles;             /* heads of two rings */
    Link readers;
    Py_ssize_t count;         /* nodes recorded since the last flush */
    Py_ssize_t most;          /* the count from which every new handle asks `consider` */
    Site *sites;              /* where the handles' nodes were recorded */
    Py_ssize_t noted, room;
    Py_ssize_t small;         /* of those, what only waited for its operands */
    Py_ssize_t cut;           /* operations that make a stretch */
    Site anchor, path[PATH_LENGTH]; /* where the stretch began, and by which callers */
    int path_length, state;
    PyObject *weak;
    char cuts;                /* whether it ever ends */
} Recorder;

/* What each thread has one of. */
typedef struct {
    PyObject_HEAD
    PyObject *make;
} Local;

extern uint64_t known_thread;
extern Recorder *known_recorder; /* that thread's; borrowed */
extern PyObject *the_local;   /* borrowed: it lives as long as its module */

PyObject *get_recorder(Local *local, void *unused);
void set_anchor(Recorder *recorder, const Node *node);

static inline void note_in(Link *head, Handle *handle)
{
    Link *link = &handle->noted;
    if (link->list == head || (link->list && held))
        return; /* it keeps its place, and where a function is only traced its list */
    forget_note(link);
    link->list = head;
    link->next = head;
    link->before = head->before;
    head->before->next = link;
    head->before = link;
}

static inline void enter(Recorder *recorder, int state)
{
    recorder->state = state;
    recorder->most = !recorder->cuts ? PY_SSIZE_T_MAX
                     : state == GATHERING || state == DUE ? recorder->cut : 0;
}

static inline int is_at_anchor(const Recorder *recorder, const Node *node)
{
    return node->code == recorder->anchor.code &&
           (!node->code || node->instruction == recorder->anchor.instruction);
}

/* This thread's recorder, a new reference; NULL with an error set. */
static inline Recorder *present_recorder(void)
{
    if (known_recorder && PyThreadState_GetID(PyThreadState_Get()) == known_thread)
        return (Recorder *)Py_NewRef((PyObject *)known_recorder);
    if (!the_local) {
        PyErr_SetString(PyExc_RuntimeError, "there are no recorders yet");
        return NULL;
    }
    return (Recorder *)get_recorder((Local *)the_local, NULL);
}

#endif
