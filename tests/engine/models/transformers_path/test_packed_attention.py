"""Models of transformers that attend by our kernels give what they give by their own, each document alone."""

import numpy as np
import pytest
import torch

from burnish_engine.models.families import FAMILIES as KNOWN
from burnish_engine.models.transformers_path import packed_attention
from burnish_engine.models.transformers_path.packed_attention import (
    CannotAttendError,
    can_attend,
    switch_back,
    switch_over,
    within,
)

CPU = torch.device("cpu")
BOUNDARIES = np.array([0, 5, 6, 26, 40])
COMMON = {
    "vocab_size": 97, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
FAMILIES = {
    "llama": {},
    "mistral": {"sliding_window": 7},
    "qwen2": {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1},
    "qwen3": {},
    "gemma2": {"sliding_window": 7, "attn_logit_softcapping": 5.0, "query_pre_attn_scalar": 16},
    "gemma3_text": {"sliding_window": 7, "query_pre_attn_scalar": 16},
    "olmo2": {},
    "olmo3": {"sliding_window": 7, "num_hidden_layers": 4},
    "granite": {"attention_multiplier": 0.2},
    "glm": {},
    "glm4": {},
    "phi3": {"sliding_window": 7},
    "smollm3": {"no_rope_layers": [1, 0, 1]},
    "apertus": {"head_dim": 16},
    "gemma": {"head_dim": 16},
    "arcee": {"head_dim": 16},
    "cwm": {"head_dim": 16, "sliding_window": 7},
    "ernie4_5": {"head_dim": 16},
    "helium": {"head_dim": 16},
    "ministral": {"head_dim": 16, "sliding_window": 7},
    "seed_oss": {"head_dim": 16, "attention_dropout": 0.0, "residual_dropout": 0.0},
    "exaone4": {"head_dim": 16, "sliding_window": 7, "sliding_window_pattern": 2},
    "hunyuan_v1_dense": {"head_dim": 16},
}


def make(name, device=CPU, dtype=torch.float32, **changes):
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(name, **COMMON | FAMILIES[name] | changes)
    # Without a mask of transformers' own SDPA would not know of soft caps; the reference is the eager attention then.
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager" if "gemma2" in name else "sdpa")
    return model.to(device, dtype).train()


def inputs(device=CPU, boundaries=BOUNDARIES):
    torch.manual_seed(1)
    ids = torch.randint(3, 97, (1, int(boundaries[-1])))
    positions = torch.cat([torch.arange(n) for n in np.diff(boundaries)])[None]
    return {"input_ids": ids.to(device), "position_ids": positions.to(device)}


def logits_and_gradients(model, given, boundaries=None):
    """Inside `within` where boundaries are given."""
    model.zero_grad()
    with within(boundaries):
        logits = model(**given, use_cache=False).logits.float()
        torch.manual_seed(2)
        (logits * torch.randn(logits.shape).to(logits.device)).mean().backward()
    return [logits.detach(), *(value.grad.float() for value in model.parameters())]


def test_masks_are_left_out_of_predictions_for_families_that_are_tried_here_alone():
    known = {name for name, family in KNOWN.items() if family.own_attention}
    assert FAMILIES.keys() >= known - {"internlm3", "iquestcoder"}  # whose code is Llama's


@pytest.mark.full
@pytest.mark.parametrize("name", FAMILIES)
def test_it_is_the_model_s_own_attention(name):
    model, given = make(name), inputs()
    own = logits_and_gradients(model, given)
    switch_over(model)
    ours = logits_and_gradients(model, given, BOUNDARIES)
    for mine, theirs in zip(ours, own, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.full
def test_other_documents_change_the_result():
    """So that the test above can fail."""
    model, given = make("llama"), inputs()
    switch_over(model)
    one, other = (logits_and_gradients(model, given, np.array(ends))[0] for ends in ([0, 5, 6, 26, 40], [0, 40]))
    assert (one - other).abs().max() > 1e-2


@pytest.mark.full
def test_what_is_computed_again_in_the_backward_pass_sees_the_documents_too():
    model, given = make("llama"), inputs()
    switch_over(model)
    kept = logits_and_gradients(model, given, BOUNDARIES)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    for again, before in zip(logits_and_gradients(model, given, BOUNDARIES), kept, strict=True):
        torch.testing.assert_close(again, before, rtol=0, atol=0)


@pytest.mark.full
def test_outside_it_is_as_before():
    model, given = make("qwen3").eval(), inputs()
    padded = {"input_ids": given["input_ids"].view(2, 20), "attention_mask": torch.ones(2, 20, dtype=torch.long)}
    padded["attention_mask"][1, 15:] = 0
    before = [model(**one, use_cache=False).logits for one in (given, padded)]
    reply = model.generate(given["input_ids"][:, :5], max_new_tokens=8, do_sample=False)
    switch_over(model)
    with within(BOUNDARIES):
        pass
    after = [model(**one, use_cache=False).logits for one in (given, padded)]
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(after, before, strict=True))
    assert torch.equal(model.generate(given["input_ids"][:, :5], max_new_tokens=8, do_sample=False), reply)
    switch_back(model)
    assert model.config._attn_implementation == "sdpa"


def test_what_our_kernels_do_not_do_is_refused():
    model, given = make("llama"), inputs()
    switch_over(model)
    with within(np.array([0, 20])), pytest.raises(CannotAttendError, match="another kind of attention"):
        model(**given, use_cache=False)
    with within(BOUNDARIES), pytest.raises(CannotAttendError, match="asks for sinks"):
        model(**given, use_cache=False, sinks=torch.ones(4))
    with within(BOUNDARIES), pytest.raises(CannotAttendError, match="mask of another kind"):
        model(**given, use_cache=False, attention_mask=torch.tensor([[1] * 39 + [0]]))
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.1
    with within(BOUNDARIES), pytest.raises(CannotAttendError):
        model(**given, use_cache=False)


@pytest.mark.parametrize(("kind", "left"), [("mistral", "the attention"), ("llama", "the mask")])
def test_a_window_that_only_one_of_mask_and_attention_knows_is_refused(kind, left, monkeypatch):
    """As of Phi-MoE, whose mask alone has it, and of OLMoE, whose attention alone."""
    attend, window = packed_attention._packed_attention, None if left == "the attention" else 7

    def told(module, *arguments, **options):
        return attend(module, *arguments, **options | {"sliding_window": window})

    monkeypatch.setattr(packed_attention, "_packed_attention", told)
    model, given = make(kind), inputs()
    switch_over(model)
    with within(BOUNDARIES), pytest.raises(CannotAttendError, match="window of"):
        model(**given, use_cache=False)


def test_a_mask_made_for_documents_is_not_used_outside():
    model, given = make("llama"), inputs()
    switch_over(model)
    with within(BOUNDARIES):
        told = packed_attention._mask(batch_size=1, q_length=40, kv_length=40)
    with pytest.raises(CannotAttendError, match="made for packed documents"):
        model(**given, attention_mask=told, use_cache=False)


def test_only_where_it_is_worth_it(monkeypatch):
    from transformers import AutoConfig, AutoModelForCausalLM

    gpu = torch.device("cuda")
    monkeypatch.setattr(packed_attention, "device_problem", lambda _device: "")
    assert can_attend(make("llama"), gpu)
    several = AutoConfig.for_model("gemma3", text_config=COMMON | {"query_pre_attn_scalar": 16})
    with torch.device("meta"):
        assert not can_attend(AutoModelForCausalLM.from_config(several, attn_implementation="sdpa"), gpu)
    assert not can_attend(make("llama"), CPU)
    assert not can_attend(make("llama", attention_dropout=0.1), gpu)
    assert not can_attend(torch.nn.Linear(1, 1), gpu)
    monkeypatch.setattr(packed_attention, "device_problem", lambda _device: "the card is too old")
    assert not can_attend(make("llama"), gpu)


def test_documents_are_forgotten_when_a_pass_fails():
    with pytest.raises(KeyError), within(BOUNDARIES):
        raise KeyError
    assert packed_attention._current is None


@pytest.mark.gpu
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_it_is_the_model_s_own_attention_on_a_gpu(name, dtype):
    device = torch.device("cuda")
    ends = np.cumsum([0, 1, 300, 17, 64, 129, 500])
    exact = logits_and_gradients(make(name, device), inputs(device, ends))
    model, given = make(name, device, dtype), inputs(device, ends)
    own = logits_and_gradients(model, given)
    switch_over(model)
    ours = logits_and_gradients(model, given, ends)
    for mine, theirs, reference in zip(ours, own, exact, strict=True):
        if reference.numel() == 1:  # the rounding of a single sum (of xIELU's alphas) says nothing about another's
            continue
        scale = reference.norm().clamp_min(1e-8)
        error, usual = (mine - reference).norm() / scale, (theirs - reference).norm() / scale
        assert error <= max(2 * float(usual), 2e-3 if dtype == torch.float32 else 2e-2)
