"""What to make of where the time went: rules, each with its evidence and what can be done.

A rule looks at the facts of a run and returns what it has to say and which part of the time that is
about, or nothing.  `RULES` lists them all; where none has anything to say, nothing is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tiledarray.graph.node import Site, location
from tiledarray.insight.clock import Accounts, Place
from tiledarray.insight.facts import count_text, line_text, place_text, time_text

WORTH = 0.1  # of the time: what takes less is not spoken of
MANY = 100  # of something done again and again on a line
SMALL = 1 << 16  # elements: NumPy computes such arrays about as fast as kernels
MANY_PLANS = 5
SHORT = 1e-4  # seconds, and
FEW = 1 << 14  # elements: of what NumPy spends much on the call, and little on the elements
IN_PYTHON = 5e-6  # seconds: what Python needs besides to read or write one element, at most
LINES = 4  # that are named
WIDTH = 100  # of what is printed

# What people call the accounts, in the order in which equal ones are told.
NAMES = {
    "kernels": "kernels", "library calls": "library calls", "op by op": "op by op, in blocks",
    "at once": "NumPy, at once", "elements": "elements, one by one", "NumPy": "NumPy itself",
    "copies": "copies", "allocation": "memory", "recording": "recording", "looks": "looks",
    "planning": "planning", "compiling": "compiling", "Python": "Python's own code",
    "libraries": "other libraries", "imports": "imports", "telling": "this account",
    "not told apart": "not told apart",
}


@dataclass(slots=True)
class Facts:
    """What the rules look at.

    Attributes
    ----------
    accounts : Accounts
    counters : Counter
        What was counted: plans made, kernels compiled, evaluations op by op.
    fallbacks : Counter
        What NumPy itself did, by name and place.
    unfinished : int
        Plans whose kernels were still being compiled at the end.
    """

    accounts: Accounts
    counters: Counter[str]
    fallbacks: Counter[tuple[str, Site | None]]
    unfinished: int = 0


class Verdict(NamedTuple):
    """What a rule has to say.

    Attributes
    ----------
    share : float
        Which part of the time it is about.
    text : str
    """

    share: float
    text: str


Rule = Callable[[Facts], Verdict | None]


def lines_of(places: Iterable[Place], weight: str = "seconds") -> str:
    """Return the lines of some places, the heaviest first: ``a.py:3, 7``."""
    found: Counter[str] = Counter()
    for place in places:
        found[place_text(place.site) or "?"] += getattr(place, weight)
    named, last = [], ""
    for line, _ in found.most_common(LINES):
        file, _, number = line.rpartition(":")
        named.append(number if file == last else line)
        last = file
    return ", ".join(named) + (f" and {len(found) - LINES} more" if len(found) > LINES else "")


def size_text(size: float) -> str:
    """Return a number of elements: ``500 elements``."""
    return "one element" if round(size) <= 1 else f"{float(f'{size:.3g}'):,.0f} elements"


def together(places: Sequence[Place]) -> Place:
    """Return the sum of some places, at the first."""
    return Place(places[0].site, sum(place.count for place in places),
                 sum(place.elements for place in places), sum(place.seconds for place in places))


# ---- the rules -------------------------------------------------------------------------------


def elements(facts: Facts) -> Verdict | None:
    """Elements are read and written one at a time, and computed with."""
    accounts = facts.accounts
    touched = accounts.places["elements"]
    single = [place for place in accounts.places["at once"] if place.size <= 1]
    count = sum(place.count for place in touched)
    if count < MANY:
        return None
    lines = {location(place.site) for place in touched}
    python = sum(seconds for line, seconds in accounts.lines.items() if line in lines)
    seconds = sum(place.seconds for place in (*touched, *single)) + min(python, IN_PYTHON * count)
    also = sum(place.count for place in single)
    text = (f"{count:,} elements read or written one by one on {lines_of(touched, 'count')}"
            + f", {also:,} operations on single numbers" * (also >= MANY)
            + ": NumPy would be no faster; work on whole arrays and slices, or take x.tolist() "
            "where the loop has to stay")
    return Verdict(seconds / accounts.wall, text)


def small_operations(facts: Facts) -> Verdict | None:
    """NumPy computes many small arrays at once."""
    accounts = facts.accounts
    small = [place for place in accounts.places["at once"]
             if 1 < place.size <= FEW and place.seconds < SHORT * place.count]
    if not small or sum(place.count for place in small) < MANY:
        return None
    whole = together(small)
    return Verdict(whole.seconds / accounts.wall, (
        f"{whole.count:,} operations on arrays of about {size_text(whole.size)} on "
        f"{lines_of(small)}: NumPy computes them at once, as fast as without tiledarray and no "
        "faster; `jit` this loop, or let one array hold many of these"))


def small_looks(facts: Facts) -> Verdict | None:
    """Little is computed for each look."""
    accounts = facts.accounts
    looks = [look for look in accounts.looks if look.asked and look.count >= MANY]
    if not looks:
        return None
    worst = max(looks, key=lambda look: look.seconds)
    size = worst.size
    overhead = accounts.share("looks", "reads", "recording")
    if size > SMALL and (overhead < 3 * WORTH or facts.counters["kernels compiled"]):
        return None
    told = (f"{worst.count:,} looks at arrays of about {size_text(size)} from "
            f"{place_text(worst.site)}, {time_text(worst.seconds / worst.count)} each: ")
    if size <= SMALL:
        return Verdict(worst.seconds / accounts.wall, (
            f"{told}NumPy would be as fast; `jit` this loop, or look once after it"))
    return Verdict(overhead, (
        f"{told}too little is computed between two of them to pay for recording it; look once "
        "after the loop, or `jit` what it does"))


def changing_plans(facts: Facts) -> Verdict | None:
    """The same is planned again and again, for shapes or operations change."""
    accounts = facts.accounts
    worst = max(accounts.looks, key=lambda look: sum(map(len, look.plans.values())), default=None)
    if worst is None:
        return None
    most = max(worst.plans.values(), key=len, default=[])
    total = sum(map(len, worst.plans.values()))
    share = accounts.share("planning", "compiling", "op by op")
    where = place_text(worst.site)
    if len(most) >= MANY_PLANS and len(set(most)) * 2 > len(most):
        return Verdict(share, (
            f"a plan made {len(most):,} times because its shape changes: {where}; keep the shape "
            "(pad, or choose with `where`), and it is made once"))
    if total >= MANY_PLANS:
        return Verdict(share, (
            f"{total:,} plans made because what is computed changes from one evaluation to the "
            f"next: {where}; record the same operations each time, or evaluate more often"))
    return None


def changing_shapes(facts: Facts) -> Verdict | None:
    """What is evaluated never comes again, so that no plan is made for it."""
    accounts = facts.accounts
    looks = [look for look in accounts.looks
             if look.walked >= MANY_PLANS and not look.plans and 2 * len(look.works) > look.walked]
    if not looks:
        return None
    worst = max(looks, key=lambda look: look.seconds)
    if 2 * facts.counters["op by op"] < worst.count:
        return None
    return Verdict(accounts.share("op by op"), (
        f"{worst.count:,} evaluations of other shapes each time, op by op, since none came again: "
        f"{place_text(worst.site)}; keep the shape (pad, or choose with `where`), and one plan "
        "serves all"))


def ended_early(facts: Facts) -> Verdict | None:
    """The run was over before its kernels were there."""
    if not facts.unfinished or not facts.counters["op by op"]:
        return None
    return Verdict(facts.accounts.share("op by op"), (
        f"op by op, for kernels of {count_text(facts.unfinished, 'plan')} were still being "
        "compiled when this ended: a longer run has them, and so have runs to come, for which they "
        "are compiled afterwards (config.compile_afterwards)"))


def first_run(facts: Facts) -> Verdict | None:
    """The run waited for plans and kernels that the next one finds on disk."""
    accounts = facts.accounts
    made, compiled = facts.counters["plans made"], facts.counters["kernels compiled"]
    if not made and not compiled:
        return None
    share = accounts.share("planning", "compiling")
    done = [f"{count_text(made, 'plan')} made"] if made else []
    if compiled:
        done.append(f"{count_text(compiled, 'kernel')} compiled or loaded")
    text = " and ".join(done)
    if compiled and facts.counters["op by op"]:
        looks = sum(look.count for look in accounts.looks)
        waiting = min(1.0, facts.counters["op by op"] / max(1, looks))
        share += accounts.share("op by op") + waiting * accounts.share("looks")
        text += ", op by op until they were there"
    return Verdict(share, f"{text}: they are kept on disk, and the next run has them sooner")


def by_numpy_itself(facts: Facts) -> Verdict | None:
    """NumPy did on copies what no kernel does."""
    if not facts.fallbacks:
        return None
    (name, site), count = facts.fallbacks.most_common(1)[0]
    times = f" {count:,} times" if count > 1 else ""
    return Verdict(facts.accounts.share("NumPy"), (
        f"NumPy itself did {name}{times} on {place_text(site) or '?'}: no kernel does that, and it "
        "cuts what could be one kernel in two; if it can, take it out of the loop"))


def python(facts: Facts) -> Verdict | None:
    """Python's own code is what takes long."""
    accounts = facts.accounts
    share = accounts.share("Python", "libraries")
    if share < 0.5:
        return None
    text = "Python's own code, other libraries and waiting take most of the time"
    lines = Counter(accounts.lines)
    lines.update(accounts.callers)
    line = max(lines, key=lines.__getitem__, default=None)
    if line is not None and lines[line] >= WORTH * accounts.wall:
        text += f", the line {line_text(*line)} most of all"
    return Verdict(share, f"{text}: nothing of that is arrays, which tiledarray could speed up")


def imports(facts: Facts) -> Verdict | None:
    """Modules were imported most of the time."""
    return Verdict(facts.accounts.share("imports"), (
        "modules were imported: a longer run, or fewer imports, would tell more"))


# Every rule, with those that say it better: where one of them speaks, it is silent.
RULES: dict[Rule, tuple[Rule, ...]] = {
    changing_plans: (),
    changing_shapes: (),
    elements: (),
    small_looks: (),
    small_operations: (),
    by_numpy_itself: (),
    ended_early: (changing_plans,),
    first_run: (changing_plans, ended_early),
    python: (elements, small_operations, small_looks),
    imports: (),
}


def verdicts(facts: Facts) -> list[Verdict]:
    """Return what the rules have to say, the largest part of the time first."""
    found: dict[Rule, Verdict] = {}
    for rule, instead in RULES.items():
        if not any(other in found for other in instead):
            verdict = rule(facts)
            if verdict is not None and verdict.share >= WORTH:
                found[rule] = verdict
    return sorted(found.values(), key=lambda verdict: -verdict.share)


def dominating(accounts: Accounts) -> str:
    """Say what takes the most of the time: ``kernels (85%)``."""
    name, seconds = max(accounts.seconds.items(), key=lambda item: item[1])
    return f"{NAMES.get(name, name)} ({seconds / max(accounts.wall, 1e-9):.0%})"
