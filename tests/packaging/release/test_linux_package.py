"""The Linux packages of the window: what is in them, and that they come and go without touching what a person made."""

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import bundle
import linux_package
import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="packages for Linux are made there")


@pytest.fixture
def window(tmp_path):
    """A frozen window that says how it was started; beside it a real library."""
    folder = tmp_path / "window"
    (folder / "_internal").mkdir(parents=True)
    (folder / "burnish-studio").write_text('#!/bin/sh\necho "started $@" >"$HOME/started"\n')
    (folder / "burnish-studio").chmod(0o755)
    shutil.copy(os.__file__, folder / "_internal" / "os.py")
    shutil.copy(Path(sys.executable).resolve(), folder / "_internal" / "python")
    (folder / "_internal" / "link").symlink_to("os.py")
    return folder


@pytest.fixture
def icons(tmp_path):
    for size in ("16x16", "512x512"):
        path = tmp_path / "icons" / "hicolor" / size / "apps" / "burnish.png"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"PNG")
    return tmp_path / "icons"


def members(package):
    """The files of an `ar` archive: deb(5)."""
    assert package.startswith(b"!<arch>\n")
    at, found = 8, {}
    while at < len(package):
        name, size = package[at : at + 16].decode().strip(), int(package[at + 48 : at + 58])
        found[name] = package[at + 60 : at + 60 + size]
        at += 60 + size + size % 2
    return found


def archive(content):
    return tarfile.open(fileobj=io.BytesIO(content))


def test_the_debian_package_holds_the_window_its_menu_entry_and_its_types(window, icons):
    package = members(linux_package.deb(window, icons, "0.1.0", "x86_64"))
    assert list(package) == ["debian-binary", "control.tar.xz", "data.tar.xz"]
    data = archive(package["data.tar.xz"])
    names = set(data.getnames())
    assert {
        "./usr/bin/burnish-studio",
        "./usr/lib/burnish/burnish-studio",
        "./usr/share/applications/burnish.desktop",
        "./usr/share/icons/hicolor/512x512/apps/burnish.png",
        "./usr/share/metainfo/org.burnish.Studio.metainfo.xml",
        "./usr/share/mime/packages/burnish.xml",
    } <= names
    assert all(
        Path(name).parent.as_posix() in {"", *names, "./", "."} or f"./{Path(name).parent}" in names for name in names
    )
    assert {member.uid for member in data} == {member.gid for member in data} == {0}
    assert data.getmember("./usr/bin/burnish-studio").linkname == "../lib/burnish/burnish-studio"
    assert data.getmember("./usr/lib/burnish/_internal/link").issym()
    assert data.getmember("./usr/lib/burnish/burnish-studio").mode == 0o755
    control = archive(package["control.tar.xz"])
    assert control.getnames() == [".", "./control", "./md5sums"], "no script touches what a person made"
    fields = control.extractfile("./control").read().decode()
    assert "Architecture: amd64\n" in fields
    assert "libc6 (>= 2." in fields
    for line in control.extractfile("./md5sums").read().decode().splitlines():
        digest, name = line.split("  ")
        content = data.extractfile(f"./{name}").read()
        assert digest == hashlib.md5(content, usedforsecurity=False).hexdigest()


def test_the_same_content_gives_the_same_bits(window, icons):
    before = linux_package.deb(window, icons, "0.1.0", "aarch64"), linux_package.installer(window, icons, "0.1.0")
    os.utime(window / "_internal" / "os.py", (1, 1))
    assert (
        linux_package.deb(window, icons, "0.1.0", "aarch64"),
        linux_package.installer(window, icons, "0.1.0"),
    ) == before


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs dpkg-deb")
def test_debians_own_program_reads_the_package(window, icons, tmp_path):
    file = tmp_path / "burnish.deb"
    file.write_bytes(linux_package.deb(window, icons, "0.1.0", "x86_64"))
    subprocess.run(["dpkg-deb", "-x", file, tmp_path / "out"], check=True)
    assert (tmp_path / "out" / "usr" / "bin" / "burnish-studio").resolve().stat().st_mode & 0o111
    found = subprocess.run(["dpkg-deb", "-f", file, "Package", "Version"], capture_output=True, text=True, check=True)
    assert found.stdout == "Package: burnish\nVersion: 0.1.0\n"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A person's home folder, with a run in it."""
    monkeypatch.setenv("HOME", str(tmp_path / "a home"))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    run = tmp_path / "a home" / ".local" / "share" / "burnish" / "runs" / "mine"
    run.mkdir(parents=True)
    (run / "recipe.toml").touch()
    return tmp_path / "a home"


def files(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}


@pytest.mark.skipif(shutil.which("xz") is None, reason="the archive is unpacked by xz")
def test_the_archive_installs_updates_and_removes_itself_and_leaves_runs(window, icons, home, tmp_path):
    archive, before = tmp_path / "burnish.run", files(home)
    archive.write_bytes(linux_package.installer(window, icons, "0.1.0"))
    subprocess.run(["sh", archive], check=True)
    assert (home / "started").read_text() == "started \n"
    (home / "started").unlink()
    installed = files(home)
    program = home / ".local" / "lib" / "burnish" / "program" / "burnish-studio"
    assert (home / ".local" / "bin" / "burnish-studio").resolve() == program
    entry = (home / ".local" / "share" / "applications" / "burnish.desktop").read_text()
    assert f'Exec="{program}" %F' in entry
    (window / "_internal" / "os.py").rename(window / "_internal" / "new.py")
    archive.write_bytes(linux_package.installer(window, icons, "0.2.0"))
    subprocess.run(["sh", archive, "--no-start"], check=True)
    assert {Path(name).name for name in files(home) ^ installed} == {"os.py", "new.py"}
    subprocess.run(["sh", program.parents[1] / "remove.sh"], check=True)
    left = {name for name in files(home) if not name.startswith(".local/share/mime/") and "mimeinfo" not in name}
    assert left - {".local/share/icons/hicolor/icon-theme.cache"} == before


@pytest.mark.skipif(shutil.which("xz") is None, reason="the archive is unpacked by xz")
@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_damaged_archive_installs_nothing(window, icons, home, tmp_path, damage):
    archive, before = tmp_path / "burnish.run", files(home)
    content = linux_package.installer(window, icons, "0.1.0")
    archive.write_bytes(content[:-100] if damage == "cut" else content[:-100] + b"x" * 100)
    done = subprocess.run(["sh", archive], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "damaged or incomplete" in done.stderr
    assert files(home) == before


def test_a_package_that_is_too_large_is_not_written(window, icons, tmp_path, monkeypatch):
    monkeypatch.setattr(linux_package, "MOST_BYTES", 1000)
    with pytest.raises(SystemExit, match="more than"):
        linux_package.make_packages(window, icons, tmp_path, "0.1.0")
    assert not list(tmp_path.glob("*.deb"))


@pytest.mark.skipif(shutil.which("desktop-file-validate") is None, reason="needs desktop-file-utils")
def test_the_menu_entry_is_valid():
    entry = Path(linux_package.__file__).with_name("desktop") / "burnish.desktop"
    assert subprocess.run(["desktop-file-validate", entry], capture_output=True, text=True, check=False).stdout == ""


def test_what_the_window_needs_and_nobody_carries_is_told(window, tmp_path, monkeypatch):
    assert bundle.problems(window) == [] or "libpython" in bundle.problems(window)[0]
    monkeypatch.setattr(bundle, "OLDEST_GLIBC", (2, 1))
    monkeypatch.setattr(bundle, "MOST_BYTES", 10)
    monkeypatch.setattr(bundle, "SYSTEM_LIBRARIES", {})
    (window / "_internal" / "torch").mkdir()
    told = " ".join(bundle.problems(window))
    for what in ("MB", "python needs glibc 2.", "libc.so.6", "It holds torch"):
        assert what in told


@pytest.mark.skipif(shutil.which("makensis") is None, reason="needs NSIS")
@pytest.mark.parametrize("sign", ["", "true %1"])
def test_windows_installer_is_made_where_nsis_is(window, tmp_path, monkeypatch, sign):
    import windows_package

    monkeypatch.setenv(windows_package.SIGN_VARIABLE, sign)
    (window / "_internal" / "link").unlink()
    (tmp_path / "burnish.ico").write_bytes(b"\0\0\1\0\1\0\1\1\0\0\1\0 \0\x30\0\0\0\x16\0\0\0" + bytes(48))
    made = windows_package.make_installer(window, tmp_path / "burnish.ico", tmp_path, "0.1.0")
    assert made.read_bytes()[:2] == b"MZ"
    text = (Path(windows_package.__file__).with_name("desktop") / "burnish.nsi").read_text(encoding="utf-8")
    assert "RequestExecutionLevel user" in text
    assert not set(text.split()) & {"HKLM", "HKCR", "$PROGRAMFILES64"}, "nothing that only an administrator may write"
