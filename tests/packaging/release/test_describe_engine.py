import subprocess
import sys
import tarfile
from pathlib import Path

import describe_engine
import pytest
from describe_engine import Machine, describe, pins_of
from locked import Pin, read_sums

from burnish_engine.install.release import minisign
from burnish_engine.install.release.description import read_release

from support.engine_mirror import python_archive, wheel

LINUX, WINDOWS = Machine("linux-x86_64-cu130", "3.12.9"), Machine("windows-x86_64-cu130", "3.12.9")
CPU = Machine("linux-x86_64-cpu", "3.12.9")


def keys(machine):
    return {pin.key for pin in pins_of(machine)}


def test_each_machine_gets_its_packages():
    assert {"triton", "nvidia-cublas"} <= keys(LINUX)
    assert "triton-windows" in keys(WINDOWS)
    assert not keys(WINDOWS) & {"triton", "nvidia-cublas"}
    assert "nvidia-cublas" not in keys(CPU)
    assert not (keys(LINUX) | keys(WINDOWS)) & {"pyside6-essentials", "pyqtgraph", "hatchling"}


@pytest.mark.parametrize("machine", [CPU, LINUX, WINDOWS], ids=lambda one: one.target)
def test_torch_is_taken_in_the_build_of_the_machine_alone(machine):
    torch = next(pin for pin in pins_of(machine) if pin.key == "torch")
    listed = {one: name for name, one in read_sums(describe_engine.LOCK / "torch-files.txt").items()}
    assert torch.hashes
    assert all(f"+{machine.build}-" in listed[one] for one in torch.hashes if one in listed)


def test_markers_are_those_of_the_machine_not_of_this_one():
    assert WINDOWS.takes(Pin("a", "1", "sys_platform == 'win32'"))
    assert not LINUX.takes(Pin("a", "1", "sys_platform == 'win32'"))
    assert LINUX.takes(Pin("a", "1", "platform_machine == 'x86_64' and python_version >= '3.12'"))


@pytest.fixture
def dist(tmp_path, monkeypatch):
    """A folder of a release, whose packages are already fetched."""
    fetched = tmp_path / "fetched"
    fetched.mkdir()
    for folder, name, version in ((tmp_path, "burnish", "0.3.0"), (fetched, "torch", "2.13.0")):
        file, content = wheel(name, version, {f"{name}/__init__.py": "x" * 5000})
        (folder / file).write_bytes(content)
    (tmp_path / "uv-1.0-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl").write_bytes(b"PK\x05\x06" + bytes(18))
    (tmp_path / "python-3.12.9-linux-x86_64.tar.gz").write_bytes(python_archive())

    def fetch(_machine, folder, wheels):
        return [describe_engine.kept(path, folder) for path in (*fetched.iterdir(), *wheels.glob("burnish-*.whl"))]

    monkeypatch.setattr(describe_engine, "fetch_packages", fetch)
    return tmp_path


def test_a_release_is_described_with_all_its_files(dist):
    release = read_release(describe(dist, ["linux-x86_64-cpu"], ["New."], "0.3.0"))
    target = release.target("linux-x86_64-cpu")
    assert target.packages() == {"torch": "2.13.0", "burnish": "0.3.0"}
    assert release.python == (3, 12, 9)
    assert all((dist / file.address).stat().st_size == file.size_bytes for file in target.files)
    with tarfile.open(dist / "python-3.12.9-linux-x86_64.tar.gz") as archive:
        python_bytes = sum(entry.size for entry in archive)
    assert target.installed_bytes > python_bytes + 10_000


def test_a_release_that_is_made_again_holds_nothing_of_the_one_before(dist):
    (dist / "files").mkdir()
    (dist / "files" / "torch-2.12.0-py3-none-any.whl").touch()
    burnish = next(dist.glob("burnish-*.whl"))
    (dist / "files" / burnish.name).write_bytes(b"as it was before")
    describe(dist, ["linux-x86_64-cpu"], [], "0.3.0")
    assert (dist / "files" / burnish.name).read_bytes() == burnish.read_bytes()
    assert not (dist / "files" / "torch-2.12.0-py3-none-any.whl").exists()


@pytest.mark.parametrize("lacks", ["uv-*.whl", "python-*.tar.gz", "burnish-*.whl"])
def test_what_a_release_lacks_is_told(dist, lacks, monkeypatch):
    next(dist.glob(lacks)).unlink()
    monkeypatch.setattr(sys, "argv", ["describe_engine.py", str(dist), "--target", "linux-x86_64-cpu"])
    with pytest.raises(SystemExit, match=f"(?i){lacks.partition('-')[0]}"):
        describe_engine.main()


def test_a_secret_that_is_none_is_told_before_anything_is_made(dist, monkeypatch):
    (dist / "secret.key").write_text("no digits")
    command = ["x", str(dist), "--target", "linux-x86_64-cpu", "--secret", str(dist / "secret.key")]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit, match="secret key"):
        describe_engine.main()
    assert not (dist / "files").exists()


def test_a_new_key_signs(tmp_path):
    script, secret = Path(describe_engine.__file__), tmp_path / "secret.key"
    command = [sys.executable, str(script), "--new-key", str(secret)]
    key = minisign.read_key(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    text = minisign.sign(bytes.fromhex(secret.read_text().strip()), key.number, b"release", "x")
    assert minisign.check(key, b"release", text, name="release") == "x"
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode
    assert "Traceback" not in again.stderr
