"""Memory that others look at, in Python: `loans.c` again.

Who asks for an array's memory gets NumPy's array over that of the settled value, whose base is a
`Lent`, which has the `Loan`.  As long as somebody has that, anything may be written there at any
time.  So the array stays settled: what is recorded of it reads copies, made again where the memory
has changed, and a value that is given to it as a whole is computed and written there at once.
"""

from __future__ import annotations

from typing import Any
from weakref import ref

import numpy as np

from tiledarray.core import twin_state as state


class Loan:
    """Memory of an array, as long as somebody else looks at it."""

    __slots__ = ("array", "root", "node", "kept", "previous", "__weakref__")

    def __init__(self, root: Any) -> None:
        self.array = root._array_
        self.root = ref(root)  # a dead one once the array has another value
        self.node: Any = None  # of a copy of what lies there, or lay
        self.kept: Any = None  # what had the memory alone: the root's again, when it ends
        self.previous: Any = None  # an earlier loan that lasts

    def __del__(self) -> None:
        root = self.root()
        if root is not None and root._node_ is None and root._array_ is self.array:
            root._node_, root._copied_ = self.kept, False


class Lent:
    """What NumPy asks where an array lies that it makes; its base."""

    __slots__ = ("base", "loan", "__array_interface__")

    def __init__(self, array: Any, loan: Loan) -> None:
        self.base = loan.array
        self.loan = loan
        self.__array_interface__ = array.__array_interface__


def _nobody() -> None:
    return None


def loan_of(root: Any) -> Any:
    """Return the loan of an array of its own, ``None`` if nobody has its memory."""
    found = getattr(root, "_loan_", None)
    loan = None if found is None else found()
    return None if loan is None or loan.array is not root._array_ else loan


def end_loan(root: Any) -> None:
    """Forget who looks at the memory of an array that has another value now."""
    found = getattr(root, "_loan_", None)
    loan = None if found is None else found()
    if loan is not None:
        root._loan_ = None
        loan.root, loan.node, loan.kept = _nobody, None, None


def _move_away(root: Any) -> None:
    """Have a settled array of its own in memory that nothing recorded reads."""
    root._array_, root._node_, root._copied_ = root._array_.copy(), None, False


def _alone(handle: Any, kept: list[Any]) -> Any:
    """Return the settled value, in memory that may be written."""
    for _ in range(4):  # other threads write meanwhile
        array = state.find_array(handle)
        if type(array) is not np.ndarray:
            return None
        root = state.root_of(handle)
        if root._node_ is None and state.is_present(handle, array):
            return array
        if root._node_ is not None and state.make_writable(handle, array, kept):
            return array
        if root._node_ is not None and type(root._array_) is np.ndarray:
            _move_away(root)
    return None


@state.one_at_a_time
def _lent(handle: Any, lasts: bool) -> Any:
    kept: list[Any] = []
    array = _alone(handle, kept)
    if array is None:
        return None
    root = state.root_of(handle)
    loan = loan_of(root)
    if loan is None:
        loan = Loan(root)
        root._loan_ = ref(loan)
    buffer = kept[-1].buffer if kept else None
    if buffer is not None and buffer.plan is not None:
        buffer.elsewhere = None  # what the other side has of it is not true for long
        loan.kept = kept[-1]
    if lasts:
        previous = getattr(root, "_lasting_", None)
        if previous is not loan:
            loan.previous, root._lasting_ = previous, loan
    view = np.asarray(Lent(array, loan))
    return view if view.dtype is array.dtype else view.view(array.dtype)


def lend(handle: Any, lasts: bool = False) -> Any:
    """Return NumPy's array over the memory of an array; ``None`` where that cannot be.

    With ``lasts`` the memory stays where it is as long as the array lives.
    """
    if state.find_array(handle) is None:
        state.callbacks["look"](handle)
    return _lent(handle, lasts)


@state.one_at_a_time
def move_below(handle: Any, base: Any) -> bool:
    """Have an array of its own be a view of a new one of the same value, which gets all it has.

    ``False`` if it has another value by now.
    """
    loan = loan_of(handle)
    node = handle._node_ if loan is None else loan.node
    if handle._base_ is not None or node is None or base._node_ is not node:
        return False
    array, lasting = handle._array_, getattr(handle, "_lasting_", None)
    copied = getattr(handle, "_copied_", False)
    if lasting is not None:
        base._lasting_ = lasting
    if loan is not None:
        base._loan_ = ref(loan)
    (base._array_, base._node_, base._copied_, handle._array_, handle._node_, handle._copied_,
     handle._of_, handle._lay_, handle._seen, handle._steps_, handle._base_) = (
         array, None if loan is not None else node, copied, None, None, False, None, None, None,
         (), base)
    if loan is not None:
        handle._loan_, loan.root = None, ref(base)
    return True


def is_lent(handle: Any) -> bool:
    """Whether others have the memory of an array."""
    return isinstance(handle, state.base_class) and loan_of(state.root_of(handle)) is not None


def lent_node(loan: Loan) -> Any:
    """Return what reads the value of an array whose memory others have: a node of a copy."""
    loan.node = node = state.callbacks["copied"](loan.array, loan.node, loan.kept)
    return node


def keep_lent(root: Any, loan: Loan, node: Any, upon: bool = False) -> bool:
    """Write a value into the memory that others have of the array; ``False`` if it cannot be.

    With ``upon`` it was made of what was there, and what others have written meanwhile stays.
    """
    done = state.callbacks["give"](loan.array, node, loan.node if upon else None)
    loan.node = loan.kept = None
    return done and loan.root() is root


state.loan_of, state.end_loan = loan_of, end_loan
state.lent_node, state.keep_lent = lent_node, keep_lent
