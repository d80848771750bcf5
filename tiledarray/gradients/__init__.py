"""Gradients of what was recorded: rules beside the ops, two engines, functions of functions."""
