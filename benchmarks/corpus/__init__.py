"""The programs of ``tests/corpus``: found, run as NumPy and as tiledarray, compared and timed."""
