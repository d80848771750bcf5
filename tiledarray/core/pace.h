/* Whether arrays of middle size are computed at once or recorded (pace.c). */

#ifndef TILEDARRAY_PACE_H
#define TILEDARRAY_PACE_H

#include "handle.h"

HIDDEN_BEGIN

extern int pacing;            /* whether that is weighed at all */
extern int pace_low;          /* whether they are recorded */
extern double paced;          /* elements of middle-sized results until now ... */
extern double pace_due;       /* ... and how many there are when Python is asked */
extern npy_intp at_once;      /* what the setting says */
extern npy_intp pace_least, pace_most; /* results that are larger, but not by more, are counted */

int pace_turn(void);
void begin_pace(npy_intp at_once);
int add_pace(PyObject *module);

/* Before an operation: whether the limit should be another from here on; 0 with an error set. */
static inline int keep_pace(void)
{
    return !pacing || (paced < pace_due && !pace_low) || pace_turn();
}

/* After it: count what came of it, but not what it was made of in turn, and return that. */
static inline PyObject *counted(PyObject *result, double before)
{
    if (pacing && result && is_handle(result)) {
        const Handle *handle = (const Handle *)result;
        npy_intp size = handle->array ? size_of(handle->array)
                        : handle->node && is_node(handle->node)
                            ? ((const Node *)handle->node)->form->kind->size : 0;
        paced = size > pace_least && size <= pace_most ? before + (double)size : before;
    }
    return result;
}

HIDDEN_END

#endif
