"""Launch graphs for places that come round: each is started with the arguments of its places."""

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from tiledarray.execution.graphs import MOST_GRAPHS, Graphs


class Failed(BaseException):
    """What a signal handler raises."""


class StandIn:
    """A graph of two launches that tells with which arguments it was started."""

    def __init__(self):
        self.args = [b"", b""]
        self.fails_at = None

    def bound(self, args):
        for number, new in args.items():
            if number == self.fails_at:
                raise Failed
            self.args[number] = new
        return lambda: tuple(self.args)


class Plan:
    def __init__(self, nodes=2):
        self.made, self.scalar, self.packed = [], 0, 0
        self.graphs = Graphs(self.make, self.arguments, nodes)

    def make(self):
        self.made.append(StandIn())
        return self.made[-1]

    def arguments(self, places):
        self.packed += 1
        return dict(enumerate(self.wanted(places)))

    def wanted(self, places):
        return tuple(b"%d %d" % (place, self.scalar) for place in places)

    def run(self, places):
        start, _ = self.graphs.start(places)
        assert start() == self.wanted(places)


@given(st.lists(st.one_of(
    st.tuples(st.integers(0, 9), st.integers(0, 1)),
    st.sampled_from(["other scalars", "interrupted"])), max_size=60), st.integers(1, 700))
def test_each_start_has_the_arguments_of_its_places(steps, nodes):
    plan = Plan(nodes)
    for step in steps:
        if step == "other scalars":
            plan.scalar += 1
            plan.graphs.forget()
        elif step == "interrupted":  # in the midst of giving a graph other arguments
            for graph in plan.made:
                graph.fails_at = 1
            with contextlib.suppress(Failed):
                plan.graphs.start((100 + plan.packed, 0))
            for graph in plan.made:
                graph.fails_at = None
        else:
            plan.run(step)
        assert len(plan.graphs._bound) + len(plan.graphs._spare) <= max(1, min(
            MOST_GRAPHS, 1024 // nodes))


def test_places_that_come_round_are_bound_once():
    plan = Plan()
    for _ in range(3):  # met, met again, known
        for places in ((1, 2), (3, 4), (5, 2)):
            plan.run(places)
    before = plan.packed
    for places in ((1, 2), (3, 4), (5, 2)) * 5:
        plan.run(places)
    assert plan.packed == before and len(plan.made) == 3


def test_places_that_are_always_others_have_one_graph():
    plan = Plan()
    for k in range(50):
        plan.run((k, k))
    assert len(plan.made) == 1 and plan.packed == 50


def test_long_plans_have_few_graphs():
    plan = Plan(nodes=1000)
    for _ in range(4):
        for places in ((1, 2), (3, 4)):
            plan.run(places)
    assert len(plan.made) == 1
