"""The doctor's kernels: those that training uses, each compared on the card."""

import json

from burnish_engine.models.device import kernel_check
from burnish_kernels.registry import OPS


def test_a_card_is_checked_with_the_kernels_that_training_uses(monkeypatch, capsys):
    compared = []
    monkeypatch.setattr("sys.argv", ["kernel_check", "--gpu"])
    monkeypatch.setattr(kernel_check, "_matmul", lambda _device: 0.0)
    monkeypatch.setattr(kernel_check, "_triton", lambda name: compared.append(name) or 0.5 * (name == "rope"))
    kernel_check.main()
    assert sorted(compared) == sorted(OPS)
    found = json.loads(capsys.readouterr().out)
    assert [check["name"] for check in found if not check["passed"]] == ["rope (Triton)"]
