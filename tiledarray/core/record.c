/* Recording: each thread's recorder, and operations of handles that become nodes at once.

   Only what is usual is done here: elementwise operators and functions of arrays and Python's
   numbers, and slices.  Everything else, errors included, is left to Python, which records it by
   the same rules (`recording/record.py`, `arrays/operators.py`, `arrays/recorded.py`) and is asked
   here once for each combination of kinds.  `twin_record.py` is the first part of this file in
   Python; the rest has none, since Python does it anyhow. */

#include "core.h"

#include <string.h>

/* What Python gives `install_recording`. */
#define MANY_SMALL 64         /* planning and running them takes some ms, and more may follow */
enum { COMPUTE, FORM_OF_CALL, FLOAT64, CALLBACKS };
static const char *const callback_names[CALLBACKS] = {"compute", "form_of_call", "float64"};
static PyObject *callbacks[CALLBACKS];
static PyObject *ufuncs[2];   /* of one and of two operands, each with its op */
static PyObject *short_powers[4]; /* square, positive, reciprocal, sqrt */
static PyObject *consider_name, *crowded_name, *name_name, *node_name, *kind_name, *itemsize_name;

/* ---- recorders ------------------------------------------------------------------------------ */

typedef struct {
    PyObject *code;
    int instruction;
} Site;

#define PATH_LENGTH 16        /* callers that tell two uses of one line apart */

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
    Py_ssize_t small;         /* of those, what could have been computed at once but for its operands */
    Py_ssize_t cut;           /* operations that make a stretch */
    Site anchor, path[PATH_LENGTH]; /* where the stretch began, and by which callers */
    int path_length, state;
    PyObject *weak;
    char cuts;                /* whether it ever ends */
} Recorder;

static Py_ssize_t cut_setting = PY_SSIZE_T_MAX / 8;

static PyTypeObject RecorderType, LocalType;

static int read_path(Site *path);

static inline void empty_ring(Link *head)
{
    head->next = head->before = head;
    head->list = head;
}

void forget_note(Link *link)
{
    if (link->list) {
        link->before->next = link->next;
        link->next->before = link->before;
        memset(link, 0, sizeof *link);
    }
}

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

#define MOST_ROOM 4096        /* for places, kept from one stretch to the next */
#define noted_handle(link) ((Handle *)((char *)(link) - offsetof(Handle, noted)))

static int note_site(Recorder *recorder, const Node *node)
{
    if (recorder->noted == recorder->room) {
        Py_ssize_t room = recorder->room ? 2 * recorder->room : 512;
        Site *sites = PyMem_Realloc(recorder->sites, (size_t)room * sizeof(Site));
        if (!sites) {
            PyErr_NoMemory();
            return -1;
        }
        recorder->sites = sites;
        recorder->room = room;
    }
    recorder->sites[recorder->noted++] = (Site){Py_XNewRef(node->code), node->instruction};
    return 0;
}

static void drop_sites(Recorder *recorder)
{
    Site *sites = recorder->sites;
    Py_ssize_t noted = recorder->noted, room = recorder->room;
    recorder->sites = NULL;
    recorder->noted = recorder->room = 0;
    for (Py_ssize_t k = 0; k < noted; k++)
        Py_XDECREF(sites[k].code);
    if (recorder->sites || room > MOST_ROOM)
        PyMem_Free(sites);
    else {
        recorder->sites = sites;
        recorder->room = room;
    }
}

static void drop_anchor(Recorder *recorder)
{
    Py_CLEAR(recorder->anchor.code);
    while (recorder->path_length) {
        recorder->path_length--;
        Py_CLEAR(recorder->path[recorder->path_length].code);
    }
}

static void enter(Recorder *recorder, int state)
{
    recorder->state = state;
    recorder->most = !recorder->cuts ? PY_SSIZE_T_MAX
                     : state == GATHERING || state == DUE ? recorder->cut : 0;
}

static PyObject *recorder_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    Recorder *recorder = (Recorder *)type->tp_alloc(type, 0);
    if (recorder) {
        empty_ring(&recorder->handles);
        empty_ring(&recorder->readers);
        recorder->cuts = 1;
        recorder->cut = cut_setting;
    }
    return (PyObject *)recorder;
}

/* Let go of what a view has read, unless that is what it would read again. */
static void forget_seen(Handle *view)
{
    if (view->seen && PyTuple_CheckExact(view->seen) && view->base && !held &&
        PyTuple_GET_ITEM(view->seen, 0) == root_of(view)->node)
        return;
    Py_CLEAR(view->seen);
}

static void forget_all(Recorder *recorder)
{
    while (recorder->handles.next != &recorder->handles)
        forget_note(recorder->handles.next);
    while (recorder->readers.next != &recorder->readers) {
        Handle *view = noted_handle(recorder->readers.next);
        forget_note(&view->noted);
        Py_INCREF(view);
        forget_seen(view);
        Py_DECREF(view);
    }
}

/* Begin a new stretch. */
void reset_recorder(PyObject *self)
{
    Recorder *recorder = (Recorder *)self;
    forget_all(recorder);
    drop_sites(recorder);
    drop_anchor(recorder);
    recorder->count = recorder->small = 0;
    recorder->cut = cut_setting;
    enter(recorder, EMPTY);
}

static PyObject *recorder_reset(Recorder *recorder, PyObject *unused)
{
    reset_recorder((PyObject *)recorder);
    Py_RETURN_NONE;
}

static uint64_t known_thread = 0;
static Recorder *known_recorder = NULL; /* that thread's; borrowed */
static PyObject *the_local = NULL; /* borrowed: it lives as long as its module */

static void recorder_dealloc(Recorder *recorder)
{
    if (recorder->weak)
        PyObject_ClearWeakRefs((PyObject *)recorder);
    if (known_recorder == recorder)
        known_recorder = NULL;
    forget_all(recorder);
    drop_sites(recorder);
    drop_anchor(recorder);
    PyMem_Free(recorder->sites);
    Py_TYPE(recorder)->tp_free((PyObject *)recorder);
}

static PyObject *add_pending(Recorder *recorder, PyObject *found, uint64_t walk)
{
    for (Link *link = recorder->handles.next; found && link != &recorder->handles;
         link = link->next) {
        Handle *handle = noted_handle(link);
        Node *node = (Node *)handle->node;
        if (handle->base || handle->copied || !node || !is_node(node) || node->buffer ||
            node->walk == walk)
            continue;
        node->walk = walk;
        if (PyList_Append(found, (PyObject *)node))
            Py_CLEAR(found);
    }
    return found;
}

static PyObject *recorder_pending(Recorder *recorder, PyObject *unused)
{
    return add_pending(recorder, PyList_New(0), new_walk());
}

static PyObject *recorder_enter(Recorder *recorder, PyObject *state)
{
    long wanted = PyLong_AsLong(state);
    if (wanted < EMPTY || wanted > CROWDED) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "there is no such state");
        return NULL;
    }
    enter(recorder, (int)wanted);
    Py_RETURN_NONE;
}

/* Have the stretch begin at this node: both are of the line that is running. */
static void set_anchor(Recorder *recorder, const Node *node)
{
    drop_anchor(recorder);
    recorder->anchor = (Site){Py_XNewRef(node->code), node->instruction};
    recorder->path_length = read_path(recorder->path);
}

static int is_at_anchor(const Recorder *recorder, const Node *node)
{
    return node->code == recorder->anchor.code &&
           (!node->code || node->instruction == recorder->anchor.instruction);
}

static int comes_round(const Recorder *recorder, const Node *node)
{
    if (recorder->count < recorder->cut || !is_at_anchor(recorder, node))
        return 0;
    Site path[PATH_LENGTH];
    int length = read_path(path), same = length == recorder->path_length;
    for (int k = 0; k < length; k++) {
        same = same && path[k].code == recorder->path[k].code &&
               path[k].instruction == recorder->path[k].instruction;
        Py_DECREF(path[k].code);
    }
    return same;
}

#define NODE_WANTED(node) \
    if (!is_node(node)) { \
        PyErr_SetString(PyExc_TypeError, "a node is wanted"); \
        return NULL; \
    }

static PyObject *recorder_begin_at(Recorder *recorder, PyObject *node)
{
    NODE_WANTED(node);
    set_anchor(recorder, (Node *)node);
    enter(recorder, GATHERING);
    Py_RETURN_NONE;
}

static PyObject *recorder_comes_round(Recorder *recorder, PyObject *node)
{
    NODE_WANTED(node);
    return PyBool_FromLong(comes_round(recorder, (Node *)node));
}

static PyObject *recorder_move_anchor(Recorder *recorder, PyObject *node)
{
    NODE_WANTED(node);
    for (Py_ssize_t k = 1; k < recorder->noted; k++)
        if (recorder->sites[k].code == recorder->anchor.code &&
            recorder->sites[k].instruction == recorder->anchor.instruction)
            Py_RETURN_NONE;
    set_anchor(recorder, (Node *)node); /* it stood before the loop */
    Py_RETURN_NONE;
}

static inline int is_small(const Recorder *recorder)
{
    return recorder->small >= MANY_SMALL && 2 * recorder->small >= recorder->noted;
}

static PyObject *recorder_is_small(Recorder *recorder, PyObject *unused)
{
    return PyBool_FromLong(is_small(recorder));
}

static PyObject *recorder_note_small(Recorder *recorder, PyObject *unused)
{
    recorder->small++;
    if (is_small(recorder))
        return PyObject_CallMethodNoArgs((PyObject *)recorder, crowded_name);
    Py_RETURN_NONE;
}

static PyObject *recorder_note_reader(Recorder *recorder, PyObject *view)
{
    if (!is_handle(view)) {
        PyErr_SetString(PyExc_TypeError, "a view is wanted");
        return NULL;
    }
    note_in(&recorder->readers, (Handle *)view);
    Py_RETURN_NONE;
}

static PyMemberDef recorder_members[] = {
    {"count", T_PYSSIZET, offsetof(Recorder, count), 0, "Nodes recorded since the last flush."},
    {"limit", T_PYSSIZET, offsetof(Recorder, most), 0,
     "The count from which every new handle asks `consider`."},
    {"cut", T_PYSSIZET, offsetof(Recorder, cut), READONLY, "Operations that make a stretch."},
    {"cuts", T_BOOL, offsetof(Recorder, cuts), 0, "Whether a stretch ever ends."},
    {"state", T_INT, offsetof(Recorder, state), READONLY, "What the stretch waits for."},
    {"small", T_PYSSIZET, offsetof(Recorder, small), 0,
     "How many nodes could have been computed at once, had their operands been there."},
    {"noted", T_PYSSIZET, offsetof(Recorder, noted), READONLY,
     "How often a handle got a pending node since the last flush."},
    {NULL}};

static PyMethodDef recorder_methods[] = {
    {"reset", (PyCFunction)recorder_reset, METH_NOARGS, "Begin a new stretch."},
    {"enter", (PyCFunction)recorder_enter, METH_O, "Wait for something else."},
    {"begin_at", (PyCFunction)recorder_begin_at, METH_O, "Begin the stretch at this node."},
    {"comes_round", (PyCFunction)recorder_comes_round, METH_O,
     "Whether the stretch is long enough, and the node recorded where it began."},
    {"move_anchor", (PyCFunction)recorder_move_anchor, METH_O,
     "Have the stretch begin at this node, if it has not come by its anchor again."},
    {"pending", (PyCFunction)recorder_pending, METH_NOARGS,
     "Return the pending nodes that live handles hold, each once."},
    {"is_small", (PyCFunction)recorder_is_small, METH_NOARGS,
     "Whether small operations are many, and little else was recorded."},
    {"note_small", (PyCFunction)recorder_note_small, METH_NOARGS,
     "Count a small operation that had to be recorded, for what it reads is pending."},
    {"note_reader", (PyCFunction)recorder_note_reader, METH_O,
     "Have a view let go of what it has read, when the stretch ends."},
    {NULL}};

static PyTypeObject RecorderType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tiledarray.core._core.Recorder",
    .tp_doc = "What one thread has pending.",
    .tp_basicsize = sizeof(Recorder),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_new = recorder_new,
    .tp_dealloc = (destructor)recorder_dealloc,
    .tp_members = recorder_members,
    .tp_weaklistoffset = offsetof(Recorder, weak),
    .tp_methods = recorder_methods,
};

/* What each thread has one of. */
typedef struct {
    PyObject_HEAD
    PyObject *make;
} Local;

static PyObject *local_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *make;
    if (!PyArg_ParseTuple(args, "O", &make))
        return NULL;
    Local *local = (Local *)type->tp_alloc(type, 0);
    if (local) {
        local->make = Py_NewRef(make);
        the_local = (PyObject *)local;
    }
    return (PyObject *)local;
}

static void local_dealloc(Local *local)
{
    if (the_local == (PyObject *)local)
        the_local = NULL;
    Py_XDECREF(local->make);
    Py_TYPE(local)->tp_free((PyObject *)local);
}

static int set_recorder(Local *local, PyObject *recorder, void *unused)
{
    PyObject *places = PyThreadState_GetDict(); /* borrowed */
    if (!recorder || !PyObject_TypeCheck(recorder, &RecorderType) || !places) {
        PyErr_SetString(PyExc_TypeError, "a recorder is wanted");
        return -1;
    }
    if (PyDict_SetItem(places, (PyObject *)local, recorder))
        return -1;
    if ((PyObject *)local == the_local) {
        known_thread = PyThreadState_GetID(PyThreadState_Get());
        known_recorder = (Recorder *)recorder;
    }
    return 0;
}

static PyObject *get_recorder(Local *local, void *unused)
{
    if ((PyObject *)local == the_local && known_recorder &&
        PyThreadState_GetID(PyThreadState_Get()) == known_thread)
        return Py_NewRef((PyObject *)known_recorder);
    PyObject *places = PyThreadState_GetDict();
    PyObject *found = places ? PyDict_GetItemWithError(places, (PyObject *)local) : NULL;
    if (PyErr_Occurred())
        return NULL;
    found = found ? Py_NewRef(found) : PyObject_CallNoArgs(local->make);
    if (found && set_recorder(local, found, NULL))
        Py_CLEAR(found);
    return found;
}

static PyGetSetDef local_attributes[] = {
    {"recorder", (getter)get_recorder, (setter)set_recorder, "This thread's."}, {NULL}};

static PyTypeObject LocalType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tiledarray.core._core.Local",
    .tp_doc = "The recorder of each thread.",
    .tp_basicsize = sizeof(Local),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = local_new,
    .tp_dealloc = (destructor)local_dealloc,
    .tp_getset = local_attributes,
};

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

/* What this thread has pending and these nodes, each once, and its recorder: new references. */
PyObject *pending_below(PyObject *nodes, PyObject **recorder)
{
    *recorder = (PyObject *)present_recorder();
    PyObject *found = *recorder ? PyList_New(0) : NULL;
    uint64_t walk = new_walk();
    if (found)
        found = add_pending((Recorder *)*recorder, found, walk);
    for (Py_ssize_t k = 0; found && k < PyList_GET_SIZE(nodes); k++) {
        Node *node = (Node *)PyList_GET_ITEM(nodes, k);
        if (!is_node(node) || node->buffer || node->walk == walk)
            continue;
        node->walk = walk;
        if (PyList_Append(found, (PyObject *)node))
            Py_CLEAR(found);
    }
    if (!found)
        Py_CLEAR(*recorder);
    return found;
}

int note_reader(Handle *view)
{
    Recorder *recorder = present_recorder();
    if (!recorder)
        return -1;
    note_in(&recorder->readers, view);
    Py_DECREF(recorder);
    return 0;
}

int note_small(void)
{
    Recorder *recorder = present_recorder();
    PyObject *done = recorder ? recorder_note_small(recorder, NULL) : NULL;
    Py_XDECREF(recorder);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* ---- the user's line ------------------------------------------------------------------------ */

#define NAMES 64

static struct {
    PyObject *name;
    int users;
} names[NAMES];

/* Whether a module of this name is the user's; remembered by the text's identity. */
static int is_users_module(PyObject *name)
{
    size_t at = ((size_t)name >> 4) % NAMES;
    if (names[at].name == name)
        return names[at].users;
    Py_ssize_t length;
    const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, &length) : NULL;
    if (!text) {
        PyErr_Clear();
        return 1;
    }
    const char ours[] = "tiledarray";
    const Py_ssize_t own = sizeof ours - 1;
    int users = length < own || memcmp(text, ours, (size_t)own) ||
                (length > own && text[own] != '.');
    Py_XSETREF(names[at].name, Py_NewRef(name));
    names[at].users = users;
    return users;
}

static int is_users(PyFrameObject *frame)
{
    PyObject *globals = PyFrame_GetGlobals(frame);
    PyObject *name = PyDict_GetItemWithError(globals, name_name);
    int users = name ? is_users_module(name) : 1;
    Py_DECREF(globals);
    return users;
}

/* The nearest frame outside this package, a new reference: frames are walked, never counted. */
static inline PyFrameObject *user_frame(void)
{
    PyFrameObject *frame = PyEval_GetFrame();
    Py_XINCREF(frame);
    while (frame && !is_users(frame)) {
        PyFrameObject *back = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = back;
    }
    return frame;
}

/* Say where in the user's program the node is recorded. */
static inline void say_site(Node *node)
{
    PyFrameObject *frame = user_frame();
    if (frame) {
        node->code = (PyObject *)PyFrame_GetCode(frame);
        node->instruction = PyFrame_GetLasti(frame);
        Py_DECREF(frame);
    }
}

/* The places of the nearest callers, new references; how many. */
static int read_path(Site *path)
{
    int length = 0;
    PyFrameObject *frame = user_frame();
    while (frame && length < PATH_LENGTH) {
        path[length++] = (Site){(PyObject *)PyFrame_GetCode(frame), PyFrame_GetLasti(frame)};
        PyFrameObject *back = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = back;
    }
    Py_XDECREF(frame);
    return length;
}

/* ---- nodes become values of handles --------------------------------------------------------- */

/* Let the recorder flush where it is time to; before the node is a handle's. */
static inline int consider(Recorder *recorder, PyObject *node)
{
    if (recorder->count < recorder->most)
        return 0;
    if (recorder->state == EMPTY) {
        set_anchor(recorder, (Node *)node);
        enter(recorder, GATHERING);
        return 0;
    }
    if (recorder->state == DUE && recorder->count < 4 * recorder->cut &&
        !is_at_anchor(recorder, (Node *)node))
        return 0;
    PyObject *done = PyObject_CallMethodOneArg((PyObject *)recorder, consider_name, node);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* Make a pending node the value of a handle, and let the recorder know. */
static int give_pending(Recorder *recorder, Handle *handle, PyObject *node)
{
    /* While functions are traced, Python has a descriptor in the slot's place. */
    if (held ? PyObject_SetAttr((PyObject *)handle, node_name, node) : set_node(handle, node, NULL))
        return -1;
    if (note_site(recorder, (Node *)node))
        return -1;
    note_in(&recorder->handles, handle);
    return 0;
}

/* A new array whose value is the node. */
static PyObject *wrap(PyObject *node)
{
    Handle *handle;
    if (((Node *)node)->buffer) {
        handle = new_handle();
        if (handle && (held ? PyObject_SetAttr((PyObject *)handle, node_name, node)
                            : set_node(handle, node, NULL)))
            Py_CLEAR(handle);
        return (PyObject *)handle;
    }
    Recorder *recorder = present_recorder();
    if (!recorder)
        return NULL;
    handle = consider(recorder, node) ? NULL : new_handle();
    if (handle && give_pending(recorder, handle, node))
        Py_CLEAR(handle);
    Py_DECREF(recorder);
    return (PyObject *)handle;
}

static PyObject *record_wrap(PyObject *module, PyObject *node)
{
    if (!is_node(node)) {
        PyErr_SetString(PyExc_TypeError, "a node is wanted");
        return NULL;
    }
    return wrap(node);
}

/* Make the node the value of an array that is no view. */
int rebind(Handle *root, PyObject *node)
{
    if (((Node *)node)->buffer)
        return held ? PyObject_SetAttr((PyObject *)root, node_name, node)
                    : set_node(root, node, NULL);
    Recorder *recorder = present_recorder();
    if (!recorder)
        return -1;
    int failed = consider(recorder, node) || give_pending(recorder, root, node);
    Py_DECREF(recorder);
    return failed ? -1 : 0;
}

static PyObject *record_rebind(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !is_handle(args[0]) || !is_node(args[1])) {
        PyErr_SetString(PyExc_TypeError, "an array and a node are wanted");
        return NULL;
    }
    if (rebind((Handle *)args[0], args[1]))
        return NULL;
    Py_RETURN_NONE;
}

/* A pending node, counted, of this line; its inputs are still to be given. */
Node *record_node(Form *form)
{
    Py_INCREF(form); /* the table that it is from may change */
    Recorder *recorder = present_recorder();
    Node *node = recorder ? new_node(form) : NULL;
    if (node) {
        recorder->count++;
        say_site(node);
    }
    Py_XDECREF(recorder);
    Py_DECREF(form);
    return node;
}

/* `record(form, inputs)`: the node of one more operation, for the functions in Python. */
static PyObject *record_record(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || Py_TYPE(args[0]) != &FormType || !PyTuple_CheckExact(args[1])) {
        PyErr_SetString(PyExc_TypeError, "a form and its inputs are wanted");
        return NULL;
    }
    Form *form = (Form *)args[0];
    PyObject *inputs = args[1];
    if (form->kind->size <= limit) {
        PyObject *value = PyObject_CallFunctionObjArgs(callbacks[COMPUTE], form, inputs, NULL);
        if (!value)
            return NULL;
        if (value != Py_None) {
            Node *node = new_node(form);
            if (node)
                node->buffer = value;
            else
                Py_DECREF(value);
            return (PyObject *)node;
        }
        Py_DECREF(value);
    }
    Node *node = record_node(form);
    if (node && PyTuple_GET_SIZE(inputs))
        node->rest = Py_NewRef(inputs);
    return (PyObject *)node;
}

/* ---- the nodes of operands ------------------------------------------------------------------ */

/* The node of an array's present value, a new reference; NULL without an error if Python has to
   find it. */
Node *present_node(Handle *handle)
{
    if (handle->base)
        return view_node(handle);
    PyObject *node = handle->node ? Py_NewRef(handle->node) : get_node(handle, NULL);
    if (node && !is_node(node))
        Py_CLEAR(node);
    return (Node *)node;
}

/* ---- calls that were met before ------------------------------------------------------------- */

enum { AS_IT_IS, AS_FLOAT, AS_INTEGER, BY_CALL };

/* An op of operands of certain kinds; a number's kind is its type. */
typedef struct {
    PyObject *op, *left, *right; /* the key */
    Form *form;
    PyObject *convert;        /* makes the number what the loop takes */
    int64_t low, high;        /* numbers that are that already, AS_INTEGER */
    int how;
} Call;

#define MOST_CALLS (1 << 15)

static Call *calls = NULL;    /* a table of open addresses */
static Py_ssize_t calls_room = 0, calls_known = 0;

static inline Call *place_of(PyObject *op, PyObject *left, PyObject *right)
{
    size_t mask = (size_t)calls_room - 1;
    size_t at = ((size_t)op >> 4) * 31 + ((size_t)left >> 4) * 0x9e3779b1u +
                ((size_t)right >> 4) * 0x85ebca6bu;
    for (at ^= at >> 15;; at++) {
        Call *call = calls + (at & mask);
        if (!call->op || (call->op == op && call->left == left && call->right == right))
            return call;
    }
}

static void drop_calls(void)
{
    Call *old = calls;
    Py_ssize_t room = calls_room;
    calls = NULL;
    calls_room = calls_known = 0;
    for (Py_ssize_t k = 0; k < room; k++)
        if (old[k].op) {
            Py_DECREF(old[k].op);
            Py_DECREF(old[k].left);
            Py_XDECREF(old[k].right);
            Py_XDECREF(old[k].form);
            Py_XDECREF(old[k].convert);
        }
    PyMem_Free(old);
}

/* Make room for one more call; -1 with an error set. */
static int make_room(void)
{
    if (calls_known >= MOST_CALLS)
        drop_calls();
    if (2 * (calls_known + 1) <= calls_room)
        return 0;
    Call *old = calls;
    Py_ssize_t room = calls_room;
    Call *found = PyMem_Calloc(room ? (size_t)(4 * room) : 256, sizeof(Call));
    if (!found) {
        PyErr_NoMemory();
        return -1;
    }
    calls = found;
    calls_room = room ? 4 * room : 256;
    for (Py_ssize_t k = 0; k < room; k++)
        if (old[k].op)
            *place_of(old[k].op, old[k].left, old[k].right) = old[k];
    PyMem_Free(old);
    return 0;
}

/* Work out how a number becomes what the loop takes. */
static int say_how(Call *call, PyObject *loop, int is_exponent)
{
    call->how = BY_CALL;
    if (call->convert == (PyObject *)&PyFloat_Type) {
        call->how = AS_FLOAT;
        return 0;
    }
    PyObject *kind = PyObject_GetAttr(loop, kind_name), *itemsize;
    if (!kind)
        return -1;
    int is_signed = PyUnicode_CompareWithASCIIString(kind, "i") == 0;
    int is_integer = is_signed || PyUnicode_CompareWithASCIIString(kind, "u") == 0;
    Py_DECREF(kind);
    if (!is_integer)
        return 0;
    itemsize = PyObject_GetAttr(loop, itemsize_name);
    long bits = itemsize ? 8 * PyLong_AsLong(itemsize) : -1;
    Py_XDECREF(itemsize);
    if (bits <= 0 || bits > 64)
        return PyErr_Occurred() ? -1 : 0;
    call->how = AS_INTEGER;
    call->high = bits == 64 ? INT64_MAX : (INT64_C(1) << (is_signed ? bits - 1 : bits)) - 1;
    call->low = is_signed && !is_exponent ? -call->high - 1 : 0;
    return 0;
}

/* Put a call in the table, unless it is there; NULL with an error set. */
static Call *remember(const Call *call)
{
    if (make_room())
        return NULL;
    Call *place = place_of(call->op, call->left, call->right);
    if (!place->op) {
        Py_INCREF(call->op);
        Py_INCREF(call->left);
        Py_XINCREF(call->right);
        Py_XINCREF(call->form);
        Py_XINCREF(call->convert);
        *place = *call;
        calls_known++;
    }
    return place;
}

/* The form that `find_form` has remembered: 1, or 0 if it has not. */
int known_form(PyObject *op, PyObject *left, PyObject *right, Form **form)
{
    Call *place = calls ? place_of(op, left, right) : NULL;
    if (!place || !place->op)
        return 0;
    *form = place->form;
    return 1;
}

/* What `callback(left, right)` says the form is, remembered; NULL where it said None.  1, or -1
   with an error set. */
int find_form(PyObject *op, PyObject *left, PyObject *right, PyObject *callback, Form **form)
{
    if (known_form(op, left, right, form))
        return 1;
    PyObject *found = PyObject_CallFunctionObjArgs(callback, left, right, NULL);
    if (!found)
        return -1;
    Call call = {op, left, right, Py_TYPE(found) == &FormType ? (Form *)found : NULL, NULL, 0, 0,
                 AS_IT_IS};
    Call *place = remember(&call);
    Py_DECREF(found);
    if (!place)
        return -1;
    *form = place->form;
    return 1;
}

/* Ask Python for the form, and remember it; NULL as `find_call`. */
static Call *ask_for_call(PyObject *op, PyObject *left, PyObject *right, PyObject *x, PyObject *y)
{
    PyObject *found = PyObject_CallFunctionObjArgs(callbacks[FORM_OF_CALL], op, x, y, NULL);
    PyObject *form, *converters;
    int may_be_exponent;
    if (!found || found == Py_None ||
        !PyArg_ParseTuple(found, "O!O!p", &FormType, &form, &PyTuple_Type, &converters,
                          &may_be_exponent)) {
        Py_XDECREF(found);
        return NULL;
    }
    Call call = {op, left, right, (Form *)form, NULL, 0, 0, AS_IT_IS};
    PyObject *loops = call.form->attrs;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(converters); k++)
        if (PyTuple_GET_ITEM(converters, k) != Py_None) {
            call.convert = PyTuple_GET_ITEM(converters, k);
            if (!PyTuple_CheckExact(loops) || k >= PyTuple_GET_SIZE(loops) ||
                say_how(&call, PyTuple_GET_ITEM(loops, k), may_be_exponent && k == 1))
                break;
        }
    Call *place = NULL;
    if (!PyErr_Occurred())
        place = remember(&call);
    Py_DECREF(found);
    return place;
}

static inline PyObject *kind_of_operand(PyObject *x)
{
    return is_node(x) ? (PyObject *)((Node *)x)->form->kind : (PyObject *)Py_TYPE(x);
}

/* The call of an op with a node and perhaps something else; NULL without an error if Python has to
   record it. */
static inline Call *find_call(PyObject *op, PyObject *x, PyObject *y)
{
    PyObject *left = kind_of_operand(x), *right = y ? kind_of_operand(y) : NULL;
    Call *call = calls ? place_of(op, left, right) : NULL;
    if (!call || !call->op)
        call = ask_for_call(op, left, right, x, y);
    return call;
}

/* Whether an operation has to be recorded, as `at_once.compute` says of the usual ones: it is large,
   or waits for something pending.  0 (perhaps with an error set): ask Python. */
int must_record(const Form *form, const Node *left, const Node *right)
{
    if (form->kind->size > limit)
        return 1;
    const Node *inputs[2] = {left, right};
    int moves = form->roles & MOVES; /* views are read at once of arrays of any size */
    for (int k = 0; k < 2; k++) {
        if (!inputs[k])
            continue;
        if (!moves && inputs[k]->form->kind->size > limit)
            return 1;
        if (!inputs[k]->buffer)
            return is_pending((PyObject *)inputs[k]) && !note_small();
    }
    return 0;
}

/* A number as the loop takes it, a new reference; NULL without an error if it cannot be. */
static inline PyObject *converted(const Call *call, PyObject *x)
{
    PyObject *value = NULL;
    if (call->how == AS_FLOAT) {
        if (PyFloat_CheckExact(x))
            return Py_NewRef(x);
    } else if (call->how == AS_INTEGER && PyLong_CheckExact(x)) {
        int beyond;
        long long number = PyLong_AsLongLongAndOverflow(x, &beyond);
        if (!beyond && number >= call->low && number <= call->high)
            return Py_NewRef(x);
    }
    PyObject *convert = Py_NewRef(call->convert);
    value = PyObject_CallOneArg(convert, x);
    Py_DECREF(convert);
    if (!value && (PyErr_ExceptionMatches(PyExc_OverflowError) ||
                   PyErr_ExceptionMatches(PyExc_ValueError)))
        PyErr_Clear(); /* Python raises it again, or knows what a comparison gives */
    return value;
}

/* ---- elementwise operations ----------------------------------------------------------------- */

/* An operand: a node or a number, a new reference; NULL as `present_node`. */
PyObject *operand_node(PyObject *x)
{
    if (is_handle(x))
        return (PyObject *)present_node((Handle *)x);
    return is_plain(x) ? Py_NewRef(x) : NULL;
}

/* The node of a scalar of NumPy's beside an array; NULL as `present_node`. */
static PyObject *scalar_node(PyObject *x, PyObject *beside)
{
    if ((PyObject *)Py_TYPE(x) != callbacks[FLOAT64] || !beside || !is_node(beside))
        return NULL;
    return (PyObject *)number_node(((Node *)beside)->form->kind, x);
}

/* Both operands, one at least a node: 1 and new references, or 0 and what there is of them. */
static int operand_nodes(PyObject *x, PyObject *y, PyObject **left, PyObject **right)
{
    *left = operand_node(x);
    *right = *left || !PyErr_Occurred() ? operand_node(y) : NULL;
    if (!*left && *right && !PyErr_Occurred())
        *left = scalar_node(x, *right);
    else if (*left && !*right && !PyErr_Occurred())
        *right = scalar_node(y, *left);
    return *left && *right && (is_node(*left) || is_node(*right));
}

/* The node of an op of two operands, one at least a node.  `kept`, if given, is the kind that the
   result has to have.  NULL without an error if Python has to record it. */
Node *binary_node(PyObject *op, PyObject *x, PyObject *y, const Kind *kept)
{
    Call *call = find_call(op, x, y);
    if (!call || (kept && call->form->kind != kept) ||
        !must_record(call->form, is_node(x) ? (Node *)x : NULL, is_node(y) ? (Node *)y : NULL))
        return NULL;
    Form *form = (Form *)Py_NewRef((PyObject *)call->form); /* the table may change */
    PyObject *left = is_node(x) ? Py_NewRef(x) : converted(call, x);
    PyObject *right = !left ? NULL : is_node(y) ? Py_NewRef(y) : converted(call, y);
    Node *node = right ? record_node(form) : NULL;
    if (node) {
        node->left = left;
        node->right = right;
    } else {
        Py_XDECREF(left);
        Py_XDECREF(right);
    }
    Py_DECREF(form);
    return node;
}

static inline PyObject *wrapped(Node *node)
{
    PyObject *handle = node ? wrap((PyObject *)node) : NULL;
    Py_XDECREF(node);
    return handle;
}

PyObject *record_binary(PyObject *op, PyObject *x, PyObject *y)
{
    if (held || !op)
        return NULL;
    PyObject *left, *right;
    Node *node = NULL;
    if (operand_nodes(x, y, &left, &right))
        node = binary_node(op, left, right, NULL);
    Py_XDECREF(left);
    Py_XDECREF(right);
    return wrapped(node);
}

PyObject *record_unary(PyObject *op, PyObject *x)
{
    if (held || !op || !is_handle(x))
        return NULL;
    Node *operand = present_node((Handle *)x), *node = NULL;
    if (!operand)
        return NULL;
    Call *call = find_call(op, (PyObject *)operand, NULL);
    if (call && must_record(call->form, operand, NULL) && (node = record_node(call->form)))
        node->left = Py_NewRef((PyObject *)operand);
    Py_DECREF(operand);
    return wrapped(node);
}

/* `x ** y`: some exponents have functions of their own. */
PyObject *record_power(PyObject *op, PyObject *x, PyObject *y)
{
    double exponent;
    if (PyFloat_CheckExact(y))
        exponent = PyFloat_AS_DOUBLE(y);
    else if (PyLong_CheckExact(y)) {
        int beyond;
        exponent = (double)PyLong_AsLongLongAndOverflow(y, &beyond);
    } else
        return record_binary(op, x, y);
    int place = exponent == 2 ? 0 : exponent == 1 ? 1 : exponent == -1 ? 2 : exponent == 0.5 ? 3 : 4;
    if (place == 4)
        return record_binary(op, x, y);
    Node *node = !held && is_handle(x) ? present_node((Handle *)x) : NULL;
    if (!node)
        return NULL;
    PyObject *kind = PyObject_GetAttr(node->form->kind->dtype, kind_name);
    Py_DECREF(node);
    if (!kind)
        return NULL;
    int inexact = !PyUnicode_CompareWithASCIIString(kind, "f") ||
                  !PyUnicode_CompareWithASCIIString(kind, "c");
    Py_DECREF(kind);
    return inexact ? record_unary(short_powers[place], x) : NULL;
}

/* `x += y`, where that changes neither the kind nor a view. */
PyObject *record_update(PyObject *op, PyObject *x, PyObject *y)
{
    if (held || !op || !is_handle(x))
        return NULL;
    Handle *handle = (Handle *)x;
    Node *left = present_node(handle), *node = NULL;
    PyObject *right = left && PyTuple_GET_SIZE(left->form->kind->shape) ? operand_node(y) : NULL;
    if (left && !right && !PyErr_Occurred())
        right = scalar_node(y, (PyObject *)left);
    if (right)
        node = binary_node(op, (PyObject *)left, right, left->form->kind);
    int done = node && (handle->base ? write_view(handle, node) == 1
                                     : !rebind(handle, (PyObject *)node));
    Py_XDECREF(left);
    Py_XDECREF(right);
    Py_XDECREF(node);
    return done ? Py_NewRef(x) : NULL;
}

/* A call of one of NumPy's ufuncs, with operands alone. */
PyObject *record_ufunc(PyObject *ufunc, PyObject *const *args, Py_ssize_t count)
{
    if (held || count < 1 || count > 2 || !ufuncs[count - 1])
        return NULL;
    PyObject *op = PyDict_GetItemWithError(ufuncs[count - 1], ufunc);
    if (!op)
        return NULL;
    return count == 1 ? record_unary(op, args[0]) : record_binary(op, args[0], args[1]);
}

/* ---- the module ----------------------------------------------------------------------------- */

static PyObject *record_install(PyObject *module, PyObject *found)
{
    static const char *const ufunc_names[2] = {"unary_ufuncs", "binary_ufuncs"};
    static const char *const power_names[4] = {"square", "positive", "reciprocal", "sqrt"};
    struct {
        int count;
        const char *const *names;
        PyObject **slots;
    } groups[3] = {{CALLBACKS, callback_names, callbacks}, {2, ufunc_names, ufuncs},
                   {4, power_names, short_powers}};
    if (!PyDict_Check(found)) {
        PyErr_SetString(PyExc_TypeError, "a dict is wanted");
        return NULL;
    }
    for (int group = 0; group < 3; group++)
        for (int k = 0; k < groups[group].count; k++) {
            PyObject *value = PyDict_GetItemString(found, groups[group].names[k]);
            if (!value) {
                PyErr_SetString(PyExc_KeyError, groups[group].names[k]);
                return NULL;
            }
            Py_XSETREF(groups[group].slots[k], Py_NewRef(value));
        }
    Py_RETURN_NONE;
}

static PyObject *record_set_cut(PyObject *module, PyObject *value)
{
    Py_ssize_t cut = PyLong_AsSsize_t(value);
    if (cut == -1 && PyErr_Occurred())
        PyErr_Clear(); /* more than will ever be recorded */
    cut_setting = cut < 0 || cut > PY_SSIZE_T_MAX / 8 ? PY_SSIZE_T_MAX / 8 : cut;
    Py_RETURN_NONE;
}

static PyMethodDef record_functions[] = {
    {"set_cut", record_set_cut, METH_O, "Operations that make a stretch, from the next one on."},
    {"wrap", record_wrap, METH_O, "Return a new array whose value is the node."},
    {"rebind", (PyCFunction)(void (*)(void))record_rebind, METH_FASTCALL,
     "Make the node the value of an array that is no view."},
    {"record", (PyCFunction)(void (*)(void))record_record, METH_FASTCALL,
     "Return the node of one more operation, recorded at the user's line."},
    {"install_recording", record_install, METH_O, "Say what Python does of the recording."},
    {NULL}};

int add_record(PyObject *module)
{
    consider_name = PyUnicode_InternFromString("consider");
    crowded_name = PyUnicode_InternFromString("crowded");
    name_name = PyUnicode_InternFromString("__name__");
    node_name = PyUnicode_InternFromString("_node");
    kind_name = PyUnicode_InternFromString("kind");
    itemsize_name = PyUnicode_InternFromString("itemsize");
    if (!consider_name || !crowded_name || !name_name || !node_name || !kind_name || !itemsize_name ||
        PyType_Ready(&RecorderType) < 0 || PyType_Ready(&LocalType) < 0 ||
        PyModule_AddFunctions(module, record_functions) < 0 ||
        PyModule_AddIntMacro(module, EMPTY) < 0 || PyModule_AddIntMacro(module, GATHERING) < 0 ||
        PyModule_AddIntMacro(module, DUE) < 0 || PyModule_AddIntMacro(module, CROWDED) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "Recorder", (PyObject *)&RecorderType) < 0 ||
                   PyModule_AddObjectRef(module, "Local", (PyObject *)&LocalType) < 0
               ? -1 : 0;
}
