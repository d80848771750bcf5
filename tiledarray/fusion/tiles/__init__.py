"""Tile programs: what is computed for one problem of a batch by values that stay on chip."""
