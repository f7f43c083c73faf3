"""Delta nets of transformers run on fla's kernels only on a GPU, and there within the documents of a packed row."""

import itertools
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.integrations.hub_kernels import use_kernel_func_from_hub_with_fallback
from transformers.models.qwen3_next import modeling_qwen3_next

from burnish_engine.models.transformers_path import delta_kernels
from burnish_engine.train.plain.layout_choice import choose_layout

CPU = torch.device("cpu")
RULE = "torch_chunk_gated_delta_rule"
CHOOSING = (RULE, "torch_recurrent_gated_delta_rule", "causal_conv1d_fn", "causal_conv1d_update")


def torch_code(name):
    """transformers' own function behind all that was put around it."""
    function = getattr(modeling_qwen3_next, name)
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


def apart(query, key, value, g, beta, cu_seqlens=None, **options):
    """Output of fla's kernel, document by document."""
    ends = cu_seqlens.tolist() if cu_seqlens is not None else [0, query.shape[1]]
    parts = [
        torch_code(RULE)(*(x[:, first:last] for x in (query, key, value)),
                         g=g[:, first:last], beta=beta[:, first:last], **options)[0]
        for first, last in itertools.pairwise(ends)
    ]  # fmt: skip
    return torch.cat(parts, dim=1), None


def together(query, key, value, g, beta, cu_seqlens=None, **options):
    """A kernel that takes the documents and does not heed them."""
    return torch_code(RULE)(query, key, value, g=g, beta=beta, **options)


def on_a_cpu(*_arguments, cu_seqlens=None, **_options):
    raise ValueError("Pointer argument cannot be accessed from Triton (cpu tensor?)")


@pytest.fixture
def model(monkeypatch):
    """A function from fla's kernel, None where it is not installed, to a small Qwen3-Next made with it."""

    def make(kernel):
        held = {"chunk_gated_delta_rule": kernel, "fused_recurrent_gated_delta_rule": kernel} if kernel else {}
        package = SimpleNamespace(ops=SimpleNamespace(gated_delta_rule=SimpleNamespace(**held)))
        for name in CHOOSING:
            package_name = "causal_conv1d" if "conv" in name else "fla"
            monkeypatch.setitem(sys.modules, package_name, package if package_name == "fla" and kernel else None)
            chosen = use_kernel_func_from_hub_with_fallback(name.removeprefix("torch_").replace(
                "recurrent_g", "fused_recurrent_g"), package_name)(torch_code(name))  # fmt: skip
            monkeypatch.setattr(modeling_qwen3_next, name, chosen)
        config = AutoConfig.for_model(
            "qwen3_next", vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=4, head_dim=16,
            num_attention_heads=2, num_key_value_heads=1, linear_num_key_heads=1, linear_num_value_heads=2,
            linear_key_head_dim=8, linear_value_head_dim=8, num_experts=2, num_experts_per_tok=1,
            moe_intermediate_size=16, shared_expert_intermediate_size=16,
        )  # fmt: skip
        torch.manual_seed(3)
        return AutoModelForCausalLM.from_config(config).eval()

    return make


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Tensors on the CPU count as those on a GPU."""
    monkeypatch.setattr(delta_kernels, "_WITHOUT_KERNELS", {"meta"})


def test_tensors_on_a_cpu_get_transformers_own_code(model):
    wanted = model(None)(torch.arange(20)[None]).logits
    made = model(on_a_cpu)
    assert delta_kernels.switch_over(made, CPU) == "torch"
    torch.testing.assert_close(made(torch.arange(20)[None]).logits, wanted)


@pytest.mark.parametrize(
    ("kernel", "layout", "words"),
    [(apart, "packed", "fla-core computes"), (together, "padded", "reach the next one"), (None, "padded", "")],
)
def test_rows_are_packed_where_the_probe_shows_documents_apart(model, as_on_a_gpu, kernel, layout, words):
    """The probe compares a row's logits in a pack with those that it has alone."""
    found, note = choose_layout(model(kernel), 97, CPU, True)
    assert found == layout
    assert words in note


def test_a_run_that_was_packed_is_probed_again_where_the_kernels_are_gone(model):
    assert choose_layout(model(apart), 97, CPU, True, "packed")[0] == "padded"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_convolution_sees_one_document_at_a_time(dtype):
    torch.manual_seed(1)
    boundaries = np.array([0, 1, 3, 10, 74])
    x, weight = torch.randn(1, 6, 74, dtype=dtype, requires_grad=True), torch.randn(6, 4, dtype=dtype)
    run = torch_code("causal_conv1d_fn")
    found = delta_kernels.convolve_apart(run, boundaries, x, weight, activation="silu")
    parts = [run(x[..., first:last], weight, activation="silu") for first, last in itertools.pairwise(boundaries)]
    wanted = torch.cat(parts, dim=-1)
    torch.testing.assert_close(found, wanted)
    change = torch.randn_like(found)
    for one, other in zip(*(torch.autograd.grad(y, x, change) for y in (found, wanted)), strict=True):
        torch.testing.assert_close(one, other)
