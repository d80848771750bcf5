/* Functions that record the same again for arguments of the same kinds: reductions, `where`, casts.

   What Python recorded for a call is looked at once: if it is a few operations of the arguments'
   nodes and of constants, the next call with arguments of these kinds, and the same numbers, axes and
   dtypes, records them here.  Only functions are asked that do nothing else (`arrays/immediate.py`).
   There is no twin of this file: Python does it anyhow. */

#include "core.h"

#include <string.h>
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#include <numpy/arrayobject.h>

#define MOST_WORDS 64
#define MOST_OPERANDS 12
#define MOST_STEPS 16
#define MOST_INPUTS 64        /* of all steps */
#define MOST_RECIPES 2048

/* An input of a step: an operand, what an earlier step gives, or a constant. */
typedef struct {
    PyObject *constant;       /* NULL: none */
    int number;               /* of the operand; or ~number of the step */
} Input;

typedef struct {
    Form *form;
    int inputs;
} Step;

typedef struct {
    uintptr_t *words;         /* of the call; NULL: this place is free */
    PyObject *kept;           /* a tuple: all objects that are named here, and what follows */
    const Step *steps;        /* in an object of bytes; NULL: Python has to record it */
    const Input *inputs;      /* likewise */
    size_t hash;
    int count, steps_count;
} Recipe;

static Recipe *recipes = NULL; /* a table of open addresses */
static int recipes_known = 0;
static PyObject *out_name;

/* ---- calls in words --------------------------------------------------------------------------- */

/* A call: what it is known by, and the arrays and floats in it. */
typedef struct {
    uintptr_t words[MOST_WORDS];
    PyObject *objects[MOST_WORDS]; /* that are words, and ... */
    PyObject *operands[MOST_OPERANDS]; /* ... nodes and floats: new references */
    const PyObject *given[MOST_OPERANDS]; /* the arguments that these are of */
    int count, objects_count, operands_count, nodes, floats;
    int only_doubles;         /* and truth values; such a loop takes any float as it is */
} Call;

enum { AN_ARRAY = 1, A_FLOAT, AN_INT, AN_OBJECT, A_SCALAR, A_SEQUENCE };

static inline void put(Call *call, uintptr_t word) { call->words[call->count++] = word; }

static void put_object(Call *call, PyObject *object)
{
    call->objects[call->objects_count++] = Py_NewRef(object);
    put(call, (uintptr_t)object);
}

static int has_no_elements(PyObject *shape)
{
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(shape); k++)
        if (PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, k)) == 0)
            return 1;
    return 0;
}

/* Whether the operand is there already. */
static int is_there(const Call *call, const PyObject *node)
{
    for (int k = 0; k < call->operands_count; k++)
        if (call->operands[k] == node)
            return 1;
    return 0;
}

/* Put an argument: 1, or 0 (perhaps with an error set) if Python has to do it. */
static int put_argument(Call *call, PyObject *x, int depth)
{
    if (call->count > MOST_WORDS - 4 || call->operands_count >= MOST_OPERANDS)
        return 0;
    if (is_handle(x)) {
        Node *node = present_node((Handle *)x);
        if (!node)
            return 0;
        int number = ((PyArray_Descr *)node->form->kind->dtype)->type_num;
        /* Without elements, and where complex numbers become real, there are warnings. */
        int usual = !is_there(call, (PyObject *)node) && !PyTypeNum_ISCOMPLEX(number) &&
                    !has_no_elements(node->form->kind->shape);
        call->given[call->operands_count] = x;
        call->operands[call->operands_count++] = (PyObject *)node;
        call->only_doubles &= number == NPY_DOUBLE || number == NPY_BOOL;
        call->nodes++;
        put(call, AN_ARRAY);
        put_object(call, (PyObject *)node->form->kind);
        return usual;
    }
    if (PyFloat_CheckExact(x)) { /* its value is no part of what the call is known by */
        if (is_there(call, x))
            return 0;
        call->floats = 1;
        call->given[call->operands_count] = x;
        call->operands[call->operands_count++] = Py_NewRef(x);
        put(call, A_FLOAT);
        return 1;
    }
    if (PyLong_CheckExact(x)) {
        int beyond;
        put(call, AN_INT);
        put(call, (uintptr_t)PyLong_AsLongLongAndOverflow(x, &beyond));
        return !beyond;
    }
    if (PyArray_IsScalar(x, SignedInteger)) { /* of NumPy's: such as an element of a list of shifts */
        PyObject *number = PyNumber_Index(x);
        if (!number)
            return 0;
        put(call, A_SCALAR);
        put_object(call, (PyObject *)Py_TYPE(x));
        put(call, (uintptr_t)PyLong_AsLongLong(number));
        Py_DECREF(number);
        return !PyErr_Occurred();
    }
    if (x == Py_None || PyBool_Check(x) || PyType_Check(x) || PyUnicode_CheckExact(x) ||
        PyArray_DescrCheck(x)) {
        put(call, AN_OBJECT);
        put_object(call, x);
        return 1;
    }
    if (!depth || !(PyTuple_CheckExact(x) || PyList_CheckExact(x)) || PySequence_Size(x) > 8)
        return 0;
    put(call, A_SEQUENCE + (uintptr_t)PyList_CheckExact(x));
    put(call, (uintptr_t)PySequence_Fast_GET_SIZE(x));
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(x); k++) {
        PyObject *item = Py_NewRef(PySequence_Fast_GET_ITEM(x, k)); /* of a list that may change */
        int done = put_argument(call, item, depth - 1);
        Py_DECREF(item);
        if (!done)
            return 0;
    }
    return 1;
}

static void release(Call *call)
{
    while (call->objects_count)
        Py_DECREF(call->objects[--call->objects_count]);
    while (call->operands_count)
        Py_DECREF(call->operands[--call->operands_count]);
}

/* Put a call into words: 1, or 0 (perhaps with an error set) if Python has to do it. */
static int put_call(Call *call, PyObject *function, PyObject *const *args, Py_ssize_t count,
                    PyObject *names)
{
    Py_ssize_t named = names ? PyTuple_GET_SIZE(names) : 0;
    call->count = call->objects_count = call->operands_count = call->nodes = call->floats = 0;
    call->only_doubles = 1;
    if (count + named > MOST_OPERANDS)
        return 0;
    put_object(call, function);
    put(call, (uintptr_t)count);
    for (Py_ssize_t k = 0; k < count + named; k++) {
        if (k >= count) {
            PyObject *name = PyTuple_GET_ITEM(names, k - count);
            if (name == out_name || !PyUnicode_CHECK_INTERNED(name))
                return 0;
            put_object(call, name);
        }
        if (!put_argument(call, args[k], 1))
            return 0;
    }
    return call->nodes && (call->only_doubles || !call->floats);
}

static size_t hash_of(const Call *call)
{
    uint64_t hash = 0x9e3779b97f4a7c15ULL;
    for (int k = 0; k < call->count; k++) {
        hash = (hash ^ (uint64_t)call->words[k]) * 0xff51afd7ed558ccdULL;
        hash ^= hash >> 32;
    }
    return (size_t)hash;
}

/* ---- recipes by their calls -------------------------------------------------------------------- */

static Recipe *place_of(const Call *call, size_t hash)
{
    for (size_t at = hash;; at++) {
        Recipe *recipe = recipes + at % (2 * MOST_RECIPES);
        if (!recipe->words || (recipe->hash == hash && recipe->count == call->count &&
                               !memcmp(recipe->words, call->words,
                                       (size_t)call->count * sizeof *call->words)))
            return recipe;
    }
}

void forget_recipes(void)
{
    Recipe *old = recipes;
    recipes = NULL;
    recipes_known = 0;
    for (int k = 0; old && k < 2 * MOST_RECIPES; k++) {
        PyMem_Free(old[k].words);
        Py_XDECREF(old[k].kept);
    }
    PyMem_Free(old);
}

/* Keep a recipe, unless there is one; -1 with an error set. */
static int remember(const Call *call, size_t hash, Recipe made)
{
    if (recipes_known >= MOST_RECIPES)
        forget_recipes();
    if (!recipes && !(recipes = PyMem_Calloc(2 * MOST_RECIPES, sizeof *recipes))) {
        PyErr_NoMemory();
        return -1;
    }
    Recipe *place = place_of(call, hash);
    if (place->words)
        return 0; /* another thread has asked meanwhile */
    size_t size = (size_t)call->count * sizeof *call->words;
    made.words = PyMem_Malloc(size);
    if (!made.words) {
        PyErr_NoMemory();
        return -1;
    }
    memcpy(made.words, call->words, size);
    made.hash = hash;
    made.count = call->count;
    Py_INCREF(made.kept);
    *place = made;
    recipes_known++;
    return 0;
}

/* ---- learning ---------------------------------------------------------------------------------- */

/* What Python recorded, in the making. */
typedef struct {
    const Call *call;
    uint64_t since;           /* the walk before the call */
    Node *nodes[MOST_STEPS];  /* borrowed of what was recorded */
    Step steps[MOST_STEPS];
    Input inputs[MOST_INPUTS];
    int steps_count, inputs_count, used;
} Draft;

static PyObject *input_of(const Node *node, Py_ssize_t k)
{
    PyObject *few[2] = {node->left, node->right};
    for (int at = 0; at < 2; at++)
        if (few[at] && !k--)
            return few[at];
    return node->rest && k < PyTuple_GET_SIZE(node->rest) ? PyTuple_GET_ITEM(node->rest, k) : NULL;
}

/* Where an operand or an earlier step is; 0 for something else. */
static int find_input(Draft *draft, PyObject *x, int *number)
{
    for (int k = 0; k < draft->call->operands_count; k++)
        if (draft->call->operands[k] == x) {
            draft->used |= 1 << k;
            *number = k;
            return 1;
        }
    for (int k = 0; k < draft->steps_count; k++)
        if ((PyObject *)draft->nodes[k] == x) {
            *number = ~k;
            return 1;
        }
    return 0;
}

/* Add a node and what it is computed from, which the call has recorded: 0 if something of that is
   not usual, or older. */
static int add_step(Draft *draft, Node *node, int depth)
{
    Input inputs[MOST_INPUTS];
    Py_ssize_t count = 0;
    PyObject *x;
    if (node->buffer || !depth || node->walk != draft->since)
        return 0;
    for (; (x = input_of(node, count)); count++) {
        int number;
        if (count >= MOST_OPERANDS)
            return 0;
        if (is_node(x) && !find_input(draft, x, &number) &&
            !add_step(draft, (Node *)x, depth - 1))
            return 0;
        inputs[count].constant = NULL;
        if (find_input(draft, x, &inputs[count].number))
            continue;
        if (is_node(x) || !is_plain(x))
            return 0;
        inputs[count].constant = x;
    }
    if (draft->steps_count == MOST_STEPS || draft->inputs_count + count > MOST_INPUTS ||
        node->form->arity != count)
        return 0;
    memcpy(draft->inputs + draft->inputs_count, inputs, (size_t)count * sizeof *inputs);
    draft->inputs_count += (int)count;
    draft->nodes[draft->steps_count] = node;
    draft->steps[draft->steps_count++] = (Step){node->form, (int)count};
    return 1;
}

/* Whether every array and float of the call is an input: of what is none the value may have been
   looked at, such as of a shift.  `zeros_like` alone asks an array for its shape and dtype. */
static int uses_operands(const Draft *draft)
{
    const Call *call = draft->call;
    if (draft->used == (1 << call->operands_count) - 1)
        return 1;
    return call->operands_count == 1 && call->nodes == 1 && draft->steps_count == 1 &&
           draft->steps[0].form->roles & CONSTANT;
}

/* All objects that a call and its draft name, and the draft's steps and inputs: NULL with an error. */
static PyObject *keep(const Draft *draft)
{
    const Call *call = draft->call;
    PyObject *list = PyList_New(0);
    PyObject *steps = PyBytes_FromStringAndSize(
        (const char *)draft->steps, (Py_ssize_t)((size_t)draft->steps_count * sizeof(Step)));
    PyObject *inputs = PyBytes_FromStringAndSize(
        (const char *)draft->inputs, (Py_ssize_t)((size_t)draft->inputs_count * sizeof(Input)));
    int failed = !list || !steps || !inputs || PyList_Append(list, steps) ||
                 PyList_Append(list, inputs);
    for (int k = 0; !failed && k < call->objects_count; k++)
        failed = PyList_Append(list, call->objects[k]);
    for (int k = 0; !failed && k < draft->steps_count; k++)
        failed = PyList_Append(list, (PyObject *)draft->steps[k].form);
    for (int k = 0; !failed && k < draft->inputs_count; k++)
        failed = draft->inputs[k].constant && PyList_Append(list, draft->inputs[k].constant);
    PyObject *kept = failed ? NULL : PyList_AsTuple(list);
    Py_XDECREF(list);
    Py_XDECREF(steps);
    Py_XDECREF(inputs);
    return kept;
}

/* Look at what Python recorded for a call; for want of memory nothing is learned. */
static void learn(const Call *call, size_t hash, uint64_t since, PyObject *result)
{
    Handle *handle = (Handle *)result;
    if (new_walk() != since + 1)
        return; /* something was evaluated, and older nodes have been met */
    for (int k = 0; k < call->operands_count; k++)
        if (call->given[k] == result)
            return; /* it was written to */
    if (!is_handle(result) || handle->base || handle->array || !handle->node ||
        !is_node(handle->node) || ((Node *)handle->node)->buffer)
        return; /* it was computed, this time */
    Draft draft = {call, since};
    int usual = !is_there(call, handle->node) &&
                add_step(&draft, (Node *)handle->node, MOST_STEPS) && uses_operands(&draft);
    Recipe made = {NULL, keep(&draft)};
    if (made.kept && usual) {
        made.steps = (const Step *)PyBytes_AS_STRING(PyTuple_GET_ITEM(made.kept, 0));
        made.inputs = (const Input *)PyBytes_AS_STRING(PyTuple_GET_ITEM(made.kept, 1));
        made.steps_count = draft.steps_count;
    }
    if (!made.kept || remember(call, hash, made))
        PyErr_Clear();
    Py_XDECREF(made.kept);
}

/* ---- recording --------------------------------------------------------------------------------- */

/* Record a step; NULL without an error if Python has to do it.  A part of something large is never
   computed at once, nor does it count as small. */
static Node *record_step(const Step *step, PyObject **inputs, int large)
{
    PyObject *rest = NULL;
    const Node *nodes[MOST_OPERANDS] = {NULL};
    Node *node = NULL;
    for (int k = 0; k < step->inputs; k++)
        nodes[k] = is_node(inputs[k]) ? (Node *)inputs[k] : NULL;
    int may = step->form->roles & CONSTANT || (large && step->form->roles & MOVES) ||
              must_record_of(step->form, nodes, step->inputs);
    if (may && !large && step->form->roles & UPDATES && nodes[1] &&
        nodes[1]->form->kind->size <= of_nodes())
        may = !note_small();
    if (may && step->inputs > 2) {
        rest = PyTuple_New(step->inputs - 2);
        for (int k = 2; rest && k < step->inputs; k++)
            PyTuple_SET_ITEM(rest, k - 2, Py_NewRef(inputs[k]));
    }
    if (may && (rest || step->inputs <= 2))
        node = record_node(step->form);
    if (node) {
        node->left = step->inputs > 0 ? Py_NewRef(inputs[0]) : NULL;
        node->right = step->inputs > 1 ? Py_NewRef(inputs[1]) : NULL;
        node->rest = Py_XNewRef(rest);
        inherit(node);
    }
    Py_XDECREF(rest);
    return node;
}

/* Record what a recipe says; NULL as `record_step`.  What runs meanwhile may forget the recipe. */
static PyObject *follow(const Recipe recipe, const Call *call)
{
    PyObject *made[MOST_STEPS];
    const Input *input = recipe.inputs;
    int done = 0, large = recipe.steps[recipe.steps_count - 1].form->kind->size > of_nodes();
    Py_INCREF(recipe.kept);
    for (; done < recipe.steps_count; done++) {
        PyObject *inputs[MOST_OPERANDS];
        const Step *step = recipe.steps + done;
        for (int k = 0; k < step->inputs; k++, input++)
            inputs[k] = input->constant      ? input->constant
                        : input->number >= 0 ? call->operands[input->number]
                                             : made[~input->number];
        if (!(made[done] = (PyObject *)record_step(step, inputs, large)))
            break;
    }
    PyObject *result = done && done == recipe.steps_count ? wrap_node(made[done - 1]) : NULL;
    while (done)
        Py_DECREF(made[--done]);
    Py_DECREF(recipe.kept);
    return result;
}

/* Call a function that only records, or record what it would: a new reference, NULL with an error. */
PyObject *record_call(PyObject *function, PyObject *const *args, size_t flags, PyObject *names)
{
    Call call;
    if (held)
        return PyObject_Vectorcall(function, args, flags, names);
    PyObject *result = NULL;
    int usual = put_call(&call, function, args, PyVectorcall_NARGS(flags), names), known = 0;
    size_t hash = usual ? hash_of(&call) : 0;
    if (usual && recipes) {
        const Recipe *recipe = place_of(&call, hash);
        known = recipe->words != NULL;
        if (known && recipe->steps)
            result = follow(*recipe, &call);
    }
    if (!result && !PyErr_Occurred()) {
        uint64_t since = usual && !known ? new_walk() : 0;
        result = PyObject_Vectorcall(function, args, flags, names);
        if (result && since)
            learn(&call, hash, since, result);
    }
    release(&call);
    return result;
}

int add_recipes(void)
{
    import_array1(-1);
    out_name = PyUnicode_InternFromString("out");
    return out_name ? 0 : -1;
}
