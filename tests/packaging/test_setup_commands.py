"""The commands: usage, an old Python, errors as paragraphs, the order of linters and tests."""

import os
import sys
from pathlib import Path

import bootstrap
import pytest
import setup_commands
from choose_builds import Choice
from setup_checks import NO_SPACE, STOPPED, USAGE, SetupProblem


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
        (KeyboardInterrupt(), STOPPED, "goes on from here"),
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
    monkeypatch.setattr(setup_commands, "choose", lambda facts: Choice(error="Update the driver."))
    with pytest.raises(SetupProblem, match=r"Update the driver\."):
        setup_commands.prepare(dev=False)
    assert not (tmp_path / ".venv").exists()


class Runs:
    """Records the commands instead of running them; the one whose name is `failing` fails."""

    def __init__(self, failing: str = "") -> None:
        self.failing, self.commands, self.envs = failing, [], []

    def __call__(self, command: list[str], env: dict[str, str], cwd: Path | None = None) -> int:
        self.commands.append(command[2:])
        self.envs.append(env)
        return 4 if self.failing and self.failing in command else 0


def test_linters_come_first_and_pytest_last(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs()
    monkeypatch.setattr(setup_commands, "run_attached", runs)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setenv("QT_QPA_PLATFORM", "xcb")
    assert setup_commands.test([]) == 0
    assert [command[0] for command in runs.commands] == ["ruff", "ruff", "mypy", "mypy"] + ["pytest"] * 3
    parts, envs = [command[1:] for command in runs.commands[-3:]], runs.envs[-3:]
    chosen = "not gpu and not long"
    assert [part[:2] for part in parts] == [["-m", chosen]] * 3
    cores = os.cpu_count() or 1
    assert [int(part[part.index("-n") + 1]) for part in parts] == [min(cores + more, 4) for more in (1, 0, 1)]
    assert all(1 <= int(env["OMP_NUM_THREADS"]) <= cores for env in envs)
    app, kernels, rest = (part[part.index("--durations=20") + 1 :] for part in parts)
    assert app == ["tests/app"]
    assert "tests/kernels" in kernels
    assert sorted(rest) == sorted(f"--ignore={path}" for path in app + kernels), "nothing is run twice or left out"
    assert ["TRITON_INTERPRET" in env for env in envs] == [False, True, False]
    assert runs.envs[-1]["HF_HUB_OFFLINE"] == "1"
    assert runs.envs[-1]["QT_QPA_PLATFORM"] == "xcb", "the caller's own value wins"


def test_the_first_failure_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(failing="mypy")
    monkeypatch.setattr(setup_commands, "run_attached", runs)
    assert setup_commands.test([]) == 4
    assert len(runs.commands) == 3


def test_arguments_go_to_pytest_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs()
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(setup_commands, "run_attached", runs)
    assert setup_commands.test(["-m", "gpu"]) == 0
    assert setup_commands.test(["tests/kernels/rope", "-q"]) == 0
    assert setup_commands.test(["-m", "gpu", "tests/kernels"]) == 0
    assert [command[1:] for command in runs.commands] == [
        ["-m", "gpu"],
        ["tests/kernels/rope", "-q"],
        ["-m", "gpu", "tests/kernels"],
    ]
    assert ["TRITON_INTERPRET" in env for env in runs.envs] == [False, True, False]


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
