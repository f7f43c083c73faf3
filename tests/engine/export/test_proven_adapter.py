"""An adapter's GGUF is proven by llama.cpp on the file that it was trained from."""

import pytest

from burnish_engine.contract.errors import FidelityError
from burnish_engine.contract.recipe.recipe_export import GGUF_TYPES
from burnish_engine.export import proven_adapter
from burnish_engine.export.proven_adapter import export_proven_adapter
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.gguf.gguf_library import quantize_file

from support.models.export import make_adapter, make_model, rows, write_16_bit


@pytest.mark.full
def test_an_adapter_is_written_only_if_llama_cpp_computes_the_trained_model(tmp_path, monkeypatch):
    made = make_model(tmp_path / "base", "llama", hidden_size=256, intermediate_size=512)
    path = tmp_path / "Q8_0.gguf"
    number = GGUF_TYPES["Q8_0"].number
    assert quantize_file(write_16_bit(made, None, tmp_path), path, number, 1, lambda _line: None, None) == ""
    source = open_model(str(path))
    adapter = make_adapter(source, tmp_path / "adapter")
    file, found = export_proven_adapter(
        source, adapter, tmp_path / "out", "x", source.place, held_out=rows(source), threads=1
    )
    assert file.is_file()
    assert found.mean_kl < 1e-4
    file.unlink()
    real = proven_adapter.export_adapter_gguf
    other = make_adapter(source, tmp_path / "other", seed=2)
    monkeypatch.setattr(
        proven_adapter, "export_adapter_gguf", lambda source, _adapter, *rest: real(source, other, *rest)
    )
    with pytest.raises(FidelityError, match="not the trained model in llama"):
        export_proven_adapter(source, adapter, tmp_path / "out", "x", path, held_out=rows(source), threads=1)
    assert not list((tmp_path / "out").glob("*.gguf"))
