"""tiledarray at IPython's prompt and in notebooks: ``%load_ext tiledarray``.

From then on ``import numpy`` in a cell, or in a module of the notebook's own folder, gives
tiledarray; installed packages keep NumPy.  ``%tiledarray off`` and ``on`` switch that, and
``%%explain`` above a cell tells how the cell was computed.  ``%timeit`` measures the work.
"""

from __future__ import annotations

import builtins
import sys
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import (
    Magics,
    cell_magic,
    line_cell_magic,
    line_magic,
    magics_class,
    needs_local_scope,
    no_var_expand,
)

from tiledarray import config
from tiledarray.arrays.handle import Handle
from tiledarray.command import timing
from tiledarray.command.script import Replacement, project_folders
from tiledarray.insight.explain import Explanation, explained, names_in
from tiledarray.insight.facts import Reporter
from tiledarray.insight.session import Session

PLANS_SHOWN = 3
MODES = "on, off or explain"


@magics_class
class TiledArrayMagics(Magics):
    """The magics, and whether cells get tiledarray for NumPy."""

    shell: Any

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self.replacement = Replacement(project_folders(Path.cwd()), [shell.user_global_ns])
        self.installed = False
        self.session: Session | None = None
        self.explains = False
        self.timeit_of_ipython = shell.find_magic("timeit")

    def switch(self, *, on: bool) -> None:
        """Begin or end to give tiledarray where a cell imports NumPy."""
        if on and not self.installed:
            self.replacement.install()
        elif not on and self.installed:
            self.replacement.remove()
        self.installed = on

    @line_magic
    def tiledarray(self, line: str) -> None:
        """``%tiledarray on | off | explain``.

        ``on``: ``import numpy`` gives tiledarray in cells run from now on.  ``off``: NumPy.
        ``explain``: on, and after every cell what it ran is told, until ``on`` or ``off``.
        Without a word: which of these holds.
        """
        mode = line.strip()
        if mode in ("on", "off", "explain"):
            self.switch(on=mode != "off")
            self.explains = mode == "explain"
        elif mode:
            raise UsageError(f"%tiledarray {mode}: say {MODES}")
        state = "explain" if self.explains else "on" if self.installed else "off"
        print(f"tiledarray is {state}: import numpy gives "
              f"{'tiledarray' if self.installed else 'NumPy'} in cells ({MODES})")

    @cell_magic
    def explain(self, line: str, cell: str) -> None:
        """``%%explain``: run the cell, by kernels only, and tell how it was or will be computed."""
        session = Session("this cell")
        with session, config.override(compile="wait"):
            self.shell.run_cell(cell)
        print(session)
        executables = list(session.profile.executables.items())
        for executable, runs in executables[:PLANS_SHOWN]:
            times = "once" if runs == 1 else f"{runs} times"
            whole = executable.whole()
            report = Reporter(whole, whole.sites).run()
            print(f"\n{Explanation(f'run {times}:', report)}")
        if len(executables) > PLANS_SHOWN:
            print(f"\n... and {len(executables) - PLANS_SHOWN} more plans")
        pending = [value for name, value in self.shell.user_ns.items()
                   if isinstance(value, Handle) and not name.startswith("_")
                   and value.origin()._node.buffer is None]
        if pending:
            names = names_in(self.shell.user_ns)
            print(f"\nnot computed yet:\n{explained(pending, names)}")

    @no_var_expand
    @line_cell_magic
    @needs_local_scope
    def timeit(self, line: str, cell: str | None = None, local_ns: Any = None) -> Any:
        """``%timeit`` as IPython has it, where each run also computes what it leaves recorded."""
        transformer = timing.FinishingTransformer()
        vars(builtins)[timing.NAME] = timing.finish
        self.shell.ast_transformers.append(transformer)
        try:
            return self.timeit_of_ipython(line, cell, local_ns)
        finally:
            if transformer in self.shell.ast_transformers:  # it takes out what raises an error
                self.shell.ast_transformers.remove(transformer)
            timing.finish.tell(sys.stdout)

    def before_cell(self, *_: Any) -> None:
        """Watch the cell, if every cell is to be explained."""
        if self.explains:
            self.session = Session("this cell")
            self.session.__enter__()

    def after_cell(self, *_: Any) -> None:
        """Tell what the cell did."""
        session, self.session = self.session, None
        if session is not None:
            session.__exit__(None, None, None)
            if session.did_something:
                print(session)


def load(ipython: Any) -> None:
    """Do what ``%load_ext tiledarray`` asks for."""
    magics = TiledArrayMagics(ipython)
    ipython.register_magics(magics)
    ipython.events.register("pre_run_cell", magics.before_cell)
    ipython.events.register("post_run_cell", magics.after_cell)
    magics.switch(on=True)
    bound = [name for name, value in ipython.user_ns.items()
             if getattr(value, "__name__", "") == "numpy" and not name.startswith("_")]
    if bound:
        print(f"tiledarray: {', '.join(bound)} is NumPy already; import it again to exchange it")


def unload(ipython: Any) -> None:
    """Undo `load`: cells that import NumPy get NumPy."""
    magics = ipython.magics_manager.registry.get("TiledArrayMagics")
    if magics is not None:
        magics.switch(on=False)
        ipython.events.unregister("pre_run_cell", magics.before_cell)
        ipython.events.unregister("post_run_cell", magics.after_cell)
        for kind in ("line", "cell"):
            ipython.register_magic_function(magics.timeit_of_ipython, kind, "timeit")


load_ipython_extension = load
unload_ipython_extension = unload
