"""How people run programs with tiledarray: scripts, IPython."""
