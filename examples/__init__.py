"""Plain NumPy programs on real data, each run as NumPy and as tiledarray."""
