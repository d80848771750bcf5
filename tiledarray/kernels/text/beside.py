"""A launch of several kernels: its blocks are shared out between them, each with its arguments."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

from tiledarray.kernels.text.layout import Slot


@dataclass(slots=True)
class Part:
    """What the blocks of one kernel do: its ``Args``, its constants and its text."""

    slots: list[Slot]
    constants: str
    lines: list[str]
    blocks: int
    threads: int

    def struct(self, name: str) -> str:
        """The declaration of its arguments."""
        # Every field takes 8 bytes, whatever the width of indices.
        fields = " ".join(
            f"alignas(8) {'idx' if slot.kind in ('size', 'phase') else slot.ctype} {slot.name};"
            for slot in self.slots
        )
        return f"struct {name} {{ {fields} }};"

    @property
    def text(self) -> str:
        """All that the compiler sees of it."""
        return "\n".join([self.struct(""), self.constants, *self.lines])


def print_together(parts: list[Part]) -> tuple[list[str], list[Slot]]:
    """Text and slots of one kernel; parts that differ in their arguments alone share their text."""
    alike: defaultdict[str, list[Part]] = defaultdict(list)
    for part in parts:
        if part.blocks:
            first = Slot("size", "first", "i64")
            part = replace(part, slots=[first, *part.slots])
            alike[part.text].append(part)
    groups = list(alike.values())
    names = [f"part_{k}" for k in range(len(groups))]
    fields = " ".join(f"Args_{k} {name}[{len(group)}];"
                      for k, (name, group) in enumerate(zip(names, groups, strict=True)))
    lines = [
        *(group[0].struct(f"Args_{k}") for k, group in enumerate(groups)),
        f"struct Args {{ {fields} }};",
        f"enum {{ TX = {parts[0].threads}, TY = 1 }};",
        "TA_KERNEL(NAME, Args) {", "  TA_BLOCKS(at)", "  const Args& all = a;",
    ]
    for k, (name, group) in enumerate(zip(names, groups, strict=True)):
        following = f"if (at < all.{names[k + 1]}[0].first) " if k + 1 < len(groups) else ""
        lines += [f"  {following}{{", *_part_of(k, name, group), "    return;", "  }"]
    return [*lines, "}", ""], _placed(groups)


def _part_of(k: int, name: str, group: list[Part]) -> list[str]:
    """The text of parts that are alike, for the one that the block belongs to."""
    lines = []
    which = "0"
    if len(group) > 1:
        which = "k"
        lines = ["    int k = 0;",
                 f"    while (k < {len(group) - 1} && at >= all.{name}[k + 1].first) ++k;"]
    return [
        *lines,
        f"    const Args_{k}& a = all.{name}[{which}];",
        f"    {group[0].constants}",
        "    const idx block = at - a.first;",
        "    TA_THREADS",
        *("  " + line for line in group[0].lines),
    ]


def _placed(groups: list[list[Part]]) -> list[Slot]:
    """The slots of all parts in order, and in each the number of its first block."""
    slots: list[Slot] = []
    at = 0
    for group in groups:
        for part in group:
            slots += [replace(part.slots[0], number=at), *part.slots[1:]]
            at += part.blocks
    return slots
