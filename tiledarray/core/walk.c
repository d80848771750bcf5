/* The walk over what is pending, and the key that a plan is looked up by.

   `twin_graph.py` has it in Python: what is changed here is changed there. */

#include "core.h"

#include <string.h>

/* ---- keys ----------------------------------------------------------------------------------- */

enum { AN_OBJECT, A_NUMBER, NOTHING, A_START }; /* a start has one more word, a number */
#define TAGS 3
#define number_word(number) ((uintptr_t)(number) << 2 | A_NUMBER)
#define number_of(word) ((Py_ssize_t)((intptr_t)(word) >> 2))
#define NO_ANCHOR (PY_SSIZE_T_MAX >> 3)

/* Words that grow; what they name is borrowed. */
typedef struct {
    uintptr_t *words;
    Py_ssize_t length, room;
} Words;

static int grow(void **memory, Py_ssize_t *room, Py_ssize_t wanted, size_t width)
{
    if (wanted <= *room)
        return 0;
    Py_ssize_t more = wanted > 2 * *room ? wanted : 2 * *room;
    void *found = PyMem_Realloc(*memory, (size_t)more * width);
    if (!found) {
        PyErr_NoMemory();
        return -1;
    }
    *memory = found;
    *room = more;
    return 0;
}

static inline int put(Words *key, uintptr_t word)
{
    if (key->length == key->room &&
        grow((void **)&key->words, &key->room, key->length + 1, sizeof(uintptr_t)))
        return -1;
    key->words[key->length++] = word;
    return 0;
}

static Py_hash_t hash_words(const Words *of)
{
    uint64_t hash = 0x9e3779b97f4a7c15ULL;
    for (Py_ssize_t k = 0; k < of->length; k++) {
        hash = (hash ^ of->words[k]) * 0xff51afd7ed558ccdULL;
        hash ^= hash >> 32;
    }
    return (Py_hash_t)hash == -1 ? -2 : (Py_hash_t)hash;
}

static PyObject *make_key(const Words *of)
{
    Key *key = PyObject_New(Key, &KeyType);
    if (!key)
        return NULL;
    key->parts = NULL;
    key->length = 0;
    key->words = PyMem_Malloc((size_t)(of->length ? of->length : 1) * sizeof(uintptr_t));
    if (!key->words) {
        Py_DECREF(key);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t k = 0; k < of->length; k++) {
        uintptr_t word = key->words[k] = of->words[k];
        if (!(word & TAGS))
            Py_INCREF((PyObject *)word);
    }
    key->length = of->length;
    key->hash = hash_words(of);
    return (PyObject *)key;
}

static void key_dealloc(Key *key)
{
    for (Py_ssize_t k = 0; k < key->length; k++)
        if (!(key->words[k] & TAGS))
            Py_DECREF((PyObject *)key->words[k]);
    PyMem_Free(key->words);
    Py_XDECREF(key->parts);
    PyObject_Free(key);
}

static Py_hash_t key_hash(Key *key) { return key->hash; }

static PyObject *key_compare(PyObject *x, PyObject *y, int op)
{
    if ((op != Py_EQ && op != Py_NE) || Py_TYPE(y) != &KeyType)
        Py_RETURN_NOTIMPLEMENTED;
    Key *left = (Key *)x, *right = (Key *)y;
    int same = left->hash == right->hash && left->length == right->length &&
               !memcmp(left->words, right->words, (size_t)left->length * sizeof(uintptr_t));
    return PyBool_FromLong(same == (op == Py_EQ));
}

static PyObject *part_of_key(const uintptr_t *word)
{
    if (!(*word & TAGS))
        return Py_NewRef((PyObject *)*word);
    if ((*word & TAGS) == A_NUMBER)
        return PyLong_FromSsize_t(number_of(*word));
    if ((*word & TAGS) == NOTHING)
        Py_RETURN_NONE;
    if (number_of(*word) == NO_ANCHOR)
        return Py_BuildValue("On", Py_None, number_of(word[1]));
    return Py_BuildValue("nn", number_of(*word), number_of(word[1]));
}

static PyObject *key_parts(Key *key, void *unused)
{
    if (!key->parts) {
        PyObject *list = PyList_New(0);
        for (Py_ssize_t k = 0; list && k < key->length; k++) {
            PyObject *part = part_of_key(key->words + k);
            if (!part || PyList_Append(list, part))
                Py_CLEAR(list);
            Py_XDECREF(part);
            k += (key->words[k] & TAGS) == A_START;
        }
        PyObject *parts = list ? PyList_AsTuple(list) : NULL;
        Py_XDECREF(list);
        if (!parts)
            return NULL;
        Py_XSETREF(key->parts, parts);
    }
    return Py_NewRef(key->parts);
}

static PyObject *key_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *parts, *key = NULL;
    if (!PyArg_ParseTuple(args, "O!", &PyTuple_Type, &parts))
        return NULL;
    Words words = {NULL, 0, 0};
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(parts); k++) {
        PyObject *part = PyTuple_GET_ITEM(parts, k);
        int failed;
        if (part == Py_None)
            failed = put(&words, NOTHING);
        else if (PyLong_CheckExact(part))
            failed = put(&words, number_word(PyLong_AsSsize_t(part)));
        else if (PyTuple_CheckExact(part) && PyTuple_GET_SIZE(part) == 2) {
            PyObject *anchor = PyTuple_GET_ITEM(part, 0);
            Py_ssize_t of = anchor == Py_None ? NO_ANCHOR : PyLong_AsSsize_t(anchor);
            failed = put(&words, (number_word(of) & ~(uintptr_t)TAGS) | A_START) ||
                     put(&words, number_word(PyLong_AsSsize_t(PyTuple_GET_ITEM(part, 1))));
        } else
            failed = put(&words, (uintptr_t)part);
        if (failed || PyErr_Occurred())
            goto leave;
    }
    key = make_key(&words);
leave:
    PyMem_Free(words.words);
    return key;
}

static PyGetSetDef key_attributes[] = {
    {"parts", (getter)key_parts, NULL, "The key as a tuple."}, {NULL}};

PyTypeObject KeyType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tiledarray.core._core.Key",
    .tp_doc = "What a plan is looked up by.",
    .tp_basicsize = sizeof(Key),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = key_new,
    .tp_dealloc = (destructor)key_dealloc,
    .tp_hash = (hashfunc)key_hash,
    .tp_richcompare = key_compare,
    .tp_getset = key_attributes,
};

static PyObject *parts_of(PyObject *module, PyObject *key)
{
    if (Py_TYPE(key) != &KeyType) {
        PyErr_SetString(PyExc_TypeError, "a key is wanted");
        return NULL;
    }
    return key_parts((Key *)key, NULL);
}

/* ---- the walk ------------------------------------------------------------------------------- */

#define NEAR 2                /* starts of views that lie so close are taken to move together */

/* A scalar by its value: the type, and what its bits are. */
typedef struct {
    PyTypeObject *type;
    uint64_t bits[2];
} Scalar;

typedef struct {
    Scalar scalar;
    uint64_t walk;            /* in which it was put here */
    Py_ssize_t number;
} Entry;

/* Memory of the walk, kept for the next one: none runs Python's code, so none is interrupted. */
static struct {
    Node **nodes, **above;    /* numbered, inputs first; and from a target down to a node */
    Py_ssize_t nodes_room, above_room;
    Words key;
    PyObject **params;        /* borrowed */
    char *starts;             /* which of them are starts */
    Py_ssize_t *order;
    Py_ssize_t params_room, starts_room, order_room;
    Entry *known;
    Py_ssize_t known_room;    /* a power of two */
} scratch;

static Scalar scalar_of(PyObject *x)
{
    Scalar scalar = {Py_TYPE(x), {0, 0}};
    if (PyFloat_CheckExact(x)) {
        double value = PyFloat_AS_DOUBLE(x);
        memcpy(scalar.bits, &value, sizeof value);
    } else if (PyComplex_CheckExact(x)) {
        Py_complex value = PyComplex_AsCComplex(x);
        memcpy(scalar.bits, &value.real, sizeof value.real);
        memcpy(scalar.bits + 1, &value.imag, sizeof value.imag);
    } else if (PyLong_Check(x)) {
        int beyond;
        long long value = PyLong_AsLongLongAndOverflow(x, &beyond);
        scalar.bits[0] = beyond ? (uint64_t)(uintptr_t)x : (uint64_t)value;
        scalar.bits[1] = (uint64_t)beyond; /* large ones are alike if they are the same object */
    } else
        scalar.bits[0] = (uint64_t)(uintptr_t)x;
    return scalar;
}

static inline size_t hash_of(const Scalar *scalar)
{
    uint64_t hash = (uint64_t)(uintptr_t)scalar->type ^ scalar->bits[0] * 0xff51afd7ed558ccdULL;
    hash = (hash ^ hash >> 32 ^ scalar->bits[1]) * 0xc4ceb9fe1a85ec53ULL;
    return (size_t)(hash ^ hash >> 29);
}

static Entry *place_of(const Scalar *scalar, uint64_t walk)
{
    size_t mask = (size_t)scratch.known_room - 1, at = hash_of(scalar) & mask;
    for (;; at = (at + 1) & mask) {
        Entry *entry = scratch.known + at;
        if (entry->walk != walk ||
            (entry->scalar.type == scalar->type && entry->scalar.bits[0] == scalar->bits[0] &&
             entry->scalar.bits[1] == scalar->bits[1]))
            return entry;
    }
}

/* Make room for one more scalar in each table. */
static int make_room(Py_ssize_t count, uint64_t walk)
{
    if (grow((void **)&scratch.params, &scratch.params_room, count + 1, sizeof(PyObject *)) ||
        grow((void **)&scratch.starts, &scratch.starts_room, count + 1, 1))
        return -1;
    if (2 * (count + 1) <= scratch.known_room)
        return 0;
    Py_ssize_t room = scratch.known_room ? 4 * scratch.known_room : 256;
    Entry *old = scratch.known, *known = PyMem_Calloc((size_t)room, sizeof(Entry));
    if (!known) {
        PyErr_NoMemory();
        return -1;
    }
    Py_ssize_t old_room = scratch.known_room;
    scratch.known = known;
    scratch.known_room = room;
    for (Py_ssize_t k = 0; k < old_room; k++)
        if (old[k].walk == walk)
            *place_of(&old[k].scalar, walk) = old[k];
    PyMem_Free(old);
    return 0;
}

static inline PyObject *input(const Node *node, Py_ssize_t k)
{
    if (node->left) {
        if (!k)
            return node->left;
        k--;
    }
    if (node->right) {
        if (!k)
            return node->right;
        k--;
    }
    return node->rest && k < PyTuple_GET_SIZE(node->rest) ? PyTuple_GET_ITEM(node->rest, k) : NULL;
}

/* Which nodes a walk goes to: what is still to be computed and the leaves below, or history. */
enum { PENDING, KEPT };

/* The first input that the walk has not met; NULL if there is none.  Leaves have none. */
static inline Node *unmet(const Node *node, uint64_t walk, int which)
{
    if (which == PENDING ? node->buffer != NULL : node->keeps == BEGINS)
        return NULL;
    PyObject *x;
    for (Py_ssize_t k = 0; (x = input(node, k)); k++)
        if (is_node(x) && ((Node *)x)->walk != walk && (which == PENDING || ((Node *)x)->keeps))
            return (Node *)x;
    return NULL;
}

/* Number the nodes below the targets, inputs first; -1 with an error set. */
static Py_ssize_t number_nodes(PyObject *targets, uint64_t walk, int which)
{
    Py_ssize_t count = 0, depth = 0;
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(targets); k++) {
        if (!is_node(PyList_GET_ITEM(targets, k))) {
            PyErr_SetString(PyExc_TypeError, "targets are nodes");
            return -1;
        }
        Node *node = (Node *)PyList_GET_ITEM(targets, k), *next;
        for (;;) {
            while ((next = unmet(node, walk, which))) {
                if (depth == scratch.above_room &&
                    grow((void **)&scratch.above, &scratch.above_room, depth + 1, sizeof(Node *)))
                    return -1;
                scratch.above[depth++] = node;
                node = next;
            }
            if (node->walk != walk) {
                if (count == scratch.nodes_room &&
                    grow((void **)&scratch.nodes, &scratch.nodes_room, count + 1, sizeof(Node *)))
                    return -1;
                node->walk = walk;
                node->number = count;
                scratch.nodes[count++] = node;
            }
            if (!depth)
                break;
            node = scratch.above[--depth];
        }
    }
    return count;
}

static int by_value(const void *x, const void *y)
{
    int64_t left = (int64_t)scalar_of(scratch.params[*(const Py_ssize_t *)x]).bits[0];
    int64_t right = (int64_t)scalar_of(scratch.params[*(const Py_ssize_t *)y]).bits[0];
    return (left > right) - (left < right);
}

/* Add the kinds of the parameters: the type, or where a start lies that is near another. */
static int put_kinds(Py_ssize_t count, int has_zero)
{
    Py_ssize_t starts = 0, first = scratch.key.length;
    if (grow((void **)&scratch.order, &scratch.order_room, count + 1, sizeof(Py_ssize_t)))
        return -1;
    for (Py_ssize_t k = 0; k < count; k++)
        if (scratch.starts[k])
            scratch.order[starts++] = k;
    if (starts + has_zero < 2) {
        for (Py_ssize_t k = 0; k < count; k++)
            if (put(&scratch.key, (uintptr_t)Py_TYPE(scratch.params[k])))
                return -1;
        return 0;
    }
    qsort(scratch.order, (size_t)starts, sizeof(Py_ssize_t), by_value);
    /* For each parameter two words, of which the second is 0 for a type; then they are moved up. */
    for (Py_ssize_t k = 0; k < count; k++)
        if (put(&scratch.key, (uintptr_t)Py_TYPE(scratch.params[k])) || put(&scratch.key, 0))
            return -1;
    uintptr_t *words = scratch.key.words + first;
    Py_ssize_t anchor = NO_ANCHOR;
    int64_t base = has_zero ? 0 : -NEAR - 1, last = base;
    for (Py_ssize_t k = 0; k < starts; k++) {
        Py_ssize_t start = scratch.order[k];
        int64_t value = (int64_t)scalar_of(scratch.params[start]).bits[0];
        if (value - last <= NEAR) {
            words[2 * start] = (number_word(anchor) & ~(uintptr_t)TAGS) | A_START;
            words[2 * start + 1] = number_word(value - base);
        } else {
            anchor = ~start;
            base = value;
        }
        last = value;
    }
    Py_ssize_t length = 0;
    for (Py_ssize_t k = 0; k < count; k++) {
        words[length++] = words[2 * k];
        if (words[2 * k + 1])
            words[length++] = words[2 * k + 1];
    }
    scratch.key.length = first + length;
    return 0;
}

/* The reference to a scalar: the same for all that are equal, zeros' signs included. */
static inline Py_ssize_t reference_to(PyObject *x, Py_ssize_t *count, uint64_t walk)
{
    if (make_room(*count, walk))
        return 0;
    Scalar scalar = scalar_of(x);
    Entry *entry = place_of(&scalar, walk);
    if (entry->walk != walk) {
        *entry = (Entry){scalar, walk, *count};
        scratch.params[*count] = x;
        scratch.starts[*count] = 0;
        ++*count;
    }
    return ~entry->number;
}

/* An evaluation takes the inputs of what it computes (`execution.taken`), and a signal handler or a
   finaliser that runs in the middle of it may come by such a node. */
#define MIDDLE                                                                        \
    "an array cannot be looked at in the middle of its own evaluation, nor once that has lost "  \
    "what it was made of; what runs in the middle of things (a signal handler, a finaliser) may " \
    "write into arrays, and is to look at them later"

/* Add a pending node's form and references; the count of parameters, -1 with an error set. */
static Py_ssize_t put_node(const Node *node, Py_ssize_t params, int *has_zero, uint64_t walk)
{
    PyObject *x;
    Py_ssize_t inputs = 0;
    int moves = node->form->roles & MOVES;
    if (put(&scratch.key, (uintptr_t)node->form))
        return -1;
    for (Py_ssize_t k = 0; (x = input(node, k)); k++) {
        uintptr_t word;
        if (is_node(x))
            word = number_word(((Node *)x)->number);
        else if (moves && !scalar_of(x).bits[0]) {
            word = NOTHING;
            *has_zero = 1;
        } else {
            Py_ssize_t reference = reference_to(x, &params, walk);
            if (!reference)
                return -1;
            if (moves)
                scratch.starts[~reference] = 1;
            word = number_word(reference);
        }
        if (put(&scratch.key, word))
            return -1;
        inputs++;
    }
    if (inputs != node->form->arity) {
        PyErr_SetString(PyExc_RuntimeError, MIDDLE);
        return -1;
    }
    return params;
}

/* A list of the numbers of nodes for which `role` says so. */
static PyObject *numbers_of(Py_ssize_t count, int (*role)(const Node *, Py_ssize_t *))
{
    PyObject *found = PyList_New(0);
    for (Py_ssize_t k = 0; found && k < count; k++) {
        Py_ssize_t number = k;
        if (!role(scratch.nodes[k], &number))
            continue;
        PyObject *item = PyLong_FromSsize_t(number);
        if (!item || PyList_Append(found, item))
            Py_CLEAR(found);
        Py_XDECREF(item);
    }
    return found;
}

static int is_leaf(const Node *node, Py_ssize_t *number) { return node->buffer != NULL; }

/* Whether it writes to a leaf, whose number it is. */
static int writes_to_leaf(const Node *node, Py_ssize_t *number)
{
    if (node->buffer || !(node->form->roles & UPDATES))
        return 0;
    const Node *old = (const Node *)input(node, 0);
    *number = old->number;
    return old->buffer != NULL;
}

static PyObject *list_of(PyObject **items, Py_ssize_t count)
{
    PyObject *list = PyList_New(count);
    for (Py_ssize_t k = 0; list && k < count; k++)
        PyList_SET_ITEM(list, k, Py_NewRef(items[k]));
    return list;
}

/* Walk; the key is in `scratch`.  -1 with an error set. */
static Py_ssize_t walk_over(PyObject *targets, Py_ssize_t *params)
{
    uint64_t walk = new_walk();
    Py_ssize_t count = number_nodes(targets, walk, PENDING);
    int has_zero = 0;
    scratch.key.length = *params = 0;
    for (Py_ssize_t k = 0; k < count; k++) {
        const Node *node = scratch.nodes[k];
        if (node->buffer) {
            if (put(&scratch.key, (uintptr_t)node->form->kind))
                return -1;
        } else if ((*params = put_node(node, *params, &has_zero, walk)) < 0)
            return -1;
    }
    if (count < 0 || put_kinds(*params, has_zero))
        return -1;
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(targets); k++)
        if (put(&scratch.key, number_word(((Node *)PyList_GET_ITEM(targets, k))->number)))
            return -1;
    return count;
}

/* Walk without a list of what is met: -1 with an error set.  Nothing of Python's is run. */
int walk_targets(PyObject *targets, Walk *walk)
{
    walk->count = walk_over(targets, &walk->params_count);
    if (walk->count < 0)
        return -1;
    walk->nodes = scratch.nodes;
    walk->params = scratch.params;
    walk->words = scratch.key.words;
    walk->length = scratch.key.length;
    walk->hash = hash_words(&scratch.key);
    return 0;
}

static PyObject *trace_nodes(PyObject *targets)
{
    Py_ssize_t params, count = walk_over(targets, &params);
    PyObject *result = count < 0 ? NULL : PyTuple_New(6);
    PyObject *outputs = result ? PyTuple_New(PyList_GET_SIZE(targets)) : NULL;
    if (!outputs) {
        Py_XDECREF(result);
        return NULL;
    }
    int failed = 0;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(outputs); k++) {
        PyObject *item = PyLong_FromSsize_t(((Node *)PyList_GET_ITEM(targets, k))->number);
        PyTuple_SET_ITEM(outputs, k, item);
        failed |= !item;
    }
    PyObject *found[6] = {
        make_key(&scratch.key), list_of((PyObject **)scratch.nodes, count),
        list_of(scratch.params, params), outputs, numbers_of(count, writes_to_leaf),
        numbers_of(count, is_leaf)};
    for (int k = 0; k < 6; k++) {
        PyTuple_SET_ITEM(result, k, found[k]);
        failed |= !found[k];
    }
    if (failed)
        Py_CLEAR(result);
    return result;
}

static PyObject *graph_trace(PyObject *module, PyObject *given)
{
    PyObject *targets = PyList_CheckExact(given) ? Py_NewRef(given) : PySequence_List(given);
    if (!targets)
        return NULL;
    int collects = PyGC_Disable(); /* a finaliser in Python might walk, too */
    PyObject *found = trace_nodes(targets);
    if (collects)
        PyGC_Enable();
    Py_DECREF(targets);
    return found;
}

/* What is kept of the history of the targets, inputs first; and they themselves. */
static PyObject *graph_history(PyObject *module, PyObject *targets)
{
    if (!PyList_CheckExact(targets)) {
        PyErr_SetString(PyExc_TypeError, "a list of nodes is wanted");
        return NULL;
    }
    Py_ssize_t count = number_nodes(targets, new_walk(), KEPT);
    Node **found = count < 0 ? NULL : PyMem_Malloc((size_t)(count + 1) * sizeof *found);
    if (!found)
        return count < 0 ? NULL : PyErr_NoMemory();
    for (Py_ssize_t k = 0; k < count; k++)
        found[k] = (Node *)Py_NewRef((PyObject *)scratch.nodes[k]);
    PyObject *nodes = PyList_New(count); /* may run a finaliser, and that may walk */
    for (Py_ssize_t k = 0; k < count; k++)
        if (nodes)
            PyList_SET_ITEM(nodes, k, (PyObject *)found[k]);
        else
            Py_DECREF(found[k]);
    PyMem_Free(found);
    return nodes;
}

static PyMethodDef functions[] = {
    {"history", graph_history, METH_O, "What is kept of the targets' history, inputs first."},
    {"trace", graph_trace, METH_O, "Number what is pending below the targets."},
    {"parts_of", parts_of, METH_O, "The parts of a key."},
    {NULL}};

int add_walk(PyObject *module)
{
    if (PyType_Ready(&KeyType) < 0 || PyModule_AddFunctions(module, functions) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "Key", (PyObject *)&KeyType);
}
