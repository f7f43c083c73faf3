"""Datasets of the hub: what is wrong decides what a person is told."""

import subprocess

import pytest

from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.data.files.hub_datasets import hub_folder

UNREACHED = "requests.ConnectionError: refused\nhuggingface_hub.errors.LocalEntryNotFoundError: An error happened"
UNKNOWN = "huggingface_hub.errors.RepositoryNotFoundError: 404 Client Error\nRepository Not Found for url"


@pytest.mark.parametrize(("said", "error"), [(UNREACHED, SetupError), (UNKNOWN, UsageError), ("", SetupError)])
def test_a_hub_that_is_not_reached_is_no_mistake_of_the_person(monkeypatch, tmp_path, said, error):
    monkeypatch.setenv("BURNISH_OFFLINE", "0")
    monkeypatch.setattr(
        subprocess, "run", lambda command, **_options: subprocess.CompletedProcess(command, 1, "", said)
    )
    with pytest.raises(error):
        hub_folder("hf://datasets/nobody/has-this")
