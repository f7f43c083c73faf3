"""Texts that are given away hold no secrets, no home folder and, in reports, no names of files."""

import sysconfig
from pathlib import Path

import pytest

import burnish_engine
from burnish_engine.contract.cleaned_text import cleaned, last_lines, without_paths, without_secrets


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


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("No /home/jo/clients/acme.jsonl: gone", "No <path>.jsonl: gone"),
        ('File "/home/Jo Smith/my tools/x.py", line 3', 'File "<path>.py", line 3'),
        (r"C:\Users\Jo\a.csv and D:/b", "<path>.csv and <path>"),
        ("row 3 of data/customers.jsonl, patients.csv", "row 3 of <path>.jsonl, <path>.csv"),
        ("~/secret/plan", "<path>"),
        ("12 tokens/s, 1/2, and/or, Qwen/Qwen3-0.6B, 3.5", "12 tokens/s, 1/2, and/or, Qwen/Qwen3-0.6B, 3.5"),
    ],
)
def test_paths_are_masked(text, wanted):
    assert without_paths(text) == wanted


def test_paths_of_code_stay_from_their_package_on():
    own = Path(burnish_engine.__file__).resolve().with_name("x.py")
    assert without_paths(f'"{own}"') == '"<burnish>/engine/burnish_engine/x.py"'
    assert without_paths(f'"{sysconfig.get_path("purelib")}/torch/x.py"') == '"<site-packages>/torch/x.py"'
    assert without_paths(f'"{own.with_suffix(".csv")}"') == '"<path>.csv"', "data within the source folder"


def test_a_password_in_an_address_goes_before_its_path():
    assert "hunter2" not in without_paths(without_secrets("https://me:hunter2@example.org/x"))
