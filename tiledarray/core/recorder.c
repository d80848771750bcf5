/* Each thread's recorder.

   `twin_record.py` is this file and `values.c` in Python: what is changed here is changed there. */

#include "recorder.h"

#define MANY_SMALL 64         /* planning and running them takes some ms, and more may follow */

static PyObject *crowded_name;

/* ---- recorders ------------------------------------------------------------------------------ */

static Py_ssize_t cut_setting = PY_SSIZE_T_MAX / 8;

static PyTypeObject RecorderType, LocalType;

static inline void empty_ring(Link *head)
{
    head->next = head->before = head;
    head->list = head;
}

#define MOST_ROOM 4096        /* for places, kept from one stretch to the next */
#define noted_handle(link) ((Handle *)((char *)(link) - offsetof(Handle, noted)))

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

/* Let go of what views have read; whether there were any. */
int forget_readers(PyObject *self)
{
    Recorder *recorder = (Recorder *)self;
    int found = 0;
    for (; recorder->readers.next != &recorder->readers; found = 1) {
        Handle *view = noted_handle(recorder->readers.next);
        forget_note(&view->noted);
        Py_INCREF(view);
        forget_seen(view);
        Py_DECREF(view);
    }
    return found;
}

static void forget_all(Recorder *recorder)
{
    while (recorder->handles.next != &recorder->handles)
        forget_note(recorder->handles.next);
    forget_readers((PyObject *)recorder);
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

uint64_t known_thread = 0;
Recorder *known_recorder = NULL; /* that thread's; borrowed */
PyObject *the_local = NULL; /* borrowed: it lives as long as its module */

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
void set_anchor(Recorder *recorder, const Node *node)
{
    Site path[PATH_LENGTH];
    int length = read_path(path); /* where frames are made, which may have finalisers run */
    drop_anchor(recorder);
    recorder->anchor = (Site){Py_XNewRef(node->code), node->instruction};
    memcpy(recorder->path, path, (size_t)length * sizeof *path);
    recorder->path_length = length;
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

PyObject *get_recorder(Local *local, void *unused)
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

/* ---- the module ----------------------------------------------------------------------------- */

static PyObject *record_set_cut(PyObject *module, PyObject *value)
{
    Py_ssize_t cut = PyLong_AsSsize_t(value);
    if (cut == -1 && PyErr_Occurred())
        PyErr_Clear(); /* more than will ever be recorded */
    cut_setting = cut < 0 || cut > PY_SSIZE_T_MAX / 8 ? PY_SSIZE_T_MAX / 8 : cut;
    if (known_recorder && !known_recorder->count)
        known_recorder->cut = cut_setting;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"set_cut", record_set_cut, METH_O, "Operations that make a stretch, from the next one on that begins."},
    {NULL}};

int add_recorder(PyObject *module)
{
    crowded_name = PyUnicode_InternFromString("crowded");
    if (!crowded_name || add_sites() < 0 || PyType_Ready(&RecorderType) < 0 ||
        PyType_Ready(&LocalType) < 0 || PyModule_AddFunctions(module, functions) < 0 ||
        PyModule_AddIntMacro(module, EMPTY) < 0 || PyModule_AddIntMacro(module, GATHERING) < 0 ||
        PyModule_AddIntMacro(module, DUE) < 0 || PyModule_AddIntMacro(module, CROWDED) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "Recorder", (PyObject *)&RecorderType) < 0 ||
                   PyModule_AddObjectRef(module, "Local", (PyObject *)&LocalType) < 0
               ? -1 : 0;
}
