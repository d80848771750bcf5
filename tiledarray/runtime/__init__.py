"""Running: devices, memory, threads, launches."""
