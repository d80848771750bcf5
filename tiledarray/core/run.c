/* Running again what was planned before, without Python: the way from a look to the values.

   Python plans and compiles (`execution/`); of a plan whose steps are all kernels of the host it
   makes a program, which is kept by the plan's key (`programs.c`).  A program has nothing of Python's
   in it but the allocation of memory, so no signal handler runs between what it does, and what fails
   has done nothing: Python then does it again, and tells.  For one that overwrites leaves (`taken.c`)
   all that may fail is done before the first of them is.

   On a GPU it starts kernels.  The driver may refuse one after others have overwritten a leaf, for
   what is wrong with the device by then: the leaf is lost, and nobody gets to see it. */

#include "running.h"

#include <string.h>

/* What Python gives `install_running`. */
enum { LOCK, OBSERVERS, COUNTERS, BUFFER, LOST, GIVEN };
static const char *const given_names[GIVEN] = {
    "lock", "observers", "counters", "buffer", "lost"};
static PyObject *given[GIVEN];
static PyObject *pointer_name, *plan_name, *acquire_name, *release_name, *launches_name,
    *calls_name, *another_name, *raised_outside;

/* ---- running -------------------------------------------------------------------------------- */

static void leave(Frame *frame)
{
    return_inputs(&frame->stolen);
    for (Py_ssize_t k = 0; frame->buffers && k < frame->program->values; k++)
        Py_XDECREF(frame->buffers[k]);
    for (Py_ssize_t k = 0; frame->params && k < frame->params_count; k++)
        Py_DECREF(frame->params[k]);
    PyMem_Free(frame->buffers);
    PyMem_Free(frame->pointers);
    PyMem_Free(frame->params);
    PyMem_Free(frame->overwritten);
    Py_XDECREF(frame->program);
}

/* 1, 0 if Python has to do it, -1 with an error set. */
int set_pointer(Frame *frame, Py_ssize_t value)
{
    PyObject *pointer = PyObject_GetAttr(frame->buffers[value], pointer_name);
    if (!pointer)
        return -1;
    frame->pointers[value] = (int64_t)PyLong_AsUnsignedLongLongMask(pointer);
    Py_DECREF(pointer);
    return PyErr_Occurred() ? -1 : 1;
}

/* Have the targets forget their inputs, and note which leaves will be overwritten; -1 with an error. */
static int take_over(Frame *frame, const Walk *walk, PyObject *targets)
{
    const Program *program = frame->program;
    Py_ssize_t count = program->overwritten_count;
    frame->overwritten = PyMem_Calloc((size_t)count + 1, sizeof *frame->overwritten);
    if (!frame->overwritten) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t k = 0; k + 1 < count; k += 2)
        frame->overwritten[k / 2] = walk->nodes[program->overwritten[k + 1]];
    return steal_inputs(&frame->stolen, targets);
}

/* Hold the memory of leaves that are overwritten, alone; as `set_pointer`. */
static int hold_overwritten(Frame *frame)
{
    const Program *program = frame->program;
    for (Py_ssize_t k = 0; k + 1 < program->overwritten_count; k += 2) {
        Py_CLEAR(frame->buffers[program->overwritten[k]]);
        PyObject *hold = hold_alone(frame->overwritten[k / 2]);
        if (!hold)
            return PyErr_Occurred() ? -1 : 0;
        frame->buffers[program->overwritten[k]] = hold;
    }
    return 1;
}

/* Have room for what a program runs with; 0 if there is none. */
static int begin(Frame *frame, Program *program, Py_ssize_t params)
{
    frame->program = (Program *)Py_NewRef((PyObject *)program);
    frame->buffers = PyMem_Calloc((size_t)program->values + 1, sizeof *frame->buffers);
    frame->pointers = PyMem_Calloc((size_t)program->values + 1, sizeof *frame->pointers);
    frame->params = PyMem_Calloc((size_t)params + 1, sizeof *frame->params);
    return frame->buffers && frame->pointers && frame->params;
}

/* Have the memory that stays the program's: as `set_pointer`. */
static int take_own(Frame *frame)
{
    const Program *program = frame->program;
    for (Py_ssize_t k = 0; k < program->own_count; k++) {
        Py_ssize_t value = program->own_values[k];
        frame->buffers[value] = Py_NewRef(PyTuple_GET_ITEM(program->own, k));
        if (set_pointer(frame, value) < 0)
            return -1;
    }
    return 1;
}

/* Take what the walk has found, before anything of Python's runs; as `set_pointer`. */
static int enter(Frame *frame, const Choice *choice, const Walk *walk, PyObject *targets)
{
    const Program *program = choice->program;
    Py_ssize_t count = choice->picks ? PyTuple_GET_SIZE(choice->picks) : walk->params_count;
    if (!begin(frame, choice->program, count))
        return 0;
    for (Py_ssize_t k = 0; k < count; k++) {
        Py_ssize_t number = picked(choice, k);
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
    if (program->overwritten_count) {
        int done = take_over(frame, walk, targets) ? -1 : hold_overwritten(frame);
        if (done != 1)
            return done;
    }
    for (Py_ssize_t k = 0; k + 1 < program->leaves_count; k += 2)
        if (set_pointer(frame, program->leaves[k]) < 0)
            return -1;
    return take_own(frame);
}

/* Add up terms, which are behind their count: 1, or 0 if a parameter is no small integer. */
int add_terms(const Frame *frame, const int64_t *terms, int64_t *total)
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

/* 0 if there was no room, which another way may have; -1 with the error set if it is another one,
   such as a MemoryError that a signal handler has raised. */
static int no_room(void)
{
    if (!PyErr_ExceptionMatches(PyExc_MemoryError))
        return -1;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback)
        PyException_SetTraceback(value, traceback);
    PyObject *outside = PyObject_CallOneArg(raised_outside, value);
    if (outside == Py_False) {
        Py_DECREF(type);
        Py_DECREF(value);
        Py_XDECREF(traceback);
        Py_DECREF(outside);
        return 0;
    }
    Py_XDECREF(outside);
    PyErr_Restore(type, value, traceback); /* in place of one that the question raised */
    return -1;
}

static int take_memory(Frame *frame, Py_ssize_t value)
{
    if (frame->buffers[value])
        return 1; /* it was to be dropped, but after the turn nothing is */
    PyObject *shape = PyTuple_GET_ITEM(frame->program->shapes, value);
    PyObject *arguments[3] = {NULL, PyTuple_GET_ITEM(shape, 0), PyTuple_GET_ITEM(shape, 1)};
    frame->buffers[value] = PyObject_Vectorcall(
        frame->program->allocate, arguments + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    if (frame->buffers[value])
        return set_pointer(frame, value);
    return no_room();
}

/* One more hold on memory, of another shape; as `set_pointer`. */
static int share(Frame *frame, Py_ssize_t value, Py_ssize_t of)
{
    PyObject *shape = PyTuple_GET_ITEM(PyTuple_GET_ITEM(frame->program->shapes, value), 0);
    frame->buffers[value] = PyObject_CallMethodOneArg(frame->buffers[of], another_name, shape);
    frame->pointers[value] = frame->pointers[of];
    return frame->buffers[value] ? 1 : -1;
}

/* What the driver starts a kernel of a GPU with; see `devices.cuda_launch.BoundLaunch`. */
typedef struct {
    int (*start)(const void *config, void *function, void **parameters, void **extra);
    const void *config;
    void *function, **parameters;
} DeviceLaunch;

static int start_on_device(const void *arguments)
{
    const DeviceLaunch *launch = arguments;
    return launch->start(launch->config, launch->function, launch->parameters, NULL);
}

/* Start a kernel by the address of a `DeviceLaunch`; the driver's status. */
static PyObject *start_kernel(PyObject *module, PyObject *address)
{
    void *launch = PyLong_AsVoidPtr(address);
    int status;
    if (!launch)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = start_on_device(launch);
    Py_END_ALLOW_THREADS
    return PyLong_FromLong(status);
}

static int launch(const Frame *frame, const int64_t *at)
{
    int status;
    if (!at[2])
        return frame->program->start((const void *)(uintptr_t)at[1]);
    Py_BEGIN_ALLOW_THREADS
    status = frame->program->start((const void *)(uintptr_t)at[1]);
    Py_END_ALLOW_THREADS
    return status;
}

static void copy(const Frame *frame, const int64_t *at)
{
    memcpy((void *)(uintptr_t)frame->pointers[at[1]], (void *)(uintptr_t)frame->pointers[at[2]],
           (size_t)at[3]);
}

/* Do what has no effect on values yet: as `set_pointer`. */
static int prepare(Frame *frame, const int64_t *at)
{
    int64_t total;
    switch (at[0]) {
    case TAKE:
        return take_memory(frame, (Py_ssize_t)at[1]);
    case MAKE:
        return frame->buffers[at[1]] ? 1 : make_array(frame, (Py_ssize_t)at[1]);
    case SHARE:
        return share(frame, (Py_ssize_t)at[1], (Py_ssize_t)at[2]);
    case ADDRESS:
        total = frame->pointers[at[2]] + at[3];
        if (!add_terms(frame, at + 4, &total))
            return 0;
        *(int64_t *)(uintptr_t)at[1] = total;
        return 1;
    case PARAMETER:
        return put_parameter((int64_t *)(uintptr_t)at[1], frame->params[at[2]], at[3]);
    default: /* SUM, PHASE */
        total = at[2];
        if (!add_terms(frame, at + 3, &total))
            return 0;
        if (at[0] == PHASE) {
            int64_t modulus = at[4 + 2 * at[3]];
            total = (total % modulus + modulus) % modulus;
        }
        *(int64_t *)(uintptr_t)at[1] = total;
        return 1;
    }
}

static Py_ssize_t length_of(const int64_t *at)
{
    switch (at[0]) {
    case ADDRESS:
        return 5 + 2 * (Py_ssize_t)at[4];
    case SUM:
        return 4 + 2 * (Py_ssize_t)at[3];
    case PHASE:
        return 5 + 2 * (Py_ssize_t)at[3];
    case PARAMETER:
    case COPY:
        return 4;
    case CALL:
        return (Py_ssize_t)at[1];
    case LAUNCH:
    case SHARE:
        return 3;
    default:
        return 2;
    }
}

/* Run the instructions up to the turn, and prepare those after it: as `set_pointer`. */
static int run(Frame *frame)
{
    const Program *program = frame->program;
    const int64_t *at = program->code, *end = at + program->length;
    const int64_t *turn = program->turn < 0 ? end : program->code + program->turn;
    for (; at < end; at += length_of(at)) {
        int done = 1;
        if (at[0] == CALL) /* all are before the turn */
            done = call_library(frame, at);
        else if (at[0] != LAUNCH && at[0] != COPY && at[0] != DROP)
            done = prepare(frame, at);
        else if (at < turn && at[0] == LAUNCH)
            done = !launch(frame, at);
        else if (at < turn && at[0] == COPY)
            copy(frame, at);
        else if (at < turn)
            Py_CLEAR(frame->buffers[at[1]]);
        if (done != 1)
            return done;
    }
    return 1;
}

/* Tell that some of the leaves to be overwritten have been, but that it did not go on; -1. */
static int lose(const Frame *frame, int status)
{
    Py_ssize_t count = frame->program->overwritten_count / 2;
    PyObject *leaves = PyList_New(count);
    for (Py_ssize_t k = 0; leaves && k < count; k++)
        PyList_SET_ITEM(leaves, k, Py_NewRef((PyObject *)frame->overwritten[k]));
    PyObject *told = leaves ? PyObject_CallFunction(
        given[LOST], "OiO", frame->program->plan, status, leaves) : NULL;
    Py_XDECREF(leaves);
    Py_XDECREF(told); /* it raises */
    return -1;
}

/* Do what was prepared, from the turn on.  If the first launch fails, nothing has been overwritten;
   the others fail on a GPU alone, for on the host they need no scratch.  As `set_pointer`. */
static int overwrite(const Frame *frame)
{
    const Program *program = frame->program;
    if (program->turn < 0)
        return 1;
    const int64_t *at = program->code + program->turn, *end = program->code + program->length;
    for (int begun = 0; at < end; at += length_of(at))
        if (at[0] == LAUNCH) {
            int status = launch(frame, at);
            if (status)
                return begun ? lose(frame, status) : 0;
            begun = 1;
        } else if (at[0] == COPY)
            copy(frame, at);
    return 1;
}

static int count(PyObject *name, Py_ssize_t more)
{
    if (!more)
        return 0;
    PyObject *before = PyDict_GetItemWithError(given[COUNTERS], name);
    Py_ssize_t total = before ? PyLong_AsSsize_t(before) : 0;
    PyObject *after = PyErr_Occurred() ? NULL : PyLong_FromSsize_t(total + more);
    int failed = !after || PyDict_SetItem(given[COUNTERS], name, after);
    Py_XDECREF(after);
    return failed ? -1 : 0;
}

/* Say of the outputs what they were computed by, and count what was done.  What was done stays done
   if there is no memory for that: it may have overwritten what it was made of. */
static void account(Frame *frame)
{
    const Program *program = frame->program;
    int failed = 0;
    for (Py_ssize_t k = 0; k < program->outputs_count && !failed; k++)
        failed = PyObject_SetAttr(frame->buffers[program->outputs[k]], plan_name, program->plan);
    if (failed || count(launches_name, program->launches) || count(calls_name, program->calls))
        PyErr_Clear();
}

/* Make the outputs the nodes' values. */
static void settle(Frame *frame, PyObject *targets)
{
    Program *program = frame->program;
    account(frame);
    for (Py_ssize_t k = 0; k < program->outputs_count; k++) {
        Node *node = (Node *)PyList_GET_ITEM(targets, k);
        if (!node->buffer)
            node->buffer = Py_NewRef(frame->buffers[program->outputs[k]]);
    }
    if (!frame->stolen.inputs)
        for (Py_ssize_t k = 0; k < program->outputs_count; k++)
            forget_inputs((Node *)PyList_GET_ITEM(targets, k));
}

/* Walk, unless something else has to be done first: as `set_pointer`. */
static int walk_known(PyObject *targets, Walk *walk)
{
    if (!walk_targets(targets, walk))
        return 1;
    if (!PyErr_ExceptionMatches(PyExc_RuntimeError))
        return -1;
    PyErr_Clear(); /* another thread is computing them, perhaps: Python waits for it */
    return 0;
}

/* Whether launches go to the device and stream that the program is for; -1 with an error set. */
static int is_ready(const Program *program)
{
    if (!program->ready)
        return 1;
    PyObject *found = PyObject_CallNoArgs(program->ready);
    Py_XDECREF(found); /* it is True or False */
    return found ? found == Py_True : -1;
}

/* Run a program that is not running already: as `set_pointer`. */
static int run_all(Frame *frame)
{
    int ready = is_ready(frame->program);
    if (ready != 1 || frame->program->busy)
        return ready < 0 ? -1 : 0;
    frame->program->busy = 1;
    int done = run(frame);
    end_silence(frame);
    if (done == 1)
        done = overwrite(frame);
    frame->program->busy = 0;
    return done;
}

/* Choose a program for what the walk has met; NULL, perhaps with an error set, if there is none.
   `here` is for values that the host will ask for: where they are computed depends on that.
   Nothing of Python's is run. */
static const Choice *choose(PyObject *targets, const Walk *walk, int here)
{
    uint64_t own = 0;
    Py_ssize_t count = PyList_GET_SIZE(targets);
    for (const Choice *choice = find_entry(walk)->choices; choice; choice = choice->next) {
        const Program *program = choice->program;
        if (program->outputs_count != count || program->busy || (here && program->there) ||
            !conditions_hold(choice, walk))
            continue;
        int where = are_where_wanted(program, walk);
        if (where < 0)
            return NULL;
        if (!where)
            continue;
        if (!program->updated_count)
            return choice;
        if (!own && !(own = find_own(targets, walk)))
            return NULL;
        int done = fits(program, walk, own, given[BUFFER]);
        if (done)
            return done > 0 ? choice : NULL;
    }
    return NULL;
}

/* Whether some program of an entry has to know who sees the leaves. */
static int asks_who_sees(const Entry *entry)
{
    for (const Choice *choice = entry->choices; choice; choice = choice->next)
        if (choice->program->updated_count)
            return 1;
    return 0;
}

/* Run the program that is chosen, if there is one: as `set_pointer`.  The lock is held. */
static int run_chosen(PyObject *targets, const Walk *walk, int here)
{
    const Choice *choice = choose(targets, walk, here);
    if (!choice)
        return PyErr_Occurred() ? -1 : 0;
    Frame frame = {0};
    int done = enter(&frame, choice, walk, targets);
    if (done == 1)
        done = run_all(&frame);
    if (done == 1)
        settle(&frame, targets);
    leave(&frame);
    return done;
}

/* Compute the targets by a plan that is known: 1, 0 if Python has to do it, -1 with an error.  The
   recorder, if given, is that of this thread, which is to evaluate all that it has. */
static int run_targets(PyObject *targets, PyObject *recorder, int here)
{
    Walk walk;
    if (!programs_known || !given[LOCK] || PyList_GET_SIZE(given[OBSERVERS]))
        return 0;
    int done = walk_known(targets, &walk);
    if (done != 1)
        return done;
    const Entry *entry = find_entry(&walk);
    if (!entry->choices)
        return 0;
    int asks = asks_who_sees(entry);
    if (asks && recorder && forget_readers(recorder) && (done = walk_known(targets, &walk)) != 1)
        return done; /* what died may have had a finaliser */
    PyObject *locked = PyObject_CallMethodOneArg(given[LOCK], acquire_name, Py_False);
    if (locked != Py_True) {
        Py_XDECREF(locked);
        return locked ? 0 : -1;
    }
    Py_DECREF(locked);
    done = run_chosen(targets, &walk, here);
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *released = PyObject_CallMethodNoArgs(given[LOCK], release_name);
    Py_XDECREF(released);
    if (!released)
        return -1;
    PyErr_Restore(type, value, traceback);
    return done;
}

/* Run a program on buffers of its leaves and on its parameters: as `set_pointer`.  The lock is held. */
static int run_on(Frame *frame, Program *program, PyObject *leaves, PyObject *params)
{
    Py_ssize_t given_leaves = PySequence_Fast_GET_SIZE(leaves);
    Py_ssize_t given_params = PySequence_Fast_GET_SIZE(params);
    if (!given[LOCK] || program->busy || program->updated_count || 2 * given_leaves != program->leaves_count ||
        PyList_GET_SIZE(given[OBSERVERS]) || !begin(frame, program, given_params))
        return 0;
    for (Py_ssize_t k = 0; k < given_params; k++)
        frame->params[frame->params_count++] = Py_NewRef(PySequence_Fast_GET_ITEM(params, k));
    for (Py_ssize_t k = 0; k < given_leaves; k++) {
        Py_ssize_t value = program->leaves[2 * k];
        frame->buffers[value] = Py_NewRef(PySequence_Fast_GET_ITEM(leaves, k));
        if (set_pointer(frame, value) < 0)
            return -1;
    }
    int done = take_own(frame);
    if (done == 1)
        done = run_all(frame);
    if (done == 1)
        account(frame);
    return done;
}

/* The outputs' buffers in a list, or None if Python has to do it. */
static PyObject *run_program(PyObject *module, PyObject *args)
{
    PyObject *program, *leaves, *params, *outputs = NULL;
    if (!PyArg_ParseTuple(args, "OO!O!", &program, &PyList_Type, &leaves, &PyList_Type, &params))
        return NULL;
    if (!is_program(program)) {
        PyErr_SetString(PyExc_TypeError, "a program is wanted");
        return NULL;
    }
    Frame frame = {0};
    int done = run_on(&frame, (Program *)program, leaves, params);
    if (done == 1 && (outputs = PyList_New(frame.program->outputs_count)))
        for (Py_ssize_t k = 0; k < frame.program->outputs_count; k++)
            PyList_SET_ITEM(outputs, k, Py_NewRef(frame.buffers[frame.program->outputs[k]]));
    leave(&frame);
    return done ? outputs : Py_NewRef(Py_None);
}

static PyObject *run_known(PyObject *module, PyObject *targets)
{
    if (!PyList_CheckExact(targets)) {
        PyErr_SetString(PyExc_TypeError, "a list of nodes is wanted");
        return NULL;
    }
    int done = run_targets(targets, NULL, 0);
    return done < 0 ? NULL : PyBool_FromLong(done);
}

/* Compute the nodes and all that this thread has pending, if their plan is known; whether so. */
static PyObject *look(PyObject *module, PyObject *args)
{
    PyObject *nodes;
    int here;
    if (!PyArg_ParseTuple(args, "O!p", &PyList_Type, &nodes, &here))
        return NULL;
    if (held)
        Py_RETURN_FALSE;
    PyObject *recorder, *targets = pending_below(nodes, &recorder);
    if (!targets)
        return NULL;
    Py_ssize_t noted = noted_by(recorder);
    int done = PyList_GET_SIZE(targets) ? run_targets(targets, recorder, here) : 1;
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
    if (install_library(found))
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"start_kernel", start_kernel, METH_O, "Start a kernel of a GPU by an address; a status."},
    {"install_running", install_running, METH_O, "Say what Python does of running."},
    {"run_known", run_known, METH_O, "Compute targets by a program; whether there is one."},
    {"run_program", run_program, METH_VARARGS, "Run a program on buffers; None: Python has to."},
    {"look", look, METH_VARARGS, "Compute nodes and all that is pending; whether it is known how."},
    {NULL}};

int add_run(PyObject *module)
{
    pointer_name = PyUnicode_InternFromString("pointer");
    plan_name = PyUnicode_InternFromString("plan");
    acquire_name = PyUnicode_InternFromString("acquire");
    release_name = PyUnicode_InternFromString("release");
    launches_name = PyUnicode_InternFromString("launches");
    calls_name = PyUnicode_InternFromString("library calls");
    another_name = PyUnicode_InternFromString("another");
    PyObject *errors = PyImport_ImportModule("tiledarray.errors");
    raised_outside = errors ? PyObject_GetAttrString(errors, "raised_outside") : NULL;
    Py_XDECREF(errors);
    if (!pointer_name || !plan_name || !acquire_name || !release_name || !launches_name ||
        !calls_name || !another_name || !raised_outside || add_taken() < 0 || add_library() < 0 ||
        add_recipes() < 0 || add_programs(module) < 0)
        return -1;
    PyObject *start = PyLong_FromVoidPtr((void *)(uintptr_t)start_on_device);
    int failed = PyModule_AddObjectRef(module, "start_on_device", start);
    Py_XDECREF(start);
    return failed ? -1 : PyModule_AddFunctions(module, functions);
}
