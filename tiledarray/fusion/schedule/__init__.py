"""How a group's domain is cut into tiles, and where each value lives."""
