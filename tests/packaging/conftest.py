"""The set-up code is no package: its folder goes on sys.path, the way Python puts a script's folder there."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "packaging"), str(ROOT / "packaging" / "release")]
