"""Starts a measurement by name, wherever its file lies, with this checkout's packages; see the package's docstring.

python tests/bench [NAME [ARGUMENT ...]]
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def scripts() -> dict[str, Path]:
    """Return the files with a `main()` by name, folder by folder."""
    found = sorted(HERE.rglob("[!_]*.py"), key=lambda path: (path.parent, path.name))
    return {path.stem: path for path in found if re.search(r"^def main\(", path.read_text(encoding="utf-8"), re.M)}


def listing() -> str:
    """Return the folders with their scripts, each with the first line of its docstring."""
    lines, known = [], scripts()
    width, folder = max(map(len, known)), None
    for name, path in known.items():
        if path.parent != folder:
            folder = path.parent
            lines += ["", folder.relative_to(ROOT).as_posix()]
        said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        lines.append(f"  {name:{width}}  {said.splitlines()[0]}")
    return "\n".join(lines)


def main() -> int | None:
    """Start the script that the first argument names; without one, list all."""
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(f"python tests/bench NAME [ARGUMENT ...]\n{listing()}")
        return 0
    name, *words = sys.argv[1:]
    path = scripts().get(name)
    if path is None:
        print(f"There is no measurement called {name}.\n{listing()}", file=sys.stderr)
        return 2
    packages = [str(ROOT / part) for part in ("app", "engine", "kernels")]
    sys.path[:1] = [str(ROOT / "tests"), *packages]  # in place of this folder, which Python put there
    already = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
    os.environ["PYTHONPATH"] = os.pathsep.join([*packages, *already])  # for the processes that scripts start
    sys.argv = [f"{HERE.name} {name}", *words]
    module = ".".join(path.relative_to(HERE.parent).with_suffix("").parts)
    return importlib.import_module(module).main()


if __name__ == "__main__":
    sys.exit(main())
