import sys
import zipfile

import pytest

from burnish_engine.cli.machine.bundle import bundle
from burnish_engine.contract.errors import SetupError
from burnish_engine.install.bundle import bundle_content, write_bundle
from burnish_engine.install.engines import Engines
from burnish_engine.install.files.sources import FolderSource, WebSource, open_source
from burnish_engine.install.offer import read_offer
from burnish_engine.install.set_up import Order, SetUpProgress, set_up

from support.engine_mirror import KEY, TARGET, MadeUpRelease, mirror


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for uv is a script")
def test_a_bundle_sets_up_a_pc_without_a_network(tmp_path):
    release, path = MadeUpRelease(), tmp_path / "bundle.zip"
    (tmp_path / "burnish.deb").write_text("the window")
    with mirror(release) as served:
        source = WebSource(served.address)
        offer = read_offer(source, KEY)
        write_bundle(offer, bundle_content(offer, [TARGET], [tmp_path / "burnish.deb"]), [source], path)
    assert {entry.name for entry in tmp_path.iterdir()} == {"bundle.zip", "burnish.deb"}
    with zipfile.ZipFile(path) as archive:
        assert archive.read("burnish.deb") == b"the window"
        assert TARGET in archive.read("READ ME.txt").decode()
    source = open_source(str(path))
    offer = read_offer(source, KEY)
    order = Order(offer.release, offer.release.target(TARGET), [source], tmp_path / "other PC")
    assert order.missing_bytes() == 0
    set_up(order, Engines(tmp_path / "other PC"), SetUpProgress())
    assert Engines(tmp_path / "other PC").current.release.version == "0.1.0"


def test_a_bundle_of_what_is_not_there_is_refused(tmp_path):
    source = FolderSource(MadeUpRelease().write(tmp_path / "release"))
    offer = read_offer(source, KEY)
    with pytest.raises(SetupError, match="cu126"):
        bundle_content(offer, ["linux-x86_64-cu126"])
    with pytest.raises(SetupError, match="window"):
        bundle_content(offer, [TARGET], [tmp_path / "window.deb"])


def test_the_command_makes_one(tmp_path, monkeypatch):
    release = MadeUpRelease().write(tmp_path / "release")
    monkeypatch.setenv("BURNISH_RELEASE_KEY", KEY.text().splitlines()[1])
    assert bundle(tmp_path / "bundle.zip", None, str(release), None) == 0
    assert read_offer(open_source(str(tmp_path / "bundle.zip")), KEY).release.version == "0.1.0"
    monkeypatch.delenv("BURNISH_RELEASE_KEY")
    with pytest.raises(SetupError, match="key"):
        bundle(tmp_path / "bundle.zip", None, str(release), None)
