"""``python -m tiledarray script.py``: see `tiledarray.script`."""

import sys

from tiledarray.script import main

if __name__ == "__main__":
    sys.exit(main())
