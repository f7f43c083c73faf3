"""Stamp, half-installed packages, and the lock, on small folders."""

import subprocess
import sys
from pathlib import Path

import pytest
import venv_state as vs

ROOT = Path(__file__).resolve().parents[2]


def _repository(root: Path) -> Path:
    (root / "packaging" / "lock").mkdir(parents=True)
    (root / "pyproject.toml").write_text("[project]\n")
    (root / "packaging" / "bootstrap.py").write_text("pass\n")
    (root / "packaging" / "lock" / "constraints.txt").write_text("a==1\n")
    (root / ".venv").mkdir()
    return root


def _parts(root: Path, choice: str = "torch cpu", python: tuple[int, ...] = (3, 12, 3)) -> dict[str, str]:
    return vs.stamp_parts(root, choice=choice, python=python)


def test_a_finished_set_up_is_recognized(tmp_path: Path) -> None:
    root = _repository(tmp_path)
    assert not vs.is_set_up(root / ".venv", _parts(root), dev=False)
    vs.write_stamp(root / ".venv", _parts(root), dev=False)
    assert vs.is_set_up(root / ".venv", _parts(root), dev=False)
    assert not vs.is_set_up(root / ".venv", _parts(root), dev=True), "the developers' tools are missing"
    vs.write_stamp(root / ".venv", _parts(root), dev=True)
    assert vs.is_set_up(root / ".venv", _parts(root), dev=False)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("pyproject.toml", "pyproject.toml"),
        ("packaging/lock/constraints.txt", "packaging/lock"),
        ("packaging/bootstrap.py", "packaging"),
    ],
)
def test_a_changed_file_asks_for_a_new_set_up(tmp_path: Path, path: str, name: str) -> None:
    root = _repository(tmp_path)
    vs.write_stamp(root / ".venv", _parts(root), dev=False)
    (root / path).write_text("# changed\n")
    assert vs.changed_parts(root / ".venv", _parts(root)) == [name]
    assert not vs.is_set_up(root / ".venv", _parts(root), dev=False)


def test_so_do_another_choice_another_python_and_another_place(tmp_path: Path) -> None:
    root = _repository(tmp_path / "ä b")
    vs.write_stamp(root / ".venv", _parts(root), dev=False)
    assert vs.changed_parts(root / ".venv", _parts(root, choice="torch cu130")) == ["the chosen builds"]
    assert vs.changed_parts(root / ".venv", _parts(root, python=(3, 13, 0))) == ["the Python version"]
    moved = root.rename(tmp_path / "elsewhere")
    assert vs.changed_parts(moved / ".venv", _parts(moved)) == [vs.PLACE]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"parts": 3, "dev": true}', '{"dev": true}'])
def test_a_damaged_stamp_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / vs.STAMP).write_text(text)
    assert vs.read_stamp(tmp_path) == ({}, False)


def test_python_that_does_not_run(tmp_path: Path) -> None:
    assert vs.python_version(tmp_path / "python") == ()
    (tmp_path / "python").write_text("not a program")
    assert vs.python_version(tmp_path / "python") == ()
    assert vs.python_version(Path(sys.executable)) == sys.version_info[:3]


def test_half_installed_packages_go(tmp_path: Path) -> None:
    site = tmp_path / "lib" / "python3.12" / "site-packages"
    for name, files in {
        "whole-1.dist-info": ["METADATA", "RECORD"],
        "half-1.dist-info": ["METADATA"],
        "~orch": ["x"],
    }.items():
        (site / name).mkdir(parents=True)
        for file in files:
            (site / name / file).touch()
    assert sorted(vs.remove_half_installed(tmp_path)) == ["half-1.dist-info", "~orch"]
    assert [path.name for path in site.iterdir()] == ["whole-1.dist-info"]


def test_clearing_keeps_the_log_and_the_lock(tmp_path: Path) -> None:
    for name in (vs.LOCK, vs.LOG, "pyvenv.cfg"):
        (tmp_path / name).touch()
    (tmp_path / "lib" / "deep").mkdir(parents=True)
    assert vs.is_replaceable(tmp_path)
    vs.clear(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [vs.LOCK, vs.LOG]
    assert vs.is_replaceable(tmp_path)


def test_somebodys_other_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "my thesis.txt").touch()
    assert not vs.is_replaceable(tmp_path)


@pytest.mark.parametrize(
    ("line", "build"),
    [
        ("cuda: Optional[str] = None", "cpu"),
        ("cuda: Optional[str] = '13.0'", "cu130"),
        ('cuda = "12.6"', "cu126"),
        ("hip = None", ""),
    ],
)
def test_installed_torch_build(line: str, build: str) -> None:
    assert vs.parse_torch_build(f"__version__ = '2.13.0'\ndebug = False\n{line}\ngit_version = 'x'\n") == build


def test_a_second_set_up_waits_and_says_so(tmp_path: Path) -> None:
    holder_code = (
        f"import sys, time; sys.path.insert(0, {str(ROOT / 'packaging')!r}); import pathlib, venv_state as vs\n"
        f"with vs.setup_lock(pathlib.Path({str(tmp_path)!r}), print):\n"
        "    print('held', flush=True); sys.stdin.read(); print('let go', flush=True)\n"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", holder_code], text=True, stdin=pipe, stdout=pipe) as holder:
        assert holder.stdout
        assert holder.stdout.readline().strip() == "held"
        said: list[str] = []

        def say(text: str) -> None:
            said.append(text)
            holder.stdin.close()  # the holder lets go only now

        with vs.setup_lock(tmp_path, say):
            assert holder.stdout.readline().strip() == "let go"
    assert len(said) == 1
    assert "waiting" in said[0]
    with vs.setup_lock(tmp_path, said.append):
        pass
    assert len(said) == 1, "a lock whose holder has ended is no lock"
