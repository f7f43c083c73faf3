"""The launchers hold no set-up logic, and Windows can read its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

FOLDER = ROOT / "packaging"


@pytest.mark.parametrize("command", ["run", "test"])
def test_shell_launchers_only_find_python(command: str) -> None:
    path = FOLDER / f"{command}.sh"
    lines = [
        line for line in path.read_text(encoding="utf-8").splitlines() if line.strip() and not line.startswith("#")
    ]
    assert len(lines) <= 10
    assert f'exec "$python" "$here/bootstrap.py" {command} "$@"' in "\n".join(lines)
    assert "pip" not in "\n".join(lines)
    if os.name != "nt":
        assert os.access(path, os.X_OK)


@pytest.mark.parametrize("command", ["run", "test"])
def test_windows_launchers_have_crlf_and_quote_paths(command: str) -> None:
    data = (FOLDER / f"{command}.cmd").read_bytes()
    assert data.count(b"\n") == data.count(b"\r\n") > 0
    assert data.isascii()
    text = data.decode()
    assert f'"%~dp0bootstrap.py" {command} %*' in text
    assert text.count("%~dp0") == 1
    assert "enabledelayedexpansion" not in text.lower(), "it would eat exclamation marks in paths"


def test_git_keeps_the_line_endings() -> None:
    attributes = FOLDER / ".gitattributes"
    assert "*.cmd text eol=crlf" in attributes.read_text()
    assert "*.sh text eol=lf" in attributes.read_text()


def test_ci_is_the_readmes_test_command() -> None:
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "bash packaging/test.sh" in text
    assert os.name == "nt" or os.access(ROOT / ".ci" / "run", os.X_OK)


def test_packaging_is_no_package() -> None:
    assert list(FOLDER.rglob("__init__.py")) == []
    import packaging

    assert packaging.__file__
    assert "site-packages" in packaging.__file__


def test_module_names_collide_with_nothing() -> None:
    names = {path.stem for path in FOLDER.glob("*.py")}
    assert names.isdisjoint(sys.stdlib_module_names)
    installed = {path.stem for path in Path(pytest.__file__).parents[1].glob("*")}
    assert names.isdisjoint(installed)


@pytest.mark.full
@pytest.mark.skipif(os.name == "nt", reason="shell launcher")
def test_launcher_passes_arguments_and_exit_code_on(tmp_path: Path) -> None:
    folder = tmp_path / "bür nish" / "packaging"
    folder.mkdir(parents=True)
    (folder / "run.sh").write_bytes((FOLDER / "run.sh").read_bytes())
    (folder / "bootstrap.py").write_text("import sys; print(sys.argv[1:]); sys.exit(14)")
    done = subprocess.run(
        ["sh", str(folder / "run.sh"), "a b", "", "--x=$HOME"], capture_output=True, text=True, cwd="/", check=False
    )
    assert (done.returncode, done.stdout) == (14, "['run', 'a b', '', '--x=$HOME']\n")


@pytest.mark.skipif(os.name == "nt", reason="shell launcher")
def test_no_python_at_all(tmp_path: Path) -> None:
    for tool in ("dirname", "sh"):
        (tmp_path / tool).symlink_to(f"/usr/bin/{tool}" if Path(f"/usr/bin/{tool}").exists() else f"/bin/{tool}")
    done = subprocess.run(
        ["sh", str(FOLDER / "run.sh")], capture_output=True, text=True, env={"PATH": str(tmp_path)}, check=False
    )
    assert done.returncode == 12
    assert "Python 3.11 or newer" in done.stderr
