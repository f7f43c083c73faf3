"""Reads where pip will look for packages, from its environment variables and configuration files.

Burnish leaves pip's own settings alone. It only needs to know whether somebody named an index or a folder, because on
some machines the default index has no torch that can use the GPU.
"""

from __future__ import annotations

import configparser
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

_KEYS = ("index-url", "extra-index-url", "find-links")
_SECTIONS = ("global", "install")


@dataclass(frozen=True)
class PipSources:
    """Addresses and folders that pip was told of, beyond its default index."""

    addresses: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()

    @property
    def configured(self) -> bool:
        """Whether any index or folder was named."""
        return bool(self.addresses or self.folders)


def read_pip_sources(root: Path, env: Mapping[str, str]) -> PipSources:
    """Read what pip was told in its environment, its files and `BURNISH_WHEELHOUSE`.

    Args:
        root: folder of the repository, whose `.venv` may hold a pip configuration of its own.
        env: environment of the process.
    """
    named = [env.get("PIP_" + key.upper().replace("-", "_"), "") for key in _KEYS]
    named += _from_files(config_files(root, env))
    words = " ".join(named).split()  # pip separates several values by white space, in files as in variables
    wheelhouse = env.get("BURNISH_WHEELHOUSE", "").strip()
    folders = [path for word in words if (path := _as_folder(word))]
    return PipSources(
        addresses=tuple(word for word in words if not _as_folder(word)),
        folders=tuple(folders + ([wheelhouse] if wheelhouse else [])),
    )


def config_files(root: Path, env: Mapping[str, str]) -> list[Path]:
    """List the paths of pip's configuration files ("Configuration files" in its user guide), least important first."""
    chosen = env.get("PIP_CONFIG_FILE", "")
    if chosen == os.devnull:
        return []
    home = Path(env.get("USERPROFILE" if sys.platform == "win32" else "HOME", "") or Path.home())
    if sys.platform == "win32":
        folders = [Path(env[key]) / "pip" for key in ("PROGRAMDATA", "APPDATA") if env.get(key)] + [home / "pip"]
        name = "pip.ini"
    else:
        system = [Path(part) / "pip" for part in env.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":") if part]
        user = Path(env.get("XDG_CONFIG_HOME", "") or home / ".config") / "pip"
        folders = [*system, Path("/etc"), home / ".pip", user]
        name = "pip.conf"
    return [folder / name for folder in [*folders, root / ".venv"]] + ([Path(chosen)] if chosen else [])


def _from_files(files: Iterable[Path]) -> list[str]:
    parser = configparser.RawConfigParser()
    for path in files:
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError, OSError):
            continue  # pip itself complains about its broken file, in better words than ours
    return [parser.get(section, key, fallback="") for section in _SECTIONS for key in _KEYS]


def _as_folder(word: str) -> str:
    """The folder that a word names, directly or as a file address; empty for anything else."""
    path = url2pathname(urlsplit(word).path) if word.startswith("file:") else word
    return path if Path(path).is_dir() else ""
