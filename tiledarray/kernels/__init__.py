"""Kernels: their text, their compilers, the disk cache, the op-by-op tier."""
