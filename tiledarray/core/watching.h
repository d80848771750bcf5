/* What counts calls (watched.c), and what adds them up (watch.c). */

#ifndef TILEDARRAY_WATCHING_H
#define TILEDARRAY_WATCHING_H

#include <Python.h>
#include <stdint.h>

enum { ELEMENT, LOOK, AT_ONCE, RECORDED, KINDS };
#define DEEPEST_ACCOUNT 64
#define NO_SLOT -1            /* where none is called, but counted */

typedef struct {
    PyCodeObject *code;       /* NULL where the table is empty */
    int lasti, slot;
    Py_ssize_t computed;      /* elements of what the call gave recorded, but computed; or 0 */
    int skip;                 /* calls until one is timed again */
    double mean;              /* seconds of recent calls that were timed */
    int timed;
    int64_t count[KINDS], elements[KINDS];
    double seconds[KINDS];
} Place;

typedef struct {
    PyCodeObject *code;
    Py_ssize_t at;
    int lasti, slot;
    double started, exact;    /* when, if this call is timed; else 0 */
} Call;

extern unsigned long owner;   /* the thread that is watched */
extern volatile int depth;    /* slots that are running */
extern int stack[DEEPEST_ACCOUNT];
extern volatile int height;   /* accounts that were entered */
extern int releases;          /* the account of giving memory back */

double now(void);
int begin(Call *call, int slot);
Place *place_of(const Call *call);
void end(const Call *call, int kind, Py_ssize_t elements);
void settle(double until);

/* Exchange the slots of a class for ones that count, and give them back. */
void exchange(PyTypeObject *type);
void give_back(void);
int add_watched(size_t array_at, PyTypeObject *iterator);

#endif
