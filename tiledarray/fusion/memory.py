"""The memory that values lie in, who shares it, and how long it is needed."""

from __future__ import annotations

from collections import defaultdict

from tiledarray.fusion.ir import Value, storage
from tiledarray.fusion.order import touched
from tiledarray.fusion.plan import Step
from tiledarray.fusion.updates import UpdateChoice
from tiledarray.ops.op import Leaf, Reshape


def memory_of(values: list[Value], choices: UpdateChoice) -> dict[Value, Value]:
    """For each value the one whose memory it lies in."""
    memory: dict[Value, Value] = {}
    for value in values:
        if isinstance(value.op, Reshape):
            memory[value] = memory[storage(value)]
        elif value in choices and choices[value][0] == "in place":
            memory[value] = memory[storage(value.args[0])]
        else:
            memory[value] = value
    return memory


def shared_outputs(outputs: list[Value], memory: dict[Value, Value]) -> (
        dict[Value, tuple[int, ...]]):
    """The outputs that share memory with one another or with a leaf that stays as it is."""
    inside: defaultdict[Value, list[int]] = defaultdict(list)
    for number, value in enumerate(outputs):
        inside[memory[storage(value)]].append(number)
    return {
        base: tuple(numbers) for base, numbers in inside.items()
        if len(numbers) > 1 or isinstance(storage(outputs[numbers[0]]).op, Leaf)
    }


def last_uses(steps: list[Step], memory: dict[Value, Value]) -> dict[Value, int]:
    """The last step that touches each memory."""
    last: dict[Value, int] = {}
    for number, step in enumerate(steps):
        for value in touched(step):
            last[memory[value]] = number
    return last
