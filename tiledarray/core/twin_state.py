"""The two states of a handle, in Python: `state.c`, and the attributes of `handle.c`, again.

What hot paths read changes: they ask this module (`state.most`), and take no copies of it.

A view holds in ``_of_`` the array of its root that its own was taken of, and is settled while the
root still has that: in C the root tells its views instead.  Here a weak reference to each would
cost as much as all else about a view.  How it lies in its base is an immutable `Lay`, so what
becomes of its parent later does not matter.
"""

from __future__ import annotations

import _thread
import functools
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any
from weakref import ref

import numpy as np
from numpy import ndarray

from tiledarray.fork import hold_at_fork

Function = Callable[..., Any]

DEEPEST = 16  # views without steps of views without steps; see `take_view`
WRITE_FACTOR = 4  # parts of settled arrays are written at once if no larger by this
SHARED_ELEMENTS = 1 << 18  # what threads share is recorded where it is larger than this
COSTLY_ELEMENTS = 1 << 16  # and what takes long for an element, larger than this
AT_ONCE = SMALL_ELEMENTS = 1 << 16  # if no setting says otherwise: no pace is measured here
LIBRARY_FACTOR = 64  # library calls are at once for arrays larger by at most this
MOST_READERS = 64  # views that have read their root, until the dead are left out

at_once = 0  # what the setting says
limit = 0  # elements up to which a settled array is small
most_with_history = 0  # ... of which what has a history is computed at once
held = 0  # reasons (traced functions) for which nothing is done at once
most = -1  # the limit; -1 while nothing is done at once
births = False  # whether new arrays are born on the host
library_factor = LIBRARY_FACTOR
base_class: Any = object  # `Base`
handle_class: Any = object  # what is made: the Python class below it

watch: Any = None  # what counts, while somebody asks; it cannot exchange methods of generators

# Up to how many elements of arguments functions are called at once, by what they are.
SMALL, OF_LIBRARY, OF_LOOKS, LARGER, OF_SHARED, OF_COSTLY = range(6)
bounds = [0, 0, 0, sys.maxsize, 0, 0]

# What Python gives `install`.
recorded: dict[str, Function] = {}
callbacks: dict[str, Function] = {}
how_transposed: tuple[Any, ...] = ()
as_numpys: frozenset[str] = frozenset()

# From `twin_loans.py`.
loan_of: Any = None
end_loan: Any = None
lent_node: Any = None
keep_lent: Any = None

# Of a handle, as in the struct of `core.h`.  The first three are always there; of what owns a
# settled value the others are read only after something has set them.
FIELDS = (
    "_array_",  # the settled value: an array, or a scalar of NumPy's
    "_node_",  # of an array of its own: the recorded value
    "_base_",  # of a view: the array that owns the value
    "_of_",  # of a view: the array of its base that ``_array_`` is a view of
    "_lay_",  # of a view without steps: how it was taken
    "_steps_",  # of a view: how it lies in its base; None until that is asked
    "_seen",  # of a view: what it last read (see arrays/handle.py); else what `is_deferred` says
    "_readers_",  # of an array of its own: weak references to views that have read it
    "_loan_",  # of an array of its own, if it is set: a weak reference to who has its memory
    "_lasting_",  # ... and the loan that lasts as long as the array
    "_copied_",  # if there is a ``_node_``: it is a copy of `_array_`, which is the value
    "__weakref__",
)

# The parent's array, how (a basic index, or a function and arguments), whether by index, the lay of
# the parent (None if it owns its value), and how many such there are above.  Where the parent has
# steps they stand for ``how``, and there is no array.
Lay = tuple[Any, Any, bool, Any, int]

# ---- the two states -----------------------------------------------------------------------------


def size_of(value: Any) -> int:
    """Return the number of elements of an array, or of a scalar."""
    size: int = value.size if isinstance(value, ndarray) else 1
    return size


def of_nodes() -> int:
    """Return up to how many elements the value of a node is computed at once.

    Larger ones are better seen by a plan, where they are recorded.
    """
    return min(limit, SMALL_ELEMENTS)


def at_most(factor: int) -> int:
    """Return up to how many elements something is at once that pays for larger arrays too."""
    return max(limit, of_nodes() * factor) if limit > 1 else limit

def root_of(handle: Any) -> Any:
    """Return the array that owns the value."""
    while handle._base_ is not None:
        handle = handle._base_
    return handle


def is_present(handle: Any, array: Any) -> bool:
    """Whether an array is the settled value now.  Hot paths have this written out."""
    base = handle._base_
    return handle._array_ is array and (base is None or base._array_ is handle._of_)


def steps_of(view: Any) -> Any:
    """Return the steps of a view."""
    steps, lay = view._steps_, view._lay_
    if steps is None:
        if lay is None:
            raise SystemError("a view does not know how it lies in its base")
        found = steps_of_lay(root_of(view), lay)
        steps = view._steps_
        if steps is None:  # else asked again meanwhile
            steps = view._steps_ = found
            view._lay_ = None
    return steps


def steps_of_lay(root: Any, lay: Lay) -> Any:
    """Return the steps that a lay stands for."""
    array, how, by_index, above, _ = lay
    if array is None:
        return how
    parent = new_handle(handle_class)
    parent._steps_ = () if above is None else steps_of_lay(root, above)
    parent._base_, parent._array_ = root, array
    parent._of_ = array  # settled if that is the root's, else only its shape is known
    return callbacks["steps_of"](parent, how, by_index)


def is_far(node: Any) -> bool:
    """Whether a node is known to have no value that can settle its array.

    That is asked for every operand of what is recorded.
    """
    size, buffer = node.form.kind.size, node.buffer
    if node.keeps:
        return True
    if buffer is None or size == sys.maxsize:
        return bool(size > limit)
    return type(buffer) is not tuple and not buffer.device.on_host


# One thread at a time finds a value, makes it writable, writes into it or gives an array the next:
# else each would see the others hold what nobody keeps, and record what they write in place.  They
# wait, but not for ever: it may wait for what they have locked.  Hot paths have a turn written out.
LONGEST_WAIT = 1.0  # seconds
_changing = threading.RLock()
hold_at_fork(_changing)
begin_turn, end_turn = _changing.acquire, _changing.release
threads = _thread._count  # those beside the first; where there are none a turn need not be taken


class Turn:
    """A block in which no other thread changes what an array is."""

    __slots__ = ("_held",)

    def __enter__(self) -> None:
        self._held = threads() and begin_turn(True, LONGEST_WAIT)

    def __exit__(self, *_: object) -> None:
        if self._held:
            end_turn()


def one_at_a_time(change: Function) -> Function:
    """Have a function run in one thread at a time."""

    @functools.wraps(change)
    def changing(*arguments: Any) -> Any:
        with Turn():
            return change(*arguments)

    return changing


@one_at_a_time
def settle_own(root: Any) -> None:
    """Give an array of its own its settled value, if its node has one."""
    node = root._node_
    if root._array_ is not None or node is None or is_far(node):
        return
    # A constant is made anew, so that it can be written without a look.
    found = callbacks["made"](node) if node.buffer is None else None
    own = found is not None
    if not own:
        found = callbacks["value"](node)
    if root._array_ is None and root._node_ is node and isinstance(found, (ndarray, np.generic)):
        root._copied_, root._array_ = own, found


@one_at_a_time
def make_own_constant(root: Any) -> None:
    """Give an array of its own that is recorded as a constant its settled value."""
    node = root._node_
    found = callbacks["made"](node) if root._array_ is None and node is not None else None
    if type(found) is ndarray and root._node_ is node and root._array_ is None:
        root._array_, root._node_, root._copied_ = found, None, False


def find_array(handle: Any) -> Any:
    """Return the settled value, found again where it was forgotten; ``None`` if there is none."""
    root = root_of(handle)
    if root._array_ is None:
        settle_own(root)
    of = root._array_
    if of is None:
        return None
    if handle is root:
        return of
    if root._array_ is handle._of_ and handle._array_ is not None:
        return handle._array_
    steps = steps_of(handle)
    found = callbacks["view_on"](of, steps)
    if found is of:
        found = of.view()  # what is taken of it shall not take it for its root's
    if found is None or root._array_ is not of or handle._steps_ is not steps:
        return None
    handle._array_, handle._of_, handle._base_ = found, of, root
    return found


def settled(handle: Any) -> Any:
    """Return the settled value; ``None`` if it is recorded, or nothing is at once."""
    if most < 0:
        return None
    base = handle._base_
    if base is None or base._array_ is handle._of_:
        array = handle._array_
        if array is not None:
            return array
    else:
        handle._array_ = handle._of_ = None  # its root has another value now
    try:
        return find_array(handle)
    except Exception as error:  # the recorded way raises it again
        if callbacks["is_outside"](error):
            raise
        return None


def note_reader(view: Any) -> None:
    """Have a view let go of what it has read, when its root is to be written."""
    root = root_of(view)
    readers = getattr(root, "_readers_", None)
    if readers is None:
        root._readers_ = [ref(view)]
        return
    if len(readers) > MOST_READERS:
        live = {id(x): x for x in readers[:] if (known := x()) is not None and known._seen}
        if len(live) <= MOST_READERS // 2:
            readers = root._readers_ = [*live.values()]
    readers.append(ref(view))


def drained(readers: list[Any]) -> Iterator[Any]:
    """Take references out of a list, and give what lives of what they refer to.

    A signal handler may take them between any two byte codes.
    """
    while readers:
        try:
            view = readers.pop()()
        except IndexError:
            return
        if view is not None:
            yield view


def forget_all_seen(root: Any) -> None:
    """Forget what the views have read, which refers to the node."""
    for view in drained(getattr(root, "_readers_", [])):
        view._seen = None


def writable(handle: Any, array: Any) -> bool:
    """Whether ``array``, a settled value, may be written."""
    if root_of(handle)._node_ is None:
        return is_present(handle, array)
    found: bool = make_writable(handle, array)
    return found


@one_at_a_time
def make_writable(handle: Any, array: Any, kept: list[Any] | None = None) -> bool:
    """Let go of the node, which has the same memory, if nobody else has it.

    It is put in ``kept``, where it is to be the array's again.
    """
    root = root_of(handle)
    if root._node_ is None:
        return is_present(handle, array)
    if root._copied_:
        root._node_, root._copied_ = None, False
        return is_present(handle, array)
    if not is_present(handle, array):  # another thread has recorded what it writes
        return False
    forget_all_seen(root)
    # The array gets a node of its own over the memory.  If the one it had dies, nobody else held
    # that; and if nobody else holds the memory, it is the array's alone.
    before = root._node_
    after = callbacks["hold_of"](before)
    if root._node_ is not before:
        return False
    root._node_ = after
    del before
    if callbacks["alone"](after) and root._node_ is after and is_present(handle, array):
        if kept is not None:
            kept.append(after)
        root._node_ = None
        return True
    return False


def say_most() -> None:
    """Say what is small, after a setting or a reason has changed."""
    global most
    most = -1 if held or not limit else limit
    of_library = at_most(library_factor)
    bounds[:] = (limit, of_library, at_most(LIBRARY_FACTOR), sys.maxsize,
                 min(SHARED_ELEMENTS, of_library), min(COSTLY_ELEMENTS, of_library))


# ---- making handles -----------------------------------------------------------------------------

# Kernels compute with them, so they can be in an array of ours; others stay NumPy's.
KNOWN_TYPES = frozenset(map(np.dtype, "?bhilqBHILQefdFD"))
KNOWN_SCALARS = frozenset(dtype.type for dtype in KNOWN_TYPES) | {
    np.dtype(code).type for code in "lqLQ"}


def new_handle(kind: Any) -> Any:
    """Make a handle without a value.

    Handles are made by calling their class, which is quickest if that has no ``__new__`` and no
    ``__init__``; so what is common sets the fields that it needs by itself.
    """
    return empty(kind())


def empty(handle: Any) -> Any:
    """Give a handle that has just been made no value."""
    handle._array_ = handle._node_ = handle._base_ = handle._of_ = None
    handle._lay_ = handle._steps_ = handle._seen = None
    handle._copied_ = False
    return handle


def own(value: Any) -> Any:
    """Return a handle that owns what NumPy has computed; what is no number stays NumPy's."""
    kind = type(value)
    if kind is ndarray:
        if value.dtype not in KNOWN_TYPES:
            return value
        if not value.flags.carray:
            flags = value.flags
            if not (flags.c_contiguous and flags.aligned):
                value = value.copy()  # owners are row-major
    elif kind not in KNOWN_SCALARS:
        return value
    handle = handle_class()
    handle._array_ = value
    handle._node_ = handle._base_ = None
    return handle


def own_known(value: Any) -> Any:
    """Return a handle that owns what a ufunc has computed of what handles may have."""
    if type(value) is ndarray and not value.flags.carray:
        value = value.copy()
    handle = handle_class()
    handle._array_ = value
    handle._node_ = handle._base_ = None
    return handle


def take_view(parent: Any, of: Any, array: Any, by_index: bool, how: Any) -> Any:
    """Return a handle of a view: ``array``, which was taken of the array ``of``."""
    view = handle_class()
    view._node_ = view._steps_ = view._seen = None
    base = parent._base_
    if base is None:
        view._array_, view._base_, view._of_ = array, parent, of
        view._lay_ = of, how, by_index, None, 0
        return view
    above = parent._lay_
    if above is None:
        above = None, parent._steps_, False, None, -1
    if parent._array_ is of:
        view._array_, view._base_, view._of_ = array, base, parent._of_
    else:  # another thread has changed the root meanwhile
        view._array_, view._base_, view._of_ = None, base, None
    depth = above[4] + 1
    view._lay_ = of, how, by_index, above, depth
    if depth >= DEEPEST:  # `x = x[1:]` in a loop keeps no more than so many alive
        steps_of(view)
    return view


# ---- what the recording in Python sees ----------------------------------------------------------


def is_deferred(handle: Any) -> bool:
    """Whether the value is still to be found, when it is asked for (arrays/selections.py)."""
    return (handle._base_ is None and handle._node_ is None and handle._array_ is None
            and handle._seen is not None)


def get_node(handle: Any) -> Any:
    """Return the recorded value; made of the settled one where there is none."""
    node = handle._node_
    if node is not None:
        return node
    if handle._base_ is not None:
        raise AttributeError("_node")
    if is_deferred(handle):
        callbacks["resolve"](handle)
    node = make_node(handle)  # in its turn: another thread may give it a value meanwhile
    if node is None:
        if is_deferred(handle):
            return get_node(handle)
        raise AttributeError("_node")
    return node


@one_at_a_time
def make_node(handle: Any) -> Any:
    """Make a node of the settled value."""
    node, array = handle._node_, handle._array_
    if node is not None or array is None:
        return node
    loan = loan_of(handle)
    if loan is not None:
        return lent_node(loan)
    small = size_of(array) <= of_nodes()
    node = callbacks["leaf"](array, small)
    if handle._node_ is None and handle._array_ is array:
        handle._node_, handle._copied_ = node, small or node.buffer is None
    elif handle._node_ is not None:  # a loan has ended: each would take the memory for its own
        node = handle._node_
    return node


def set_node(handle: Any, node: Any = None) -> None:
    """Give an array of its own a recorded value."""
    if not hasattr(handle, "_base_"):  # made by `__new__` alone
        empty(handle)
    before = handle._array_, handle._node_  # what dies with them dies after all is done
    if handle._base_ is None:
        loan = None if handle._array_ is None else loan_of(handle)
        if loan is not None:
            if node is not None and keep_lent(handle, loan, node):
                return
            end_loan(handle)
        handle._array_, handle._node_, handle._copied_ = None, node, False
    else:
        handle._node_, handle._copied_ = node, False
    del before


def exchange(handle: Any, before: Any, node: Any) -> bool:
    """Give an array of its own the next value in one go; ``False`` if it has another by now."""
    kept = handle._array_  # what dies with it dies after all is done
    loan = None if kept is None else loan_of(handle)
    if loan is not None:
        if loan.node is not before or handle._base_ is not None:
            return False
        if not keep_lent(handle, loan, node, True):
            set_node(handle, node)
        return True
    turn = threads() and begin_turn(True, LONGEST_WAIT)
    try:
        if handle._node_ is before and handle._base_ is None:
            handle._array_, handle._node_, handle._copied_ = None, node, False
            return True
        return False
    finally:
        if turn:
            end_turn()
        del kept


def get_recorded(handle: Any) -> Any:
    """Return the node if it is the value, not a copy of it."""
    node = handle._node_
    return None if node is None or handle._copied_ else node


def set_base(handle: Any, base: Any) -> None:
    """Make a handle a view, or one of another base."""
    if base is not None and not isinstance(base, base_class):
        raise TypeError("the base of a view is an array")
    if not hasattr(handle, "_base_"):  # made by `__new__` alone
        empty(handle)
    if handle._base_ is None:
        before = handle._array_, handle._node_
        end_loan(handle)
        if base is None:
            handle._array_ = None
        else:
            handle._array_, handle._node_, handle._copied_ = None, None, False
            handle._of_, handle._lay_, handle._base_ = None, None, base
        del before
    elif base is not None and base._base_ is None and root_of(handle._base_) is base:
        handle._base_ = base  # whose array it is a view of says ``_of_``
    else:
        handle._array_, handle._of_, handle._base_ = None, None, base


def get_steps(handle: Any) -> Any:
    """Return the steps of a view; none for an array of its own."""
    return () if handle._base_ is None else steps_of(handle)


def set_steps(handle: Any, steps: Any) -> None:
    """Say how a view lies in its base."""
    handle._steps_ = steps
    if handle._base_ is not None:
        handle._array_, handle._of_, handle._lay_ = None, None, None


def get_viewed(handle: Any) -> bool:
    """Return whether an array has live views."""
    return any(
        isinstance(view, base_class) and view._base_ is handle for view in gc.get_referrers(handle))


# Attributes that NumPy's arrays have.  A view that is not settled any more has them still.


def get_shape(handle: Any) -> Any:
    """Return the lengths of the axes."""
    array = handle._array_
    return recorded["shape"](handle) if array is None or most < 0 else array.shape


def set_shape(handle: Any, shape: Any) -> None:
    """Reshape in place."""
    recorded["assign_shape"](handle, shape)


def delete_shape(handle: Any) -> None:
    """Refuse, as NumPy does."""
    raise AttributeError("Cannot delete array shape")


def get_ndim(handle: Any) -> Any:
    """Return the number of axes."""
    array = handle._array_
    return recorded["ndim"](handle) if array is None or most < 0 else array.ndim


def get_size(handle: Any) -> Any:
    """Return the number of elements."""
    array = handle._array_
    return recorded["size"](handle) if array is None or most < 0 else array.size


def set_dtype(handle: Any, dtype: Any) -> None:
    """Read the same memory as another data type."""
    recorded["assign_dtype"](handle, dtype)


def delete_dtype(handle: Any) -> None:
    """Refuse, as NumPy does."""
    raise AttributeError("Cannot delete array dtype")


def get_dtype(handle: Any) -> Any:
    """Return the data type of the elements."""
    array = handle._array_
    return recorded["dtype"](handle) if array is None or most < 0 else array.dtype


def get_transposed(handle: Any) -> Any:
    """Return the view with the axes in reverse order."""
    base = handle._base_
    array = handle._array_
    if array is None or most < 0 or (base is not None and base._array_ is not handle._of_):
        array = settled(handle)
    if not isinstance(array, ndarray):
        return recorded["T"](handle)
    return take_view(handle, array, array.T, False, how_transposed)
