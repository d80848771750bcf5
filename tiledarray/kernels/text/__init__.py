"""Kernels as text: one printer for both compilers."""
