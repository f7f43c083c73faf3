"""The text about a failure that people copy: all that is needed, no secrets, no home folder."""

from pathlib import Path

import pytest

from burnish_app.state.failure_details import FailureDetails, cleaned, details_text, last_lines
from burnish_engine.contract.version import burnish_version


def test_everything_is_there(tmp_path):
    log = tmp_path / "stderr.log"
    log.write_text("\n".join(f"line {n}" for n in range(100)) + "\n\n", encoding="utf-8")
    text = details_text(
        FailureDetails(
            what="Run first", title="Disk full", message="No space.", exit_code=15, process_end="SIGKILL, killed",
            step="3 of 9", device="H100, fast, bf16", versions={"torch": "2.9.1"}, recipe="/x/recipe.toml", log=log,
        )
    )  # fmt: skip
    for part in (
        "Run first",
        "Disk full: No space.",
        "15 (",
        "SIGKILL",
        "3 of 9",
        "H100",
        "torch 2.9.1",
        "recipe.toml",
    ):
        assert part in text
    assert burnish_version() in text
    assert "line 99" in text
    assert "line 1\n" not in text


def test_what_is_not_known_takes_no_line(tmp_path):
    text = details_text(FailureDetails(what="Export", log=tmp_path / "not there"))
    assert "Exit code" not in text
    assert "Cause" not in text
    assert "Last lines" not in text
    assert "99" in details_text(FailureDetails(what="x", exit_code=99))


@pytest.mark.parametrize(
    "secret",
    [
        "hf_" + "abcdefGHIJKL1234567890mnop", "sk-" + "proj1234567890abcdef", "ghp_" + "0123456789abcdefABCDEF",
        "https://me:hunter2@example.org/x", "Authorization: Bearer abcdef.123456", 'api_key="letmein99"',
        "HF_TOKEN=letmein99", "password: letmein99",
    ],
)  # fmt: skip
def test_secrets_are_hidden(secret):
    text = cleaned(f"before {secret} after")
    assert "before" in text
    assert "after" in text
    for part in ("abcdef", "1234567890", "hunter2", "letmein99"):
        assert part not in text


def test_ordinary_text_stays():
    text = "step 3 of 600, 1,024 tokens, https://example.org/a@b, tokens: 12"
    assert cleaned(text) == text


@pytest.mark.full
@pytest.mark.parametrize(
    ("home", "text", "wanted"),
    [
        ("/home/ada", "/home/ada/runs and /home/ada", "~/runs and ~"),
        ("/home/ada", "/home/adam/runs", "/home/adam/runs"),
        (
            r"C:\Users\Ada",
            r"C:\Users\Ada\runs, C:/Users/Ada/runs, 'C:\\Users\\Ada\\runs'",
            r"~\runs, ~/runs, '~\\runs'",
        ),
        ("/", "/a/b", "/a/b"),
    ],
)
def test_the_home_folder_is_not_told(home, text, wanted):
    class Folder(type(Path())):
        def __str__(self):
            return home

    assert cleaned(text, Folder()) == wanted


def test_a_log_that_is_no_text_is_no_reason_to_fail(tmp_path):
    (tmp_path / "log").write_bytes(b"\xff\xfe" * 40_000 + b"\nlast\n")
    assert last_lines(tmp_path / "log").endswith("last")
