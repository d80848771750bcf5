/* Programs and how they are run: for programs.c, taken.c and run.c. */

#ifndef TILEDARRAY_RUNNING_H
#define TILEDARRAY_RUNNING_H

#include "core.h"

/* Instructions, each of as many words as it says; see `execution/instructions.py`. */
enum {
    TAKE,                     /* value: memory of a shape and dtype of its own */
    ADDRESS,                  /* slot, value, bytes from its start, terms */
    SUM,                      /* slot, number, terms */
    PHASE,                    /* slot, number, terms, modulus */
    PARAMETER,                /* slot, number, kind of number */
    LAUNCH,                   /* address of the arguments, whether others may run meanwhile */
    DROP,                     /* value */
    COPY,                     /* value, value that it is copied from, bytes */
    SHARE,                    /* value: a hold of another shape on the memory of the second */
    CALL,                     /* what a library computes: see library.c */
    MAKE                      /* value: a small array of NumPy's own, in place of the pool's */
};
enum { DOUBLE, SINGLE, INT32, INT64, COMPLEX };

typedef struct {
    PyObject_HEAD
    PyObject *plan;           /* what the values' buffers say they were computed by */
    PyObject *keep;           /* memory of arguments, libraries */
    PyObject *shapes;         /* a tuple: shape and dtype of what is taken, by value */
    PyObject *objects;        /* a tuple: what library calls call and are given */
    PyObject *own;            /* a tuple: memory that stays the program's between runs */
    PyObject *allocate;       /* what finds memory of a shape and dtype */
    PyObject *ready;          /* whether launches go where they did; NULL: they are on the host */
    PyObject *gpu;            /* of arrays that are nowhere in particular; NULL: all are somewhere */
    Py_ssize_t *own_values;   /* the values that lie in it */
    int (*start)(const void *);
    int64_t *code, *conditions;
    Py_ssize_t length, conditions_length, values, launches, calls, own_count;
    Py_ssize_t turn;          /* where the first launch is that overwrites a leaf; -1: none does */
    Py_ssize_t leaves_count, outputs_count, updated_count, overwritten_count;
    Py_ssize_t *leaves;       /* pairs: value, number of the node */
    Py_ssize_t *outputs;      /* values */
    Py_ssize_t *updated;      /* pairs: number of a leaf, whether nobody else may see it */
    Py_ssize_t *overwritten;  /* pairs: value, number of the leaf */
    char there;               /* whether those arrays have to be on the GPU; else on the host */
    char busy;                /* its arguments are in use: a signal handler may evaluate, too */
} Program;

/* A program for a key; several are for other leaves that may be overwritten, or assume something. */
typedef struct Choice {
    struct Choice *next;
    Program *program;
    PyObject *picks;          /* for each parameter of the plan, the one of the walk; NULL: all */
} Choice;

typedef struct {
    Key *key;
    Choice *choices;
} Entry;

extern int programs_known;

int is_program(PyObject *x);
int are_where_wanted(const Program *program, const Walk *walk);

Entry *find_entry(const Walk *walk);
int conditions_hold(const Choice *choice, const Walk *walk);
Py_ssize_t picked(const Choice *choice, Py_ssize_t number);
int add_programs(PyObject *module);

/* ---- whose memory may be overwritten (taken.c) ----------------------------------------------- */

/* The inputs of targets, while nobody is to find them. */
typedef struct {
    PyObject *targets;
    PyObject **inputs;        /* three of each target; NULL: none were taken */
} Stolen;

int fits(const Program *program, const Walk *walk, uint64_t own, PyObject *buffer_type);
int steal_inputs(Stolen *stolen, PyObject *targets);
void return_inputs(Stolen *stolen);
PyObject *hold_alone(Node *leaf);
int add_taken(void);

/* ---- running (run.c) ------------------------------------------------------------------------- */

/* What a program runs with: new references. */
typedef struct {
    Program *program;
    PyObject **buffers;       /* by value; NULL: not there */
    int64_t *pointers;
    PyObject **params;
    Py_ssize_t params_count;
    Node **overwritten;       /* borrowed of what the targets have forgotten */
    Stolen stolen;
    PyObject *silence;        /* what ends it; NULL until NumPy is called */
} Frame;

int set_pointer(Frame *frame, Py_ssize_t value);
int add_terms(const Frame *frame, const int64_t *terms, int64_t *total);

/* ---- library calls (library.c) --------------------------------------------------------------- */

int call_library(Frame *frame, const int64_t *at);
int make_array(Frame *frame, Py_ssize_t value);
void end_silence(Frame *frame);
int install_library(PyObject *found);
int add_library(void);

#endif
