"""Names in the text of kernels, and why none of them hides a type, a macro or a function.

What a text declares many of is named by one of `NUMBERED` and numbers, each after an underscore:
cell 64 is ``c_64``, its copy for the second of the rows computed together ``c_64_1``.  No header,
compiler or library has such names, so texts may be of any length; what there is one of is in
`SINGLE`.  ``tests/test_kernel_names.py`` holds headers and texts to this.
"""

from __future__ import annotations

import re

NUMBERED = {
    "Ahead": "what a step reads", "Args": "the arguments of alike parts of a launch",
    "part": "those of all such parts",
    "b": "lanes collected before they are stored", "c": "the value of a cell",
    "d": "a divisor, prepared", "e": "what a chunk adds to a reduction",
    "fetch": "what asks for staged chunks of a pass",
    "h": "what is held of a cell", "i": "index along a row axis", "k": "index along a step axis",
    "known": "a scalar that a loop has as a constant",
    "l": "a chunk or a window that was loaded", "p": "where a row is read",
    "parts": "totals of the blocks that share a reduction", "q": "where a row is stored",
    "r": "an accumulator", "range": "the part of a step axis that a block walks",
    "row": "one of the rows computed together", "s": "what is staged of a load",
    "t": "a turned tile", "total": "what a row is reduced to",
    "x": "the values of a cell in all lanes", "y": "a chunk that is being stored",
}
SINGLE = frozenset({
    "Args", "C", "S", "TX", "TY", "V", "W", "a", "all", "at", "block", "c", "first", "here", "j",
    "js", "k", "lane_block", "left", "next", "now", "place", "rare", "right", "row", "rows",
    "since", "split", "t", "v", "w",
})
GENERATED = re.compile(rf"({'|'.join(NUMBERED)})(_\d+)+")
