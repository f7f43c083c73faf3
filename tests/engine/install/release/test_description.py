import json

import pytest

from burnish_engine.contract.errors import SetupError
from burnish_engine.install.machine.machine_facts import SetupFacts
from burnish_engine.install.release.description import read_release, target_name

from support.engine_mirror import TARGET, MadeUpRelease


@pytest.fixture(scope="module")
def raw():
    return json.loads(MadeUpRelease().text)


def test_a_description_names_each_file(raw):
    target = read_release(json.dumps(raw)).target(TARGET)
    assert target.packages().keys() == {"torch", "llama-cpp-python", "burnish"}
    assert target.download_bytes == sum(about["bytes"] for about in raw["files"].values())


@pytest.mark.parametrize(
    "spoil",
    [
        lambda raw: raw.update(format=2),
        lambda raw: raw.pop("version"),
        lambda raw: raw["targets"][TARGET].update(python="../../bin/python3"),
        lambda raw: raw["targets"][TARGET].update(python="/bin/python3"),
        lambda raw: raw["targets"][TARGET]["files"].pop(0),
        lambda raw: raw["targets"][TARGET]["files"].append("0" * 64),
        lambda raw: next(iter(raw["files"].values())).update(name="../../.bashrc"),
        lambda raw: next(iter(raw["files"].values())).update(kind="program"),
    ],
)
def test_a_description_that_leads_elsewhere_is_refused(raw, spoil):
    copy = json.loads(json.dumps(raw))
    spoil(copy)
    with pytest.raises(SetupError):
        read_release(json.dumps(copy))


def test_a_machine_without_an_engine_is_told_which_there_are(raw):
    with pytest.raises(SetupError, match=TARGET):
        read_release(json.dumps(raw)).target("windows-x86_64-cu130")


def test_targets_are_named_by_system_processor_and_build():
    assert target_name(SetupFacts("Windows", "x86_64", (3, 12)), "cu130") == "windows-x86_64-cu130"


def test_versions_are_ordered_with_what_comes_before_a_release(raw):
    versions = ("0.9.0", "0.10.0", "1.0.dev1", "1.0a2", "1.0rc1", "1.0.0rc2", "1.0", "1.0.post1", "1.0.1rc1", "1.0.1")
    assert sorted(versions, key=lambda one: read_release(json.dumps(raw | {"version": one})).order) == list(versions)
