"""Attention equals PyTorch's, keeps documents apart, writes where it is told to, and refuses what it cannot compute."""

import os
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward

from burnish_kernels.attention import reference
from burnish_kernels.attention.candidates import KERNELS, candidates, tuned_config, tuning_key
from burnish_kernels.attention.config import INTERPRETED, KernelConfig, choose_config
from burnish_kernels.attention.documents import Documents
from burnish_kernels.attention.op import attention, backward, forward, tile_rows
from burnish_kernels.registry import CAPABILITIES

BOUNDARIES = np.array([0, 19, 20, 60, 67])
ROWS, HEADS, KV_HEADS, WIDTH = 67, 4, 2, 16


def docs(boundaries=BOUNDARIES, rows=INTERPRETED.tile_rows):
    return Documents.from_boundaries(np.asarray(boundaries), int(boundaries[-1]), rows, "cpu")


def inputs(seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(ROWS, heads, WIDTH) for heads in (HEADS, KV_HEADS, KV_HEADS, HEADS)]
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def gradients(q, k, v, do, described, **options):
    o, lse = forward(q, k, v, described, scale=0.25, **options)
    return o, lse, *backward(do, q, k, v, o, lse, described, scale=0.25, **options)


interpreted = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="the interpreter is on only where TRITON_INTERPRET=1"
)


@pytest.fixture(params=["kernels", "reference"])
def way(request, monkeypatch):
    """Both ways that a processor can go."""
    if request.param == "reference":
        monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    elif os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("the interpreter is on only where TRITON_INTERPRET=1")
    return request.param


@pytest.mark.parametrize("window", [None, 7])
def test_definition_is_that_of_pytorch(window):
    q, k, v, _ = (tensor.double() for tensor in inputs())
    described = docs()
    i, j = torch.arange(ROWS)[:, None], torch.arange(ROWS)[None, :]
    visible = (j <= i) & (j >= described.start_T[:, None]) & (i - j < (window or ROWS))
    expected = scaled_dot_product_attention(
        *(tensor.transpose(0, 1)[None] for tensor in (q, k, v)), attn_mask=visible, scale=0.3, enable_gqa=True
    )[0].transpose(0, 1)
    o, lse = reference.attention(q, k, v, described.start_T, scale=0.3, window=window)
    torch.testing.assert_close(o, expected)
    scores = torch.einsum("ihd,jhd->hij", q, k.repeat_interleave(HEADS // KV_HEADS, 1)) * 0.3
    torch.testing.assert_close(lse, scores.masked_fill(~visible, float("-inf")).logsumexp(-1))


def test_long_documents_are_the_same_in_blocks_of_queries(monkeypatch):
    q, k, v, _ = inputs()
    whole = reference.attention(q, k, v, docs().start_T, scale=0.25, window=30, softcap=3.0)
    monkeypatch.setattr(reference, "QUERY_BLOCK", 8)
    for ours, theirs in zip(
        reference.attention(q, k, v, docs().start_T, scale=0.25, window=30, softcap=3.0), whole, strict=True
    ):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.quick_cases(1)
def test_autograd_gives_the_gradients_of_the_definition(way):
    *leaves, do = inputs()
    leaves = [leaf.requires_grad_() for leaf in leaves]
    o = attention(*leaves, docs(), scale=0.25, window=9, softcap=4.0)
    exact, _ = reference.attention(*leaves, docs().start_T, scale=0.25, window=9, softcap=4.0)
    torch.testing.assert_close(o, exact, rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(torch.autograd.grad(o, leaves, do), torch.autograd.grad(exact, leaves, do), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.full
def test_double_precision_stays_double(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    leaves = [leaf.double()[:12, :, :4].contiguous().requires_grad_() for leaf in inputs()[:3]]
    described = docs([0, 7, 12])
    assert torch.autograd.gradcheck(lambda *tensors: attention(*tensors, described, scale=0.25, window=5), leaves)


@pytest.mark.full
def test_other_documents_do_not_change_a_bit(way):
    q, k, v, do = inputs()
    first, last = 20, 60  # the third document
    before = gradients(q, k, v, do, docs())
    for tensor in (q, k, v, do):
        outside = torch.ones(ROWS, dtype=torch.bool)
        outside[first:last] = False
        tensor[outside] = 100 * torch.randn_like(tensor[outside])
    after = gradients(q, k, v, do, docs())
    for old, new in zip(before, after, strict=True):
        rows = (slice(None), slice(first, last)) if old.ndim == 2 else slice(first, last)
        assert torch.equal(old[rows], new[rows])


@pytest.mark.parametrize("window", [None, 20])
def test_the_last_rows_of_a_document_need_no_queries_before(window, way):
    q, k, v, _ = inputs()
    rows = len(q)
    whole = docs((0, rows))
    wanted, _ = forward(q, k, v, whole, scale=0.3, window=window)
    for first in (1, rows // 2, rows - 1):
        last = torch.cat((torch.zeros_like(q[:first]), q[first:]))
        found, _ = forward(last, k, v, whole.from_row(first), scale=0.3, window=window)
        torch.testing.assert_close(found[first:], wanted[first:], atol=1e-6, rtol=1e-6)


@pytest.mark.full
def test_same_inputs_give_the_same_bits(way):
    once, again = (gradients(*inputs(), docs()) for _ in range(2))
    assert all(torch.equal(*pair) for pair in zip(once, again, strict=True))


@pytest.mark.full
def test_outputs_may_be_columns_of_other_buffers(way):
    q, k, v, do = inputs()
    expected = gradients(q, k, v, do, docs())
    buffer = torch.full((ROWS, (HEADS + 2 * KV_HEADS) * WIDTH + 8), 7.0)
    columns = np.cumsum([0, HEADS * WIDTH, KV_HEADS * WIDTH, KV_HEADS * WIDTH])
    dq, dk, dv = (buffer[:, a:b].view(ROWS, -1, WIDTH) for a, b in pairwise(columns))
    extended = torch.full((ROWS, HEADS * WIDTH + 8), 7.0)
    out = extended[:, : HEADS * WIDTH].view(ROWS, HEADS, WIDTH)
    place = torch.full((HEADS, ROWS), 7.0)
    o, lse = forward(q, k, v, docs(), scale=0.25, out=out, lse_out=place)
    assert o is out
    assert lse is place
    found = backward(do, q, k, v, o, lse, docs(), scale=0.25, dq_out=dq, dk_out=dk, dv_out=dv)
    assert all(ours is given for ours, given in zip(found, (dq, dk, dv), strict=True))
    for ours, theirs in zip((o, lse, *found), expected, strict=True):
        assert torch.equal(ours, theirs)
    assert (buffer[:, columns[-1] :] == 7).all()
    assert (extended[:, HEADS * WIDTH :] == 7).all()


@pytest.mark.full
@interpreted
@pytest.mark.parametrize(
    "kernel",
    [KernelConfig(1, 16, 4, 1), KernelConfig(1, 32, 4, 1, 0, 1), KernelConfig(2, 16, 4, 1, 0, 1)],
    ids=["one-head", "one-head-branch", "two-heads-branch"],
)
@pytest.mark.parametrize("window", [None, 21])
def test_configurations_agree(kernel, window):
    q, k, v, do = inputs()
    config = replace(INTERPRETED, tile_rows=16, forward=kernel, dq=kernel, dkdv=kernel)
    found = gradients(q, k, v, do, docs(rows=16), window=window, config=config)
    for ours, theirs in zip(found, gradients(q, k, v, do, docs(), window=window), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.full
@interpreted
@pytest.mark.parametrize("window", [None, 21])
def test_long_work_is_launched_in_parts(monkeypatch, window):
    """With the same bits; short work is one launch."""
    from burnish_kernels.attention import launch_kernels

    expected = gradients(*inputs(), docs(), window=window)
    tiles = docs().tiles_G4
    half = tiles[: len(tiles) // 2]
    q = inputs()[0]
    assert [len(part) for part in launch_kernels.parts(half, ROWS, q, window, products=4)] == [len(half)]
    monkeypatch.setattr(launch_kernels, "LAUNCH_OPERATIONS", 100_000.0)
    launches = list(launch_kernels.parts(half, ROWS, q, window, products=4))
    assert len(launches) > 2
    assert torch.equal(torch.cat(launches), half)
    for ours, theirs in zip(gradients(*inputs(), docs(), window=window), expected, strict=True):
        assert torch.equal(ours, theirs)


def test_no_launch_takes_two_seconds_on_a_modest_card():
    """Even where one document fills a pass of 256k tokens, at 40 % of 40 TFLOP/s."""
    from burnish_kernels.attention import launch_kernels

    rows, heads, width = 1 << 18, 32, 128
    tiles = torch.empty(rows // 64, 4, dtype=torch.int32, device="meta")
    queries = torch.empty(rows, heads, width, device="meta")
    for products in (2, 3, 4):
        share = max(len(part) for part in launch_kernels.parts(tiles, rows, queries, None, products=products)) / len(
            tiles
        )
        whole = 2.0 * products * (rows * rows / 2) * heads * width
        heaviest = share * (2 - share)  # of a triangle, the longest rows first
        assert whole * heaviest / 16e12 < 2.0


@pytest.mark.full
def test_huge_scores_overflow_nowhere(way):
    q, k, v, do = inputs()
    for tensor in gradients(300 * q, 300 * k, v, do, docs()):
        assert tensor.isfinite().all()


def test_no_rows_is_no_error(way):
    nothing = [tensor[:0] for tensor in inputs()]
    found = gradients(*nothing, docs([0]))
    assert [len(tensor) for tensor in found] == [0, HEADS, 0, 0, 0]


Q, K, V, DO = inputs()
DOCS = docs()
BAD = [
    ({"q_TND": Q[0]}, "q must be"),
    ({"k_TMD": K[:5]}, "q must be"),
    ({"v_TMD": V[:, :1]}, "q must be"),
    ({"q_TND": Q[:, :3]}, "cannot share"),
    ({"k_TMD": K.half()}, "k must be torch.float32"),
    ({"v_TMD": V.transpose(1, 2).contiguous().transpose(1, 2)}, "next to each other"),
    ({"docs": docs([0, 66])}, "describe"),
    ({"docs": replace(DOCS, tiles_G4=DOCS.tiles_G4[1:])}, "tiles of"),
    ({"scale": 0.0}, "scale"),
    ({"window": 0}, "window of 0"),
    ({"softcap": -1.0}, "soft cap"),
    ({"out": Q[:, :2]}, "out must be"),
    ({"lse_out": torch.zeros(ROWS, HEADS)}, "lse must be .N, T."),
    ({"lse_out": torch.zeros(ROWS, HEADS).t()}, "lse must be .N, T. and contiguous"),
    ({"lse_out": torch.zeros(HEADS, ROWS, dtype=torch.float16)}, "lse must be torch.float32"),
]


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("window", [None, 7])
def test_sinks_are_those_of_gpt_oss(window, way):
    """Output and gradients of transformers' attention, with documents and window in its mask."""
    leaves = [tensor.requires_grad_() for tensor in inputs()[:3]]
    sinks, do, described = torch.tensor([-1.0, 0.5, 2.0, 6.0]), inputs(1)[3], docs()
    i, j = torch.arange(ROWS)[:, None], torch.arange(ROWS)[None, :]
    visible = (j <= i) & (j >= described.start_T[:, None]) & (i - j < (window or ROWS))
    module = SimpleNamespace(num_key_value_groups=HEADS // KV_HEADS, sinks=sinks, training=False)
    mask = torch.zeros(ROWS, ROWS).masked_fill(~visible, float("-inf"))
    expected, _ = eager_attention_forward(module, *(one.transpose(0, 1)[None] for one in leaves), mask, 0.25)
    exact = torch.autograd.grad(expected[0], leaves, do)
    o, _, *found = gradients(*(one.detach() for one in leaves), do, described, window=window, sinks_N=sinks)
    torch.testing.assert_close(o, expected[0].detach(), rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(found, exact, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("sinks", [torch.zeros(3), torch.zeros(4).half(), torch.zeros(8)[::2]])
def test_sinks_that_do_not_fit_are_named(sinks, way):
    q, k, v, _ = inputs()
    with pytest.raises(ValueError, match="sinks"):
        forward(q, k, v, docs(), scale=0.25, sinks_N=sinks)


@pytest.mark.parametrize(("change", "words"), BAD)
def test_bad_arguments_are_named(change, words, way):
    with pytest.raises(ValueError, match=words):
        forward(**{"q_TND": Q, "k_TMD": K, "v_TMD": V, "docs": DOCS, "scale": 0.25, **change})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"do_TND": DO[:, :2]}, "do must be"),
        ({"o_TND": DO.double()}, "o must be"),
        ({"lse_NT": torch.zeros(ROWS, HEADS)}, "lse must be .N, T."),
        ({"lse_NT": torch.zeros(HEADS, ROWS, dtype=torch.float64)}, "lse must be torch.float32"),
        ({"dk_out": torch.zeros(ROWS, HEADS, WIDTH)}, "dk_out"),
    ],
)
def test_bad_arguments_backward_are_named(change, words, way):
    given = {"do_TND": DO, "q_TND": Q, "k_TMD": K, "v_TMD": V, "o_TND": DO, "lse_NT": torch.zeros(HEADS, ROWS)}
    with pytest.raises(ValueError, match=words):
        backward(**{**given, "docs": DOCS, "scale": 0.25, **change})


@pytest.mark.parametrize(
    ("width", "dtype", "words"), [(8, torch.float32, "16 to 512"), (16, torch.float64, "fp32, fp16 and bf16")]
)
def test_kernels_name_what_they_cannot_do(width, dtype, words, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    q = torch.zeros(3, 1, width, dtype=dtype)
    with pytest.raises(ValueError, match=words):
        forward(q, q, q, docs([0, 3]), scale=1.0)


def test_tiles_of_another_height_are_named(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(ValueError, match="tiles of 16 rows"):
        forward(Q, K, V, docs(rows=16), scale=0.25)


def test_documents_are_plain_tensors():
    described = docs()
    assert isinstance(described, Documents)
    assert {tensor.dtype for tensor in (described.start_T, described.end_T, described.tiles_G4)} == {torch.int32}
    assert tile_rows(WIDTH, torch.float32, "cpu") == described.tile_rows


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_height_of_tiles_serves_every_group(capability, dtype):
    for width in (16, 64, 80, 96, 128, 192, 256):
        configs = [choose_config(width, dtype, capability, group) for group in (1, 2, 3, 4, 7, 8)]
        assert len({config.tile_rows for config in configs}) == 1
        for group, config in zip((1, 2, 3, 4, 7, 8), configs, strict=True):
            for kernel in KERNELS:
                tried = candidates(kernel, width, dtype, capability, group)
                assert tried[0] == getattr(config, kernel)
                assert all(group % one.heads == 0 for one in tried)
                assert len(set(tried)) == len(tried)


def test_tuned_choices_replace_chosen_ones(monkeypatch):
    chosen = candidates("dq", 128, torch.bfloat16, 90, 2)[3]
    wanted = tuning_key("dq", 128, torch.bfloat16, 2)

    def choose(op, key, default, *, allowed, device):
        assert op == "attention"
        return chosen if key == wanted and chosen in allowed else default

    monkeypatch.setattr("burnish_kernels.tuning.choose", choose)
    tuned_config.cache_clear()
    try:
        found = tuned_config(128, torch.bfloat16, 90, 2, torch.device("cpu"))
    finally:
        tuned_config.cache_clear()
    assert found == replace(choose_config(128, torch.bfloat16, 90, 2), dq=chosen)
