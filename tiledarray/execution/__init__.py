"""From pending nodes to values."""
