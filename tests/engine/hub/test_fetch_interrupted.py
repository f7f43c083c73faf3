"""Interrupted downloads resume where they stopped, and what was damaged meanwhile is found out."""

import hashlib
import os
import subprocess
import sys
import time

import pytest

from burnish_engine.contract.errors import SetupError, StoppedError
from burnish_engine.contract.paths import fetched_model_dir, models_dir
from burnish_engine.hub.fetch import fetch

from support.hubs.fetching import NAME, WEIGHTS, refusal


@pytest.mark.full
def test_a_cut_connection_goes_on_where_it_stopped(hub, model):
    size = len(model.files[WEIGHTS])
    model.cut_after[WEIGHTS] = [100_000, 200_000]
    folder = fetch(NAME)
    assert (folder / WEIGHTS).read_bytes() == model.files[WEIGHTS]
    assert hub.sent(WEIGHTS) == size
    starts = [request.start for request in hub.file_requests(WEIGHTS) if request.server == "content"]
    assert starts == [0, 100_000, 300_000]


@pytest.mark.full
def test_a_server_that_keeps_cutting_is_given_up_and_the_part_stays(hub, model):
    model.cut_after[WEIGHTS] = [100_000] + [0] * 20
    text = refusal(SetupError)
    assert "100,000" in text or "cut the connection" in text
    model.cut_after.clear()
    before = hub.sent(WEIGHTS)
    fetch(NAME)
    assert hub.sent(WEIGHTS) - before == len(model.files[WEIGHTS]) - 100_000


@pytest.mark.full
def test_killed_in_mid_file_and_started_again_downloads_only_the_rest(hub, model):
    model.pause_s = 0.03
    code = f"from burnish_engine.hub.fetch import fetch; fetch({NAME!r})"
    process = subprocess.Popen([sys.executable, "-c", code], env=dict(os.environ))
    deadline = time.monotonic() + 60
    while hub.sent(WEIGHTS) < 400_000 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert not fetched_model_dir(NAME).exists()
    [part] = (models_dir() / ".partial" / "Bench--Tiny-Llama" / "parts").iterdir()
    there = part.stat().st_size
    assert 0 < there < len(model.files[WEIGHTS])
    model.pause_s, before = 0.0, len(hub.requests)
    folder = fetch(NAME)
    assert (folder / WEIGHTS).read_bytes() == model.files[WEIGHTS]
    again = {name: hub.sent(name, since=before) for name in model.files}
    assert {name: count for name, count in again.items() if count} == {WEIGHTS: len(model.files[WEIGHTS]) - there}


@pytest.mark.full
def test_canceled_and_started_again(hub, model):
    model.pause_s = 0.01
    with pytest.raises(StoppedError):
        fetch(NAME, canceled=lambda: hub.sent(WEIGHTS) > 300_000)
    assert not fetched_model_dir(NAME).exists()
    model.pause_s = 0.0
    fetch(NAME)
    assert 0 < [r.start for r in hub.file_requests(WEIGHTS)][-1] <= 400_000


@pytest.mark.full
def test_a_file_that_changed_between_attempts_starts_over(hub, model):
    model.cut_after[WEIGHTS] = [100_000] + [0] * 20
    refusal(SetupError)
    model.cut_after.clear()
    model.files[WEIGHTS] = model.files[WEIGHTS][::-1]
    before = hub.sent(WEIGHTS)
    folder = fetch(NAME)
    assert (folder / WEIGHTS).read_bytes() == model.files[WEIGHTS]
    assert hub.sent(WEIGHTS) - before == len(model.files[WEIGHTS])


def test_a_file_that_changes_during_the_download_is_told(model):
    model.new_etag[WEIGHTS] = "0" * 64
    assert f"{WEIGHTS} of {NAME} changed" in refusal(SetupError)


def test_a_server_without_ranges_sends_it_all_again(hub, model):
    model.cut_after[WEIGHTS] = [100_000]
    model.ignores_range = True
    folder = fetch(NAME)
    assert (folder / WEIGHTS).read_bytes() == model.files[WEIGHTS]
    assert hub.sent(WEIGHTS) > len(model.files[WEIGHTS])


def test_a_part_damaged_on_disk_is_found_out_and_replaced(hub, model):
    model.cut_after[WEIGHTS] = [100_000] + [0] * 20
    refusal(SetupError)
    model.cut_after.clear()
    [part] = (models_dir() / ".partial" / "Bench--Tiny-Llama" / "parts").iterdir()
    part.write_bytes(b"\0" * part.stat().st_size)
    folder = fetch(NAME)
    assert (folder / WEIGHTS).read_bytes() == model.files[WEIGHTS]


def test_a_part_longer_than_the_file_is_dropped(model):
    parts = models_dir() / ".partial" / "Bench--Tiny-Llama" / "parts"
    parts.mkdir(parents=True)
    (parts / f"{hashlib.sha256(model.files[WEIGHTS]).hexdigest()}.part").write_bytes(model.files[WEIGHTS] + b"more")
    assert (fetch(NAME) / WEIGHTS).read_bytes() == model.files[WEIGHTS]


@pytest.mark.full
@pytest.mark.parametrize("name", [WEIGHTS, "config.json"])
def test_wrong_bytes_are_deleted_and_told(hub, model, name):
    model.wrong_bytes.add(name)
    text = refusal(SetupError)
    assert name in text
    assert "other content" in text
    aside = models_dir() / ".partial" / "Bench--Tiny-Llama"
    assert not list((aside / "parts").iterdir())
    assert not (aside / "files" / name).exists()
    model.wrong_bytes.clear()
    assert (fetch(NAME) / name).read_bytes() == model.files[name]
