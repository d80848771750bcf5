"""Measures tiledarray beside NumPy's relatives: ``python -m benchmarks --help``."""
