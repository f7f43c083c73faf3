"""Measurements of links: kept by the GPUs' UUIDs, and used until they are measured anew."""

import json
import logging

import pytest

from burnish_engine.contract.facts.machine import ExchangeFacts, HostCopiesFacts, LinkFacts, LinkMeasurement, PcieFacts
from burnish_engine.contract.paths import links_file
from burnish_engine.hardware.gpu.kept_links import keep_exchange, keep_links, with_kept_links
from burnish_engine.hardware.gpu.visible import only_visible

from support.machines.made_up import GIB, gpu_machine


def machine(names="abc", driver="580.1"):
    found = gpu_machine("NVIDIA GeForce RTX 3090", 24 * GIB, count=len(names))
    idle = PcieFacts(generation=1, best_generation=4, width=16)
    gpus = [
        gpu.model_copy(update={"uuid": f"GPU-{name}", "pcie": idle})
        for gpu, name in zip(found.gpus, names, strict=True)
    ]
    links = [LinkFacts(first=a, second=b) for a in range(len(names)) for b in range(a + 1, len(names))]
    return found.model_copy(update={"gpus": gpus, "links": links, "driver": driver})


def measured(found, *, copy_gb_s=20.0, all_reduce=9.0):
    rates = {"generation": 4, "under_load": True, "to_gpu_gb_s": 24.0, "from_gpu_gb_s": 25.0}
    gpus = [gpu.model_copy(update={"pcie": gpu.pcie.model_copy(update=rates)}) for gpu in found.gpus]
    links = [
        link.model_copy(update={"measured": LinkMeasurement(copy_gb_s=copy_gb_s + link.first + link.second)})
        for link in found.links
    ]
    together = HostCopiesFacts(gpus=len(gpus), to_gpus_gb_s=60.0, from_gpus_gb_s=50.0, both_ways_gb_s=2 * copy_gb_s)
    changes = {"gpus": gpus, "links": links, "all_reduce_gb_s": all_reduce, "host_copies": together}
    return found.model_copy(update=changes)


def test_a_machine_that_nothing_is_known_of_stays_as_it_is():
    assert with_kept_links(machine()) == machine()


def test_what_was_measured_counts_in_every_later_process():
    keep_links(measured(machine()))
    assert with_kept_links(machine()) == measured(machine())


def test_a_new_measurement_replaces_the_old_one():
    keep_links(measured(machine()))
    keep_links(measured(machine(), copy_gb_s=10.0, all_reduce=5.0))
    assert with_kept_links(machine()) == measured(machine(), copy_gb_s=10.0, all_reduce=5.0)


def test_a_gpu_without_a_uuid_is_left_out():
    found = machine("ab")
    nameless = found.model_copy(update={"gpus": [found.gpus[0], found.gpus[1].model_copy(update={"uuid": ""})]})
    keep_links(measured(nameless))
    kept = with_kept_links(nameless)
    assert [gpu.pcie.to_gpu_gb_s for gpu in kept.gpus] == [24.0, None]
    assert (kept.links, kept.all_reduce_gb_s, kept.host_copies) == (nameless.links, None, None)


def test_gpus_are_known_by_their_names_where_only_some_are_seen():
    keep_links(measured(machine()))
    keep_exchange(machine(), ExchangeFacts(gpus=[0, 2], bytes=1000, ms=2.0))
    seen = with_kept_links(only_visible(machine(), "2,0"))
    assert seen.links[0].measured.copy_gb_s == 22.0
    assert (seen.all_reduce_gb_s, seen.host_copies) == (None, None), "they were measured over three"
    assert seen.exchanges == [ExchangeFacts(gpus=[0, 1], bytes=1000, ms=2.0)]
    assert with_kept_links(only_visible(machine(), "0,1")).exchanges == []


def test_an_exchange_replaces_one_of_the_same_gpus_and_size():
    for size, ms in ((1000, 2.0), (5000, 3.0), (1000, 4.0)):
        keep_exchange(machine(), ExchangeFacts(gpus=[0, 1], bytes=size, ms=ms))
    assert [(one.bytes, one.ms) for one in with_kept_links(machine()).exchanges] == [(5000, 3.0), (1000, 4.0)]


@pytest.mark.parametrize("changed", [machine(driver="590.1"), machine("xyz")])
def test_another_driver_and_other_cards_are_other_links(changed):
    keep_links(measured(machine()))
    keep_exchange(machine(), ExchangeFacts(gpus=[0, 1], bytes=1000, ms=2.0))
    assert with_kept_links(changed) == changed


@pytest.mark.parametrize(
    "text", ["", "[]", '{"pairs": 3}', '{"exchanges": [{"gpus": [], "bytes": 0, "ms": 1}]}', "[" * 9999]
)
def test_a_damaged_file_is_not_used_and_is_written_anew(text, caplog):
    links_file().write_text(text, encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        assert with_kept_links(machine()) == machine()
    assert str(links_file()) in caplog.text
    keep_links(measured(machine()))
    assert with_kept_links(machine()) == measured(machine())


def test_the_file_of_a_newer_version_is_left_alone():
    text = json.dumps({"version": 2, "pairs": "of another form"})
    links_file().write_text(text, encoding="utf-8")
    assert with_kept_links(machine()) == machine()
    keep_links(measured(machine()))
    assert links_file().read_text(encoding="utf-8") == text


def test_a_folder_that_cannot_be_written_ends_nothing(monkeypatch, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path / "file" / "home"))
    keep_links(measured(machine()))
    assert "could not be kept" in caplog.text
    assert with_kept_links(machine()) == machine()
