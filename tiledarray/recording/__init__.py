"""From a call to a node."""
