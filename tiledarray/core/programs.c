/* Programs: what the core runs of plans, and how they are found by the keys of what is pending.

   Of a key there may be several: for leaves that others see or not, and for what was assumed of the
   parameters when it was planned. */

#include "running.h"

#include <string.h>

/* ---- programs ------------------------------------------------------------------------------- */

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

static int read_words(const char *bytes, Py_ssize_t length, int64_t **words, Py_ssize_t *count)
{
    *count = length / (Py_ssize_t)sizeof(int64_t);
    *words = PyMem_Malloc((size_t)length + sizeof(int64_t));
    if (!*words) {
        PyErr_NoMemory();
        return -1;
    }
    memcpy(*words, bytes, (size_t)length);
    return 0;
}

static void program_dealloc(Program *program)
{
    Py_XDECREF(program->plan);
    Py_XDECREF(program->keep);
    Py_XDECREF(program->shapes);
    Py_XDECREF(program->objects);
    Py_XDECREF(program->own);
    Py_XDECREF(program->allocate);
    Py_XDECREF(program->ready);
    Py_XDECREF(program->gpu);
    PyMem_Free(program->own_values);
    PyMem_Free(program->code);
    PyMem_Free(program->conditions);
    PyMem_Free(program->leaves);
    PyMem_Free(program->outputs);
    PyMem_Free(program->updated);
    PyMem_Free(program->overwritten);
    PyObject_Free(program);
}

static PyTypeObject ProgramType;

int is_program(PyObject *x) { return Py_TYPE(x) == &ProgramType; }

/* Whether every number, or every second, is that of a value. */
static int are_values(const Program *program, const Py_ssize_t *numbers, Py_ssize_t count,
                      Py_ssize_t step)
{
    for (Py_ssize_t k = 0; k < count; k += step)
        if (numbers[k] < 0 || numbers[k] >= program->values)
            return 0;
    return 1;
}

static PyObject *program_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"plan", "keep", "shapes", "start", "code", "leaves", "outputs",
                            "launches", "calls", "turn", "updated", "overwritten", "conditions",
                            "objects", "own", "own_values", "allocate", "ready", "gpu", "there", NULL};
    PyObject *plan, *keep, *shapes, *leaves, *outputs, *updated, *overwritten, *objects, *own,
        *own_values, *allocate, *ready, *gpu;
    int there;
    unsigned long long start;
    Py_ssize_t launches, calls, turn, length, conditions_length;
    const char *code, *conditions;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "OOO!Ky#O!O!nnnO!O!y#O!O!O!OOOp", names, &plan, &keep, &PyTuple_Type, &shapes, &start,
            &code, &length, &PyTuple_Type, &leaves, &PyTuple_Type, &outputs, &launches, &calls,
            &turn, &PyTuple_Type, &updated, &PyTuple_Type, &overwritten, &conditions,
            &conditions_length, &PyTuple_Type, &objects, &PyTuple_Type, &own, &PyTuple_Type,
            &own_values, &allocate, &ready, &gpu, &there))
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
    program->objects = Py_NewRef(objects);
    program->own = Py_NewRef(own);
    program->allocate = Py_NewRef(allocate);
    program->ready = ready == Py_None ? NULL : Py_NewRef(ready);
    program->gpu = gpu == Py_None ? NULL : Py_NewRef(gpu);
    program->there = (char)there;
    program->launches = launches;
    program->calls = calls;
    program->turn = turn;
    if (read_words(code, length, &program->code, &program->length) ||
        read_words(conditions, conditions_length, &program->conditions,
                   &program->conditions_length) ||
        read_numbers(leaves, &program->leaves, &program->leaves_count) ||
        read_numbers(outputs, &program->outputs, &program->outputs_count) ||
        read_numbers(updated, &program->updated, &program->updated_count) ||
        read_numbers(overwritten, &program->overwritten, &program->overwritten_count) ||
        read_numbers(own_values, &program->own_values, &program->own_count))
        Py_CLEAR(program);
    else if (!are_values(program, program->leaves, program->leaves_count, 2) ||
             !are_values(program, program->outputs, program->outputs_count, 1) ||
             !are_values(program, program->overwritten, program->overwritten_count, 2) ||
             !are_values(program, program->own_values, program->own_count, 1)) {
        PyErr_SetString(PyExc_SystemError, "a program names a value that it has no room for");
        Py_CLEAR(program);
    }
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

/* ---- what a plan assumed --------------------------------------------------------------------- */

/* The number in the walk of a plan's parameter; -1 if there is none. */
Py_ssize_t picked(const Choice *choice, Py_ssize_t number)
{
    if (!choice->picks)
        return number;
    if (number >= PyTuple_GET_SIZE(choice->picks))
        return -1;
    return PyLong_AsSsize_t(PyTuple_GET_ITEM(choice->picks, number));
}

#define MOST_TERMS 7
#define is_moderate(value) ((value) <= INT64_C(1) << 30 && (value) >= -(INT64_C(1) << 30))

/* Whether a linear form is not negative or, with a modulus, no multiple of it (of 0: not zero).  It
   is a flag, the modulus, a number, and terms behind their count.  Numbers whose sum might not fit
   are Python's. */
static int condition_holds(const int64_t *at, const Choice *choice, const Walk *walk)
{
    int64_t total = at[2];
    if (at[3] > MOST_TERMS || !is_moderate(total / (INT64_C(1) << 30)))
        return 0;
    for (int64_t k = 0; k < at[3]; k++) {
        Py_ssize_t number = picked(choice, (Py_ssize_t)at[4 + 2 * k]);
        int beyond;
        if (number < 0 || number >= walk->params_count || !PyLong_Check(walk->params[number]))
            return 0;
        long long value = PyLong_AsLongLongAndOverflow(walk->params[number], &beyond);
        if (beyond || !is_moderate(value) || !is_moderate(at[5 + 2 * k]))
            return 0;
        total += at[5 + 2 * k] * value;
    }
    if (!at[0])
        return total >= 0;
    return at[1] ? total % at[1] != 0 : total != 0;
}

/* Whether what the plan assumed is so.  Nothing of Python's is run. */
int conditions_hold(const Choice *choice, const Walk *walk)
{
    const Program *program = choice->program;
    const int64_t *at = program->conditions, *end = at + program->conditions_length;
    for (; at < end; at += 4 + 2 * at[3])
        if (!condition_holds(at, choice, walk))
            return 0;
    return 1;
}

/* ---- where arrays are ------------------------------------------------------------------------ */

static PyObject *device_name, *elsewhere_name;

/* Whether a buffer is on the GPU, and has no copy on the other side; nothing of Python's is run. */
static int is_there(PyObject *buffer, const PyObject *gpu, int *alone)
{
    PyObject *device = PyObject_GetAttr(buffer, device_name);
    PyObject *elsewhere = device ? PyObject_GetAttr(buffer, elsewhere_name) : NULL;
    int there = device == gpu;
    *alone = elsewhere == Py_None;
    Py_XDECREF(device);
    Py_XDECREF(elsewhere);
    return elsewhere ? there : -1;
}

/* Whether leaves that are nowhere in particular are where the program was planned for: 1, 0, or -1
   with an error set.  What is overwritten, or is only on the GPU, has no copy on the other side. */
int are_where_wanted(const Program *program, const Walk *walk)
{
    int alone;
    for (Py_ssize_t k = 0; program->gpu && k + 1 < program->leaves_count; k += 2) {
        PyObject *buffer = walk->nodes[program->leaves[k + 1]]->buffer;
        if (!buffer || PyTuple_CheckExact(buffer))
            return 0;
        int there = is_there(buffer, program->gpu, &alone);
        if (there != program->there || (there && !alone))
            return there < 0 ? -1 : 0;
    }
    for (Py_ssize_t k = 0; program->gpu && k + 1 < program->overwritten_count; k += 2) {
        PyObject *buffer = walk->nodes[program->overwritten[k + 1]]->buffer;
        if (is_there(buffer, program->gpu, &alone) < 0)
            return -1;
        if (!alone)
            return 0;
    }
    return 1;
}

/* ---- programs by their keys ------------------------------------------------------------------ */

#define MOST_PROGRAMS 1024
#define MOST_CHOICES 8

int programs_known = 0;       /* keys */
static Entry table[2 * MOST_PROGRAMS]; /* open addresses */

static Entry *place_of(Py_hash_t hash, const uintptr_t *words, Py_ssize_t length)
{
    for (size_t at = (size_t)hash;; at++) {
        Entry *entry = table + at % (2 * MOST_PROGRAMS);
        if (!entry->key || (entry->key->hash == hash && entry->key->length == length &&
                            !memcmp(entry->key->words, words, (size_t)length * sizeof *words)))
            return entry;
    }
}

Entry *find_entry(const Walk *walk) { return place_of(walk->hash, walk->words, walk->length); }

static void drop_choices(Choice *choice)
{
    while (choice) {
        Choice *next = choice->next;
        Py_DECREF(choice->program);
        Py_XDECREF(choice->picks);
        PyMem_Free(choice);
        choice = next;
    }
}

static void forget_all(void)
{
    programs_known = 0;
    for (int k = 0; k < 2 * MOST_PROGRAMS; k++) {
        Entry entry = table[k];
        memset(table + k, 0, sizeof *table);
        Py_XDECREF(entry.key);
        drop_choices(entry.choices);
    }
}

static PyObject *forget_programs(PyObject *module, PyObject *unused)
{
    if (programs_known)
        forget_all();
    forget_recipes();
    Py_RETURN_NONE;
}

static Entry *entry_of(PyObject *key)
{
    if (Py_TYPE(key) != &KeyType) {
        PyErr_SetString(PyExc_TypeError, "a key is wanted");
        return NULL;
    }
    return place_of(((Key *)key)->hash, ((Key *)key)->words, ((Key *)key)->length);
}

static PyObject *forget_program(PyObject *module, PyObject *key)
{
    Entry *entry = entry_of(key);
    if (!entry)
        return NULL;
    Choice *choices = entry->choices;
    entry->choices = NULL; /* its place is kept, or those behind it would not be found */
    drop_choices(choices);
    Py_RETURN_NONE;
}

/* Put a program before the others of its key; that of the same plan for the same leaves goes, and
   the last where they are many. */
static PyObject *remember(PyObject *module, PyObject *args)
{
    Key *key;
    Program *program;
    PyObject *picks;
    if (!PyArg_ParseTuple(args, "O!O!O", &KeyType, &key, &ProgramType, &program, &picks))
        return NULL;
    Choice *choice = PyMem_Calloc(1, sizeof *choice), *gone = NULL;
    if (!choice)
        return PyErr_NoMemory();
    if (programs_known >= MOST_PROGRAMS)
        forget_all();
    Entry *entry = place_of(key->hash, key->words, key->length);
    if (!entry->key) {
        programs_known++;
        entry->key = (Key *)Py_NewRef((PyObject *)key);
    }
    *choice = (Choice){entry->choices, (Program *)Py_NewRef((PyObject *)program),
                       picks == Py_None ? NULL : Py_NewRef(picks)};
    entry->choices = choice;
    int count = 1;
    for (Choice **place = &choice->next; *place && !gone; count++)
        if ((*place)->program->plan == program->plan || count == MOST_CHOICES) {
            gone = *place;
            *place = gone->next;
            gone->next = NULL;
        } else
            place = &(*place)->next;
    drop_choices(gone);
    Py_RETURN_NONE;
}

/* Whether the program of a plan is there for the key. */
static PyObject *remembers(PyObject *module, PyObject *args)
{
    PyObject *key, *plan;
    if (!PyArg_ParseTuple(args, "OO", &key, &plan))
        return NULL;
    Entry *entry = entry_of(key);
    if (!entry)
        return NULL;
    for (const Choice *choice = entry->choices; choice; choice = choice->next)
        if (choice->program->plan == plan)
            Py_RETURN_TRUE;
    Py_RETURN_FALSE;
}

/* ---- the module ----------------------------------------------------------------------------- */

static PyMethodDef functions[] = {
    {"remember", remember, METH_VARARGS, "Keep a program of a key."},
    {"remembers", remembers, METH_VARARGS, "Whether a plan's program of a key is kept."},
    {"forget_program", forget_program, METH_O, "Forget the programs of a key."},
    {"forget_programs", forget_programs, METH_NOARGS, "Forget all programs and recipes."},
    {NULL}};

int add_programs(PyObject *module)
{
    device_name = PyUnicode_InternFromString("device");
    elsewhere_name = PyUnicode_InternFromString("elsewhere");
    if (!device_name || !elsewhere_name || PyType_Ready(&ProgramType) < 0 || PyModule_AddFunctions(module, functions) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "Program", (PyObject *)&ProgramType);
}
