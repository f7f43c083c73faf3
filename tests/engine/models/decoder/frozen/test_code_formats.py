"""The format that a stack's products have: INT8 rotates all inputs but what attention returns."""

import pytest
import torch

from burnish_engine.models.decoder.frozen.code_formats import CODE_FORMATS, code_format
from burnish_engine.models.families.matrices import STACK_NAMES
from burnish_kernels.eight_bit_linear.op import INT8, quantize_rows


@pytest.mark.parametrize("kind", ["attention", "sliding_attention", "short_convolution", "gated_delta"])
@pytest.mark.parametrize("stack", STACK_NAMES)
def test_what_attention_returns_is_not_rotated(stack, kind):
    weight = torch.randn(5, 128, generator=torch.Generator().manual_seed(0))
    rotation = 0 if stack == "mixer_out" and kind.endswith("attention") else 64
    wanted = quantize_rows(weight, codes=INT8, rotation=rotation)
    assert torch.equal(code_format("int8", stack, kind).quantize(weight).codes, wanted.codes)


@pytest.mark.parametrize("name", [one for one in CODE_FORMATS if one != "int8"])
def test_other_formats_are_the_same_for_every_stack(name):
    assert code_format(name, "mixer_out", "attention") is code_format(name, "down", "attention") is CODE_FORMATS[name]
