import errno
import ssl
from pathlib import Path
from urllib.error import HTTPError, URLError

import pytest

from burnish_engine.contract.errors import NoSpaceError
from burnish_engine.install.files.reasons import fetch_problem, install_problem, page_instead


def untrusted():
    error = ssl.SSLCertVerificationError("x")
    error.verify_message = "self-signed certificate"
    return error


def held():
    error = PermissionError(errno.EACCES, "Access is denied")
    error.winerror = 5
    return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (URLError(untrusted()), "certificate"),
        (URLError(OSError("Tunnel connection failed: 407 Proxy Authentication Required")), "proxy"),
        (HTTPError("http://x", 407, "", {}, None), "proxy"),
        (HTTPError("http://x", 404, "", {}, None), "not there"),
        (TimeoutError("timed out"), "in time"),
        (ConnectionResetError("reset"), "cut"),
        (page_instead(), "web page"),
        (held(), "virus scanner"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_true_reason_is_told(error, said):
    problem = fetch_problem("torch.whl", "example.org", error, Path("torch.whl"))
    assert said in problem.what
    assert problem.remedy


def test_a_full_disk_is_one():
    full = OSError(errno.ENOSPC, "No space left on device")
    assert isinstance(fetch_problem("torch.whl", "example.org", full, Path("torch.whl")), NoSpaceError)
    assert isinstance(install_problem("error: No space left on device (os error 28)", Path("log")), NoSpaceError)


def test_uv_is_understood():
    assert "virus scanner" in install_problem("failed to rename: Access is denied. (os error 5)", Path("log")).what
    assert "made up" in install_problem("a made up reason", Path("log")).what
