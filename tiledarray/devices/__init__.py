"""Where arrays live: memory, threads, streams."""
