"""Which engine is in use, and which folders of engines go."""

import pytest

from burnish_engine.contract.errors import SetupError
from burnish_engine.install import engines as module
from burnish_engine.install.engines import Engines, InstalledEngine
from burnish_engine.install.release.description import read_release

from support.engine_mirror import TARGET, MadeUpRelease


@pytest.fixture(scope="module")
def release():
    return read_release(MadeUpRelease().text)


@pytest.fixture
def engines(tmp_path):
    return Engines(tmp_path / "home")


def made(engines, release, place=None):
    """An engine that is in use; its Python is an empty file."""
    target = release.target(TARGET)
    engine = InstalledEngine(engines.new_folder(place or engines.home, release, target))
    python = engine.folder / target.python
    python.parent.mkdir(parents=True)
    python.touch()
    engine.finish(release, target)
    engines.use(engine)
    return engine


def test_the_engine_in_use_stays_however_its_place_is_spelled(engines, release, tmp_path):
    engine = made(engines, release)
    unfinished = engines.new_folder(engines.home, release, engine.target)
    (tmp_path / "link").symlink_to(engines.home)
    engines.clear(tmp_path / "link")
    assert Engines(engines.home).current is not None
    assert not unfinished.exists()


def test_a_folder_that_holds_the_engine_in_use_stays(engines, release):
    made(engines, release, engines.place_in(engines.home / "engines"))
    engines.clear(engines.home)
    assert Engines(engines.home).current is not None


def test_a_link_goes_and_what_it_leads_to_stays(engines, release, tmp_path):
    other = made(Engines(tmp_path / "other"), release)
    (engines.home / "engines").mkdir(parents=True)
    (engines.home / "engines" / "link").symlink_to(other.folder)
    engines.clear(engines.home)
    assert InstalledEngine(other.folder).is_complete
    assert not (engines.home / "engines" / "link").exists()


def test_two_accounts_on_one_drive_leave_each_other_alone(engines, release, tmp_path):
    other = Engines(tmp_path / "other")
    for one in (engines, other):
        made(one, release, one.place_in(tmp_path / "drive"))
        one.clear(one.place)
    engines.remove()
    assert engines.current is None
    assert other.current is not None
    assert [path.name for path in (tmp_path / "drive").iterdir()] == [other.place.name]


def test_what_another_program_holds_is_told_and_goes_later(engines, release, monkeypatch):
    place = engines.home.parent / "drive" / "engine"
    engine, removes = made(engines, release, place), module.shutil.rmtree

    def held(folder, ignore_errors=False):
        if not ignore_errors:
            raise PermissionError(f"python is used by another program in {folder}")

    monkeypatch.setattr(module.shutil, "rmtree", held)
    with pytest.raises(SetupError, match="another program"):
        engines.remove()
    assert engine.folder.exists()
    assert Engines(engines.home).current is None
    monkeypatch.setattr(module.shutil, "rmtree", removes)
    engines.remove()
    assert not place.exists()


def test_an_engine_whose_stamp_is_damaged_is_not_used(engines, release):
    stamp = made(engines, release).folder / "burnish-engine.json"
    stamp.write_text(stamp.read_text(encoding="utf-8").replace("targets", "target"), encoding="utf-8")
    assert Engines(engines.home).current is None
