/* Running again what was planned before, without Python: the way from a look to the values.

   Python plans and compiles (`execution/`); of a plan whose steps are all kernels of the host it
   makes a program, which is kept here by the plan's key.  A program has nothing of Python's in it
   but the allocation of memory, so no signal handler runs between what it does, and what fails has
   done nothing: Python then does it again, and tells. */

#include "core.h"

#include <string.h>

/* What Python gives `install_running`. */
enum { LOCK, ALLOCATE, OBSERVERS, COUNTERS, GIVEN };
static const char *const given_names[GIVEN] = {"lock", "allocate", "observers", "counters"};
static PyObject *given[GIVEN];
static PyObject *pointer_name, *plan_name, *acquire_name, *release_name, *launches_name;

/* ---- programs ------------------------------------------------------------------------------- */

/* Instructions, each of as many words as it says; see `execution/instructions.py`. */
enum {
    TAKE,                     /* value: memory of a shape and dtype of its own */
    ADDRESS,                  /* slot, value, bytes from its start, terms */
    SUM,                      /* slot, number, terms */
    PHASE,                    /* slot, modulus, terms */
    PARAMETER,                /* slot, number, kind of number */
    LAUNCH,                   /* address of the arguments, whether others may run meanwhile */
    DROP                      /* value */
};
enum { DOUBLE, SINGLE, INT32, INT64, COMPLEX };

typedef struct {
    PyObject_HEAD
    PyObject *plan;           /* what the values' buffers say they were computed by */
    PyObject *keep;           /* memory of arguments, libraries */
    PyObject *shapes;         /* a tuple: shape and dtype of what is taken, by value */
    int (*start)(const void *);
    int64_t *code;
    Py_ssize_t length, values, launches;
    Py_ssize_t leaves_count, outputs_count;
    char busy;                /* its arguments are in use: a signal handler may evaluate, too */
    Py_ssize_t *leaves;       /* pairs: value, number of the node */
    Py_ssize_t *outputs;      /* values */
} Program;

static int read_numbers(PyObject *tuple, Py_ssize_t **numbers, Py_ssize_t *count)
{
    *count = PyTuple_GET_SIZE(tuple);
    *numbers = PyMem_Malloc((size_t)(*count + 1) * sizeof **numbers);
    if (!*numbers) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t k = 0; k < *count; k++)
        (*numbers)[k] = PyLong_AsSsize_t(PyTuple_GET_ITEM(tuple, k));
    return PyErr_Occurred() ? -1 : 0;
}

static void program_dealloc(Program *program)
{
    Py_XDECREF(program->plan);
    Py_XDECREF(program->keep);
    Py_XDECREF(program->shapes);
    PyMem_Free(program->code);
    PyMem_Free(program->leaves);
    PyMem_Free(program->outputs);
    PyObject_Free(program);
}

static PyTypeObject ProgramType;

static PyObject *program_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *plan, *keep, *shapes, *leaves, *outputs;
    unsigned long long start;
    Py_ssize_t launches;
    const char *code;
    Py_ssize_t length;
    if (!PyArg_ParseTuple(args, "OOO!Ky#O!O!n", &plan, &keep, &PyTuple_Type, &shapes, &start, &code,
                          &length, &PyTuple_Type, &leaves, &PyTuple_Type, &outputs, &launches))
        return NULL;
    Program *program = PyObject_New(Program, &ProgramType);
    if (!program)
        return NULL;
    memset((char *)program + sizeof(PyObject), 0, sizeof *program - sizeof(PyObject));
    program->plan = Py_NewRef(plan);
    program->keep = Py_NewRef(keep);
    program->shapes = Py_NewRef(shapes);
    program->start = (int (*)(const void *))(uintptr_t)start;
    program->values = PyTuple_GET_SIZE(shapes);
    program->launches = launches;
    program->length = length / (Py_ssize_t)sizeof(int64_t);
    program->code = PyMem_Malloc((size_t)length + sizeof(int64_t));
    if (program->code)
        memcpy(program->code, code, (size_t)length);
    else
        PyErr_NoMemory();
    if (!program->code || read_numbers(leaves, &program->leaves, &program->leaves_count) ||
        read_numbers(outputs, &program->outputs, &program->outputs_count))
        Py_CLEAR(program);
    return (PyObject *)program;
}

static PyTypeObject ProgramType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tiledarray.core._core.Program",
    .tp_doc = "A plan as the core runs it.",
    .tp_basicsize = sizeof(Program),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = program_new,
    .tp_dealloc = (destructor)program_dealloc,
};

/* ---- programs by their keys ------------------------------------------------------------------ */

#define MOST_PROGRAMS 1024

typedef struct {
    Key *key;
    Program *program;         /* NULL: it is gone */
    PyObject *picks;          /* for each parameter of the plan, the one of the walk; NULL: all */
} Entry;

static Entry table[2 * MOST_PROGRAMS]; /* open addresses */
static int known = 0;

static Entry *place_of(Py_hash_t hash, const uintptr_t *words, Py_ssize_t length)
{
    for (size_t at = (size_t)hash;; at++) {
        Entry *entry = table + at % (2 * MOST_PROGRAMS);
        if (!entry->key || (entry->key->hash == hash && entry->key->length == length &&
                            !memcmp(entry->key->words, words, (size_t)length * sizeof *words)))
            return entry;
    }
}

static void forget_all(void)
{
    known = 0;
    for (int k = 0; k < 2 * MOST_PROGRAMS; k++) {
        Entry entry = table[k];
        memset(table + k, 0, sizeof *table);
        Py_XDECREF(entry.key);
        Py_XDECREF(entry.program);
        Py_XDECREF(entry.picks);
    }
}

static PyObject *forget_programs(PyObject *module, PyObject *unused)
{
    if (known)
        forget_all();
    Py_RETURN_NONE;
}

static PyObject *forget_program(PyObject *module, PyObject *key)
{
    if (Py_TYPE(key) != &KeyType) {
        PyErr_SetString(PyExc_TypeError, "a key is wanted");
        return NULL;
    }
    Entry *entry = place_of(((Key *)key)->hash, ((Key *)key)->words, ((Key *)key)->length);
    Py_CLEAR(entry->program); /* its place is kept, or those behind it would not be found */
    Py_RETURN_NONE;
}

static PyObject *remember(PyObject *module, PyObject *args)
{
    Key *key;
    Program *program;
    PyObject *picks;
    if (!PyArg_ParseTuple(args, "O!O!O", &KeyType, &key, &ProgramType, &program, &picks))
        return NULL;
    if (known >= MOST_PROGRAMS)
        forget_all();
    Entry *entry = place_of(key->hash, key->words, key->length);
    known += !entry->key;
    Entry old = *entry;
    entry->key = (Key *)Py_NewRef((PyObject *)key);
    entry->program = (Program *)Py_NewRef((PyObject *)program);
    entry->picks = picks == Py_None ? NULL : Py_NewRef(picks);
    Py_XDECREF(old.key);
    Py_XDECREF(old.program);
    Py_XDECREF(old.picks);
    Py_RETURN_NONE;
}

/* ---- running -------------------------------------------------------------------------------- */

/* What a program runs with: new references. */
typedef struct {
    Program *program;
    PyObject **buffers;       /* by value; NULL: not there */
    int64_t *pointers;
    PyObject **params;
    Py_ssize_t params_count;
} Frame;

static void leave(Frame *frame)
{
    for (Py_ssize_t k = 0; frame->buffers && k < frame->program->values; k++)
        Py_XDECREF(frame->buffers[k]);
    for (Py_ssize_t k = 0; frame->params && k < frame->params_count; k++)
        Py_DECREF(frame->params[k]);
    PyMem_Free(frame->buffers);
    PyMem_Free(frame->pointers);
    PyMem_Free(frame->params);
    Py_XDECREF(frame->program);
}

/* 1, 0 if Python has to do it, -1 with an error set. */
static int set_pointer(Frame *frame, Py_ssize_t value)
{
    PyObject *pointer = PyObject_GetAttr(frame->buffers[value], pointer_name);
    if (!pointer)
        return -1;
    frame->pointers[value] = (int64_t)PyLong_AsUnsignedLongLongMask(pointer);
    Py_DECREF(pointer);
    return PyErr_Occurred() ? -1 : 1;
}

/* Take what the walk has found, before anything of Python's runs; as `set_pointer`. */
static int enter(Frame *frame, const Entry *entry, const Walk *walk)
{
    Program *program = frame->program = (Program *)Py_NewRef((PyObject *)entry->program);
    Py_ssize_t count = entry->picks ? PyTuple_GET_SIZE(entry->picks) : walk->params_count;
    frame->buffers = PyMem_Calloc((size_t)program->values + 1, sizeof *frame->buffers);
    frame->pointers = PyMem_Calloc((size_t)program->values + 1, sizeof *frame->pointers);
    frame->params = PyMem_Calloc((size_t)count + 1, sizeof *frame->params);
    if (!frame->buffers || !frame->pointers || !frame->params)
        return 0;
    for (Py_ssize_t k = 0; k < count; k++) {
        Py_ssize_t number = k;
        if (entry->picks)
            number = PyLong_AsSsize_t(PyTuple_GET_ITEM(entry->picks, k));
        if (number < 0 || number >= walk->params_count)
            return PyErr_Occurred() ? -1 : 0;
        frame->params[frame->params_count++] = Py_NewRef(walk->params[number]);
    }
    for (Py_ssize_t k = 0; k + 1 < program->leaves_count; k += 2) {
        PyObject *buffer = walk->nodes[program->leaves[k + 1]]->buffer;
        if (!buffer || PyTuple_CheckExact(buffer))
            return 0;
        frame->buffers[program->leaves[k]] = Py_NewRef(buffer);
    }
    for (Py_ssize_t k = 0; k + 1 < program->leaves_count; k += 2)
        if (set_pointer(frame, program->leaves[k]) < 0)
            return -1;
    return 1;
}

/* Add up terms, which are behind their count: 1, or 0 if a parameter is no small integer. */
static int add_terms(const Frame *frame, const int64_t *terms, int64_t *total)
{
    for (int64_t k = 0; k < terms[0]; k++) {
        PyObject *param = frame->params[terms[1 + 2 * k]];
        int beyond;
        if (!PyLong_Check(param))
            return 0;
        long long value = PyLong_AsLongLongAndOverflow(param, &beyond);
        if (beyond)
            return 0;
        *total += terms[2 + 2 * k] * value;
    }
    return 1;
}

/* Write a parameter into its slot, as `execution.arguments` does: 1, or 0 for an unusual one. */
static int put_parameter(int64_t *slot, PyObject *param, int64_t kind)
{
    double number[2] = {0, 0};
    float single[2] = {0, 0};
    switch (kind) {
    case DOUBLE:
    case SINGLE:
        number[0] = PyFloat_AsDouble(param);
        if (number[0] == -1.0 && PyErr_Occurred()) {
            PyErr_Clear();
            return 0;
        }
        single[0] = (float)number[0];
        memcpy(slot, kind == DOUBLE ? (void *)number : (void *)single, sizeof *slot);
        return 1;
    case COMPLEX:
        if (!PyComplex_CheckExact(param) && !PyFloat_CheckExact(param))
            return 0;
        number[0] = PyComplex_RealAsDouble(param);
        number[1] = PyComplex_ImagAsDouble(param);
        memcpy(slot, number, sizeof number);
        return 1;
    case INT32: {
        int beyond;
        if (!PyLong_Check(param))
            return 0;
        long long value = PyLong_AsLongLongAndOverflow(param, &beyond);
        if (beyond || value > INT32_MAX || value < INT32_MIN)
            return 0;
        int32_t half[2] = {(int32_t)value, 0};
        memcpy(slot, half, sizeof half);
        return 1;
    }
    default:
        if (!PyLong_Check(param))
            return 0;
        *slot = (int64_t)PyLong_AsUnsignedLongLongMask(param);
        return 1;
    }
}

static int take_memory(Frame *frame, Py_ssize_t value)
{
    PyObject *shape = PyTuple_GET_ITEM(frame->program->shapes, value);
    PyObject *arguments[3] = {NULL, PyTuple_GET_ITEM(shape, 0), PyTuple_GET_ITEM(shape, 1)};
    frame->buffers[value] = PyObject_Vectorcall(
        given[ALLOCATE], arguments + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    if (frame->buffers[value])
        return set_pointer(frame, value);
    if (!PyErr_ExceptionMatches(PyExc_MemoryError))
        return -1;
    PyErr_Clear();
    return 0;
}

/* Run the instructions: 1, 0 if Python has to do it, -1 with an error set. */
static int run(Frame *frame)
{
    const int64_t *at = frame->program->code, *end = at + frame->program->length;
    while (at < end) {
        int64_t total, status;
        int done;
        switch (at[0]) {
        case TAKE:
            if ((done = take_memory(frame, (Py_ssize_t)at[1])) != 1)
                return done;
            at += 2;
            break;
        case ADDRESS:
            total = frame->pointers[at[2]] + at[3];
            if (!add_terms(frame, at + 4, &total))
                return 0;
            *(int64_t *)(uintptr_t)at[1] = total;
            at += 5 + 2 * at[4];
            break;
        case SUM:
        case PHASE:
            total = at[0] == SUM ? at[2] : 0;
            if (!add_terms(frame, at + 3, &total))
                return 0;
            if (at[0] == PHASE)
                total = (total % at[2] + at[2]) % at[2];
            *(int64_t *)(uintptr_t)at[1] = total;
            at += 4 + 2 * at[3];
            break;
        case PARAMETER:
            if (!put_parameter((int64_t *)(uintptr_t)at[1], frame->params[at[2]], at[3]))
                return 0;
            at += 4;
            break;
        case LAUNCH:
            if (at[2]) {
                Py_BEGIN_ALLOW_THREADS
                status = frame->program->start((const void *)(uintptr_t)at[1]);
                Py_END_ALLOW_THREADS
            } else
                status = frame->program->start((const void *)(uintptr_t)at[1]);
            if (status)
                return 0;
            at += 3;
            break;
        default:
            Py_CLEAR(frame->buffers[at[1]]);
            at += 2;
        }
    }
    return 1;
}

static int count_launches(Py_ssize_t launches)
{
    PyObject *before = PyDict_GetItemWithError(given[COUNTERS], launches_name);
    Py_ssize_t total = before ? PyLong_AsSsize_t(before) : 0;
    PyObject *after = PyErr_Occurred() ? NULL : PyLong_FromSsize_t(total + launches);
    int failed = !after || PyDict_SetItem(given[COUNTERS], launches_name, after);
    Py_XDECREF(after);
    return failed ? -1 : 0;
}

/* Make the outputs the nodes' values. */
static int settle(Frame *frame, PyObject *targets)
{
    Program *program = frame->program;
    for (Py_ssize_t k = 0; k < program->outputs_count; k++)
        if (PyObject_SetAttr(frame->buffers[program->outputs[k]], plan_name, program->plan))
            return -1;
    if (count_launches(program->launches))
        return -1;
    for (Py_ssize_t k = 0; k < program->outputs_count; k++) {
        Node *node = (Node *)PyList_GET_ITEM(targets, k);
        if (!node->buffer)
            node->buffer = Py_NewRef(frame->buffers[program->outputs[k]]);
    }
    for (Py_ssize_t k = 0; k < program->outputs_count; k++)
        forget_inputs((Node *)PyList_GET_ITEM(targets, k));
    return 1;
}

/* Compute the targets by a plan that is known: 1, 0 if Python has to do it, -1 with an error. */
static int run_targets(PyObject *targets)
{
    Walk walk;
    if (!known || !given[LOCK] || PyList_GET_SIZE(given[OBSERVERS]))
        return 0;
    if (walk_targets(targets, &walk) < 0) {
        if (!PyErr_ExceptionMatches(PyExc_RuntimeError))
            return -1;
        PyErr_Clear(); /* another thread is computing them, perhaps: Python waits for it */
        return 0;
    }
    Entry *entry = place_of(walk.hash, walk.words, walk.length);
    if (!entry->program || PyList_GET_SIZE(targets) != entry->program->outputs_count)
        return 0;
    Frame frame = {NULL, NULL, NULL, NULL, 0};
    int done = enter(&frame, entry, &walk);
    if (done == 1) {
        PyObject *locked = PyObject_CallMethodOneArg(given[LOCK], acquire_name, Py_False);
        done = !locked ? -1 : locked == Py_True;
        Py_XDECREF(locked);
    }
    if (done == 1) {
        done = 0;
        if (!frame.program->busy) {
            frame.program->busy = 1;
            done = run(&frame);
            frame.program->busy = 0;
        }
        if (done == 1)
            done = settle(&frame, targets);
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        PyObject *released = PyObject_CallMethodNoArgs(given[LOCK], release_name);
        Py_XDECREF(released);
        if (!released)
            done = -1;
        else
            PyErr_Restore(type, value, traceback);
    }
    leave(&frame);
    return done;
}

static PyObject *run_known(PyObject *module, PyObject *targets)
{
    if (!PyList_CheckExact(targets)) {
        PyErr_SetString(PyExc_TypeError, "a list of nodes is wanted");
        return NULL;
    }
    int done = run_targets(targets);
    return done < 0 ? NULL : PyBool_FromLong(done);
}

/* Compute the nodes and all that this thread has pending, if their plan is known; whether so. */
static PyObject *look(PyObject *module, PyObject *nodes)
{
    if (held)
        Py_RETURN_FALSE;
    if (!PyList_CheckExact(nodes)) {
        PyErr_SetString(PyExc_TypeError, "a list of nodes is wanted");
        return NULL;
    }
    PyObject *recorder, *targets = pending_below(nodes, &recorder);
    if (!targets)
        return NULL;
    Py_ssize_t noted = noted_by(recorder);
    int done = PyList_GET_SIZE(targets) ? run_targets(targets) : 1;
    if (done == 1 && noted_by(recorder) == noted) /* else what ran meanwhile recorded more */
        reset_recorder(recorder);
    Py_DECREF(targets);
    Py_DECREF(recorder);
    return done < 0 ? NULL : PyBool_FromLong(done);
}

/* ---- the module ----------------------------------------------------------------------------- */

static PyObject *install_running(PyObject *module, PyObject *found)
{
    for (int k = 0; k < GIVEN; k++) {
        PyObject *value = PyDict_Check(found) ? PyDict_GetItemString(found, given_names[k]) : NULL;
        if (!value || (k == OBSERVERS && !PyList_CheckExact(value)) ||
            (k == COUNTERS && !PyDict_Check(value))) {
            PyErr_SetString(PyExc_KeyError, given_names[k]);
            return NULL;
        }
        Py_XSETREF(given[k], Py_NewRef(value));
    }
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"install_running", install_running, METH_O, "Say what Python does of running."},
    {"remember", remember, METH_VARARGS, "Keep the program of a key."},
    {"forget_program", forget_program, METH_O, "Forget the program of a key."},
    {"forget_programs", forget_programs, METH_NOARGS, "Forget all programs."},
    {"run_known", run_known, METH_O, "Compute targets by a program; whether there is one."},
    {"look", look, METH_O, "Compute nodes and all that is pending; whether it is known how."},
    {NULL}};

int add_run(PyObject *module)
{
    pointer_name = PyUnicode_InternFromString("pointer");
    plan_name = PyUnicode_InternFromString("plan");
    acquire_name = PyUnicode_InternFromString("acquire");
    release_name = PyUnicode_InternFromString("release");
    launches_name = PyUnicode_InternFromString("launches");
    if (!pointer_name || !plan_name || !acquire_name || !release_name ||
        !launches_name || PyType_Ready(&ProgramType) < 0 ||
        PyModule_AddFunctions(module, functions) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "Program", (PyObject *)&ProgramType);
}
