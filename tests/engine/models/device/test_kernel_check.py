"""The doctor's kernels, each compared on the card: training uses all of them."""

import json
import re
from pathlib import Path

import pytest

import burnish_engine
from burnish_engine.models.device import kernel_check
from burnish_kernels.registry import OPS
from burnish_kernels.tuning import Device


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("capability", "unused"), [(120, set()), (90, {"mxfp8_linear"}), (80, {"mxfp8_linear"})])
def test_a_card_is_checked_with_the_kernels_that_training_uses(monkeypatch, capsys, capability, unused):
    compared = []
    monkeypatch.setattr(kernel_check, "device_of", lambda _: Device("Lamp 9000", capability))
    monkeypatch.setattr("sys.argv", ["kernel_check", "--gpu"])
    monkeypatch.setattr(kernel_check, "_matmul", lambda _device: 0.0)
    monkeypatch.setattr(kernel_check, "_triton", lambda name: compared.append(name) or 0.5 * (name == "rope"))
    kernel_check.main()
    source = "".join(path.read_text("utf-8") for path in Path(burnish_engine.__path__[0]).rglob("*.py"))
    imported = set(re.findall(r"burnish_kernels(?:\.| import )(\w+)", source))
    assert sorted(compared) == sorted((imported & {*OPS}) - unused)
    found = json.loads(capsys.readouterr().out)
    assert [check["name"] for check in found if not check["passed"]] == ["rope (Triton)"]
