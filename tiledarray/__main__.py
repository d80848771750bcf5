"""``python -m tiledarray script.py``: see `tiledarray.command.script`."""

import sys

from tiledarray.command.script import main

if __name__ == "__main__":
    sys.exit(main())
