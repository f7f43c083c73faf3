"""A model with enough layers to keep some of them in host memory."""

import pytest

from support.models import tiny_models


@pytest.fixture(scope="module")
def six_layers(tmp_path_factory):
    """Folders of a tiny model of six layers, and of adapters for it without and with dropout."""
    folder = tmp_path_factory.mktemp("six")
    base = tiny_models.make("qwen3", folder / "base", num_hidden_layers=6)
    plain, dropping = (tiny_models.lora(base, folder / name, rank=5) for name in ("plain", "dropping"))
    config = dropping / "adapter_config.json"
    config.write_text(config.read_text().replace('"lora_dropout": 0.0', '"lora_dropout": 0.2'))
    return base, plain, dropping
