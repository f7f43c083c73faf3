"""Linters come first; then the other checks run side by side, each test once, and what each printed is shown whole."""

import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
import run_checks
from run_checks import Check, run_side_by_side

MEETS = """
import pathlib, sys, time
mine, other = sys.argv[1:3]
print("begin", mine)
pathlib.Path(mine).touch()
until = time.monotonic() + 30
while not pathlib.Path(other).exists() and time.monotonic() < until:
    time.sleep(0.01)
print("end", mine)
sys.exit(0 if pathlib.Path(other).exists() else 9)
"""


class Runs:
    """Records the commands instead of running them; the one whose name is `failing` fails."""

    def __init__(self, failing: str = "") -> None:
        self.failing, self.commands, self.envs = failing, [], []

    def __call__(self, command: list[str], env: dict[str, str], cwd: Path | None = None) -> int:
        self.commands.append(command[2:])
        self.envs.append(env)
        return 4 if self.failing and self.failing in command else 0

    def side_by_side(self, lanes: list[list[Check]], root: Path, python: str, env: dict[str, str]) -> list[int]:
        return [self([python, "-m", *check.arguments], {**check.env, **env}) for lane in lanes for check in lane]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    made = Runs()
    monkeypatch.setattr(run_checks, "run_attached", made)
    monkeypatch.setattr(run_checks, "run_side_by_side", made.side_by_side)
    return made


def test_linters_come_first_and_every_test_runs_once(runs: Runs, tmp_path: Path) -> None:
    env = {"QT_QPA_PLATFORM": "xcb", "PYTHONDONTWRITEBYTECODE": "1"}
    assert run_checks.run_checks(tmp_path, "python", env, []) == 0
    assert [command[0] for command in runs.commands[:2]] == ["ruff", "ruff"]
    assert sorted(command[0] for command in runs.commands[2:]) == ["mypy"] * 2 + ["pytest"] * 4
    assert {env["HF_HUB_OFFLINE"] for env in runs.envs} == {"1"}
    assert {env["QT_QPA_PLATFORM"] for env in runs.envs} == {"xcb"}, "the caller's own value wins"
    assert {env["PYTHONDONTWRITEBYTECODE"] for env in runs.envs} == {""}, "what was compiled once is kept"


@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize("cores", [1, 2, 16])
def test_the_parts_leave_nothing_out(cores: int, every: bool) -> None:
    parts = run_checks.test_parts(cores, every=every)
    rest, measured, app, kernels = (
        check.arguments[list(check.arguments).index("--durations=20") + 1 :] for check in parts
    )
    assert measured == app == ["tests/app"]
    assert "tests/kernels" in kernels
    assert sorted(rest) == sorted(f"--ignore={path}" for path in [*app, *kernels])
    assert ["TRITON_INTERPRET" in check.env for check in parts] == [False, False, False, True]
    assert all(1 <= int(check.env["OMP_NUM_THREADS"]) <= cores for check in parts)
    usual = "not gpu and not long" if every else "not gpu and not long and not full"
    assert all(list(check.arguments[:2]) == ["pytest", "-m"] for check in parts)
    marks = [check.arguments[2] for check in parts]
    assert marks == [usual, f"{usual} and measured", f"{usual} and not measured", usual]


@pytest.mark.parametrize(("failing", "commands"), [("ruff", 1), ("tests/app", 8)])
def test_a_failing_linter_ends_it_and_a_failing_test_does_not(
    runs: Runs, tmp_path: Path, failing: str, commands: int
) -> None:
    runs.failing = failing
    assert run_checks.run_checks(tmp_path, "python", {}, []) == 4
    assert len(runs.commands) == commands


def test_all_tests_run_where_that_is_asked_for(runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    marks = []
    for arguments in ([], ["--all"]):
        runs.commands.clear()
        assert run_checks.run_checks(tmp_path, "python", {}, arguments) == 0
        marks.append({command[2] for command in runs.commands if command[0] == "pytest"})
        assert "by the clock" in capsys.readouterr().out, "what the checks took is said"
    assert [any("not full" in mark for mark in each) for each in marks] == [True, False]


def test_arguments_go_to_pytest_alone(runs: Runs, tmp_path: Path) -> None:
    for arguments in (["-m", "gpu"], ["tests/kernels/rope", "-q"], ["-m", "gpu", "tests/kernels"]):
        assert run_checks.run_checks(tmp_path, "python", {}, arguments) == 0
        assert runs.commands[-1] == ["pytest", *arguments]
    assert ["TRITON_INTERPRET" in env for env in runs.envs] == [False, True, False]


def test_lanes_run_at_the_same_time_and_the_checks_of_a_lane_in_turn(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "meets.py").write_text(MEETS, encoding="utf-8")
    (tmp_path / "fails.py").write_text("import sys; print('beside'); sys.exit(7)", encoding="utf-8")
    lanes = [[Check(["meets", "a", "b"], {})], [Check(["meets", "b", "a"], {}), Check(["fails"], {})]]
    assert run_side_by_side(lanes, tmp_path, sys.executable, {}) == [0, 0, 7]
    shown = capfd.readouterr().out
    assert shown.index("end a") < shown.index("begin b") < shown.index("end b") < shown.index("beside")


def test_an_interrupt_ends_what_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "meets.py").write_text(MEETS, encoding="utf-8")
    started = []

    def interrupt(_seconds: float) -> None:
        started.extend(path.name for path in tmp_path.glob("?"))
        if len(set(started)) == 2:
            raise KeyboardInterrupt
        real_sleep(0.05)

    real_sleep = time.sleep
    monkeypatch.setattr(run_checks.time, "sleep", interrupt)
    lanes = [[Check(["meets", "a", "never"], {})], [Check(["meets", "b", "never"], {})]]
    with pytest.raises(KeyboardInterrupt):
        run_side_by_side(lanes, tmp_path, sys.executable, {})
    assert "end" not in capfd.readouterr().out


@pytest.mark.parametrize("there", [True, False])
def test_tests_of_gpus_are_skipped_where_there_is_none(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    settings = next(one for one in request.config.pluginmanager.get_plugins() if hasattr(one, "has_cuda"))
    monkeypatch.setattr(settings, "has_cuda", lambda: there)
    settings.pytest_runtest_setup(request.node)  # this test needs no GPU
    request.node.add_marker("gpu")
    with nullcontext() if there else pytest.raises(pytest.skip.Exception):
        settings.pytest_runtest_setup(request.node)
