/* The end of `with` blocks, which comes whatever signal handlers raise: `twin_block.py` in Python. */

#include "handle.h"

enum { ATTEMPTS = 100 };

/* `__exit__`: handlers cannot run before it, since it is no frame; they may in `end`, written in
   Python, which is called again then. */
static PyObject *block_exit(PyObject *self, PyObject *args)
{
    PyObject *done = PyObject_CallMethod(self, "end", NULL);
    if (done) {
        Py_DECREF(done);
        Py_RETURN_NONE;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    for (int k = 0; k < ATTEMPTS && !done; k++)
        if (!(done = PyObject_CallMethod(self, "end", NULL)))
            PyErr_Clear(); /* a handler's: the first matters more */
    Py_XDECREF(done);
    PyErr_Restore(type, value, traceback);
    return NULL;
}

static PyMethodDef block_methods[] = {
    {"__exit__", block_exit, METH_VARARGS, "End it, also if a signal handler raises meanwhile."},
    {NULL}};

static PyTypeObject BlockType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "tiledarray.core.Block",
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_doc = "What a `with` block begins and ends: `end()` is done whatever handlers raise.",
    .tp_methods = block_methods,
    .tp_new = PyType_GenericNew,
};

int add_block(PyObject *module)
{
    return PyType_Ready(&BlockType) < 0
               ? -1
               : PyModule_AddObjectRef(module, "Block", (PyObject *)&BlockType);
}
