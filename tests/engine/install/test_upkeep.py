import shutil
import sys

import pytest

from burnish_engine.contract.errors import SetupError
from burnish_engine.install.engines import Engines, engine_home, engine_python
from burnish_engine.install.files.sources import FolderSource
from burnish_engine.install.offer import read_offer
from burnish_engine.install.set_up import Order, SetUpProgress, set_up
from burnish_engine.install.upkeep import damaged_files, move

from support.engine_mirror import KEY, TARGET, MadeUpRelease

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for uv is a script")


@pytest.fixture
def order(tmp_path):
    source = FolderSource(MadeUpRelease().write(tmp_path / "release"))
    offer = read_offer(source, KEY)
    return Order(offer.release, offer.release.target(TARGET), [source], engine_home(tmp_path))


@pytest.fixture
def engines(order):
    engines = Engines(order.place)
    set_up(order, engines, SetUpProgress())
    return engines


def damaged_in(engine):
    return damaged_files(engine.folder, engine.target, SetUpProgress())


def damage(engine):
    path = next(engine.folder.rglob("torch/version.py"))
    path.write_text("cuda = 13\n", encoding="utf-8")
    return path


def test_a_damaged_file_is_found_and_repaired(order, engines):
    before = engines.current
    assert damaged_in(before) == []
    path = damage(before)
    assert damaged_in(before) == [path]
    set_up(order, engines, SetUpProgress())
    assert damaged_in(engines.current) == []
    assert engines.former is None
    assert not before.folder.exists()


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b"torch/version.py\n", b"", None], ids=["binary", "cut", "empty", "gone"]
)
def test_a_package_whose_list_of_files_is_damaged_is_found(engines, content):
    record = next(engines.current.folder.rglob("torch-*.dist-info/RECORD"))
    if content is None:
        shutil.rmtree(record.parent)
        assert damaged_in(engines.current)[0].name == "torch"
    else:
        record.write_bytes(content)
        assert damaged_in(engines.current) == [record]


def test_an_engine_moves_to_another_drive(tmp_path, engines):
    before, place = engines.current, engines.place_in(tmp_path / "drive")
    moved = move(before, engines, place, SetUpProgress())
    assert engine_python(tmp_path) == moved.python
    assert moved.python.is_relative_to(place)
    assert not before.folder.exists()
    assert Engines(engines.home).place == place


def test_an_engine_does_not_move_into_itself(tmp_path, engines):
    (tmp_path / "link").symlink_to(engines.current.folder)
    with pytest.raises(SetupError, match="itself"):
        move(engines.current, engines, engines.place_in(tmp_path / "link" / "python"), SetUpProgress())
    assert damaged_in(engines.current) == []


def test_a_damaged_engine_does_not_move(tmp_path, engines):
    before, place = engines.current, engines.place_in(tmp_path / "drive")
    damage(before)
    with pytest.raises(SetupError, match="damaged"):
        move(before, engines, place, SetUpProgress())
    assert engine_python(tmp_path) == before.python
    assert not list((place / "engines").iterdir())


def test_the_data_folder_may_move(tmp_path, engines):
    (tmp_path / "engine").rename(tmp_path / "moved")
    (tmp_path / "home").mkdir()
    (tmp_path / "moved").rename(tmp_path / "home" / "engine")
    assert engine_python(tmp_path / "home").is_file()


def test_an_engine_whose_stamp_is_gone_is_not_used(tmp_path, engines):
    (engines.current.folder / "burnish-engine.json").unlink()
    assert engine_python(tmp_path) is None
