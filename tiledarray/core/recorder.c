/* Each thread's recorder, and how nodes become the values of handles.

   `twin_record.py` is this file in Python: what is changed here is changed there. */

#include "core.h"

#include <string.h>

#define MANY_SMALL 64         /* planning and running them takes some ms, and more may follow */

PyObject *compute;
static PyObject *consider_name, *crowded_name, *node_name;

/* ---- recorders ------------------------------------------------------------------------------ */

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

static Py_ssize_t cut_setting = PY_SSIZE_T_MAX / 8;

static PyTypeObject RecorderType, LocalType;

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

/* How often a handle was noted in this stretch. */
Py_ssize_t noted_by(PyObject *recorder) { return ((Recorder *)recorder)->noted; }

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
    if (known_recorder == recorder)
        known_recorder = NULL;
    if (recorder->weak)
        PyObject_ClearWeakRefs((PyObject *)recorder);
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
    if (note_site(recorder, (Node *)node)) /* first: for want of memory nothing is changed */
        return -1;
    /* While functions are traced, Python has a descriptor in the slot's place. */
    if (held ? PyObject_SetAttr((PyObject *)handle, node_name, node) : set_node(handle, node, NULL))
        return -1;
    note_in(&recorder->handles, handle);
    return 0;
}

/* A new array whose value is the node. */
PyObject *wrap_node(PyObject *node)
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
    return wrap_node(node);
}

/* Make the node the value of an array that is no view: 1, or -1 with an error set.  0 if its value
   is not what lies at `before`, unless that is NULL: the recorder may let others write. */
static int rebind_upon(Handle *root, PyObject *node, const void *before)
{
    Recorder *recorder = ((Node *)node)->buffer ? NULL : present_recorder();
    int done = recorder || ((Node *)node)->buffer ? 1 : -1;
    if (recorder && consider(recorder, node))
        done = -1;
    if (done == 1 && before && !held && (const void *)root->node != before)
        done = 0;
    if (done == 1 && (recorder ? give_pending(recorder, root, node)
                      : held ? PyObject_SetAttr((PyObject *)root, node_name, node)
                             : set_node(root, node, NULL)))
        done = -1;
    Py_XDECREF(recorder);
    return done;
}

/* Make the node the value of an array that is no view. */
int rebind(Handle *root, PyObject *node) { return rebind_upon(root, node, NULL) < 0 ? -1 : 0; }

static PyObject *record_rebind(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count < 2 || count > 3 || !is_handle(args[0]) || !is_node(args[1])) {
        PyErr_SetString(PyExc_TypeError, "an array and a node are wanted");
        return NULL;
    }
    void *before = count == 3 ? PyLong_AsVoidPtr(args[2]) : NULL;
    int done = PyErr_Occurred() ? -1 : rebind_upon((Handle *)args[0], args[1], before);
    return done < 0 ? NULL : PyBool_FromLong(done);
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
        PyObject *value = PyObject_CallFunctionObjArgs(compute, form, inputs, NULL);
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

/* ---- the module ----------------------------------------------------------------------------- */

static PyObject *record_set_cut(PyObject *module, PyObject *value)
{
    Py_ssize_t cut = PyLong_AsSsize_t(value);
    if (cut == -1 && PyErr_Occurred())
        PyErr_Clear(); /* more than will ever be recorded */
    cut_setting = cut < 0 || cut > PY_SSIZE_T_MAX / 8 ? PY_SSIZE_T_MAX / 8 : cut;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"set_cut", record_set_cut, METH_O, "Operations that make a stretch, from the next one on."},
    {"wrap", record_wrap, METH_O, "Return a new array whose value is the node."},
    {"rebind", (PyCFunction)(void (*)(void))record_rebind, METH_FASTCALL,
     "Make the node the value of an array that is no view."},
    {"record", (PyCFunction)(void (*)(void))record_record, METH_FASTCALL,
     "Return the node of one more operation, recorded at the user's line."},
    {NULL}};

int add_recorder(PyObject *module)
{
    consider_name = PyUnicode_InternFromString("consider");
    crowded_name = PyUnicode_InternFromString("crowded");
    node_name = PyUnicode_InternFromString("_node");
    if (!consider_name || !crowded_name || !node_name || add_sites() < 0 ||
        PyType_Ready(&RecorderType) < 0 || PyType_Ready(&LocalType) < 0 ||
        PyModule_AddFunctions(module, functions) < 0 || PyModule_AddIntMacro(module, EMPTY) < 0 ||
        PyModule_AddIntMacro(module, GATHERING) < 0 || PyModule_AddIntMacro(module, DUE) < 0 ||
        PyModule_AddIntMacro(module, CROWDED) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "Recorder", (PyObject *)&RecorderType) < 0 ||
                   PyModule_AddObjectRef(module, "Local", (PyObject *)&LocalType) < 0
               ? -1 : 0;
}
