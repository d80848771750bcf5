"""The recorded graph, as data."""
