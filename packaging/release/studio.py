"""The first module of the frozen window."""

import os
import sys

from burnish_app.__main__ import main

if sys.platform == "linux":
    # Where the frozen libraries lie was for this process alone. The engine and the browser are to load their own.
    before = os.environ.pop("LD_LIBRARY_PATH_ORIG", None)
    if before is None:
        os.environ.pop("LD_LIBRARY_PATH", None)
    else:
        os.environ["LD_LIBRARY_PATH"] = before

if __name__ == "__main__":
    sys.exit(main())
