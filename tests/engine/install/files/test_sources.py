"""Places of releases: odd addresses, secrets in them, damaged archives, texts without end."""

import base64
import zipfile
from threading import Event, Timer
from time import monotonic

import pytest

from burnish_engine.contract.errors import SetupError, StoppedError
from burnish_engine.install.files import sources
from burnish_engine.install.files.fetch import Fetcher
from burnish_engine.install.files.meter import Meter
from burnish_engine.install.files.sources import BundleSource, FolderSource, WebSource, open_source
from burnish_engine.install.offer import read_offer
from burnish_engine.install.release.description import read_release

from support.engine_mirror import KEY, TARGET, MadeUpRelease, mirror


@pytest.fixture(scope="module")
def release():
    return MadeUpRelease(padding=100_000)


@pytest.fixture(scope="module")
def files(release):
    return read_release(release.text).target(TARGET).files


@pytest.fixture
def folder(release, tmp_path):
    return release.write(tmp_path / "release")


def fetcher(folder, *places):
    folder.mkdir()
    return Fetcher(folder, places, Meter(1, Event()))


@pytest.mark.parametrize("place", ["https://[x", "ftp://a:s3cret@x/y", "http:///x", "http://x:port/", "http://a b/"])
def test_an_odd_address_is_refused_in_words(place):
    with pytest.raises(SetupError) as failed:
        open_source(place).text("engine.json")
    assert "s3cret" not in str(failed.value)


def test_user_and_password_of_an_address_go_to_its_server_and_nowhere_else(release):
    with mirror(release) as served:
        source = open_source(served.address.replace("://", "://anna:s3c%3Aret@"))
        assert read_offer(source, KEY).release.version == "0.1.0"
        assert "anna" not in source.place
        with pytest.raises(SetupError) as failed:
            source.text("missing")
        assert "s3c" not in str(failed.value)
        assert base64.b64decode(served.authorization.removeprefix("Basic ")) == b"anna:s3c:ret"


def test_a_text_without_end_is_no_description(release, folder, tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "bundle.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("engine.json", "x" * 5000)
    monkeypatch.setattr(sources, "_MOST_TEXT_BYTES", 1000)
    with mirror(release) as served:
        for source in (WebSource(served.address), FolderSource(folder), BundleSource(tmp_path / "bundle.zip")):
            with pytest.raises(SetupError, match="larger"):
                source.text("engine.json")


def test_a_damaged_bundle_is_told(release, files, tmp_path):
    path = tmp_path / "bundle.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"files/{release.large}", release.files[release.large])
    content = bytearray(path.read_bytes())
    content[5000] ^= 1
    path.write_bytes(content)
    file = next(file for file in files if file.name == release.large)
    with pytest.raises(SetupError, match="damaged"):
        fetcher(tmp_path / "downloads", BundleSource(path)).fetch(file)


def test_what_a_server_breaks_off_is_told_and_counted_once(release, files, tmp_path):
    file = next(file for file in files if file.name == release.large)
    with mirror(release) as served, mirror(release) as other:
        served.faults[f"/files/{file.name}"] = ["cut"] * 9
        other.faults[f"/files/{file.name}"] = ["missing"] * 9
        fetches = fetcher(tmp_path / "downloads", WebSource(served.address), WebSource(other.address))
        with pytest.raises(SetupError):
            fetches.fetch(file)
        part = next((tmp_path / "downloads").iterdir())
        assert fetches.meter.reading().done_bytes == part.stat().st_size > 0


def test_a_server_that_hangs_does_not_hold_a_stop(release, files, tmp_path):
    with mirror(release) as served:
        served.block_pause_s = 8.0
        fetches = fetcher(tmp_path / "downloads", WebSource(served.address))
        stop = fetches.meter
        Timer(0.3, stop.end).start()
        began_s = monotonic()
        with pytest.raises(StoppedError):
            fetches.fetch_all(files)
        assert monotonic() - began_s < 7.0
