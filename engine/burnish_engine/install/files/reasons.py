"""Says why a file could not be fetched, in words: the proxy, a certificate, the network, the disk, a virus scanner."""

from __future__ import annotations

import errno
import http.client
import re
import socket
import ssl
import sys
import zipfile
import zlib
from pathlib import Path
from urllib.error import HTTPError, URLError

from burnish_engine.contract.cleaned_text import without_secrets
from burnish_engine.contract.errors import BurnishError, SetupError
from burnish_engine.contract.files import cannot_write, is_full

BAD_ANSWERS = (OSError, ValueError, EOFError, KeyError, http.client.HTTPException, zipfile.BadZipFile, zlib.error)
"""Exceptions that a source raises which breaks off, answers nonsense, or is damaged."""
_AGAIN = "Then try again: what came so far is kept."
_VIRUS_CODES = {225, 226}  # Windows: ERROR_VIRUS_INFECTED, ERROR_VIRUS_DELETED
_HELD_CODES = {5, 32}  # Windows: access denied, used by another process


class WrongAnswerError(Exception):
    """An answer that is not the file.

    Args:
        what: what is wrong with it, as a sentence.
        remedy: advice, as a sentence.
    """

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.remedy = remedy


def page_instead() -> WrongAnswerError:
    """Return the error for a web page that came in place of the file."""
    return WrongAnswerError(
        "a web page came instead of the file, as proxies and the log-in pages of networks answer.",
        "Log in to the network in a browser, or set HTTPS_PROXY to your network's proxy.",
    )


def other_content() -> WrongAnswerError:
    """Return the error for a file whose hash is another one."""
    return WrongAnswerError(
        "the file that came is not the one that belongs to this release (its hash differs), twice.",
        "A proxy that changes downloads or a damaged mirror is the usual cause: use another network or mirror.",
    )


def cut_short(got: int, wanted: int) -> WrongAnswerError:
    """Return the error for an answer that ended before the file did."""
    return WrongAnswerError(
        f"the connection ended after {got:,} of {wanted:,} bytes, twice.", "Check the network, or its proxy."
    )


def fetch_problem(name: str, place: str, error: BaseException, target: Path) -> BurnishError:
    """Return the error to show for a file that could not be fetched.

    Args:
        name: name of the file.
        place: place it was to come from.
        error: error that was met last.
        target: file that was written.
    """
    if isinstance(error, BurnishError):
        return error
    if isinstance(error, WrongAnswerError):
        return SetupError(f"{name} could not be fetched from {place}: {error}", f"{error.remedy} {_AGAIN}")
    inner = error.reason if isinstance(error, URLError) and isinstance(error.reason, Exception) else error
    if isinstance(inner, OSError) and is_full(inner):
        return cannot_write(target, inner)
    what, remedy = _network_words(error, inner) or _file_words(inner)
    return SetupError(f"{name} could not be fetched from {place}: {without_secrets(what)}", f"{remedy} {_AGAIN}")


def install_problem(said: str, log: Path) -> BurnishError:
    """Return the error for packages that could not be installed.

    Args:
        said: what uv said.
        log: file that holds all of it.
    """
    end = " ".join(said.split())[-300:]
    if re.search(r"No space left|os error (28|112)\b|not enough space|Disk quota", said):
        return cannot_write(log.parent, OSError(errno.ENOSPC, "the disk is full"))
    if re.search(r"os error (225|226|5|32)\b|Access is denied|Permission denied", said):
        return SetupError(f"The packages could not be unpacked: {_virus_words()} uv said: {end}", _VIRUS_DO)
    if re.search(r"Hash mismatch|hash", said, re.IGNORECASE):
        return SetupError(f"A package was changed after it was fetched. uv said: {end}", "Start the set-up again.")
    return SetupError(f"The packages could not be installed. uv said: {end}", f"The whole log is {log}.")


def _network_words(error: BaseException, inner: BaseException) -> tuple[str, str] | None:
    said = str(inner)
    if isinstance(error, HTTPError):
        return _status_words(error.code)
    if "Tunnel connection failed" in said:
        return f"the proxy refused the connection ({said}).", "Check HTTPS_PROXY, with its user and password."
    if isinstance(inner, ssl.SSLCertVerificationError):
        return (
            f"the server's certificate is not trusted ({inner.verify_message}).",
            "A proxy or a virus scanner that reads encrypted traffic is the usual cause: add its certificate to the "
            "system's, or name its file in SSL_CERT_FILE. Check the clock of this PC, too.",
        )
    if isinstance(inner, socket.gaierror):
        return "the server's name is not known, so there is no network, or a proxy is needed.", _NETWORK_DO
    if isinstance(inner, TimeoutError):
        return "the server did not answer in time.", _NETWORK_DO
    if isinstance(inner, http.client.InvalidURL):
        return f"its address cannot be read ({said}).", "Check the address of the release."
    if isinstance(inner, ConnectionError | http.client.HTTPException | ssl.SSLError):
        return f"the connection was cut ({type(inner).__name__}: {said or 'no details'}).", _NETWORK_DO
    return None


def _status_words(status: int) -> tuple[str, str]:
    if status == http.client.PROXY_AUTHENTICATION_REQUIRED:
        return "the proxy asks for a user and a password (407).", "Put them into HTTPS_PROXY."
    if status in (401, 403):
        return f"the server refuses it ({status}).", "A proxy may forbid it: ask who runs the network, or use a bundle."
    if status in (404, 410):
        return f"it is not there ({status}).", "Check the address of the release."
    return f"the server answered with an error ({status}).", "Wait a while."


def _file_words(error: BaseException) -> tuple[str, str]:
    code = getattr(error, "winerror", None)
    if (
        code in _VIRUS_CODES
        or (code in _HELD_CODES)
        or (sys.platform == "win32" and isinstance(error, PermissionError))
    ):
        return _virus_words(), _VIRUS_DO
    if isinstance(error, PermissionError):
        return f"it cannot be written ({error}).", "Choose a folder that you may write to."
    if isinstance(error, zipfile.BadZipFile | zlib.error | EOFError | KeyError):
        return f"the archive is damaged ({error}).", "Make or copy the bundle again."
    return f"{error}.", "Check the network and the disk."


def _virus_words() -> str:
    return "the system refuses the file, as it does when a virus scanner holds or removed it."


_VIRUS_DO = "Except the engine's folder from your virus scanner, or choose another folder."
_NETWORK_DO = "Check the network, and HTTPS_PROXY if yours needs a proxy."
