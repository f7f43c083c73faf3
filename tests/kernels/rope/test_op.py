"""QK norm and rotary embedding equal transformers', write where they are told to, and refuse what they cannot do."""

import pytest
import torch
from transformers.models.glm4.modeling_glm4 import apply_rotary_pos_emb as turn_neighbors
from transformers.models.phi3.modeling_phi3 import apply_rotary_pos_emb
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from burnish_kernels.rope import reference
from burnish_kernels.rope.op import backward, forward

SIZES = {"num_heads": 2, "num_kv_heads": 1, "head_dim": 4}
QKV, TABLE, INDEX = torch.zeros(3, 16), torch.zeros(5, 4), torch.zeros(3, dtype=torch.int32)
DQ, DK = torch.zeros(3, 2, 4), torch.zeros(3, 1, 4)
W = torch.ones(4)
BAD_BOTH = [
    ({"num_heads": 0}, "heads"),
    ({"head_dim": 1024}, "heads"),
    ({"index_T": None}, "together"),
    ({"table_PR": None}, "together"),
    ({"index_T": INDEX.long()}, "index"),
    ({"index_T": INDEX[:2]}, "index"),
    ({"table_PR": torch.zeros(5, 3)}, "width"),
    ({"table_PR": torch.zeros(5, 6)}, "width"),
    ({"table_PR": torch.zeros(5, 4, dtype=torch.float16)}, "table"),
    ({"table_PR": torch.zeros(4, 5).t()}, "table"),
    ({"q_weight_D": W}, "both"),
    ({"q_weight_D": W, "k_weight_D": torch.ones(3)}, "k_weight"),
    ({"q_weight_D": W.half(), "k_weight_D": W}, "q_weight"),
    ({"query_spacing": 3}, "cannot lie 3 numbers apart"),
]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        *BAD_BOTH,
        ({"qkv_TC": torch.zeros(3, 11)}, "qkv"),
        ({"qkv_TC": torch.zeros(3, 4, 4)}, "qkv"),
        ({"qkv_TC": torch.zeros(16, 3).t()}, "contiguous"),
        ({"q_out": torch.zeros(3, 1, 4)}, "q_out"),
        ({"k_out": torch.zeros(3, 1, 4, dtype=torch.float16)}, "k_out"),
        ({"q_out": torch.zeros(3, 4, 2).mT}, "heads of each token of q_out"),
        ({"q_out": torch.zeros(3, 4, 4)[:, ::2]}, "heads of each token of q_out"),
    ],
)
def test_bad_arguments_are_named(change, words):
    with pytest.raises(ValueError, match=words):
        forward(**{"qkv_TC": QKV, "table_PR": TABLE, "index_T": INDEX, **SIZES, **change})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        *BAD_BOTH,
        ({"dq_TND": DK}, "dq"),
        ({"dk_TMD": DQ}, "dk"),
        ({"dqkv_out": torch.zeros(3, 11)}, "dqkv_out"),
        ({"qkv_TC": None, "q_weight_D": W, "k_weight_D": W}, "needs qkv"),
        ({"qkv_TC": QKV[:2], "q_weight_D": W, "k_weight_D": W}, "qkv"),
    ],
)
def test_bad_arguments_of_the_gradient_are_named(change, words):
    usual = {"dq_TND": DQ, "dk_TMD": DK, "qkv_TC": QKV, "dqkv_out": torch.zeros(3, 16)}
    with pytest.raises(ValueError, match=words):
        backward(**{**usual, "table_PR": TABLE, "index_T": INDEX, **SIZES, **change})


def test_no_tokens_is_no_error():
    q, k = forward(QKV[:0], TABLE, INDEX[:0], **SIZES)
    backward(q, k, None, TABLE, INDEX[:0], dqkv_out=QKV[:0], **SIZES)
    assert q.shape == (0, 2, 4)
    assert k.shape == (0, 1, 4)


def inputs(head_dim, rotary):
    torch.manual_seed(0)
    qkv = torch.randn(5, 5 * head_dim)  # 3 + 1 + 1 heads
    angle = torch.arange(7)[:, None] * 100.0 ** -(torch.arange(rotary // 2) / (rotary // 2))
    index = torch.tensor([0, 1, 2, 5, 6], dtype=torch.int32)
    return qkv, angle, index, {"num_heads": 3, "num_kv_heads": 1, "head_dim": head_dim}


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("head_dim", "rotary", "norm"), [(16, 16, False), (16, 16, True), (16, 12, False)])
def test_equals_transformers(head_dim, rotary, norm, interleaved):
    qkv, angle, index, sizes = inputs(head_dim, rotary)
    heads = qkv.view(5, 5, head_dim).transpose(0, 1)[None]
    q, k = heads[:, :3], heads[:, 3:4]
    weights = {}
    if norm:
        q_norm, k_norm = Qwen3RMSNorm(head_dim, eps=1e-6), Qwen3RMSNorm(head_dim, eps=1e-6)
        torch.nn.init.normal_(q_norm.weight)
        torch.nn.init.normal_(k_norm.weight)
        q, k = q_norm(q), k_norm(k)
        weights = {"q_weight_D": q_norm.weight.detach(), "k_weight_D": k_norm.weight.detach()}
    cos, sin = (torch.cat((part, part), dim=-1)[index.long()][None] for part in (angle.cos(), angle.sin()))
    theirs = (turn_neighbors if interleaved else apply_rotary_pos_emb)(q, k, cos, sin)
    table = torch.cat((angle.cos(), angle.sin()), dim=1)
    ours = forward(qkv, table, index, **sizes, **weights, interleaved=interleaved)
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our, their[0].transpose(0, 1))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("rotary", [0, 6, 8])
@pytest.mark.parametrize("norm", ["", "norm", "1+norm"])
def test_written_out_gradient_is_that_of_autograd(rotary, norm, interleaved):
    torch.manual_seed(1)
    x, dy = (torch.randn(4, 3, 8, dtype=torch.float64, requires_grad=True) for _ in range(2))
    table = torch.randn(6, rotary, dtype=torch.float64) if rotary else None
    index = torch.tensor([5, 0, 3, 3], dtype=torch.int32) if rotary else None
    options = {"weight_D": torch.randn(8, dtype=torch.float64) if norm else None, "one_plus_weight": norm == "1+norm"}
    options["interleaved"] = interleaved
    y = reference.forward(x, table, index, eps=1e-3, **options)
    exact = dy if y is x else torch.autograd.grad(y, x, dy)[0]
    found = reference.backward(dy, x, table, index, eps=1e-3, **options)
    torch.testing.assert_close(found, exact)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("rotary", [8, 6])
def test_in_place_equals_new_tensors(rotary, interleaved):
    qkv, angle, index, sizes = inputs(8, rotary)
    sizes["interleaved"] = interleaved
    table = torch.cat((angle.cos(), angle.sin()), dim=1)
    q, k = forward(qkv, table, index, **sizes)
    buffer = qkv.clone()
    views = {"q_out": buffer[:, :24].unflatten(1, (3, 8)), "k_out": buffer[:, 24:32].unflatten(1, (1, 8))}
    forward(buffer, table, index, **sizes, **views)
    assert torch.equal(buffer, torch.cat((q.flatten(1), k.flatten(1), qkv[:, 32:]), dim=1))

    gradient = torch.full((5, 40), 7.0)
    backward(q, k, None, table, index, dqkv_out=gradient, **sizes)
    backward(views["q_out"], views["k_out"], None, table, index, dqkv_out=buffer, **sizes)
    torch.testing.assert_close(gradient[:, :32], qkv[:, :32])  # turned back
    assert torch.equal(buffer[:, :32], gradient[:, :32])
    assert (gradient[:, 32:] == 7).all()
    assert torch.equal(buffer[:, 32:], qkv[:, 32:])


def test_without_table_and_norm_it_copies():
    qkv, _, _, sizes = inputs(8, 8)
    q, k = forward(qkv, None, None, **sizes)
    assert torch.equal(torch.cat((q.flatten(1), k.flatten(1)), dim=1), qkv[:, :32])
    gradient = torch.zeros(5, 32)
    backward(q, k, None, None, None, dqkv_out=gradient, **sizes)
    assert torch.equal(gradient, qkv[:, :32])
