"""The public namespace: NumPy's functions, written with what records."""
