/* What the files of the core share. */

#ifndef TILEDARRAY_CORE_H
#define TILEDARRAY_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <stdint.h>
#include <string.h>

/* Around declarations: what they declare is in this library, and is reached without a table. */
#if defined(__GNUC__) && !defined(_WIN32)
#define HIDDEN_BEGIN _Pragma("GCC visibility push(hidden)")
#define HIDDEN_END _Pragma("GCC visibility pop")
#else
#define HIDDEN_BEGIN
#define HIDDEN_END
#endif

HIDDEN_BEGIN

/* ---- the graph (graph.c) ------------------------------------------------------------------- */

/* Shape, dtype and device of a value.  Interned: compared by identity. */
typedef struct {
    PyObject_HEAD
    PyObject *shape, *dtype, *device;
    Py_ssize_t size;          /* elements on the host, at least 1; elsewhere no number is larger */
} Kind;

/* Everything about a node but its operands.  Interned too. */
typedef struct {
    PyObject_HEAD
    PyObject *op, *attrs;
    Kind *kind;               /* of the result */
    PyObject *call;
    Py_ssize_t arity;
    int roles;
} Form;

enum {
    MOVES = 1,                /* its scalars are starts: a plan knows which of them are 0 */
    UPDATES = 2,              /* overwrites a part of its first input */
    CONSTANT = 4,             /* has no nodes among its inputs, and may be computed at any time */
    SMOOTH = 8                /* may have a derivative: its elements are real or complex numbers */
};

/* One recorded operation and, once computed, its value. */
typedef struct Node {
    PyObject_HEAD
    Form *form;
    PyObject *left, *right;   /* the first inputs; NULL if `rest` has them */
    PyObject *rest;           /* a tuple of the others; NULL if there are none */
    PyObject *code;           /* where in the user's program it was recorded; NULL: unknown */
    PyObject *buffer;         /* the value; NULL while pending */
    PyObject *weak;
    uint64_t walk;            /* the walk over the graph that met it last, or was there last before
                                 it was made, ... */
    Py_ssize_t number;        /* ... and its number there */
    int instruction;
    char keeps;               /* whether its history is wanted, for a gradient; then it has ... */
    struct Node *older, *newer; /* ... neighbours of which that is so, too */
} Node;

enum {
    KEEPS = 1,                /* it forgets no inputs, nor does what is computed from it */
    BEGINS = 2                /* the history begins with it: its own inputs are let go */
};

/* Elements up to which what has a history is computed at once: a gradient of larger ones fuses. */
extern Py_ssize_t most_with_history;

extern PyTypeObject KindType, FormType, NodeType, KeyType;

#define is_node(x) (Py_TYPE(x) == &NodeType)

Node *new_node(Form *form);
uint64_t new_walk(void);
void forget_inputs(Node *node);
void inherit(Node *node);
int add_graph(PyObject *module);

/* ---- the walk (walk.c) ---------------------------------------------------------------------- */

/* What a plan is looked up by: a tuple (see `twin_graph.trace`), as words that are the same where
   the parts are.  An object is its address; references and what is behind a start have a tag. */
typedef struct {
    PyObject_HEAD
    Py_hash_t hash;
    Py_ssize_t length;        /* words */
    uintptr_t *words;
    PyObject *parts;          /* the tuple, once asked for */
} Key;

/* What a walk has met, borrowed; until the next one. */
typedef struct {
    Node **nodes;
    PyObject **params;
    const uintptr_t *words;
    Py_ssize_t count, params_count, length;
    Py_hash_t hash;
} Walk;

int walk_targets(PyObject *targets, Walk *walk);
uint64_t find_own(PyObject *targets, const Walk *walk);
int add_walk(PyObject *module);

/* ---- memory (memory.c) ---------------------------------------------------------------------- */

PyObject *take_memory_here(void);
void take_memory_there(PyObject *before);
int add_memory(PyObject *module);

/* ---- NumPy's scalars (scalars.c) ------------------------------------------------------------ */

/* The first of the operators. */
enum { SCALAR_ADD, SCALAR_SUB, SCALAR_MUL, SCALAR_TRUEDIV };

PyObject *scalar_binary(int op, PyObject *left, PyObject *right);
PyObject *scalar_compare(PyObject *left, PyObject *right, int op);
PyObject *number_beside(PyObject *x, PyObject *other, int floats);
void drop_number(PyObject *x);
int add_scalars(void);

/* ---- handles (state.c, handle.c) ------------------------------------------------------------ */

/* In a ring of a recorder's: handles with a pending node, or views that keep what they read. */
typedef struct Link {
    struct Link *next, *before;
    struct Link *list;        /* its head; NULL while in none */
} Link;

typedef struct Loan Loan;

typedef struct Handle {
    PyObject_HEAD
    PyObject *array;          /* the settled value: an array, or a scalar of NumPy's */
    PyObject *node;           /* of an array of its own: the recorded value */
    struct Handle *base;      /* of a view: the array that owns the value */
    PyObject *steps;          /* of a view: how it lies in its base; NULL until that is asked */
    PyObject *seen;           /* of a view: what it last read (see arrays/handle.py); of an array of
                                 its own without a value: what that is to be made of */
    struct Handle *parent;    /* of a view without steps: what it was taken of, ... */
    PyObject *how;            /* ... and how: a basic index, or (function, arguments) */
    struct Handle *views;     /* of an array of its own: its settled views, a list through next */
    struct Handle *next, **link;
    Py_ssize_t parts;         /* how many live views, settled or not, have this as their base */
    Link noted;               /* by a recorder */
    Loan *loan;               /* of an array of its own: who looks at its memory; see `loans.c` */
    PyObject *lasting;        /* ... and what stays where it is until the array dies */
    PyObject *weak;
    int depth;                /* of a view without steps: of how many it was taken in turn */
    char by_index;            /* `how` is an index */
    char copied;              /* `node` is a copy of `array`, which is the value */
    unsigned short writers;   /* of an array of its own: NumPy's that write into `array` now */
} Handle;

extern PyTypeObject HandleType;
extern PyTypeObject *handle_class; /* what is made: the Python class below it */
extern Py_ssize_t limit;      /* elements up to which a settled array is small */
extern long held;             /* reasons (traced functions) for which nothing is done at once */

#define SMALL_ELEMENTS (1 << 16) /* what nobody would wait for a plan, or for a GPU, for */

/* Up to how many elements the value of a node is computed at once: larger ones are better seen by a
   plan, where they are recorded. */
static inline Py_ssize_t of_nodes(void) { return Py_MIN(limit, SMALL_ELEMENTS); }

#define is_handle(x) (Py_TYPE(x) == handle_class || PyObject_TypeCheck(x, &HandleType))

/* Whether the value is still to be found, by Python, when it is asked for (arrays/selections.py). */
static inline int is_deferred(const Handle *handle)
{
    return !handle->base && !handle->node && !handle->array && handle->seen;
}

Handle *new_handle(void);
PyObject *get_node(Handle *handle, void *unused);
int set_node(Handle *handle, PyObject *node, void *unused);
PyObject *steps_of(Handle *view);

static inline Handle *root_of(Handle *handle)
{
    while (handle->base)
        handle = handle->base;
    return handle;
}

/* Make a new handle a view. */
static inline void begin_view(Handle *view, Handle *root)
{
    view->base = (Handle *)Py_NewRef((PyObject *)root);
    root->parts++;
}

static inline int is_plain(PyObject *x)
{
    return PyFloat_CheckExact(x) || PyLong_CheckExact(x) || PyBool_Check(x) ||
           PyComplex_CheckExact(x);
}

/* ---- the user's line (sites.c) --------------------------------------------------------------- */

typedef struct {
    PyObject *code;
    int instruction;
} Site;

#define PATH_LENGTH 16        /* callers that tell two uses of one line apart */

void say_site(Node *node);
int read_site(Site *site);
int read_path(Site *path);
int add_sites(void);

/* ---- recorders (recorder.c) ------------------------------------------------------------------ */

static inline void forget_note(Link *link)
{
    if (link->list) {
        link->before->next = link->next;
        link->next->before = link->before;
        memset(link, 0, sizeof *link);
    }
}

int note_reader(Handle *view);
int note_small(void);
void reset_recorder(PyObject *recorder);
int forget_readers(PyObject *recorder);
Py_ssize_t noted_by(PyObject *recorder);
PyObject *pending_below(PyObject *nodes, PyObject **recorder);
int add_recorder(PyObject *module);

/* ---- nodes become values (values.c) ---------------------------------------------------------- */

extern PyObject *compute;     /* what Python computes small operations by */

PyObject *wrap_node(PyObject *node);
int rebind(Handle *root, PyObject *node, const PyObject *before);
Node *record_node(Form *form);
int add_values(PyObject *module);

/* ---- recording (record.c) ------------------------------------------------------------------- */

/* These return NULL, or 0, without an error where Python has to do it: see `arrays/recorded.py`. */
PyObject *record_binary(PyObject *op, PyObject *x, PyObject *y);
PyObject *record_power(PyObject *op, PyObject *x, PyObject *y);
PyObject *record_update(PyObject *op, PyObject *x, PyObject *y);
PyObject *record_unary(PyObject *op, PyObject *x);
PyObject *record_ufunc(PyObject *ufunc, PyObject *const *args, Py_ssize_t count);

/* Of use to slices. */
Node *present_node(Handle *handle);
int must_record(const Form *form, const Node *left, const Node *right);
int must_record_of(const Form *form, const Node *const *inputs, int count);
int known_form(PyObject *op, PyObject *left, PyObject *right, Form **form);
int find_form(PyObject *op, PyObject *left, PyObject *right, PyObject *callback, Form **form);
int add_record(PyObject *module);

/* ---- recording what indices do (slices.c) ---------------------------------------------------- */

PyObject *record_getitem(Handle *handle, PyObject *key);
int record_setitem(Handle *handle, PyObject *key, PyObject *value);
PyObject *steps_by_index(Handle *parent, const Py_ssize_t *shape, int ndim, PyObject *key);
Node *view_node(Handle *view);
Node *number_node(const Kind *kind, PyObject *number);
int write_view(Handle *view, Node *value);
int add_slices(PyObject *module);

/* ---- functions that record the same again (recipes.c) ---------------------------------------- */

PyObject *record_call(PyObject *function, PyObject *const *args, size_t flags, PyObject *names);
void forget_recipes(void);
int add_recipes(void);

/* ---- running what was planned before (programs.c, run.c) ------------------------------------- */

int add_run(PyObject *module);

/* Whether a node is sure to have no value on the host. */
static inline int is_pending(PyObject *node)
{
    return is_node(node) && !((Node *)node)->buffer && !(((Node *)node)->form->roles & CONSTANT);
}

static inline int is_constant(PyObject *node)
{
    return !is_node(node) || (!((Node *)node)->buffer && !((Node *)node)->keeps &&
                              ((Node *)node)->form->roles & CONSTANT);
}

HIDDEN_END

#endif
