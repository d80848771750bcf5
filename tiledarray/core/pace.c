/* How fast arrays of middle size go, which are computed at once or recorded, whichever is faster:
   what is counted here is weighed in `recording/pace.py`.  There is no twin: in Python they are
   computed at once.

   Where floating-point errors are to raise, they are so too: only NumPy tells them at the line. */

#include "handle.h"
#include "pace.h"
#include "recorder.h"

#include <time.h>

int pacing = 0, pace_low = 0;
double paced = 0, pace_due = 0;
npy_intp at_once = 0, pace_least = 0, pace_most = 0;

static PyObject *turn = NULL, *raises = NULL; /* Python's */
static PyObject *errors = NULL; /* a context's variable: what NumPy does about them */
static PyObject *known = NULL;  /* what that was last, and ... */
static int strict = 0;          /* ... whether it raises */
static double until = 0;      /* where the limit is low, it is Python's turn by then */
static int in_turn = 0;
static npy_intp low_limit = 0; /* what is larger is recorded where the limit is low */
static Site place = {NULL, 0}; /* where recording begins: loops that are cut alike have one plan */
static int waits = 0;         /* whether it is to begin there, or by then */
static Site first = {NULL, 0}, top = {NULL, 0}; /* of a loop that is gone through to find a place */
static int first_depth, top_depth; /* by how many callers */

static double seconds(void)
{
#ifdef _WIN32
    return (double)clock() / CLOCKS_PER_SEC; /* elapsed time there */
#else
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
#endif
}

/* Find out whether floating-point errors raise here: 0 with an error set. */
static int look_at_errors(void)
{
    PyObject *value = NULL;
    if (PyContextVar_Get(errors, NULL, &value) < 0)
        return 0;
    if (value != known) {
        in_turn = 1; /* it evaluates what is pending, if they do */
        PyObject *found = PyObject_CallNoArgs(raises);
        in_turn = 0;
        if (!found) {
            Py_XDECREF(value);
            return 0;
        }
        strict = found == Py_True;
        Py_DECREF(found);
        Py_XSETREF(known, Py_XNewRef(value));
    }
    Py_XDECREF(value);
    limit = strict ? pace_most : low_limit;
    return 1;
}

static int is_same(const Site *x, const Site *y)
{
    return x->code == y->code && x->instruction == y->instruction;
}

/* Go through a loop once, for its topmost operation: runs that begin there find the plans on disk
   that others have left.  `here` is where the program is. */
static void look_for_top(const Site *here, int depth)
{
    if (!first.code) {
        first = top = *here;
        Py_INCREF(first.code);
        Py_INCREF(top.code);
        first_depth = top_depth = depth;
    } else if (depth == first_depth && is_same(here, &first)) {
        place = top; /* with its reference */
        top.code = NULL;
        Py_CLEAR(first.code);
    } else if (depth < top_depth ||
               (here->code == top.code && here->instruction < top.instruction)) {
        Py_XSETREF(top.code, Py_NewRef(here->code));
        top.instruction = here->instruction;
        top_depth = depth;
    }
}

/* Whether recording had better not begin yet. */
static int is_elsewhere(void)
{
    Site path[PATH_LENGTH];
    const int depth = seconds() < until ? read_path(path) : 0;
    if (depth && !place.code)
        look_for_top(&path[0], depth);
    const int elsewhere = depth && !(place.code && is_same(&path[0], &place));
    for (int k = 0; k < depth; k++)
        Py_DECREF(path[k].code);
    return elsewhere;
}

/* Whether nearly nothing is pending: what was recorded has been evaluated. */
static int is_done(void)
{
    return known_recorder && PyThreadState_GetID(PyThreadState_Get()) == known_thread &&
           known_recorder->count <= 1;
}

/* Ask Python how to go on, if it is time: 0 with an error set. */
int pace_turn(void)
{
    if (in_turn || held)
        return 1;
    if (pace_low) {
        if (!look_at_errors())
            return 0;
        if (!strict && (!is_done() || (paced < pace_due && seconds() < until)))
            return 1;
    }
    if (waits && is_elsewhere())
        return 1;
    int before = pace_low;
    in_turn = 1;
    PyObject *done = PyObject_CallNoArgs(turn);
    in_turn = 0;
    Py_XDECREF(done);
    if (pace_low && !before) {
        Site here = {NULL, 0};
        if (place.code && read_site(&here) && !is_same(&here, &place))
            Py_CLEAR(place.code); /* the loop is over: the next one has another */
        Py_XDECREF(here.code);
        Py_CLEAR(first.code);
        Py_CLEAR(top.code);
    }
    return done != NULL;
}

void begin_pace(npy_intp value)
{
    at_once = value;
    pace_most = limit = library_factor == 1 ? Py_MIN(value, SMALL_ELEMENTS) : value;
    paced = pace_due = 0;
    pace_low = waits = 0;
    pacing = turn && errors && limit > pace_least && pace_least > 1;
}

static PyObject *module_set_pace(PyObject *module, PyObject *args)
{
    PyObject *weighs, *tells, *variable;
    if (!PyArg_ParseTuple(args, "OOO", &weighs, &tells, &variable))
        return NULL;
    Py_XSETREF(turn, Py_NewRef(weighs));
    Py_XSETREF(raises, Py_NewRef(tells));
    Py_XSETREF(errors, PyContextVar_CheckExact(variable) ? Py_NewRef(variable) : NULL);
    Py_CLEAR(known);
    begin_pace(at_once);
    Py_RETURN_NONE;
}

static PyObject *module_set_least(PyObject *module, PyObject *value)
{
    Py_ssize_t found = PyLong_AsSsize_t(value);
    if (found == -1 && PyErr_Occurred())
        return NULL;
    pace_least = found;
    begin_pace(at_once);
    Py_RETURN_NONE;
}

static PyObject *module_pace(PyObject *module, PyObject *args)
{
    Py_ssize_t low;
    double due, within;
    if (!PyArg_ParseTuple(args, "ndd", &low, &due, &within))
        return NULL;
    pace_low = low && pacing;
    waits = 0;
    low_limit = Py_MIN(low, pace_most);
    limit = pace_low ? low_limit : pace_most;
    pace_due = due;
    until = seconds() + within;
    Py_RETURN_NONE;
}

static PyObject *module_wait_for_place(PyObject *module, PyObject *within)
{
    double time = PyFloat_AsDouble(within);
    if (time == -1 && PyErr_Occurred())
        return NULL;
    waits = 1;
    pace_due = 0;
    until = seconds() + time;
    Py_RETURN_NONE;
}

static PyObject *module_paced(PyObject *module, PyObject *unused)
{
    return PyFloat_FromDouble(paced);
}

static PyObject *module_small(PyObject *module, PyObject *unused)
{
    return PyLong_FromSsize_t(of_nodes());
}

static PyMethodDef pace_methods[] = {
    {"set_pace", module_set_pace, METH_VARARGS,
     "Say what weighs how fast arrays go, what tells whether floating-point errors raise, and by "
     "which variable of a context that can change."},
    {"set_least", module_set_least, METH_O, "How far the limit may fall, in elements: larger results are counted."},
    {"pace", module_pace, METH_VARARGS,
     "Say what the limit is, if it is low, and after what work, or by when, it is asked again."},
    {"wait_for_place", module_wait_for_place, METH_O,
     "Ask when recording can begin where it began before, or after so many seconds."},
    {"paced", module_paced, METH_NOARGS, "Elements of middle-sized results until now."},
    {"small", module_small, METH_NOARGS, "Elements up to which a node's value is computed at once now."},
    {NULL}};

int add_pace(PyObject *module) { return PyModule_AddFunctions(module, pace_methods); }
