"""The commands: usage, an old Python, errors as paragraphs."""

import sys
from pathlib import Path

import bootstrap
import pytest
import setup_commands

from burnish_engine.install.machine.choose_builds import BuildChoice
from burnish_engine.install.machine.setup_checks import NO_SPACE, STOPPED, USAGE, SetupProblem


def test_an_old_python_gets_a_paragraph(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 13, "final", 0))
    assert bootstrap.main() == 12
    said = capsys.readouterr().err
    assert "3.10.13" in said
    assert "3.11 or newer" in said


def test_the_first_file_is_written_for_any_python_3() -> None:
    source = Path(bootstrap.__file__).read_text(encoding="utf-8")
    assert "annotations" not in source, "the import from __future__ is a syntax error before 3.7"
    assert source.index("version_info < MIN_PYTHON") < source.index("import main as carry_out")


@pytest.mark.parametrize("arguments", [[], ["help"], ["--help"]])
def test_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert setup_commands.main(arguments, "how to") == USAGE
    assert "how to" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (SetupProblem("No room.", NO_SPACE), NO_SPACE, "No room."),
        (PermissionError(13, "Permission denied", "x"), NO_SPACE, "owner and rights"),
        (KeyboardInterrupt(), STOPPED, "continues from here"),
    ],
)
def test_failures_are_paragraphs_with_exit_codes(
    error: BaseException, code: int, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*, dev: bool) -> None:
        raise error

    monkeypatch.setattr(setup_commands, "prepare", fail)
    monkeypatch.setattr(setup_commands, "interrupt_on_sigterm", lambda: None)
    assert setup_commands.main(["run", "doctor"], "") == code
    output = capsys.readouterr()
    assert words in output.err
    assert output.out == "", "stdout belongs to the command"


def test_an_error_of_the_choice_stops_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(setup_commands, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(setup_commands, "choose", lambda facts: BuildChoice(error="Update the driver."))
    with pytest.raises(SetupProblem, match=r"Update the driver\."):
        setup_commands.prepare(dev=False)
    assert not (tmp_path / ".venv").exists()


@pytest.mark.parametrize(("python", "kept"), [((3, 11, 0), True), ((3, 14, 9), True), ((3, 10, 9), False)])
def test_an_environment_keeps_a_python_that_suits(
    monkeypatch: pytest.MonkeyPatch, python: tuple[int, ...], kept: bool
) -> None:
    monkeypatch.setattr(setup_commands, "python_version", lambda _python: python)
    monkeypatch.setattr(setup_commands, "read_stamp", lambda _venv: ({}, False))
    assert setup_commands.usable_python() == (python if kept else tuple(sys.version_info[:3]), False)


def test_run_hands_over_the_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    handed: list[list[str]] = []

    def become(command: list[str], env: dict[str, str]) -> int:
        handed.append(command[1:])
        return 14

    monkeypatch.setattr(setup_commands, "become", become)
    assert setup_commands.run(["verify", "a b.gguf"]) == 14
    assert setup_commands.run([]) == 14
    module = ["-P", "-m", "burnish_engine.cli.main"]
    assert handed == [[*module, "verify", "a b.gguf"], [*module, "--help"]]
