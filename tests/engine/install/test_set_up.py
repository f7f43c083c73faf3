import shutil
import subprocess
import sys
import threading
import time

import pytest

from burnish_engine.contract.errors import LeasedError, NoSpaceError, SetupError, StoppedError
from burnish_engine.install import set_up as module
from burnish_engine.install.engines import Engines, downloads, engine_python
from burnish_engine.install.files.sources import FolderSource, WebSource, open_source
from burnish_engine.install.offer import changes, is_newer, read_offer
from burnish_engine.install.set_up import Order, SetUpProgress, set_up

from support.engine_mirror import KEY, TARGET, MadeUpRelease, mirror

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for uv is a script")


@pytest.fixture(scope="module")
def release():
    return MadeUpRelease(padding=300_000)


@pytest.fixture
def served(release):
    with mirror(release) as answers:
        yield answers


def order_of(place, *sources):
    source = sources[0]
    offer = read_offer(source, KEY)
    return Order(offer.release, offer.release.target(TARGET), sources, place)


def version_of(python):
    code = "import burnish_engine, torch, llama_cpp; print(burnish_engine.VERSION)"
    done = subprocess.run([str(python), "-P", "-c", code], capture_output=True, text=True, env={}, check=True)
    return done.stdout.strip()


def test_an_engine_is_set_up_and_found(release, served, tmp_path):
    home = tmp_path / "engine"
    assert engine_python(tmp_path) is None
    order = order_of(home, WebSource(served.address))
    assert order.missing_bytes() == sum(map(len, release.files.values()))
    progress = SetUpProgress()
    set_up(order, Engines(home), progress)
    assert version_of(engine_python(tmp_path)) == "0.1.0"
    assert progress.reading().done_bytes == progress.reading().total_bytes
    assert not downloads(home).exists()
    assert Engines(home).log.is_file()


def test_a_file_named_on_another_drive_is_pointed_at(release, tmp_path):
    source = FolderSource(release.write(tmp_path / "release"))
    order = order_of(tmp_path / "drive" / "burnish-engine", source)
    set_up(order, Engines(tmp_path / "engine"), SetUpProgress())
    assert engine_python(tmp_path).is_relative_to(tmp_path / "drive")
    assert order.missing_bytes() == 0


def test_a_cut_download_continues_where_it_was(release, served, tmp_path):
    path = f"/files/{release.large}"
    served.faults[path] = ["cut"]
    set_up(order_of(tmp_path, WebSource(served.address)), Engines(tmp_path), SetUpProgress())
    offsets = [offset for asked, offset in served.asked if asked == path]
    assert len(offsets) == 2
    assert offsets[0] == 0 < offsets[1]


@pytest.mark.parametrize(
    ("faults", "said"),
    [
        (["wrong"] * 2, "hash"),
        (["cut"] * 9, "ended after"),
        (["page"] * 2, "web page"),
        (["missing"] * 2, "404"),
        (["login"] * 2, "proxy"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_bad_mirror_is_told_by_its_reason_and_the_next_try_works(release, served, tmp_path, faults, said):
    served.faults[f"/files/{release.large}"] = list(faults)
    order = order_of(tmp_path, WebSource(served.address))
    with pytest.raises(SetupError, match=said):
        set_up(order, Engines(tmp_path), SetUpProgress())
    assert Engines(tmp_path).current is None
    served.faults.clear()
    set_up(order, Engines(tmp_path), SetUpProgress())
    assert version_of(Engines(tmp_path).current.python) == "0.1.0"


def test_one_bad_answer_is_not_told(release, served, tmp_path):
    served.faults = {
        f"/files/{name}": [fault] for name, fault in zip(release.files, ("wrong", "page", "cut"), strict=False)
    }
    set_up(order_of(tmp_path, WebSource(served.address)), Engines(tmp_path), SetUpProgress())
    assert Engines(tmp_path).current is not None


def test_a_full_disk_is_told_before_anything_is_fetched(release, served, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _path: type(usage)(usage.total, usage.used, 1_000_000))
    with pytest.raises(NoSpaceError, match="space"):
        set_up(order_of(tmp_path, WebSource(served.address)), Engines(tmp_path), SetUpProgress())
    assert not [path for path, _ in served.asked if path.startswith("/files/")]


def test_a_pause_keeps_what_came(release, served, tmp_path):
    served.block_pause_s = 0.05
    order, progress = order_of(tmp_path, WebSource(served.address)), SetUpProgress()
    threading.Timer(0.15, progress.stop.set).start()
    with pytest.raises(StoppedError):
        set_up(order, Engines(tmp_path), progress)
    kept = order.target.download_bytes - order.missing_bytes()
    assert kept > 0
    served.block_pause_s = 0.0
    set_up(order, Engines(tmp_path), SetUpProgress())
    assert version_of(Engines(tmp_path).current.python) == "0.1.0"


def test_a_trial_that_takes_long_can_be_paused(served, tmp_path):
    served.serve(MadeUpRelease(trial_s=60.0))
    progress = SetUpProgress()

    def stopped():
        while progress.stage != "trying":
            time.sleep(0.02)
        progress.stop.set()

    threading.Thread(target=stopped, daemon=True).start()
    began_s = time.monotonic()
    with pytest.raises(StoppedError):
        set_up(order_of(tmp_path, WebSource(served.address)), Engines(tmp_path), progress)
    assert time.monotonic() - began_s < 50.0
    assert Engines(tmp_path).current is None


def test_an_update_is_switched_to_and_rolled_back(release, served, tmp_path):
    engines, source = Engines(tmp_path), WebSource(served.address)
    set_up(order_of(tmp_path, source), engines, SetUpProgress())
    assert not is_newer(read_offer(source, KEY), engines.current)
    served.serve(MadeUpRelease("0.2.0"))
    offer = read_offer(source, KEY)
    assert is_newer(offer, engines.current)
    told = changes(offer, offer.release.target(TARGET), engines.current)
    assert told.changed == {"burnish": ("0.1.0", "0.2.0")}
    set_up(order_of(tmp_path, source), engines, SetUpProgress())
    assert version_of(engines.current.python) == "0.2.0"
    engines.roll_back()
    assert version_of(engines.current.python) == "0.1.0"
    engines.roll_back()
    assert version_of(engines.current.python) == "0.2.0"


@pytest.mark.parametrize("fault", [{"torch_ok": False}, {"ready": False}], ids=str)
def test_an_update_that_fails_its_trial_changes_nothing(release, served, tmp_path, fault):
    engines, source = Engines(tmp_path), WebSource(served.address)
    set_up(order_of(tmp_path, source), engines, SetUpProgress())
    served.serve(MadeUpRelease("0.2.0", **fault))
    with pytest.raises(SetupError, match="made up"):
        set_up(order_of(tmp_path, source), engines, SetUpProgress())
    assert version_of(engines.current.python) == "0.1.0"
    assert len(list((tmp_path / "engines").iterdir())) == 1


def test_what_is_not_signed_is_refused(release, tmp_path):
    folder = release.write(tmp_path / "release")
    description = folder / "engine.json"
    description.write_text(description.read_text().replace("Changes of", "Chances of"), encoding="utf-8")
    with pytest.raises(SetupError, match="changed"):
        read_offer(open_source(str(folder)), KEY)


def test_two_set_ups_do_not_meet(release, tmp_path):
    order = order_of(tmp_path, FolderSource(release.write(tmp_path / "release")))
    code = (
        "import sys, time, pathlib\nfrom burnish_engine.install.engines import Engines\n"
        f"with Engines(pathlib.Path({str(tmp_path)!r})).locked():\n    print('held', flush=True)\n    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        for work in (Engines.roll_back, Engines.remove, lambda engines: set_up(order, engines, SetUpProgress())):
            with pytest.raises(LeasedError):
                work(Engines(tmp_path))
        other.kill()


def test_removal_leaves_all_else(release, tmp_path):
    home = tmp_path / "engine"
    source = FolderSource(release.write(tmp_path / "release"))
    set_up(order_of(home, source), Engines(home), SetUpProgress())
    (tmp_path / "runs").mkdir()
    Engines(home).remove()
    assert engine_python(tmp_path) is None
    assert (tmp_path / "runs").is_dir()
    assert not (home / "engines").exists()
