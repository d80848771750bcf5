"""What `timeit` measures: the work, not its recording alone.

An expression of large arrays is recorded, and what nobody looks at is never computed.  So timed
statements are rewritten: each run ends with the evaluation of what it has left to be computed, the
value of its last expression included.  Where the first run leaves nothing (small arrays, looks),
the statement is timed as it is.  `timeit` is the standard library's, and IPython's ``%timeit``.
"""

from __future__ import annotations

import ast
import builtins
import copy
import functools
import sys
import timeit
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from tiledarray.arrays.handle import Handle
from tiledarray.recording.stretch import live_pending, look

NAME = "_tiledarray_finish"  # among the builtins, so that timed code finds it whatever its globals
TOLD = ("tiledarray: what each run recorded was computed in it; left alone it would have been "
        "recorded only")


class Finish:
    """Ends the runs of a timed statement: what they have left to be computed is computed.

    Attributes
    ----------
    waits : bool
        Whether runs leave anything; the first one says so.
    found : bool
        Whether any did since `tell` was called.
    """

    def __init__(self) -> None:
        self.waits = True
        self.found = False

    def start(self) -> None:
        """Compute what is pending before the first run."""
        look([])
        self.waits = True

    def __call__(self, value: Any = None) -> None:
        """Compute what is pending: the value, and what live arrays hold."""
        left = [node for handle in _handles(value)
                if (node := handle.origin()._recorded) is not None and node.buffer is None]
        pending = list(dict.fromkeys((*left, *live_pending())))
        self.waits = bool(pending)
        self.found |= self.waits
        if pending:
            devices = {node.device for node in pending}
            look(left)
            for device in devices:
                device.synchronize()

    def tell(self, file: TextIO | None = None) -> None:
        """Say that runs were computed, if some were; on standard error unless a file is given."""
        if self.found:
            print(TOLD, file=sys.stderr if file is None else file)
        self.found = False


finish = Finish()


def _handles(value: Any) -> Iterator[Handle]:
    if isinstance(value, Handle):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _handles(part)


# ---- statements ------------------------------------------------------------------------------


def finished(tree: ast.Module) -> ast.Module:
    """Return a statement whose runs are finished, as long as they leave anything."""
    declared = [part for part in tree.body if isinstance(part, ast.Global)]
    plain = [part for part in tree.body if not isinstance(part, ast.Global)]
    if not plain:
        return tree
    *body, last = copy.deepcopy(plain)
    call = ast.Call(ast.Name(NAME, ast.Load()), [], [])
    if isinstance(last, ast.Expr):
        call.args.append(last.value)
    else:
        body.append(last)
    waits = ast.Attribute(ast.Name(NAME, ast.Load()), "waits", ast.Load())
    either = ast.If(waits, [*body, ast.Expr(call)], plain)
    return ast.fix_missing_locations(ast.Module([*declared, either], tree.type_ignores))


def started(tree: ast.Module) -> ast.Module:
    """Return a setup after which nothing is left to be computed."""
    start = ast.Attribute(ast.Name(NAME, ast.Load()), "start", ast.Load())
    body = [*tree.body, ast.Expr(ast.Call(start, [], []))]
    return ast.fix_missing_locations(ast.Module(body, tree.type_ignores))


def _rewritten(source: Any, rewrite: Callable[[ast.Module], ast.Module]) -> Any:
    """Return source text rewritten; what does not parse is left to who compiles it."""
    try:
        return ast.unparse(rewrite(ast.parse(source)))
    except SyntaxError:
        return source


class FinishingTransformer(ast.NodeTransformer):
    """Rewrites the setup and then the statement of one ``%timeit``: IPython asks in that order."""

    def __init__(self) -> None:
        self.setups = 1

    def visit(self, node: ast.AST) -> ast.AST:
        """Return the rewritten module."""
        assert isinstance(node, ast.Module)
        self.setups -= 1
        return started(node) if self.setups == 0 else finished(node)


# ---- the standard library's timeit -------------------------------------------------------------


def _setup(setup: Any) -> Any:
    if not callable(setup):
        return _rewritten(setup, started)

    def run() -> None:
        setup()
        finish.start()

    return run


def _statement(statement: Any) -> Any:
    if not callable(statement):
        return _rewritten(statement, finished)

    def run() -> None:
        value = statement()
        if finish.waits:
            finish(value)

    return run


def install() -> None:
    """From now on `timeit.Timer` measures the work in this process."""
    vars(builtins)[NAME] = finish
    timer: Any = timeit.Timer
    if hasattr(timer.__init__, "__wrapped__"):
        return
    original_init, original_timeit = timer.__init__, timer.timeit

    @functools.wraps(original_init)
    def init(
        self: Any, stmt: Any = "pass", setup: Any = "pass", timer: Any = timeit.default_timer,
        globals: dict[str, Any] | None = None,
    ) -> None:
        original_init(self, _statement(stmt), _setup(setup), timer, globals)

    @functools.wraps(original_timeit)
    def timed(self: Any, *args: Any, **names: Any) -> Any:
        seconds = original_timeit(self, *args, **names)
        if not vars(self).get("told"):
            self.told = finish.found
            finish.tell()
        finish.found = False
        return seconds

    timer.__init__, timer.timeit = init, timed
