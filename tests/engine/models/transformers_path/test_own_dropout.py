"""A model trains without the dropout that it brings along, wherever it keeps it."""

import pytest
import torch

from burnish_engine.models.transformers_path.own_dropout import switch_off_dropout
from burnish_engine.radar.small_model import small_model


@pytest.mark.parametrize(("name", "largest"), [("gpt2", 0.1), ("opt", 0.1), ("seed_oss", 0.1), ("llama", 0.0)])
def test_passes_in_training_are_alike_afterwards(name, largest):
    model, ids = small_model(name).train(), torch.arange(3, 40)[None]
    first, second = (model(input_ids=ids, use_cache=False).logits for _ in range(2))
    assert torch.equal(first, second) == (largest == 0.0)
    assert switch_off_dropout(model) == pytest.approx(largest)
    first, second = (model(input_ids=ids, use_cache=False).logits for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(first, model.eval()(input_ids=ids, use_cache=False).logits)
    assert switch_off_dropout(model) == 0.0
