"""Makes the installer for Windows from the frozen window, by NSIS, which runs on Windows and on Linux.

    python windows_package.py WINDOW ICON FOLDER VERSION

WINDOW is the folder that `freeze.py` made on Windows. `BURNISH_SIGN` names the command that signs a file, with %1 in
the file's place; without it the installer is not signed, and Windows warns of it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

SIGN_VARIABLE = "BURNISH_SIGN"
_SCRIPT = Path(__file__).resolve().with_name("desktop") / "burnish.nsi"


def make_installer(window: Path, icon: Path, folder: Path, version: str) -> Path:
    """Make the installer; returns its file.

    Args:
        window: frozen window.
        icon: ICO file of the studio.
        folder: folder for the installer.
        version: Burnish's version.

    Raises:
        SystemExit: NSIS is not there.
    """
    program = shutil.which("makensis")
    if program is None:
        raise SystemExit("makensis was not found. Install NSIS (Debian: package nsis) and start again.")
    target = folder / f"burnish-{version}-windows-x86_64-setup.exe"
    size_kib = sum(path.stat().st_size for path in window.rglob("*") if path.is_file()) // 1024
    settings = {"WINDOW": window, "ICON": icon, "TARGET": target, "VERSION": version, "SIZE_KIB": size_kib}
    sign = os.environ.get(SIGN_VARIABLE)
    if sign:
        settings["SIGN"] = sign
    defines = [f"-D{name}={value}" for name, value in settings.items()]
    subprocess.run([program, "-V2", "-WX", *defines, str(_SCRIPT)], check=True)
    return target


if __name__ == "__main__":
    print(make_installer(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]))
