"""Thresholds of the planner: one record a kind of device, each with its unit and where it is from.

Where a field names no source, the figure was chosen when its rule was written and there is no
record of a measurement of it alone; benchmarks of whole programs ran with it, on an H200 and on two
cores of a server.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Limits:
    """What shapes kernels, beside a device's own size (`Target`)."""

    # ---- rates ---------------------------------------------------------------------------------
    bytes_per_second: float  # of a multiprocessor, or of the host: a copy
    flops_per_second: float  # of a multiprocessor or a thread; a transcendental function counts ten
    launch_seconds: float  # what two kernels cost beyond one

    # ---- rewriting -----------------------------------------------------------------------------
    small_reduction: int = 8  # elements that are combined one by one
    many_rows: int = 64  # from which a deviation is worth two passes

    # ---- short axes of what is computed from broadcast arrays ----------------------------------
    broadcast: int = 4  # times that it is larger than all that it is computed from
    short_reduction: int = 32  # elements that are combined one by one, in registers
    short_axis: int = 4  # components that a kernel computes side by side
    components: int = 16  # the same along several axes
    unrolled_cells: int = 400  # values that a kernel computes for them
    unrolled_loads: int = 64  # and that it reads

    # ---- what is stored, and what shares a kernel -----------------------------------------------
    expensive: int = 8  # flops from which a value is not computed twice
    spread: int = 256  # times that a value is read for each time it would be computed
    cells: int = 700  # values a point of a kernel
    loads: int = 64  # arrays that a kernel reads
    parts: int = 32  # kernels of a launch

    # ---- products --------------------------------------------------------------------------------
    summed_vectors: int = 1 << 14  # elements of vectors whose product is no call
    summed_row: int = 0  # elements of a matrix's row up to which that with a vector is none

    # ---- what is computed block by block ---------------------------------------------------------
    loop_least: int = 1 << 26  # bytes of library calls' results that are not stored then
    loop_bytes: int = 1 << 24  # of the largest array of a block

    # ---- several steps of a loop at once, tile by tile (host) ------------------------------------
    time_least: int = 1 << 25  # bytes of the state; less may stay in the cache that cores share
    time_bytes: int = 3 << 18  # of a tile before and after a step, in a core's cache
    time_speed: float = 2.5  # times the rate of memory that a step in that cache goes at
    time_flops: float = 12e9  # of a thread, of additions and products
    time_gain: float = 1.3  # times as fast that it should be

    # ---- consecutive kernels as one, tile by tile in shared memory (device) ----------------------
    chain_gain: float = 0.0  # times as fast that it should be; 0: never
    chain_stages: int = 16  # at most
    chain_launch: float = 2e-6  # seconds from the end of a kernel to the work of the next
    chain_space: float = 1.3  # times what its bytes take that a launch takes in three dimensions
    chain_barrier: float = 80.0  # cycles in which a block that waits for its threads does nothing
    chain_shared: int = 220 << 10  # of a multiprocessor
    chain_rounds: int = 256  # at most, between which blocks that all run exchange edges; 1: never
    chain_exchange: float = 2.4e-6  # seconds of that, as `clock` counts them
    clock: float = 1.5e9  # cycles a second

    # ---- problems of a batch, each computed on chip ----------------------------------------------
    tile_bytes: int = 1 << 16  # of one value of a problem
    problem_bytes: int = 1 << 19  # host: of the problems that a thread works on side by side
    problems: int = 32  # of a batch, at least; see docs/decisions.md
    problem_flops: int = 1 << 18  # of a batch, at least
    thread_problems: int = 64  # device: for each multiprocessor, before a thread has one
    problem_call: int = 1000  # flops that NumPy's calls take for each problem beside its own
    matrix_rows: int = 96  # host: of a factorization, beyond which LAPACK's blocks are as fast
    matrix_row_bytes: int = 512  # host: the same of a row

    # ---- reductions of several passes -----------------------------------------------------------
    row_bytes: int = 1 << 20  # host: of a row between passes; it stays in a core's cache
    walked_columns: int = 1024  # host: that a thread walks over side by side
    row_elements: int = 16384  # device: of a row for one block of threads
    narrow_row: int = 1 << 15  # the same of narrow elements: as many as threads can hold
    narrow_row_bytes: int = 1 << 17  # and their bytes; see docs/decisions.md
    shared_row_bytes: int = 1 << 19  # device: of rows that each pass reads again, mostly from L2
    pass_bytes: int = 512  # device: of a step, read by one block of threads
    pass_least: int = 128  # device: where fewer columns still leave a block as many steps to read
    pass_blocks: int = 2  # device: for each multiprocessor, to keep memory busy
    held_bytes: int = 160  # device: held between passes by a thread, in registers

    # ---- reductions over the rows of a kernel that reduces them --------------------------------
    across_points: int = 0  # elements in all rows, from which it saves reading them again; 0: never
    across_lanes: int = 512  # of a row, so that a warp has it
    across_short: int = 256  # the same where only what rows are reduced to is

    # ---- the loop nest -------------------------------------------------------------------------
    short_lanes: int = 16  # from which lanes go where memory is written
    short_rows: int = 64  # reduced elements up to which columns go side by side on the host
    long_lanes: int = 256  # that are worth such a turn of the nest
    joined_lanes: int = 32  # up to which short rows are joined

    # ---- tiles on the host ----------------------------------------------------------------------
    tile: int = 1 << 14  # elements of a block
    lanes: int = 1 << 13  # of a row, at once
    streamed_chunk: int = 1 << 8  # lanes collected before they are stored past the cache
    streamed_bytes: int = 1 << 24  # of results that are not expected to stay in the cache
    streamed_lanes: int = 1 << 9  # of rows that are stored so
    split: int = 1 << 16  # elements of each part of a reduction
    scanned_chunk: int = 1 << 8  # lanes between which scans alternate with the rest
    scanned_rows: int = 4  # scanned side by side, for each has to wait for itself
    pair_lanes: int = 128  # of columns that stream nothing: what every step uses stays close

    # ---- tiles on a GPU -------------------------------------------------------------------------
    map_tile: int = 1 << 12  # elements of a block
    halo_lanes: int = 128  # of a block of a stencil, so that its rows share lines
    plane_rows: int = 4  # of a stencil in space, by one thread
    plane_blocks: int = 6  # of 256 threads on a multiprocessor then, at 40 registers ...
    plane_words: int = 32  # ... if so many hold what is read of memory's lines
    held_elements: int = 32  # of a row, by one thread, in registers
    held_element_bytes: int = 128  # the same in bytes
    split_threads: int = 256  # of a block that has a part of a row
    split_blocks: int = 8  # of those for each multiprocessor
    column_threads: int = 32  # along the lanes, where a block has the columns of a few lines
    column_blocks: int = 16  # for each multiprocessor
    pair_threads: int = 1024  # for each multiprocessor, of a column kernel that streams nothing
    pair_steps: int = 64  # of each of those, before a thread has fewer lanes
    pair_block: int = 128  # of its block, where lanes are enough to give each thread its own
    pair_shared: int = 64  # the same along the lanes, where threads share the steps of a lane
    pair_blocks: int = 64  # for each multiprocessor then: long blocks leave some idle at the end
    mirror_tiles: tuple[int, ...] = (512, 1024, 256)  # points of a tile of pairs met once
    mirror_blocks: float = 0  # for each multiprocessor, from which pairs are; 0: never
    mirror_bytes: int = 1 << 29  # of the sums of all tiles
    staged_blocks: int = 2  # the same where loads are staged: as many as fit of the largest
    own_bytes: int = 8 << 10  # of shared memory, left for what reductions put there
    step_bytes: tuple[int, ...] = (16,)  # copied ahead; many smaller copies take longer than loads
    ahead_bytes: int = 128  # asked for ahead by a thread of a column kernel
    scanned_columns: int = 64  # for each multiprocessor, from which a thread scans each in order
    scanned_lanes: int = 4096  # of a row that a block scans at once
    shared_lanes: int = 8192  # the same where blocks share a row; see docs/decisions.md
    scanned_bytes: int = 160  # of what a thread keeps meanwhile, in registers (host: its cache)
    ahead_room: int = 48 << 10  # by its block; accumulators may need as much again
    busy_bytes: int = 96 << 10  # of rows on a multiprocessor: enough to keep memory busy


HOST = Limits(bytes_per_second=12e9, flops_per_second=8e9, launch_seconds=5e-6, held_bytes=1 << 30,
              scanned_bytes=1 << 15)
# An H200's 132 multiprocessors copy 4.3 TB/s.
H200 = Limits(bytes_per_second=3e10, flops_per_second=128 * 1.5e9, launch_seconds=3e-6,
              summed_vectors=1, summed_row=64, across_points=1 << 24,
              loop_least=1 << 34, loop_bytes=1 << 30, chain_gain=1.25, mirror_blocks=4)
GPU = replace(H200)  # until others have been measured
