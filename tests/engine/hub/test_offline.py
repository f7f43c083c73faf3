"""What the person set is kept apart from what Burnish sets for itself."""

import os
import subprocess
import sys

import pytest

from burnish_engine.hub.offline import is_offline, remember_offline_choice

VARIABLES = ("BURNISH_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


@pytest.fixture
def environment(monkeypatch):
    """Sets just these variables; all are put back after the test, whatever was done to them."""
    for name in VARIABLES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)

    def put(**values):
        for name, value in values.items():
            monkeypatch.setenv(name, value)

    return put


@pytest.mark.parametrize(
    ("values", "offline"),
    [
        ({}, False),
        ({"HF_HUB_OFFLINE": "1"}, True),
        ({"HF_HUB_OFFLINE": "true"}, True),
        ({"HF_HUB_OFFLINE": "0"}, False),
        ({"TRANSFORMERS_OFFLINE": "YES"}, True),
        ({"BURNISH_OFFLINE": "1"}, True),
        ({"BURNISH_OFFLINE": "0", "HF_HUB_OFFLINE": "1"}, False),
        ({"BURNISH_OFFLINE": "", "HF_HUB_OFFLINE": "1"}, True),
    ],
)
def test_the_persons_choice_outlives_burnishs_own_setting(environment, values, offline):
    environment(**values)
    assert is_offline() is offline
    remember_offline_choice()
    os.environ["HF_HUB_OFFLINE"] = "1"
    assert is_offline() is offline
    remember_offline_choice()  # as a child process does
    assert is_offline() is offline


@pytest.mark.full
@pytest.mark.parametrize(("persons", "kept"), [("", "0"), ("1", "1")])
def test_every_burnish_process_keeps_it(persons, kept):
    code = (
        "import os; from burnish_engine.cli.main import main; main(['recipe', 'schema']);"
        "import sys; print(os.environ['BURNISH_OFFLINE'], os.environ['HF_HUB_OFFLINE'], file=sys.stderr)"
    )
    environment = {key: value for key, value in os.environ.items() if key not in VARIABLES}
    environment |= {"HF_HUB_OFFLINE": persons} if persons else {}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stderr.split() == [kept, "1"]
