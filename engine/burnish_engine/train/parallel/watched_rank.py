"""Run a rank's module in a process that ends with the leader, from its first moment on.

Until a rank has joined, no connection tells it that the leader is gone, and loading its libraries takes a while. So the
leader starts this program (`python -m`), which watches before it imports anything large.
"""

from __future__ import annotations

import runpy
import sys

from burnish_engine.channel.parent import end_with_parent


def main(module: str) -> None:
    """Watch the leader, and run a module as a program.

    Args:
        module: dotted name of the module.
    """
    end_with_parent()
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1])
