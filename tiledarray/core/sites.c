/* The user's line: frames are walked, never counted.  In Python: `frames.py`. */

#include "core.h"

#include <string.h>

static PyObject *name_name;

#define NAMES 64

static struct {
    PyObject *name;
    int users;
} names[NAMES];

/* Whether a module of this name is the user's; remembered by the text's identity. */
static int is_users_module(PyObject *name)
{
    size_t at = ((size_t)name >> 4) % NAMES;
    if (names[at].name == name)
        return names[at].users;
    Py_ssize_t length;
    const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, &length) : NULL;
    if (!text) {
        PyErr_Clear();
        return 1;
    }
    const char ours[] = "tiledarray";
    const Py_ssize_t own = sizeof ours - 1;
    int users = length < own || memcmp(text, ours, (size_t)own) ||
                (length > own && text[own] != '.');
    Py_XSETREF(names[at].name, Py_NewRef(name));
    names[at].users = users;
    return users;
}

static int is_users(PyFrameObject *frame)
{
    PyObject *globals = PyFrame_GetGlobals(frame);
    PyObject *name = PyDict_GetItemWithError(globals, name_name);
    int users = name ? is_users_module(name) : 1;
    Py_DECREF(globals);
    return users;
}

/* The frame that called another, whose reference is taken; NULL if there is none, or no memory for
   it: then nobody is told where it was, that is all. */
static inline PyFrameObject *frame_behind(PyFrameObject *frame)
{
    const int failed = PyErr_Occurred() != NULL;
    PyFrameObject *back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    if (!back && !failed)
        PyErr_Clear();
    return back;
}

/* The nearest frame outside this package, a new reference: frames are walked, never counted. */
static inline PyFrameObject *user_frame(void)
{
    PyFrameObject *frame = PyEval_GetFrame();
    Py_XINCREF(frame);
    while (frame && !is_users(frame))
        frame = frame_behind(frame);
    return frame;
}

/* Say where in the user's program the node is recorded. */
void say_site(Node *node)
{
    PyFrameObject *frame = user_frame();
    if (frame) {
        node->code = (PyObject *)PyFrame_GetCode(frame);
        node->instruction = PyFrame_GetLasti(frame);
        Py_DECREF(frame);
    }
}

/* The user's place now, a new reference in it: 0 if there is none. */
int read_site(Site *site)
{
    PyFrameObject *frame = user_frame();
    if (!frame)
        return 0;
    *site = (Site){(PyObject *)PyFrame_GetCode(frame), PyFrame_GetLasti(frame)};
    Py_DECREF(frame);
    return 1;
}

/* The places of the nearest callers, new references; how many. */
int read_path(Site *path)
{
    int length = 0;
    PyFrameObject *frame = user_frame();
    while (frame && length < PATH_LENGTH) {
        path[length++] = (Site){(PyObject *)PyFrame_GetCode(frame), PyFrame_GetLasti(frame)};
        frame = frame_behind(frame);
    }
    Py_XDECREF(frame);
    return length;
}

int add_sites(void)
{
    name_name = PyUnicode_InternFromString("__name__");
    return name_name ? 0 : -1;
}
