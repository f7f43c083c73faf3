"""The gated delta rule: transformers' chunks, documents that know nothing of each other, steps, memory, refusals."""

import pytest
import torch

from burnish_kernels.delta_rule import reference
from burnish_kernels.delta_rule.op import backward, forward, step
from burnish_kernels.delta_rule.sizes import Sizes, heads_at_a_time, workspace_bytes

SIZES = Sizes(key_heads=2, value_heads=4, key_size=8, value_size=12)
LENGTHS = (1, 70, 3, 130, 64, 2, 1, 9, 37)


@pytest.fixture(autouse=True)
def without_kernels(monkeypatch):
    """The path without a GPU; kernels have cases of their own."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def documents(lengths):
    sizes = torch.tensor(lengths)
    ends = sizes.cumsum(0)
    return torch.repeat_interleave(ends - sizes, sizes).int(), [
        slice(end - size, end) for size, end in zip(sizes, ends, strict=True)
    ]


def inputs(rows, sizes=SIZES, dtype=torch.float32):
    generator = torch.Generator().manual_seed(rows)
    heads = sizes.value_heads
    qkv, b, a = (torch.randn(rows, width, generator=generator).to(dtype) for width in (sizes.width, heads, heads))
    return [qkv, b, a, torch.linspace(-4.0, 1.0, heads), torch.linspace(-1.0, 1.0, heads)]


def gradient(rows, sizes=SIZES):
    return torch.randn(rows, sizes.out_width, generator=torch.Generator().manual_seed(7))


def relative(found, wanted):
    return float((found - wanted).norm() / wanted.norm())


def theirs(qkv, b, a, a_log, dt_bias):
    """Output and last state of transformers' implementation."""
    from transformers.models.qwen3_5.modeling_qwen3_5 import torch_chunk_gated_delta_rule

    keys = SIZES.key_heads * SIZES.key_size
    q, k, v = qkv.split((keys, keys, SIZES.out_width), dim=1)
    g = -a_log.exp() * torch.nn.functional.softplus(a + dt_bias)
    o, state = torch_chunk_gated_delta_rule(
        q.unflatten(1, (-1, SIZES.key_size))[None],
        k.unflatten(1, (-1, SIZES.key_size))[None],
        v.unflatten(1, (-1, SIZES.value_size))[None],
        g=g[None],
        beta=b.sigmoid()[None],
        use_qk_l2norm_in_kernel=True,
        output_final_state=True,
    )
    return o[0].flatten(1), state[0]


def test_one_document_is_what_transformers_computes():
    given = inputs(150)
    start = torch.zeros(150, dtype=torch.int32)
    states = torch.empty(1, 4, 8, 12)
    found = forward(*given, start, SIZES, last_R=torch.tensor([149], dtype=torch.int32), states_RVDE=states)
    leaves = [one.clone().requires_grad_() for one in given[:3]]
    o, state = theirs(*leaves, *given[3:])
    assert relative(found, o.detach()) < 1e-5
    assert relative(states[0], state.detach()) < 1e-5
    do = gradient(150)
    for ours, wanted in zip(backward(do, *given, start, SIZES), torch.autograd.grad(o, leaves, do), strict=True):
        assert relative(ours, wanted) < 1e-5


def test_packed_documents_are_those_alone():
    start, owns = documents(LENGTHS)
    rows = len(start)
    given, do = inputs(rows), gradient(rows)
    ends = torch.tensor([own.stop - 1 for own in owns], dtype=torch.int32)
    states = torch.empty(len(owns), 4, 8, 12)
    packed = [forward(*given, start, SIZES, last_R=ends, states_RVDE=states), *backward(do, *given, start, SIZES)]
    for number, own in enumerate(owns):
        alone = [one[own] for one in given[:3]] + given[3:]
        length = own.stop - own.start
        edge, last = torch.zeros(int(length), dtype=torch.int32), torch.tensor([length - 1], dtype=torch.int32)
        state = torch.empty(1, 4, 8, 12)
        wanted = [forward(*alone, edge, SIZES, last_R=last, states_RVDE=state)]
        wanted += backward(do[own], *alone, edge, SIZES)
        assert relative(states[number], state[0]) < 2e-5
        for found, other in zip(packed, wanted, strict=True):
            torch.testing.assert_close(found[own], other, rtol=2e-5, atol=2e-5)


def test_a_document_leaves_no_trace_in_the_next():
    """Documents before are masked, not multiplied by a small number."""
    start, owns = documents((5, 70, 3))
    given = inputs(78)
    clean = forward(*given, start, SIZES)
    given[0][owns[0]] *= 1e15
    assert torch.equal(forward(*given, start, SIZES)[5:], clean[5:])


def test_steps_go_on_where_a_prompt_ended():
    given, start = inputs(70), torch.zeros(70, dtype=torch.int32)
    whole = forward(*given, start, SIZES)
    prompt = [one[:66] for one in given[:3]] + given[3:]
    states = torch.empty(1, 4, 8, 12)
    forward(*prompt, start[:66], SIZES, last_R=torch.tensor([65], dtype=torch.int32), states_RVDE=states)
    for token in range(66, 70):
        one = [tensor[token : token + 1] for tensor in given[:3]] + given[3:]
        assert relative(step(*one, states, SIZES), whole[token : token + 1]) < 1e-5


def test_gradients_are_those_of_finite_differences():
    sizes, (start, _) = Sizes(1, 2, 4, 3), documents((20, 1, 49))
    leaves = [one.double().requires_grad_() for one in inputs(70, sizes)[:3]]
    fixed = [one.double() for one in inputs(70, sizes)[3:]]

    def output(*given):
        return reference.forward(*given, *fixed, start, sizes)[0]

    assert torch.autograd.gradcheck(output, leaves, fast_mode=True)


def test_beta_is_rounded_as_transformers_does():
    rounded, _ = reference.gates(torch.tensor([[0.3]], dtype=torch.bfloat16), torch.zeros(1, 1), *torch.zeros(2, 1))
    assert rounded.item() == torch.sigmoid(torch.tensor(0.3, dtype=torch.bfloat16)).item()


@pytest.mark.parametrize("key_heads", [1, 3, 4])
def test_a_smaller_workspace_serves_fewer_heads_at_a_time(key_heads):
    sizes = Sizes(4, 8, 16, 16)
    size = workspace_bytes(100, sizes, torch.bfloat16, backward=True, key_heads=key_heads)
    for spare in (0, 1):
        space = torch.empty(size + spare, dtype=torch.uint8)
        assert heads_at_a_time(space, 100, sizes, torch.bfloat16, backward=True) == key_heads


def test_a_workspace_too_small_for_one_head_is_refused():
    with pytest.raises(ValueError, match="at least"):
        heads_at_a_time(torch.empty(64, dtype=torch.uint8), 100, SIZES, torch.bfloat16)


@pytest.mark.parametrize(
    ("place", "wrong", "named"),
    [
        (0, torch.zeros(6, 79), "qkv"),
        (1, torch.zeros(6, 3), "b must"),
        (2, torch.zeros(4, 6).t(), "each row of a"),
        (3, torch.zeros(4, dtype=torch.bfloat16), "a_log"),
        (5, torch.zeros(6), "start"),
        (6, Sizes(2, 3, 8, 12), "no multiple"),
    ],
)
def test_operands_that_do_not_fit_are_named(place, wrong, named):
    given = [*inputs(6), torch.zeros(6, dtype=torch.int32), SIZES]
    given[place] = wrong
    with pytest.raises(ValueError, match=named):
        forward(*given)


def test_states_go_with_the_rows_that_they_stand_behind():
    given = [*inputs(6), torch.zeros(6, dtype=torch.int32), SIZES]
    with pytest.raises(ValueError, match="together"):
        forward(*given, last_R=torch.tensor([5], dtype=torch.int32))
    with pytest.raises(ValueError, match="states"):
        forward(*given, last_R=torch.tensor([5], dtype=torch.int32), states_RVDE=torch.zeros(1, 4, 12, 8))
