"""Rows of a product that are used up as they are made: programs that go along them by tiles.

In ``softmax(q @ k.T) @ v`` a row of the scores leads to a maximum, a sum and a product with ``v``.
So a block of rows goes through their columns tile by tile, on tensor cores, and carries what is
combined; where a later tile has a larger maximum, what was combined relative to the old one is
scaled (Milakov and Gimelshein, Online normalizer calculation for softmax, 2018).  That is derived
from what is recorded: `build` asks of each sum by which factor it grows as a maximum does.
"""
