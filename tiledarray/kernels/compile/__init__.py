"""From text to machine code, kept on disk."""
