"""Launch graphs of one plan: one for each set of places where its arrays come to lie.

Memory comes from a pool, so a program that calls a function again and again meets the same few
sets of addresses in turn.  Each of these keeps a graph with its arguments, which one call of the
driver starts; where the addresses are always others, one graph gets new arguments each time.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Any

Places = tuple[int, ...]
Start = Callable[[], int]

MOST_GRAPHS = 6  # of a plan
MOST_NODES = 1024  # of all of them together
RECALLED = 12  # sets of addresses, of which some may come round


class Graphs:
    """Graphs of the same launches, each with arguments for other places of the plan's arrays.

    Not for several threads at once.

    Parameters
    ----------
    make : callable
        ``make()`` returns a new graph of the launches.
    arguments : callable
        ``arguments(places)`` returns what changes with the places, by the launch's number.
    nodes : int
        How many launches a graph has.
    """

    def __init__(self, make: Callable[[], Any],
                 arguments: Callable[[Places], Mapping[int, bytes]], nodes: int) -> None:
        self._make, self._arguments = make, arguments
        self._most = max(1, min(MOST_GRAPHS, MOST_NODES // nodes))
        self._bound: OrderedDict[Places, tuple[Start, Any]] = OrderedDict()
        self._spare: list[Any] = [make()]
        self._met: deque[Places] = deque(maxlen=RECALLED)

    def start(self, places: Places) -> tuple[Start, Any]:
        """Return what starts the launches on arrays at these places and gives a status; its graph.

        The graph says what the status means.
        """
        return self._bound.get(places) or self._bind(places)

    def forget(self) -> None:
        """Give all graphs new arguments before they are started again."""
        graphs = [graph for _, graph in self._bound.values()]
        self._bound = OrderedDict()  # before any of them is spare, whatever handlers raise
        self._met.clear()
        self._spare.extend(graphs)

    def _bind(self, places: Places) -> tuple[Start, Any]:
        # A graph is nobody's meanwhile: if this fails, it is dropped with what it was given.
        graph = self._unbound(places)
        found = self._bound[places] = graph.bound(self._arguments(places)), graph
        return found

    def _unbound(self, places: Places) -> Any:
        """A graph to bind: a new one for places that come round, else the one bound first."""
        if self._spare:
            return self._spare.pop()
        if not self._bound or (places in self._met and len(self._bound) < self._most):
            return self._make()
        self._met.append(places)
        return self._bound.popitem(last=False)[1][1]
