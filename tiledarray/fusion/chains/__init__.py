"""Launches in a row that read near where they write, done together tile by tile (on a GPU).

A step of a stencil takes as long to start as to do, and reads and writes memory for a handful of
operations an element.  Several of them in a row are a *chain*: a block of threads copies a tile of
the arrays with a halo into shared memory, goes through the *stages* there, each on a smaller part,
and writes the tile.  What lies in a halo is computed by several blocks, by the same instructions.
"""
