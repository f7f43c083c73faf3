"""pip gets exact versions with hashes: a changed file is refused, one of the user's own is taken and told of."""

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

from locked import Lock, Pin, open_lock, parse_pins

A, B = "a" * 64, "b" * 64


def write_wheel(folder: Path, name: str, version: str) -> Path:
    folder.mkdir(exist_ok=True)
    path, info = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path


def written(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name.replace('_', '-')}.txt").write_text(text)
    return folder


def test_pins_are_read_as_they_are_written() -> None:
    pins = [Pin("A_c", "1.0", "sys_platform == 'linux'", (A, B)), Pin("b", "2.post1", hashes=(A,)), Pin("c", "3")]
    assert parse_pins("# made by hand\n" + "".join(pin.text() for pin in pins)) == pins
    assert pins[0].key == "a-c"


def test_torch_takes_the_files_of_its_own_index_too(tmp_path: Path) -> None:
    name = "torch-2.0+cu126-cp312-cp312-win_amd64.whl"
    folder = written(tmp_path / "lock", packages=Pin("torch", "2.0", hashes=(A,)).text(), torch_files=f"{B}  {name}\n")
    lock = Lock(folder, tmp_path)
    assert lock.pins("packages") == [Pin("torch", "2.0", hashes=(A, B))]
    windows, python = ("Windows", "x86_64"), (3, 12, 4)
    assert lock.lists_torch("2.0", "cu126", windows, python)
    assert not lock.lists_torch("2.0", "cu130", windows, python)
    assert not lock.lists_torch("2.0", "cu126", ("Linux", "x86_64"), python)
    assert not lock.lists_torch("2.0", "cu126", windows, (3, 13, 1))


def test_wheels_of_the_users_own_are_taken_and_told_of_when_no_list_knows_them(tmp_path: Path) -> None:
    known, own = (write_wheel(tmp_path / "wheels", name, "1.0") for name in ("known", "own"))
    write_wheel(tmp_path / "wheels", "own", "2.0")  # not the locked version
    digest = hashlib.sha256(known.read_bytes()).hexdigest()
    text = Pin("known", "1.0", hashes=(digest,)).text() + Pin("own", "1.0", hashes=(A,)).text()
    lock = open_lock(written(tmp_path / "lock", packages=text), tmp_path / "work", [str(own.parent), "no folder"])
    assert [file.path for file in lock.own] == [known, own]
    requirements = Path(lock.arguments("step", lock.pins("packages"))[2])
    assert hashlib.sha256(own.read_bytes()).hexdigest() in parse_pins(requirements.read_text())[1].hashes
    assert lock.unchecked(f"Processing {known}\nProcessing {own}") == [own]
    assert lock.unchecked(f"Processing {known}") == []
    lock.arguments("step", lock.pins("packages"), [tmp_path])
    assert parse_pins(requirements.read_text()) == lock.pins("packages"), "from other folders than the one to look into"


def test_a_wheel_that_is_not_as_its_release_lists_it_is_left_alone(tmp_path: Path) -> None:
    good, cut = (write_wheel(tmp_path / "dist", name, "1.0") for name in ("good", "cut"))
    sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in (good, cut))
    (tmp_path / "dist" / "SHA256SUMS").write_text(sums)
    cut.write_bytes(cut.read_bytes()[:-7])
    text = Pin("cut", "1.0", hashes=(A,)).text() + Pin("good", "1.0", hashes=(A,)).text()
    lock = open_lock(written(tmp_path / "lock", packages=text), tmp_path / "work", [str(good.parent)])
    assert [file.path for file in lock.own] == [good]
    assert lock.damaged == (cut,)


def test_odd_things_in_a_release_are_passed_over(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "dist", "good", "1.0")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    odd = b"\xff\xfe\x00\nno sum at all\n\n" + f"{digest} *{wheel.name}\nabc  x y z\n".encode()
    (tmp_path / "dist" / "SHA256SUMS").write_bytes(odd)
    (tmp_path / "dist" / "good-1.0-folder.whl").mkdir()
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "dist" / "good-1.0-pipe.whl")
    locked = written(tmp_path / "lock", packages=Pin("good", "1.0", hashes=(A,)).text())
    lock = open_lock(locked, tmp_path / "work", [str(wheel.parent)])
    assert ([file.path for file in lock.own], lock.damaged) == ([wheel], ())


def test_a_release_gives_its_wheel_from_a_folder_or_by_hash_from_an_address(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "a release", "llama_cpp_python", "1.0")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    lines = Pin("llama-cpp-python", "1.0", hashes=(A,)).text()
    unlisted = written(tmp_path / "unlisted", llama=lines)
    folder = open_lock(unlisted, tmp_path / "1", [str(wheel.parent)])
    assert _downloaded(folder, str(wheel.parent), tmp_path / "got 1") == [wheel.name]
    assert folder.release_arguments(str(tmp_path), folder.pins("llama")) == [], "no wheel lies there"

    address = wheel.parent.as_uri()
    assert not open_lock(unlisted, tmp_path / "2", []).release_arguments(address, folder.pins("llama"))
    listed = open_lock(
        written(tmp_path / "listed", llama=lines, llama_files=f"{digest}  {wheel.name}\n"), tmp_path / "3", []
    )
    assert _downloaded(listed, f"{address}/", tmp_path / "got 2") == [wheel.name]
    with zipfile.ZipFile(wheel, "a") as changed:
        changed.writestr("more", "")
    assert _downloaded(listed, address, tmp_path / "got 3") == []


def _downloaded(lock: Lock, place: str, to: Path) -> list[str]:
    pip = [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", "download", "--no-cache-dir"]
    arguments = lock.release_arguments(place, lock.pins("llama"))
    subprocess.run([*pip, "--quiet", "--dest", str(to), *arguments], capture_output=True, check=False)
    return [path.name for path in to.glob("*.whl")]


def test_pip_refuses_a_file_with_another_hash(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "index", "thing", "1.0")
    lock = open_lock(written(tmp_path / "lock", packages=Pin("thing", "1.0", hashes=(A,)).text()), tmp_path, [])
    pip = [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", "download", "--no-cache-dir"]
    pip += ["--no-index", "--find-links", str(wheel.parent), "--dest", str(tmp_path / "got"), "--quiet"]
    done = subprocess.run(
        [*pip, *lock.arguments("step", lock.pins("packages"))], capture_output=True, text=True, check=False
    )
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert not (tmp_path / "got" / wheel.name).exists()
