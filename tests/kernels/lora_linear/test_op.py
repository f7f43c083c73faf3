"""The LoRA projection: geometry of a stack, refusals, accumulation, the same bits again, and its dropout."""

import os

import pytest
import torch

from burnish_kernels.lora_linear import reference
from burnish_kernels.lora_linear.op import (
    Dropout,
    RankSegment,
    Stack,
    StackedAdapter,
    add_dropped_,
    backward,
    dropout,
    forward,
    outer_accumulate,
    project,
)
from burnish_kernels.lora_linear.tiles import merged, outer_plan, project_splits

STACK = Stack(48, 32, (StackedAdapter(0, 16, 3, 2.0), StackedAdapter(32, 16, 17, 0.5)))


def drawn(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def filled(stack=STACK):
    buffer = torch.full(stack.buffer_shape, torch.nan)
    buffer[: stack.N, : stack.K] = drawn(stack.N, stack.K)
    a = [drawn(one.rank, stack.K, seed=1 + index) for index, one in enumerate(stack.adapters)]
    b = [drawn(one.rows, one.rank, seed=9 + index) for index, one in enumerate(stack.adapters)]
    return stack.fill(buffer, a, b), a, b


def operands(stack=STACK, tokens=5):
    buffer, _, _ = filled(stack)
    x_ext, dy_ext = drawn(tokens, stack.K + stack.R), drawn(tokens, stack.N + stack.R, seed=3)
    grads = {
        "grad_a": [torch.zeros(one.rank, stack.K) for one in stack.adapters],
        "grad_b": [torch.zeros(one.rows, one.rank) for one in stack.adapters],
    }
    return x_ext, dy_ext, buffer, grads


def test_ranks_are_padded_to_the_matrix_units_tile():
    assert [one.padded for one in STACK.adapters] == [16, 32]
    assert (STACK.R, STACK.firsts, STACK.buffer_shape) == (48, (0, 16), (96, 80))
    assert STACK.fused
    assert not Stack(8, 8, (StackedAdapter(0, 8, 449, 1.0),)).fused


def test_filled_buffer_has_scaled_b_and_zeros():
    buffer, a, b = filled()
    torch.testing.assert_close(buffer[48:51, :32], a[0])
    torch.testing.assert_close(buffer[64:81, :32], a[1])
    torch.testing.assert_close(buffer[:16, 32:35], 2.0 * b[0])
    torch.testing.assert_close(buffer[32:48, 48:65], 0.5 * b[1])
    counted = 48 * 32 + 20 * 32 + 16 * 20
    assert int(buffer.count_nonzero()) == counted


@pytest.mark.parametrize(
    ("adapters", "words"),
    [
        ((StackedAdapter(0, 16, 4, 1.0), StackedAdapter(8, 16, 4, 1.0)), "follow"),
        ((StackedAdapter(40, 16, 4, 1.0),), "leaves"),
        ((StackedAdapter(0, 0, 4, 1.0),), "follow"),
        ((StackedAdapter(0, 8, 0, 1.0),), "rank"),
    ],
)
def test_impossible_stacks_are_refused(adapters, words):
    with pytest.raises(ValueError, match=words):
        Stack(48, 32, adapters)


def test_bad_arguments_are_named():
    x_ext, dy_ext, buffer, grads = operands()
    with pytest.raises(ValueError, match="features"):
        Stack(0, 4)
    with pytest.raises(ValueError, match="buffer"):
        forward(x_ext, buffer[:, 1:], STACK)
    with pytest.raises(ValueError, match="x_ext"):
        forward(x_ext[:, :32], buffer, STACK)
    with pytest.raises(ValueError, match="x_ext"):
        forward(x_ext.half(), buffer, STACK)
    with pytest.raises(ValueError, match="out"):
        forward(x_ext, buffer, STACK, out=torch.empty(5, 47))
    with pytest.raises(ValueError, match="dy_ext"):
        backward(dy_ext[:4], x_ext, buffer, STACK, **grads)
    with pytest.raises(ValueError, match="dx_out"):
        backward(dy_ext, x_ext, buffer, STACK, dx_out=torch.empty(5, 31), **grads)
    with pytest.raises(ValueError, match="2 adapters"):
        backward(dy_ext, x_ext, buffer, STACK, grad_a=[], grad_b=[])
    with pytest.raises(ValueError, match="gradients"):
        backward(dy_ext, x_ext, buffer, STACK, grad_a=grads["grad_b"], grad_b=grads["grad_a"])
    with pytest.raises(ValueError, match="fp32"):
        halves = {name: [one.half() for one in found] for name, found in grads.items()}
        backward(dy_ext, x_ext, buffer, STACK, **halves)
    with pytest.raises(ValueError, match="dropout"):
        forward(x_ext, buffer, STACK, drop=Dropout(1.0, torch.tensor([0]), 0))


@pytest.mark.parametrize(
    ("segments", "words"),
    [
        ([RankSegment(0, 9, 0, 16)], "leave"),
        ([RankSegment(0, 8, 0, 32)], "leave"),
        ([RankSegment(0, 4, 0, 4), RankSegment(4, 4, 8, 4)], "side by side"),
    ],
)
def test_bad_segments_are_refused(segments, words):
    with pytest.raises(ValueError, match=words):
        project(torch.zeros(3, 8), torch.zeros(16, 8), torch.zeros(3, 16), segments)
    with pytest.raises(ValueError, match=words):
        outer_accumulate(
            torch.zeros(3, 16), torch.zeros(3, 8), [torch.zeros(4, 8)] * len(segments), [1.0] * len(segments), segments
        )


def test_products_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="transposed"):
        project(torch.zeros(3, 8), torch.zeros(16, 7), torch.zeros(3, 16))
    with pytest.raises(ValueError, match="strided"):
        project(torch.zeros(8, 3).t(), torch.zeros(16, 8), torch.zeros(3, 16))
    with pytest.raises(ValueError, match="scales"):
        outer_accumulate(torch.zeros(3, 16), torch.zeros(3, 8), [torch.zeros(16, 8)], [])
    with pytest.raises(ValueError, match="result"):
        outer_accumulate(torch.zeros(3, 16), torch.zeros(3, 8), [torch.zeros(17, 8)], [1.0])


def test_columns_of_no_segment_are_left_alone():
    out = torch.full((3, 48), 7.0)
    project(drawn(3, 8), drawn(48, 8), out, [RankSegment(0, 8, 16, 16)])
    assert (out[:, :16] == 7).all()
    assert (out[:, 32:] == 7).all()
    torch.testing.assert_close(out[:, 16:32], drawn(3, 8) @ drawn(48, 8)[16:32].t())


def test_the_method_can_be_forced():
    x, a = drawn(9, 24), drawn(16, 24, seed=1)
    for method in ("auto", "cublas"):
        out = torch.empty(9, 16)
        project(x, a, out, method=method)
        torch.testing.assert_close(out, x @ a.t())
        sums = torch.ones(24, 16).t()
        outer_accumulate(out, x, [sums], [0.5], method=method)
        torch.testing.assert_close(sums, 1 + 0.5 * out.t() @ x)


@pytest.mark.full
def test_backward_adds_to_the_gradients_and_repeats_bit_for_bit():
    x_ext, dy_ext, buffer, grads = operands(tokens=300)
    forward(x_ext, buffer, STACK)
    first = backward(dy_ext, x_ext, buffer, STACK, **grads)
    once = [one.clone() for found in grads.values() for one in found]
    again = {name: [torch.zeros_like(one) for one in found] for name, found in grads.items()}
    assert torch.equal(first, backward(dy_ext, x_ext, buffer, STACK, **again))
    assert all(torch.equal(a, b) for a, b in zip(once, (one for found in again.values() for one in found), strict=True))
    backward(dy_ext, x_ext, buffer, STACK, needs_dx=False, **grads)
    for one, twice in zip(once, (one for found in grads.values() for one in found), strict=True):
        torch.testing.assert_close(twice, 2 * one)


@pytest.mark.full
def test_gradients_may_lie_anywhere_in_a_flat_buffer():
    x_ext, dy_ext, buffer, grads = operands()
    forward(x_ext, buffer, STACK)
    backward(dy_ext, x_ext, buffer, STACK, **grads)
    flat = torch.zeros(4000)
    views = {"grad_a": [flat[7:103].view(3, 32), flat[201:745].view(17, 32)]}
    views["grad_b"] = [flat[1001:1049].view(16, 3), flat[2000:2272].view(17, 16).t()]
    backward(dy_ext, x_ext, buffer, STACK, **views)
    for name, found in grads.items():
        for one, view in zip(found, views[name], strict=True):
            torch.testing.assert_close(one, view)
    assert int(flat.count_nonzero()) == 96 + 544 + 48 + 272


def test_no_adapters_leave_the_frozen_projection():
    stack = Stack(8, 16)
    x, weight, bias = drawn(3, 16), drawn(8, 16, seed=1), drawn(8, seed=2)
    torch.testing.assert_close(forward(x, weight, stack, bias_N=bias), x @ weight.t() + bias)
    dy = drawn(3, 8)
    torch.testing.assert_close(backward(dy, x, weight, stack, grad_a=[], grad_b=[]), dy @ weight)


def test_no_tokens_are_no_error():
    x_ext, dy_ext, buffer, grads = operands(tokens=0)
    assert forward(x_ext, buffer, STACK).shape == (0, 48)
    assert backward(dy_ext, x_ext, buffer, STACK, **grads).shape == (0, 32)
    assert not any(one.any() for found in grads.values() for one in found)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("columns", [1, 30, 513])
@pytest.mark.parametrize("seed", [0, -1, 2**62 + 12345])
def test_dropout_is_the_references_bit_for_bit(columns, seed):
    x, seed = drawn(5, columns + 3)[:, :columns], torch.tensor([seed])
    found = dropout(x, seed, 7, 0.4)
    assert torch.equal(found, reference.dropout(x, seed, 7, 0.4))
    dx = drawn(5, columns, seed=1)
    expected = dx + reference.dropout(x, seed, 7, 0.4)
    torch.testing.assert_close(add_dropped_(dx, x, seed, 7, 0.4), expected)


def test_masks_keep_the_asked_share_and_differ_by_seed_stream_and_row():
    seeds = torch.tensor([1]), torch.tensor([2])
    masks = [reference.kept(200, 500, seeds[0], stream, 0.1) for stream in (0, 1)] + [
        reference.kept(200, 500, seeds[1], 0, 0.1)
    ]
    for mask in masks:
        assert abs(float(mask.double().mean()) - 0.9) < 0.005
    for one, other in ((0, 1), (0, 2)):
        assert abs(float((masks[one] == masks[other]).double().mean()) - 0.82) < 0.01
    assert not torch.equal(masks[0][0], masks[0][1])
    assert torch.equal(masks[0][:50, :400], reference.kept(50, 400, seeds[0], 0, 0.1))


def test_bad_dropout_is_refused():
    x, seed = torch.zeros(2, 4), torch.tensor([1])
    with pytest.raises(ValueError, match="under 1"):
        dropout(x, seed, 0, 1.0)
    with pytest.raises(ValueError, match="int64"):
        dropout(x, seed.int(), 0, 0.5)
    with pytest.raises(ValueError, match="stream"):
        dropout(x, seed, -1, 0.5)
    with pytest.raises(ValueError, match="out"):
        dropout(x, seed, 0, 0.5, torch.zeros(2, 3))
    with pytest.raises(ValueError, match="dx"):
        add_dropped_(torch.zeros(2, 3), x, seed, 0, 0.5)
    with pytest.raises(ValueError, match="side by side"):
        dropout(x.t(), seed, 0, 0.5)


def test_work_is_cut_so_that_a_large_gpu_is_filled():
    whole = [RankSegment(0, 3072, 0, 48)]
    assert project_splits(16384, whole, torch.bfloat16) == 1
    assert project_splits(4096, whole, torch.bfloat16) == 4
    assert project_splits(64, whole, torch.bfloat16) == 12
    apart = [RankSegment(0, 2048, 0, 16), RankSegment(2048, 512, 16, 16), RankSegment(2560, 512, 32, 16)]
    assert outer_plan(16384, apart, torch.bfloat16)[1:] == (11, 16)
    same = [segment._replace(first=0, columns=3072) for segment in apart]
    assert merged(same) == (RankSegment(0, 3072, 0, 48),)
    plan = outer_plan(16384, same, torch.bfloat16)
    assert (plan.splits, plan.rows, plan.rows_before(same)) == (11, 48, [0, 16, 32])
    assert outer_plan(16384, apart, torch.bfloat16).rows_before(apart) == [0, 0, 0]
    assert outer_plan(100, same, torch.bfloat16).splits == 1


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("ranks", [16, 48, 160])
def test_kernel_and_cublas_agree(dtype, ranks):
    x, a = drawn(1031, 1100).to("cuda", dtype), drawn(ranks, 1100).to("cuda", dtype)
    found, sums = {}, {}
    for method in ("triton", "cublas"):
        found[method] = x.new_empty(1031, ranks)
        project(x, a, found[method], method=method)
        sums[method] = torch.zeros(ranks, 1100, device="cuda")
        outer_accumulate(found["triton"], x, [sums[method]], [0.5], method=method)
    torch.testing.assert_close(found["triton"], found["cublas"], rtol=2e-2, atol=0.5)
    torch.testing.assert_close(sums["triton"], sums["cublas"], rtol=1e-3, atol=0.5)


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="kernels take no double precision")
def test_double_precision_runs_on_a_processor():
    stack = Stack(8, 4, (StackedAdapter(2, 5, 3, 1.5),))
    x, weight = drawn(7, 4, dtype=torch.float64), drawn(8, 4, dtype=torch.float64)
    a, b = [drawn(3, 4, dtype=torch.float64)], [drawn(5, 3, dtype=torch.float64)]
    buffer = torch.empty(stack.buffer_shape, dtype=torch.float64)
    buffer[:8, :4] = weight
    stack.fill(buffer, a, b)
    x_ext = torch.cat((x, torch.empty(7, stack.R, dtype=torch.float64)), dim=1)
    expected = reference.lora_linear(x, weight, None, a, b, stack.adapters)
    torch.testing.assert_close(forward(x_ext, buffer, stack), expected)
