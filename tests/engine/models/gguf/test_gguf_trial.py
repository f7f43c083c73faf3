"""A file over which llama.cpp ends its process is told, and this process goes on."""

import pytest

from burnish_engine.contract.errors import SetupError
from burnish_engine.models.gguf.gguf_trial import try_file

from support.models.export import write_16_bit
from support.models.small_families import make_small


def test_a_new_file_that_crashes_llama_cpp_is_no_damaged_one(tmp_path):
    source = make_small("LiquidAI/LFM2.5-350M", tmp_path / "base", layer_types=["full_attention"] * 6)
    path = write_16_bit(source, None, tmp_path)
    with pytest.raises(SetupError, match="crashes over") as told:
        try_file(path, is_own=True)
    assert "does not compute this model" in told.value.remedy
    assert str(tmp_path) not in told.value.what
    with pytest.raises(SetupError, match="crashes over") as told:
        try_file(path)
    assert "damaged" in told.value.remedy
