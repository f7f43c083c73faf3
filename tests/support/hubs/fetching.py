"""What tests of fetching share: a model's name, and how a fetch is refused."""

import pytest

from burnish_engine.contract.paths import fetched_model_dir
from burnish_engine.hub.fetch import fetch

NAME = "Bench/Tiny-Llama"
WEIGHTS = "model.safetensors"


def refusal(kind, name=NAME, **options):
    """The paragraph that a fetch is refused with; nothing that looks like a model is left."""
    with pytest.raises(kind) as caught:
        fetch(name, **options)
    assert not fetched_model_dir(name).exists()
    assert "\n" not in str(caught.value)
    return str(caught.value)
