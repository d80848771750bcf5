/* The recorded graph: kinds, forms, nodes.

   `twin_graph.py` is this file and `walk.c` in Python: what is changed here is changed there. */

#include "core.h"

#include <string.h>

/* ---- kinds and forms ------------------------------------------------------------------------ */

static PyObject *kind_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *shape, *dtype, *device;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "O!OOn", &PyTuple_Type, &shape, &dtype, &device, &size))
        return NULL;
    Kind *kind = (Kind *)type->tp_alloc(type, 0);
    if (kind) {
        kind->shape = Py_NewRef(shape);
        kind->dtype = Py_NewRef(dtype);
        kind->device = Py_NewRef(device);
        kind->size = size;
    }
    return (PyObject *)kind;
}

static int kind_traverse(Kind *kind, visitproc visit, void *arg)
{
    Py_VISIT(kind->shape);
    Py_VISIT(kind->dtype);
    Py_VISIT(kind->device);
    return 0;
}

static int kind_clear(Kind *kind)
{
    Py_CLEAR(kind->shape);
    Py_CLEAR(kind->dtype);
    Py_CLEAR(kind->device);
    return 0;
}

static void kind_dealloc(Kind *kind)
{
    PyObject_GC_UnTrack(kind);
    kind_clear(kind);
    Py_TYPE(kind)->tp_free((PyObject *)kind);
}

static PyMemberDef kind_members[] = {
    {"shape", T_OBJECT_EX, offsetof(Kind, shape), READONLY, "Lengths of the axes."},
    {"dtype", T_OBJECT_EX, offsetof(Kind, dtype), READONLY, "Data type of the elements."},
    {"device", T_OBJECT_EX, offsetof(Kind, device), READONLY, "Where the value lives."},
    {"size", T_PYSSIZET, offsetof(Kind, size), READONLY, "Elements on the host, at least 1."},
    {NULL}};

PyTypeObject KindType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tiledarray.core._core.Kind",
    .tp_doc = "Shape, dtype and device of a value.",
    .tp_basicsize = sizeof(Kind),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = kind_new,
    .tp_dealloc = (destructor)kind_dealloc,
    .tp_traverse = (traverseproc)kind_traverse,
    .tp_clear = (inquiry)kind_clear,
    .tp_members = kind_members,
};

static PyObject *form_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *op, *attrs, *kind;
    Py_ssize_t arity;
    int roles = 0;
    if (!PyArg_ParseTuple(args, "OOO!n|i", &op, &attrs, &KindType, &kind, &arity, &roles))
        return NULL;
    Form *form = (Form *)type->tp_alloc(type, 0);
    if (form) {
        form->op = Py_NewRef(op);
        form->attrs = Py_NewRef(attrs);
        form->kind = (Kind *)Py_NewRef(kind);
        form->arity = arity;
        form->roles = roles;
    }
    return (PyObject *)form;
}

static int form_traverse(Form *form, visitproc visit, void *arg)
{
    Py_VISIT(form->op);
    Py_VISIT(form->attrs);
    Py_VISIT(form->kind);
    Py_VISIT(form->call);
    return 0;
}

static int form_clear(Form *form)
{
    Py_CLEAR(form->op);
    Py_CLEAR(form->attrs);
    Py_CLEAR(form->kind);
    Py_CLEAR(form->call);
    return 0;
}

static void form_dealloc(Form *form)
{
    PyObject_GC_UnTrack(form);
    form_clear(form);
    Py_TYPE(form)->tp_free((PyObject *)form);
}

static PyMemberDef form_members[] = {
    {"op", T_OBJECT_EX, offsetof(Form, op), READONLY, "What computes the value."},
    {"attrs", T_OBJECT_EX, offsetof(Form, attrs), READONLY, "What is static about this use."},
    {"kind", T_OBJECT_EX, offsetof(Form, kind), READONLY, "Of the result."},
    {"call", T_OBJECT, offsetof(Form, call), 0, "What computes it at once, if that was asked."},
    {"arity", T_PYSSIZET, offsetof(Form, arity), READONLY, "Number of inputs."},
    {"roles", T_INT, offsetof(Form, roles), READONLY, "What the walk looks at."},
    {NULL}};

PyTypeObject FormType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tiledarray.core._core.Form",
    .tp_doc = "Everything about a node but its operands.",
    .tp_basicsize = sizeof(Form),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = form_new,
    .tp_dealloc = (destructor)form_dealloc,
    .tp_traverse = (traverseproc)form_traverse,
    .tp_clear = (inquiry)form_clear,
    .tp_members = form_members,
};

/* ---- nodes ---------------------------------------------------------------------------------- */

/* Nodes take no part in garbage collection: they refer to what is older. */

static uint64_t walks = 0;

uint64_t new_walk(void) { return ++walks; }

#define MOST_FREE 512
static Node *free_nodes[MOST_FREE];
static int free_count = 0;

Node *new_node(Form *form)
{
    Node *node;
    if (free_count) {
        node = free_nodes[--free_count];
        PyObject_Init((PyObject *)node, &NodeType);
    } else if (!(node = PyObject_New(Node, &NodeType)))
        return NULL;
    memset((char *)node + sizeof(PyObject), 0, sizeof(Node) - sizeof(PyObject));
    node->form = (Form *)Py_NewRef((PyObject *)form);
    node->walk = walks;       /* the last before it was made */
    return node;
}

/* All nodes whose history is wanted, in a list: inputs are older than what is computed from them. */
static Node *newest = NULL;

static void set_keeps(Node *node, int keeps)
{
    if (keeps && !node->keeps) {
        node->older = newest;
        node->newer = NULL;
        if (newest)
            newest->newer = node;
        newest = node;
    } else if (!keeps && node->keeps) {
        if (node->older)
            node->older->newer = node->newer;
        if (node->newer)
            node->newer->older = node->older;
        else
            newest = node->older;
        node->older = node->newer = NULL;
    }
    node->keeps = (char)keeps;
}

static Node *doomed = NULL;   /* a list through `number`: graphs are too deep to recurse */
static int burying = 0;
static uint64_t trying = 0;   /* the mark of nodes that would die; 0: those that die do */

static void node_dealloc(Node *node)
{
    if (trying) {
        node->walk = trying;
        node->number = (Py_ssize_t)doomed;
        doomed = node;
        return;
    }
    if (node->weak)
        PyObject_ClearWeakRefs((PyObject *)node);
    set_keeps(node, 0);
    if (burying) {
        node->number = (Py_ssize_t)doomed;
        doomed = node;
        return;
    }
    burying = 1;
    for (;;) {
        Py_CLEAR(node->left);
        Py_CLEAR(node->right);
        Py_CLEAR(node->rest);
        Py_CLEAR(node->buffer);
        Py_CLEAR(node->code);
        Py_CLEAR(node->form);
        if (free_count < MOST_FREE)
            free_nodes[free_count++] = node;
        else
            PyObject_Free(node);
        node = doomed;
        if (!node)
            break;
        doomed = (Node *)node->number;
    }
    burying = 0;
}

/* Replace a tuple of inputs that has nodes in it by one that nobody else has; -1 with an error. */
static int own_rest(Node *node)
{
    int has_nodes = 0;
    for (Py_ssize_t k = 0; node->rest && k < PyTuple_GET_SIZE(node->rest); k++)
        has_nodes |= is_node(PyTuple_GET_ITEM(node->rest, k));
    if (!has_nodes)
        return 0;
    PyObject *own = PyTuple_New(PyTuple_GET_SIZE(node->rest));
    if (!own)
        return -1;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(own); k++)
        PyTuple_SET_ITEM(own, k, Py_NewRef(PyTuple_GET_ITEM(node->rest, k)));
    Py_SETREF(node->rest, own);
    return 0;
}

/* Let go of a pending node's inputs that are nodes, or take them up again. */
static void let_go(const Node *node, int again)
{
    PyObject *few[2] = {node->left, node->right};
    if (node->buffer)
        return;
    for (int k = 0; k < 2; k++)
        if (few[k] && is_node(few[k])) {
            if (again)
                Py_INCREF(few[k]);
            else
                Py_DECREF(few[k]);
        }
    for (Py_ssize_t k = 0; node->rest && k < PyTuple_GET_SIZE(node->rest); k++) {
        PyObject *x = PyTuple_GET_ITEM(node->rest, k);
        if (!is_node(x))
            continue;
        if (again)
            Py_INCREF(x);
        else
            Py_DECREF(x);
    }
}

/* Try what would die if the targets forgot their inputs, and undo it: such nodes have the mark as
   their walk.  Whatever else has a hold on a node keeps it from that, and all that is below.

   No Python code runs meanwhile: nothing but nodes dies here, and they are only laid aside. */
static void try_without(PyObject *targets, uint64_t mark)
{
    Node *fallen = NULL;      /* a list through `number`, too */
    trying = mark;
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(targets); k++)
        let_go((Node *)PyList_GET_ITEM(targets, k), 0);
    while (doomed) {
        Node *node = doomed;
        doomed = (Node *)node->number;
        let_go(node, 0);
        node->number = (Py_ssize_t)fallen;
        fallen = node;
    }
    trying = 0;
    for (Node *node = fallen; node; node = (Node *)node->number)
        PyObject_Init((PyObject *)node, &NodeType); /* with one reference: ours */
    for (Node *node = fallen; node; node = (Node *)node->number)
        let_go(node, 1);
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(targets); k++)
        let_go((Node *)PyList_GET_ITEM(targets, k), 1);
    while (fallen) {
        Node *node = fallen;
        fallen = (Node *)node->number;
        Py_DECREF(node);
    }
}

static int has_one_twice(PyObject *targets)
{
    uint64_t met = new_walk();
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(targets); k++) {
        Node *node = (Node *)PyList_GET_ITEM(targets, k);
        if (node->walk == met)
            return 1;
        node->walk = met;
    }
    return 0;
}

/* Whether a gradient will ask for what is there. */
static int keeps_history(const Walk *walk)
{
    for (Py_ssize_t k = 0; k < walk->count; k++)
        if (walk->nodes[k]->keeps)
            return 1;
    return 0;
}

/* Which of a walk's nodes nothing but the targets' inputs keeps: they have this mark as their walk.
   0 with an error set. */
uint64_t find_own(PyObject *targets, const Walk *walk)
{
    if (keeps_history(walk) || has_one_twice(targets))
        return new_walk();
    int collects = PyGC_Disable(), failed = 0; /* tuples are made; finalisers in Python would run */
    for (Py_ssize_t k = 0; !failed && k < walk->count; k++)
        failed = own_rest(walk->nodes[k]);
    uint64_t mark = failed ? 0 : new_walk();
    if (mark)
        try_without(targets, mark);
    if (collects)
        PyGC_Enable();
    return mark;
}

static PyObject *get_inputs(Node *node, void *unused)
{
    Py_ssize_t few = (node->left != NULL) + (node->right != NULL);
    Py_ssize_t others = node->rest ? PyTuple_GET_SIZE(node->rest) : 0;
    if (!few && node->rest)
        return Py_NewRef(node->rest);
    PyObject *inputs = PyTuple_New(few + others);
    if (!inputs)
        return NULL;
    if (node->left)
        PyTuple_SET_ITEM(inputs, 0, Py_NewRef(node->left));
    if (node->right)
        PyTuple_SET_ITEM(inputs, few - 1, Py_NewRef(node->right));
    for (Py_ssize_t k = 0; k < others; k++)
        PyTuple_SET_ITEM(inputs, few + k, Py_NewRef(PyTuple_GET_ITEM(node->rest, k)));
    return inputs;
}

static void drop_inputs(Node *node)
{
    PyObject *left = node->left, *right = node->right, *rest = node->rest;
    node->left = node->right = node->rest = NULL;
    Py_XDECREF(left);
    Py_XDECREF(right);
    Py_XDECREF(rest);
}

static int set_inputs(Node *node, PyObject *inputs, void *unused)
{
    if (!inputs || !PyTuple_CheckExact(inputs)) {
        PyErr_SetString(PyExc_TypeError, "the inputs of a node are a tuple");
        return -1;
    }
    Py_INCREF(inputs);
    drop_inputs(node);
    if (PyTuple_GET_SIZE(inputs))
        node->rest = inputs;
    else
        Py_DECREF(inputs);
    return 0;
}

/* It has been computed. */
void forget_inputs(Node *node)
{
    if (node->keeps != KEEPS)
        drop_inputs(node);
}

static PyObject *node_forget_inputs(Node *node, PyObject *unused)
{
    forget_inputs(node);
    Py_RETURN_NONE;
}

static inline int is_kept(PyObject *x) { return x && is_node(x) && ((Node *)x)->keeps; }

/* Its history is wanted if that of an input is. */
void inherit(Node *node)
{
    if (!(node->form->roles & SMOOTH))
        return;
    int keeps = is_kept(node->left) || is_kept(node->right);
    for (Py_ssize_t k = 0; !keeps && node->rest && k < PyTuple_GET_SIZE(node->rest); k++)
        keeps = is_kept(PyTuple_GET_ITEM(node->rest, k));
    set_keeps(node, keeps ? KEEPS : 0);
}

static PyObject *node_inherit(Node *node, PyObject *unused)
{
    inherit(node);
    Py_RETURN_NONE;
}

static PyObject *get_site(Node *node, void *unused)
{
    if (!node->code)
        Py_RETURN_NONE;
    return Py_BuildValue("Oi", node->code, node->instruction);
}

static int set_site(Node *node, PyObject *site, void *unused)
{
    PyObject *code = NULL;
    int instruction = 0;
    if (site && site != Py_None) {
        if (!PyTuple_Check(site)) {
            PyErr_SetString(PyExc_TypeError, "a site is a tuple");
            return -1;
        }
        if (!PyArg_ParseTuple(site, "Oi", &code, &instruction))
            return -1;
    }
    node->instruction = instruction;
    Py_XSETREF(node->code, Py_XNewRef(code));
    return 0;
}

static PyObject *get_buffer(Node *node, void *unused)
{
    return Py_NewRef(node->buffer ? node->buffer : Py_None);
}

static int set_buffer(Node *node, PyObject *buffer, void *unused)
{
    PyObject *old = node->buffer;
    node->buffer = buffer == Py_None ? NULL : Py_XNewRef(buffer);
    Py_XDECREF(old);
    return 0;
}

static PyObject *get_form(Node *node, void *unused) { return Py_NewRef((PyObject *)node->form); }

static int set_form(Node *node, PyObject *form, void *unused)
{
    if (!form || Py_TYPE(form) != &FormType) {
        PyErr_SetString(PyExc_TypeError, "a node has a form");
        return -1;
    }
    Py_SETREF(node->form, (Form *)Py_NewRef(form));
    return 0;
}

static PyObject *get_op(Node *node, void *unused) { return Py_NewRef(node->form->op); }
static PyObject *get_attrs(Node *node, void *unused) { return Py_NewRef(node->form->attrs); }
static PyObject *get_shape(Node *node, void *unused) { return Py_NewRef(node->form->kind->shape); }
static PyObject *get_dtype(Node *node, void *unused) { return Py_NewRef(node->form->kind->dtype); }
static PyObject *get_device(Node *node, void *unused)
{
    return Py_NewRef(node->form->kind->device);
}
static PyObject *get_pending(Node *node, void *unused) { return PyBool_FromLong(!node->buffer); }

static PyGetSetDef node_attributes[] = {
    {"form", (getter)get_form, (setter)set_form, "Op, attrs and kind of the result."},
    {"inputs", (getter)get_inputs, (setter)set_inputs, "Operands: nodes and Python scalars."},
    {"site", (getter)get_site, (setter)set_site, "Where it was recorded: code, instruction."},
    {"buffer", (getter)get_buffer, (setter)set_buffer, "The computed value, None while pending."},
    {"op", (getter)get_op, NULL, "What computes the value."},
    {"attrs", (getter)get_attrs, NULL, "What is static about this use of the op."},
    {"shape", (getter)get_shape, NULL, "Lengths of the axes."},
    {"dtype", (getter)get_dtype, NULL, "Data type of the elements."},
    {"device", (getter)get_device, NULL, "Where the value lives."},
    {"pending", (getter)get_pending, NULL, "Whether the value is still to be computed."},
    {NULL}};

static PyMemberDef node_members[] = {
    {"keeps", T_BYTE, offsetof(Node, keeps), READONLY,
     "Whether its history is wanted: 0, KEEPS, BEGINS."},
    {NULL}};

static PyObject *node_keep(Node *node, PyObject *keeps)
{
    long wanted = PyLong_AsLong(keeps);
    if (wanted == -1 && PyErr_Occurred())
        return NULL;
    set_keeps(node, (int)wanted);
    Py_RETURN_NONE;
}

/* Strong references: what is let go of one may be the end of another. */
static PyObject *node_kept_since(Node *node, PyObject *unused)
{
    PyObject *found = PyList_New(0);
    for (Node *next = node->newer; found && next; next = next->newer)
        if (PyList_Append(found, (PyObject *)next))
            Py_CLEAR(found);
    return found;
}

static PyMethodDef node_methods[] = {
    {"keep", (PyCFunction)node_keep, METH_O, "Say whether the history is wanted."},
    {"kept_since", (PyCFunction)node_kept_since, METH_NOARGS,
     "All nodes made since this one whose history is wanted, inputs first; it is one itself."},
    {"inherit", (PyCFunction)node_inherit, METH_NOARGS,
     "Say anew whether the history is wanted: where that of an input is."},
    {"forget_inputs", (PyCFunction)node_forget_inputs, METH_NOARGS,
     "Let go of the inputs, unless they are kept: the value has been computed."},
    {NULL}};

static PyObject *node_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"form", "inputs", "site", "buffer", NULL};
    PyObject *form, *inputs, *site = Py_None, *buffer = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O|OO", names, &FormType, &form, &inputs,
                                     &site, &buffer))
        return NULL;
    Node *node = new_node((Form *)form);
    if (node && (set_inputs(node, inputs, NULL) || set_site(node, site, NULL) ||
                 set_buffer(node, buffer, NULL)))
        Py_CLEAR(node);
    if (node)
        inherit(node);
    return (PyObject *)node;
}

static PyObject *node_repr(Node *node)
{
    PyObject *name = PyObject_GetAttrString(node->form->op, "name"), *shape, *text = NULL;
    if (!name)
        return NULL;
    shape = PySequence_List(node->form->kind->shape);
    if (shape)
        text = PyUnicode_FromFormat("<Node %S %S%S %s>", name, node->form->kind->dtype, shape,
                                    node->buffer ? "computed" : "pending");
    Py_DECREF(name);
    Py_XDECREF(shape);
    return text;
}

PyTypeObject NodeType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tiledarray.core._core.Node",
    .tp_doc = "One recorded operation and, once computed, its value.",
    .tp_basicsize = sizeof(Node),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = node_new,
    .tp_dealloc = (destructor)node_dealloc,
    .tp_getset = node_attributes,
    .tp_members = node_members,
    .tp_methods = node_methods,
    .tp_repr = (reprfunc)node_repr,
    .tp_weaklistoffset = offsetof(Node, weak),
};

int add_graph(PyObject *module)
{
    if (PyType_Ready(&KindType) < 0 || PyType_Ready(&FormType) < 0 || PyType_Ready(&NodeType) < 0 ||
        PyModule_AddIntMacro(module, MOVES) < 0 || PyModule_AddIntMacro(module, UPDATES) < 0 ||
        PyModule_AddIntMacro(module, CONSTANT) < 0 || PyModule_AddIntMacro(module, SMOOTH) < 0 ||
        PyModule_AddIntMacro(module, KEEPS) < 0 || PyModule_AddIntMacro(module, BEGINS) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "Kind", (PyObject *)&KindType) < 0 ||
                   PyModule_AddObjectRef(module, "Form", (PyObject *)&FormType) < 0 ||
                   PyModule_AddObjectRef(module, "Node", (PyObject *)&NodeType) < 0
               ? -1 : 0;
}
