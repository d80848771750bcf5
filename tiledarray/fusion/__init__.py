"""Planning: from a signature to kernels; the passes are in order in `passes`."""
