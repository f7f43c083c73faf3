"""Layers for multi-token prediction are numbered from 0 on, or the model is refused before anything is built."""

import pytest

from burnish_engine.contract.errors import SetupError
from burnish_engine.models.checkpoint.mtp_layers import check_mtp


def names(*layers):
    return ["mtp.fc.weight", "model.layers.0.mlp.up_proj.weight", *(f"mtp.layers.{layer}.mlp.w" for layer in layers)]


@pytest.mark.parametrize("layers", [(), (0,), (0, 1, 2)])
def test_layers_from_0_on_are_taken(tmp_path, layers):
    check_mtp(tmp_path, names(*layers))


@pytest.mark.parametrize("layers", [(1,), (0, 2), (10**9,), ("x",), ("",), ("00",), ("-1",), ("٣",)])
def test_others_are_refused_by_name(tmp_path, layers):
    with pytest.raises(SetupError, match=f"mtp.layers.{layers[-1]} *"):
        check_mtp(tmp_path, names(*layers))
