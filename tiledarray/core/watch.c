/* Where the time goes, while somebody asks (`insight/clock.py`); `twin_watch.py` is this in Python.

   While a watch is on, the slots of the class of arrays are exchanged for ones that count, by the
   place in the user's program and by kind: elements, looks, what NumPy did at once, what was
   recorded.  A clock is read for the first calls from a place and, where they are short, for some
   of the others, whose mean is taken for the rest: reading it takes as long as an element does.

   What Python tells by `enter`, `leave` and `note` (planning, kernels ...) is exact.  What remains
   is time in Python's code: a thread without the interpreter's lock sends a signal now and then, whose handler
   sees whose frame runs.  All of it together is the time of the run. */

#define PY_SSIZE_T_CLEAN
#include "watch.h"
#include "watching.h"
#include <pythread.h>
#include <string.h>
#ifdef _WIN32
#include <windows.h>
#else
#include <pthread.h>
#include <signal.h>
#include <time.h>
#endif

int watching = 0;

#define FIRST 32              /* calls from a place that are all timed */
#define SHORT 4e-6            /* seconds; of shorter calls some are timed */
#define RECENT 64             /* timed calls over which the mean goes */
#define OUTLYING 4            /* a call that takes longer than the mean by this was interrupted */
#define COUNTED 64            /* calls by which the cost of counting is measured, as often */
#define MOST_ACCOUNTS 16

static Place *places = NULL;
static size_t room = 0, used = 0;
static PyCodeObject *known = NULL; /* the user's code that was asked of last; a place holds it */
unsigned long owner = 0; /* the thread that is watched */
volatile int depth = 0; /* slots that are running */
static volatile double seen = 0; /* since when a slot is known to run for long */
static double marked = 0, exact_marked = 0; /* until when samples took the running slot's time */
static double begun = 0;
static double last = 0;       /* until when the time is accounted for */
static double estimated = 0;  /* seconds in slots since then */
static double exact = 0;      /* seconds in accounts */
static double in_python = 0;  /* seconds that no sample has taken yet */
static double telling = 0;    /* seconds of the samples themselves */
static double accounts[MOST_ACCOUNTS];
int stack[DEEPEST_ACCOUNT];
volatile int height = 0; /* accounts that were entered */
int releases = 0;      /* the account of giving memory back */
static int64_t calls = 0;     /* that were counted */
static uint32_t dice = 1;
static PyObject *package = NULL; /* the folder of our code */

double now(void)
{
#ifdef _WIN32
    LARGE_INTEGER count, frequency;
    QueryPerformanceCounter(&count);
    QueryPerformanceFrequency(&frequency);
    return (double)count.QuadPart / (double)frequency.QuadPart;
#else
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
#endif
}

/* ---- places ----------------------------------------------------------------------------------- */

/* Whether code is the user's, not ours. */
static int is_users(PyCodeObject *code)
{
    if (code != known) {
        if (PyUnicode_Tailmatch(code->co_filename, package, 0, PY_SSIZE_T_MAX, -1) > 0)
            return 0;
        known = code;
    }
    return 1;
}

static size_t slot_of(const PyCodeObject *code, int lasti, int slot)
{
    uint64_t hash = ((uint64_t)(uintptr_t)code >> 4) * 0x9E3779B97F4A7C15u;
    hash ^= ((uint64_t)lasti * 64 + (uint64_t)slot) * 0xC2B2AE3D27D4EB4Fu;
    return (size_t)(hash >> 20);
}

static int grow(void)
{
    size_t wanted = room ? 2 * room : 256;
    Place *made = PyMem_Calloc(wanted, sizeof(Place));
    if (!made)
        return -1;
    for (size_t k = 0; k < room; k++)
        if (places[k].code) {
            size_t at = slot_of(places[k].code, places[k].lasti, places[k].slot) & (wanted - 1);
            while (made[at].code)
                at = (at + 1) & (wanted - 1);
            made[at] = places[k];
        }
    PyMem_Free(places);
    places = made;
    room = wanted;
    return 0;
}

/* The user's line that is running, and what is known of a slot there; -1 if there is none. */
static Py_ssize_t find_place(int slot)
{
    PyFrameObject *frame = PyEval_GetFrame();
    if (!frame)
        return -1;
    Py_INCREF(frame);
    PyCodeObject *code = PyFrame_GetCode(frame);
    while (!is_users(code)) {
        PyFrameObject *back = PyFrame_GetBack(frame);
        if (!back)
            break;
        Py_DECREF(frame);
        Py_DECREF(code);
        frame = back;
        code = PyFrame_GetCode(frame);
    }
    int lasti = PyFrame_GetLasti(frame);
    Py_DECREF(frame);
    if (2 * used >= room && grow()) {
        known = NULL;
        Py_DECREF(code);
        return -1;
    }
    size_t at = slot_of(code, lasti, slot) & (room - 1);
    while (places[at].code && !(places[at].code == code && places[at].lasti == lasti &&
                                places[at].slot == slot))
        at = (at + 1) & (room - 1);
    if (places[at].code) {
        Py_DECREF(code);
    } else {
        places[at].code = code;
        places[at].lasti = lasti;
        places[at].slot = slot;
        used++;
    }
    return (Py_ssize_t)at;
}

/* ---- calls ------------------------------------------------------------------------------------ */

/* Begin to count a call: 0 if it is part of another, or another thread's. */
int begin(Call *call, int slot)
{
    if (depth || PyThread_get_thread_ident() != owner)
        return 0;
    call->at = find_place(slot);
    if (call->at < 0)
        return 0;
    Place *place = places + call->at;
    call->code = place->code;
    call->lasti = place->lasti;
    call->slot = slot;
    depth = 1;
    call->exact = exact;
    int timed = place->timed < FIRST || place->mean > SHORT || --place->skip <= 0;
    seen = marked = 0;
    call->started = timed ? now() : 0;
    return 1;
}

/* Take a call that was timed into the mean. */
static void learn(Place *place, double own)
{
    if (place->timed < RECENT)
        place->timed++;
    if (place->timed > FIRST && own > OUTLYING * place->mean)
        own = OUTLYING * place->mean;
    place->mean += (own - place->mean) / place->timed;
    dice = dice * 1664525u + 1013904223u;
    place->skip = 1 + (int)(dice >> 27);
}

/* Where a call is counted; NULL if the table has changed meanwhile, by what an exit handler or a
   tracer did. */
Place *place_of(const Call *call)
{
    if (call->at >= (Py_ssize_t)room)
        return NULL;
    Place *place = places + call->at;
    return place->code == call->code && place->lasti == call->lasti && place->slot == call->slot
               ? place : NULL;
}

void end(const Call *call, int kind, Py_ssize_t elements)
{
    double ended = call->started ? now() : 0;
    depth = 0;
    if (!watching)
        return;
    Place *place = place_of(call);
    if (!place)
        return;
    double own = place->mean;
    if (ended) {
        own = ended - call->started - (exact - call->exact) - (now() - ended);
        if (own < 0)
            own = 0;
        learn(place, own);
    } else if (seen) {
        own = now() - seen - (exact - call->exact);
        own = own > 0 ? own : 0;
    }
    if (height)
        accounts[stack[height - 1]] -= own;
    else
        estimated += own;
    place->seconds[kind] += own;
    calls++;
    place->count[kind]++;
    place->elements[kind] += elements;
}

/* ---- accounts --------------------------------------------------------------------------------- */

/* Account for the time until now. */
void settle(double until)
{
    if (height) {
        accounts[stack[height - 1]] += until - last;
        exact += until - last;
    } else {
        in_python += until - last - estimated;
        estimated = 0;
    }
    last = until;
}

static int is_owners(void) { return watching && PyThread_get_thread_ident() == owner; }

static PyObject *watch_enter(PyObject *module, PyObject *number)
{
    long account = PyLong_AsLong(number);
    if (account == -1 && PyErr_Occurred())
        return NULL;
    if (account < 0 || account >= MOST_ACCOUNTS || height >= DEEPEST_ACCOUNT) {
        PyErr_SetString(PyExc_ValueError, "no such account");
        return NULL;
    }
    if (is_owners()) {
        settle(now());
        stack[height++] = (int)account;
    }
    Py_RETURN_NONE;
}

static PyObject *watch_leave(PyObject *module, PyObject *unused)
{
    if (is_owners() && height) {
        settle(now());
        height--;
    }
    Py_RETURN_NONE;
}

/* So many of the seconds just spent were another account's. */
static PyObject *watch_note(PyObject *module, PyObject *args)
{
    int account;
    double seconds;
    if (!PyArg_ParseTuple(args, "id", &account, &seconds))
        return NULL;
    if (account < 0 || account >= MOST_ACCOUNTS) {
        PyErr_SetString(PyExc_ValueError, "no such account");
        return NULL;
    }
    if (!is_owners())
        Py_RETURN_NONE;
    accounts[account] += seconds;
    if (height) {
        accounts[stack[height - 1]] -= seconds;
    } else {
        in_python -= seconds;
        exact += seconds;
    }
    Py_RETURN_NONE;
}

/* ---- samples ---------------------------------------------------------------------------------- */

static volatile int ticking = 0;

/* The seconds of a slot that has come to Python's code, since that was asked last. */
static PyObject *take_of_slot(void)
{
    double until = now(), seconds = until - marked - (exact - exact_marked);
    int first = !marked;
    marked = until;
    exact_marked = exact;
    if (first || seconds <= 0)
        Py_RETURN_NONE;
    estimated += seconds;
    exact += seconds;
    exact_marked = exact;
    return Py_BuildValue("di", seconds, 1);
}

/* The seconds in Python's code that no sample has taken yet, and whether a slot is running; None
   where other code is. */
static PyObject *watch_take(PyObject *module, PyObject *unused)
{
    if (!is_owners() || height)
        Py_RETURN_NONE;
    if (depth)
        return take_of_slot();
    settle(now());
    double seconds = in_python;
    in_python = 0;
    return Py_BuildValue("di", seconds, 0);
}

static void rest(double seconds)
{
#ifdef _WIN32
    Sleep((DWORD)(1e3 * seconds));
#else
    struct timespec time = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
    nanosleep(&time, NULL);
#endif
}

/* Send the watched thread a signal every so many seconds until the watch ends; in a thread of its
   own.  (Py_AddPendingCall would need no signal, but before 3.13 the interpreter does not see it
   when another thread calls it.) */
static PyObject *watch_tick(PyObject *module, PyObject *args)
{
    double seconds;
    int number;
    if (!PyArg_ParseTuple(args, "di", &seconds, &number))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    while (ticking) {
        rest(seconds);
        if (depth && !seen)
            seen = now();
        if (ticking && !height)
#ifdef _WIN32
            PyErr_SetInterruptEx(number);
#else
            pthread_kill((pthread_t)owner, number);
#endif
    }
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* ---- from beginning to end -------------------------------------------------------------------- */

static void forget(void)
{
    Place *old = places;
    size_t length = room;
    places = NULL;
    room = used = 0;
    known = NULL;
    for (size_t k = 0; k < length; k++)
        Py_XDECREF((PyObject *)old[k].code);
    PyMem_Free(old);
}

static PyObject *watch_begin(PyObject *module, PyObject *args)
{
    PyTypeObject *type;
    PyObject *folder;
    int account;
    if (!PyArg_ParseTuple(args, "O!Ui", &PyType_Type, &type, &folder, &account))
        return NULL;
    if (account < 0 || account >= MOST_ACCOUNTS) {
        PyErr_SetString(PyExc_ValueError, "no such account");
        return NULL;
    }
    if (watching) {
        PyErr_SetString(PyExc_RuntimeError, "the core is watched already");
        return NULL;
    }
    forget();
    Py_XSETREF(package, Py_NewRef(folder));
    releases = account;
    owner = PyThread_get_thread_ident();
    memset(accounts, 0, sizeof accounts);
    depth = height = 0;
    estimated = exact = in_python = telling = 0;
    calls = 0;
    exchange(type);
    watching = ticking = 1;
    begun = last = now();
    Py_RETURN_NONE;
}

/* Seconds that counting a call takes, beyond what is told to be the call's. */
static double counting(void)
{
    Call call;
    double least = 1;
    PyCodeObject *code = PyFrame_GetCode(PyEval_GetFrame());
    known = code; /* as if it were the user's */
    for (int k = 0; k < COUNTED; k++) {
        double started = now();
        for (int j = 0; j < COUNTED; j++)
            if (begin(&call, NO_SLOT))
                end(&call, AT_ONCE, 1);
        double took = (now() - started) / COUNTED;
        least = took < least ? took : least;
    }
    Py_ssize_t at = find_place(NO_SLOT);
    if (at >= 0)
        memset(places[at].count, 0, sizeof places[at].count);
    Py_DECREF(code);
    return least;
}

/* End; return (seconds of all, of each account, of Python, of telling, what was found at places). */
static PyObject *watch_end(PyObject *module, PyObject *unused)
{
    if (!watching) {
        PyErr_SetString(PyExc_RuntimeError, "the core is not watched");
        return NULL;
    }
    settle(now());
    double wall = last - begun;
    height = 0;
    give_back();
    ticking = 0;
    double counted = (double)calls, each = counting();
    watching = 0;
    telling += each * counted;
    in_python -= each * counted;
    PyObject *found = PyList_New(0), *seconds = PyList_New(0);
    for (int k = 0; found && seconds && k < MOST_ACCOUNTS; k++) {
        PyObject *value = PyFloat_FromDouble(accounts[k]);
        if (!value || PyList_Append(seconds, value))
            Py_CLEAR(seconds);
        Py_XDECREF(value);
    }
    for (size_t k = 0; found && seconds && k < room; k++)
        for (int kind = 0; found && places[k].code && kind < KINDS; kind++) {
            if (!places[k].count[kind])
                continue;
            PyObject *place = Py_BuildValue(
                "(OiiLLd)", places[k].code, places[k].lasti, kind,
                (long long)places[k].count[kind], (long long)places[k].elements[kind],
                places[k].seconds[kind]);
            if (!place || PyList_Append(found, place))
                Py_CLEAR(found);
            Py_XDECREF(place);
        }
    forget();
    if (!found || !seconds) {
        Py_XDECREF(found);
        Py_XDECREF(seconds);
        return NULL;
    }
    return Py_BuildValue("(dNddN)", wall, seconds, in_python, telling, found);
}

static PyMethodDef watch_methods[] = {
    {"watch_begin", watch_begin, METH_VARARGS, "Begin to watch a class of arrays."},
    {"watch_end", watch_end, METH_NOARGS, "End, and return what was found."},
    {"watch_enter", watch_enter, METH_O, "What follows is an account's, until `watch_leave`."},
    {"watch_leave", watch_leave, METH_NOARGS, "What follows is the account's before."},
    {"watch_note", watch_note, METH_VARARGS, "Give seconds just spent to another account."},
    {"watch_take", watch_take, METH_NOARGS, "Return the seconds that no sample has taken."},
    {"watch_tick", watch_tick, METH_VARARGS, "Send signals until the watch ends."},
    {NULL}};

int add_watch(PyObject *module, size_t array_at, PyTypeObject *iterator)
{
    return add_watched(array_at, iterator) < 0 ? -1 : PyModule_AddFunctions(module, watch_methods);
}
