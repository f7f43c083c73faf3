"""Measurements of Burnish, and LOG.md with what came of them.

`python tests/bench` lists all scripts, and `python tests/bench NAME` starts one; this is the only way to start one. A
script is a module with a `main()`, in whichever folder, with a name that no other one has. It imports from other
folders by full names, such as `bench.shared.rows`, and starts other scripts with `bench.shared.commands`.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""Folder of this checkout."""
