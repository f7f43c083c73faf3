"""Stands in for uv: installs wheels into a Python as the set-up asks for it, and refuses whatever else it is told."""

import argparse
import hashlib
import sys
import time
import zipfile
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("command", choices=["pip"])
parser.add_argument("verb", choices=["install"])
for name in ("python", "find-links", "cache-dir"):
    parser.add_argument(f"--{name}", type=Path, required=True)
for name in ("break-system-packages", "offline", "no-config", "no-index", "no-deps", "require-hashes", "no-build"):
    parser.add_argument(f"--{name}", action="store_true", required=True)
parser.add_argument("-r", dest="requirements", type=Path, required=True)
chosen = parser.parse_args()
version = "python{}.{}".format(*sys.version_info)
site = chosen.python.parent.parent / "lib" / version / "site-packages"
for line in chosen.requirements.read_text(encoding="utf-8").splitlines():
    requirement, digest = line.split(" --hash=sha256:")
    name, number = requirement.split("==")
    found = next(chosen.find_links.glob(f"{name.replace('-', '_')}-{number}-*.whl"))
    if hashlib.sha256(found.read_bytes()).hexdigest() != digest:
        sys.exit(f"Hash mismatch for {name}")
    with zipfile.ZipFile(found) as wheel:
        for entry in wheel.namelist():
            wheel.extract(entry, site)
            time.sleep(0.005)  # a real one takes its time, in which it may be killed
