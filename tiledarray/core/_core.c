/* The core as a module: `twin.py` is its twin in Python, and says which parts that has.

   What is changed in a part here is changed in its twin, and the other way round. */

#define IMPORTS_NUMPY
#include "handle.h"
#include "pace.h"
#include "watch.h"

static PyObject *module_install(PyObject *module, PyObject *args)
{
    PyObject *type, *functions, *how;
    if (!PyArg_ParseTuple(args, "O!O!O!", &PyType_Type, &type, &PyDict_Type, &functions,
                          &PyDict_Type, &how) ||
        install_operators(functions) < 0 ||
        install_handles((PyTypeObject *)type, functions, how) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *module_set_limit(PyObject *module, PyObject *value)
{
    Py_ssize_t found = PyLong_AsSsize_t(value);
    if (found == -1 && PyErr_Occurred())
        return NULL;
    begin_pace(Py_MIN(found, NPY_MAX_INTP / LIBRARY_FACTOR));
    Py_RETURN_NONE;
}

Py_ssize_t most_with_history = 0;

static PyObject *module_set_most_with_history(PyObject *module, PyObject *value)
{
    Py_ssize_t found = PyLong_AsSsize_t(value);
    if (found == -1 && PyErr_Occurred())
        return NULL;
    most_with_history = found;
    Py_RETURN_NONE;
}

static PyObject *module_hold(PyObject *module, PyObject *change)
{
    long found = PyLong_AsLong(change);
    if (found == -1 && PyErr_Occurred())
        return NULL;
    held += found;
    Py_RETURN_NONE;
}

static PyObject *module_set_births(PyObject *module, PyObject *value)
{
    births = value == Py_True;
    Py_RETURN_NONE;
}

static PyObject *module_set_beside_gpu(PyObject *module, PyObject *value)
{
    npy_intp found = value == Py_True ? 1 : LIBRARY_FACTOR;
    if (found != library_factor) {
        library_factor = found;
        begin_pace(at_once);
    }
    Py_RETURN_NONE;
}

static PyMethodDef module_methods[] = {
    {"install", module_install, METH_VARARGS,
     "Say which class arrays have, and what does what cannot be done at once."},
    {"set_limit", module_set_limit, METH_O, "Elements up to which a settled array is small."},
    {"set_most_with_history", module_set_most_with_history, METH_O,
     "Elements up to which what has a history is computed at once."},
    {"hold", module_hold, METH_O, "Change the count of reasons to do nothing at once."},
    {"set_births", module_set_births, METH_O, "Whether new arrays are born on the host."},
    {"set_beside_gpu", module_set_beside_gpu, METH_O,
     "Whether a GPU does what is large: then less is done at once."},
    {NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_core", "Handles of arrays, and what NumPy does at once.", -1,
    module_methods};

PyMODINIT_FUNC PyInit__core(void)
{
    import_array();
    PyObject *module = PyModule_Create(&definition);
    if (!module)
        return NULL;
    if (add_state() < 0 || add_handles(module) < 0 || add_index() < 0 || add_elements() < 0 ||
        add_at_once(module) < 0 || add_graph(module) < 0 || add_walk(module) < 0 ||
        add_recorder(module) < 0 || add_values(module) < 0 || add_record(module) < 0 ||
        add_slices(module) < 0 || add_run(module) < 0 || add_memory(module) < 0 ||
        add_scalars() < 0 || add_block(module) < 0 || add_loans(module) < 0 ||
        add_pace(module) < 0 ||
        add_watch(module, offsetof(Handle, array), &IteratorType) < 0 ||
        PyModule_AddIntMacro(module, AT_ONCE) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
