"""What operations of the core leave behind."""

import gc
import tracemalloc

ROUNDS = 250
ALLOWED = 5_000  # bytes: an object each would be 6,000 or more


def refused(action):
    """Do what raises one of NumPy's errors, and let go of that."""
    try:
        action()
    except (IndexError, ValueError, TypeError):
        return
    raise AssertionError("not refused")


def assert_nothing_is_left(operation, finish=lambda: None):
    """Repeat an operation, whose memory is to be as it was; ``finish`` ends each of the rounds."""

    def repeat(count):
        for _ in range(count):
            operation()
        finish()
        gc.collect()

    gc.freeze()  # what the tests before have left is not looked through again and again
    repeat(ROUNDS // 5)
    tracemalloc.start()
    try:
        repeat(ROUNDS // 5)
        grown = []
        while len(grown) < 8 and min(grown, default=ALLOWED) >= ALLOWED:
            # In some a table may grow, or other threads compile: what leaks does so in each.
            before = tracemalloc.get_traced_memory()[0]
            repeat(ROUNDS)
            grown.append(tracemalloc.get_traced_memory()[0] - before)
        assert min(grown) < ALLOWED
    finally:
        tracemalloc.stop()
        gc.unfreeze()
