"""The tier without kernels: every node through NumPy or CuPy."""
