"""Projections of few tokens: which they are, how they are divided, and what is refused."""

import pytest
import torch

from burnish_kernels.decode_linear.config import LARGE, choose, rank_spans
from burnish_kernels.decode_linear.op import forward, is_possible
from burnish_kernels.lora_linear.stack import Stack, StackedAdapter

STACK = Stack(64, 32, (StackedAdapter(0, 32, 4, 1.0),))
X, MATRIX = torch.randn(2, 32), torch.randn(*STACK.buffer_shape)
MATRIX[32:64, 32:] = 0  # outputs without an adapter


def test_only_few_tokens_and_narrow_aligned_adapters_are_for_it():
    assert is_possible(128, STACK)
    assert not is_possible(129, STACK)
    assert not is_possible(1, Stack(64, 32, (StackedAdapter(0, 64, 65, 1.0),)))
    assert not is_possible(1, Stack(64, 32, (StackedAdapter(16, 32, 4, 1.0),)))
    assert is_possible(1, Stack(70, 32, (StackedAdapter(32, 38, 4, 1.0),)))  # it ends where the outputs end


def test_each_tile_has_one_adapter():
    stack = Stack(128, 32, (StackedAdapter(0, 64, 5, 1.0), StackedAdapter(96, 32, 20, 1.0)))
    assert rank_spans(stack, 32) == ((0, 64, 0, 16), (96, 128, 16, 32))
    assert rank_spans(stack, 64) is None


@pytest.mark.parametrize("rows", [1, 2, 64, 128])
@pytest.mark.parametrize("shape", [(4096, 1024), (1024, 3072), (19456, 2560), (256, 64)])
def test_splits_never_exceed_what_the_inputs_have(rows, shape):
    for wide in (False, True):
        config = choose(rows, *shape, wide=wide, processors=132)
        if config is None:
            assert shape[0] * shape[1] > LARGE
        else:
            assert 1 <= config.splits <= max(1, -(-shape[1] // config.block_k))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x_BK": X[:, :16]}, "do not fit"),
        ({"matrix": MATRIX[:64]}, "do not fit"),
        ({"out": torch.zeros(2, 32)}, "do not fit"),
        ({"matrix": MATRIX.double()}, "side by side"),
        ({"x_BK": torch.zeros(129, 32)}, "not for this"),
    ],
)
def test_bad_arguments_are_named(change, words):
    with pytest.raises(ValueError, match=words):
        forward(**{"x_BK": X, "matrix": MATRIX, "stack": STACK} | change)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_token_has_the_same_bits_in_any_company_of_the_same_size(dtype):
    """Exact replies rest on this: the number of tokens alone decides how sums are divided."""
    x_BK, matrix = torch.randn(8, 32).to(dtype), MATRIX.to(dtype)
    whole = forward(x_BK, matrix, STACK)
    for place in (0, 3, 7):  # on a CPU the sums of some BLAS libraries depend on the place itself
        others = torch.randn(8, 32).to(dtype)
        others[place] = x_BK[place]
        assert torch.equal(forward(others, matrix, STACK)[place], whole[place])


def test_the_result_is_the_sum_of_both_products():
    bias, out = torch.randn(64), torch.empty(2, 80)[:, :64]
    found = forward(X, MATRIX, STACK, bias_N=bias, out=out)
    wanted = X @ MATRIX[:64, :32].t() + (X @ MATRIX[64:, :32].t()) @ MATRIX[:64, 32:].t() + bias
    torch.testing.assert_close(found, wanted)
    assert found.data_ptr() == out.data_ptr()
