"""The core: handles of arrays, what NumPy does at once, and the recorded graph.

Written in C (one extension, a file for each part) and again in Python (`twin.py` and the files that
it names, `twin_graph.py`, `twin_record.py`), which takes its place where the extension was not
built.  The environment variable ``TILEDARRAY_CORE`` chooses: ``c`` or ``python``.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tiledarray.errors import UnknownSetting

VARIABLE = "TILEDARRAY_CORE"


def _chosen(wanted: str | None) -> tuple[ModuleType, str, str | None]:
    """Return the core, its kind, and why it is not the one in C."""
    if wanted not in (None, "", "c", "python"):
        raise UnknownSetting(f"{VARIABLE} is {wanted!r}", remedy="set it to c or python")
    problem = f"{VARIABLE} asks for Python"
    if wanted != "python":
        try:
            return importlib.import_module("tiledarray.core._core"), "c", None
        except ImportError as error:
            if wanted == "c":
                raise
            problem = f"the extension is not there ({error})"
    return importlib.import_module("tiledarray.core.twin"), "python", problem


_core, kind, problem = _chosen(os.environ.get(VARIABLE))
_graph, _record = (_core, _core) if kind == "c" else (
    importlib.import_module("tiledarray.core.twin_graph"),
    importlib.import_module("tiledarray.core.twin_record"))

if TYPE_CHECKING:
    from tiledarray.core.twin import AtOnce, Base, Block
    from tiledarray.core.twin_graph import Form, Key, Kind, Node
    from tiledarray.core.twin_record import Local, Recorder
else:
    Base, AtOnce, Block = _core.Base, _core.AtOnce, _core.Block
    Kind, Form, Node, Key = _graph.Kind, _graph.Form, _graph.Node, _graph.Key
    Recorder, Local = _record.Recorder, _record.Local

install = _core.install
lend, move_below, is_lent = _core.lend, _core.move_below, _core.is_lent
set_limit, set_most_with_history = _core.set_limit, _core.set_most_with_history
MOST_WITH_HISTORY = 1024  # elements; gradients of larger arrays fuse
set_most_with_history(MOST_WITH_HISTORY)
set_least, set_pace, pace, paced, small = (
    _core.set_least, _core.set_pace, _core.pace, _core.paced, _core.small)
wait_for_place = _core.wait_for_place
hold = _core.hold
set_births = _core.set_births
set_beside_gpu = _core.set_beside_gpu
AT_ONCE = _core.AT_ONCE
empty, empty_like, zeros_like = _core.empty, _core.empty_like, _core.zeros_like
watch = _core if kind == "c" else importlib.import_module("tiledarray.core.twin_watch")
watch_begin, watch_end = watch.watch_begin, watch.watch_end
watch_enter, watch_leave, watch_note = watch.watch_enter, watch.watch_leave, watch.watch_note
watch_take, watch_tick = watch.watch_take, watch.watch_tick
METHOD, WRITES, READS, LIBRARY, UFUNC, OUTER, DRAWS = (
    _core.METHOD, _core.WRITES, _core.READS, _core.LIBRARY, _core.UFUNC, _core.OUTER, _core.DRAWS)
LOOKS, BOUND, RECORDS, PRODUCT, SHARED, COSTLY, ALIKE, VIEWS, STATIC = (
    _core.LOOKS, _core.BOUND, _core.RECORDS, _core.PRODUCT, _core.SHARED, _core.COSTLY,
    _core.ALIKE, _core.VIEWS, _core.STATIC)
ANY_SIZE, OF_SHAPE, OF_RANGE, OF_COUNT, OF_SQUARE, OF_DATA = (
    _core.ANY_SIZE, _core.OF_SHAPE, _core.OF_RANGE, _core.OF_COUNT, _core.OF_SQUARE, _core.OF_DATA)

trace, parts_of, history = _graph.trace, _graph.parts_of, _graph.history
MOVES, UPDATES, CONSTANT, SMOOTH, KEEPS, BEGINS = (
    _graph.MOVES, _graph.UPDATES, _graph.CONSTANT, _graph.SMOOTH, _graph.KEEPS, _graph.BEGINS)

Program: Any = _record.Program
start_on_device: int = _record.start_on_device
start_kernel: Any = _record.start_kernel  # None in the twin
look, run_known, run_program = _record.look, _record.run_known, _record.run_program
remember, remembers = _record.remember, _record.remembers
install_running = _record.install_running
forget_program, forget_programs = _record.forget_program, _record.forget_programs
wrap, rebind, record = _record.wrap, _record.rebind, _record.record
set_cut, set_lets_go = _record.set_cut, _record.set_lets_go
EMPTY, GATHERING, DUE, CROWDED = _record.EMPTY, _record.GATHERING, _record.DUE, _record.CROWDED
install_recording, install_slices = _record.install_recording, _record.install_slices
