"""What families say against transformers: every tensor of a checkpoint, and a plain decoder built from nothing else."""

import subprocess
import sys

import pytest
import torch
from safetensors import safe_open
from torch.nn import functional
from transformers import AutoConfig, AutoModelForCausalLM, GraniteMoeHybridConfig, OlmoConfig

from burnish_engine.contract.facts.facts import DeltaSpec
from burnish_engine.models.checkpoint.source import _read_object
from burnish_engine.models.checkpoint.spec import decoder_spec
from burnish_engine.models.checkpoint.weights import Checkpoint
from burnish_engine.models.decoder.rope_tables import rope_table
from burnish_engine.models.families import family, own_dropout, why_not_fast
from burnish_engine.models.families.matrices import STACK_NAMES
from burnish_engine.models.families.record import ACTIVATIONS, DELTA_HEADS
from burnish_kernels.delta_rule import op as delta_rule

from support.models.published import CONFIGS
from support.models.tiny_models import SHAPES, load, lora, make

ACTIVATION = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
}


def opened(folder):
    spec = decoder_spec(_read_object(folder / "config.json"))
    return spec, family(spec.family)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_tensor_of_a_checkpoint_has_its_place(shape, tmp_path):
    spec, entry = opened(make(shape, tmp_path))
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        saved = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    assert entry.tensors(spec) == saved
    assert (entry.head_path(spec) is None) == spec.tied_embeddings
    assert entry.supported(spec) == ""


@pytest.mark.full
@pytest.mark.parametrize("name", CONFIGS)
def test_every_tensor_of_published_models_has_its_place(name):
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**CONFIGS[name]))
    spec = decoder_spec(CONFIGS[name])
    entry = family(spec.family)
    real = {key: tuple(value.shape) for key, value in model.state_dict().items()}
    if spec.tied_embeddings:
        del real["lm_head.weight"]
    assert entry.tensors(spec) == real
    assert why_not_fast(CONFIGS[name], spec) == ""
    for layer, module in zip(spec.layers, model.model.layers, strict=True):
        window = getattr(module.self_attn, "sliding_window", model.config.__dict__.get("sliding_window"))
        if spec.family != "llama":
            assert (spec.sliding_window if layer.kind == "sliding_attention" else None) == window
        assert layer.rope == bool(getattr(module.self_attn, "use_rope", True))
        assert module.self_attn.scaling == (spec.attention_scale or spec.head_dim**-0.5)


@pytest.mark.parametrize("shape", SHAPES)
def test_modules_fill_their_stacks(shape, tmp_path):
    spec, entry = opened(make(shape, tmp_path))
    rows = {
        "mixer_in": 0,
        "mixer_out": spec.hidden_size,
        "gate_up": (1 + spec.mlp_gate) * spec.intermediate_size,
        "down": spec.hidden_size,
    }
    for layer, one in enumerate(spec.layers):
        kind, own = one.kind, spec.of_layer(one)
        query, key = own.num_heads * own.head_dim, own.num_kv_heads * own.head_dim
        keys = 0 if one.keys == "borrowed" else 1 + one.projects_values
        rows["gate_up"] = (1 + spec.mlp_gate) * (one.width or spec.intermediate_size)
        mine = [module for module in entry.modules(spec) if module.layer == layer]
        rows["mixer_in"] = query + keys * key + {"": 0, "heads": spec.num_heads, "numbers": query}[spec.attention_gate]
        if kind == "short_convolution":
            rows["mixer_in"] = 3 * spec.hidden_size
        if kind == "gated_delta":
            rows["mixer_in"] = spec.delta.convolved + spec.delta.output + 2 * spec.delta.value_heads
        assert [stack for stack in rows if any(module.stack == stack for module in mine)] == list(rows)
        for stack, total in rows.items():
            end = 0
            for module in (module for module in mine if module.stack == stack):
                assert module.first_row == end
                end += module.rows
            assert end == total


@pytest.mark.full
@pytest.mark.parametrize("shape", ["llama", "phi3", "gemma3"])
def test_peft_adapts_the_same_modules(shape, tmp_path):
    spec, entry = opened(make(shape, tmp_path / "base"))
    adapter = lora(tmp_path / "base", tmp_path / "adapter", rank=4)
    with safe_open(adapter / "adapter_model.safetensors", "pt") as file:
        found = {name.removeprefix("base_model.model."): file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
    assert found == {
        f"{module.path}.lora_{part}.weight": ([4, module.columns] if part == "A" else [module.rows, 4])
        for module in entry.modules(spec)
        for part in "AB"
    }


# -- A decoder of fifty lines from a specification, a family, a rope table and a checkpoint ---------------------------


def rms_norm(x, weight, spec):
    if weight is None:
        return x
    unit = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + spec.rms_norm_eps)
    return unit * (1.0 + weight if spec.norm_one_plus else weight)


def rotate(x, rows, interleaved):
    cos, sin = (half[:, None] for half in rows.chunk(2, dim=-1))
    part = 2 * cos.shape[-1]
    pairs = x[..., :part].unflatten(-1, (-1, 2) if interleaved else (2, -1))
    axis = -1 if interleaved else -2
    first, second = pairs.unbind(axis)
    turned = torch.stack((first * cos - second * sin, second * cos + first * sin), dim=axis)
    return torch.cat((turned.flatten(-2), x[..., part:]), dim=-1)


def normalized(q, k, spec, norms):
    together = (x.flatten(1) if spec.qk_norm_whole else x for x in (q, k))
    normed = (rms_norm(x, norms[name], spec) for x, name in zip(together, ("q_norm", "k_norm"), strict=True))
    return tuple(x.view(len(x), -1, spec.head_dim) for x in normed)


def attend(qkv, spec, layer, norms, index):
    bare = spec.model_copy(update={"attention_gate": ""})
    if spec.attention_gate == "numbers":
        size = spec.num_heads * spec.head_dim
        q, gate = qkv[:, : 2 * size].unflatten(1, (spec.num_heads, 2, -1)).unbind(2)
        attended = attend(torch.cat((q.flatten(1), qkv[:, 2 * size :]), dim=1), bare, layer, norms, index)
        return attended * gate.flatten(1).sigmoid()
    if spec.attention_gate:
        attended = attend(qkv[:, : -spec.num_heads], bare, layer, norms, index)
        return attended * qkv[:, -spec.num_heads :].sigmoid().repeat_interleave(spec.head_dim, dim=1)
    tokens = qkv.shape[0]
    heads = qkv.view(tokens, -1, spec.head_dim)
    q, k, v = heads.split((spec.num_heads, spec.num_kv_heads, spec.num_kv_heads), dim=1)
    if spec.qk_norm and not spec.qk_norm_after:
        q, k = normalized(q, k, spec, norms)
    slides = layer.kind == "sliding_attention"
    rope = spec.local_rope if slides and spec.local_rope is not None else spec.rope
    if layer.rope:
        table = rope_table(rope, spec.head_dim, tokens, "cpu")
        start = table.long_offset if table.long_above is not None and tokens > table.long_above else 0
        q, k = (rotate(x, table.table_PR[start : start + tokens], rope.interleaved) for x in (q, k))
    if spec.qk_norm_after:
        q, k = normalized(q, k, spec, norms)
    if spec.rope.query_scale:
        q = q * (1 + spec.rope.query_scale * torch.log(1 + index // spec.rope.original_context))[:, None, None]
    k, v = (x.repeat_interleave(spec.num_heads // spec.num_kv_heads, dim=1) for x in (k, v))
    scores = torch.einsum("ind,jnd->nij", q, k) * (spec.attention_scale or spec.head_dim**-0.5)
    if spec.attention_softcap:
        scores = spec.attention_softcap * torch.tanh(scores / spec.attention_softcap)
    distance = index[:, None] - index[None, :]
    seen = (distance >= 0) & (distance < (spec.sliding_window if slides else tokens))
    scores = scores.masked_fill(~seen, float("-inf"))
    if spec.attention_sinks:  # a score of each head beside those of tokens, which has no value
        scores = torch.cat((scores, norms["sinks"][:, None, None].expand(-1, tokens, 1)), dim=-1)
    weights = scores.softmax(-1)[..., :tokens]
    return torch.einsum("nij,jnd->ind", weights, v).reshape(tokens, -1)


def convolve(bcx, spec, norms):
    """By transformers' own layout: channels first, the document padded in front."""
    b, c, x = bcx.t().chunk(3)
    padded = functional.pad(b * x, (spec.conv_width - 1, 0))[None]
    return (c * functional.conv1d(padded, norms["conv_weight"], norms.get("conv_bias"), groups=spec.hidden_size)[0]).t()


def delta_net(projected, spec, own):
    """Token by token, as the paper writes it (arXiv 2412.06464)."""
    net = spec.delta
    qkv, z, b, a = projected.split((net.convolved, net.output, net.value_heads, net.value_heads), dim=1)
    padded = functional.pad(qkv.t(), (spec.conv_width - 1, 0))[None]
    qkv = functional.silu(functional.conv1d(padded, own["conv_weight"], groups=net.convolved)[0].t())
    keys = net.key_heads * net.key_dim
    q, k, v = (x.unflatten(1, (heads, -1)) for x, heads in zip(
        qkv.split((keys, keys, net.output), dim=1), (net.key_heads, net.key_heads, net.value_heads), strict=True
    ))  # fmt: skip
    q, k = (x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt() for x in (q, k))
    q, k = (x.repeat_interleave(net.value_heads // net.key_heads, dim=1) for x in (q, k))
    decay, strength = (-own["a_log"].exp() * functional.softplus(a + own["dt_bias"])).exp(), b.sigmoid()
    state, read = torch.zeros(net.value_heads, net.key_dim, net.value_dim), []
    for t in range(len(projected)):
        state = state * decay[t, :, None, None]
        answer = torch.einsum("vd,vde->ve", k[t], state)
        state = state + torch.einsum("vd,ve->vde", k[t], strength[t, :, None] * (v[t] - answer))
        read.append(torch.einsum("vd,vde->ve", q[t] * net.key_dim**-0.5, state))
    plain = spec.model_copy(update={"norm_one_plus": False})
    return rms_norm(torch.stack(read), own["delta_norm"], plain).flatten(1) * functional.silu(z)


def xielu(x, own):
    """By the paper's formula (arXiv 2411.13010)."""
    square, below = functional.softplus(own["alpha_p"]), own["beta"] + functional.softplus(own["alpha_n"])
    curved = torch.where(x > 0, square * x**2, below * (torch.expm1(torch.minimum(x, own["eps"])) - x))
    return curved + own["beta"] * x


def stack(checkpoint, entry, modules, name):
    parts = [module for module in modules if module.stack == name]
    weight = torch.full((sum(module.rows for module in parts), parts[0].columns), float("nan"))
    bias = torch.zeros(weight.shape[0])
    for module in parts:
        rows = slice(module.first_row, module.first_row + module.rows)
        path = entry.stored_path(module.path)
        checkpoint.read_into(f"{path}.weight", weight[rows])
        if module.bias:
            checkpoint.read_into(f"{path}.bias", bias[rows])
    return lambda x: functional.linear(x, weight, bias)


def plain_logits(folder, ids):
    spec, entry = opened(folder)
    index = torch.arange(len(ids))
    with Checkpoint(folder) as checkpoint:
        embedding = checkpoint.read(entry.embedding_path)
        x = embedding[ids] * spec.embedding_scale
        vectors = entry.vectors(spec)
        for number, layer in enumerate(spec.layers):
            modules = [module for module in entry.modules(spec) if module.layer == number]
            norms = {one.role: checkpoint.read(one.name) for one in vectors if one.layer == number}
            mixer_in, mixer_out, gate_up, down = (stack(checkpoint, entry, modules, name) for name in STACK_NAMES)
            projected = mixer_in(rms_norm(x, norms.get("mixer_norm"), spec))
            if layer.attends:
                mixed = attend(projected, spec, layer, norms, index)
            else:
                mixed = (delta_net if layer.kind == "gated_delta" else convolve)(projected, spec, norms)
            mixed = mixer_out(mixed)
            x = x + rms_norm(mixed, norms.get("mixer_post_norm"), spec) * spec.residual_scale
            wide = gate_up(rms_norm(x, norms.get("mlp_norm"), spec))
            if spec.mlp_gate:
                gate, up = wide.chunk(2, dim=-1)
                made = down(ACTIVATION[ACTIVATIONS[spec.activation]](gate) * up)
            else:
                made = down(xielu(wide, norms) if spec.activation == "xielu" else functional.relu(wide) ** 2)
            x = x + rms_norm(made, norms.get("mlp_post_norm"), spec) * spec.residual_scale
        x = rms_norm(x, checkpoint.read(vectors[-1].name), spec)
        head = entry.head_path(spec)
        logits = x @ (embedding if head is None else checkpoint.read(head)).T / spec.logit_divisor
    return logits if spec.logit_softcap is None else spec.logit_softcap * torch.tanh(logits / spec.logit_softcap)


@pytest.mark.full
@pytest.mark.parametrize("tokens", [24, 80])  # within and beyond the window and longrope's original context
@pytest.mark.parametrize("shape", [name for name in SHAPES if not name.startswith("gemma4")])
def test_a_plain_decoder_gives_transformers_logits(shape, tokens, tmp_path):
    folder = make(shape, tmp_path, seed=tokens)
    ids = torch.randint(0, 384, (tokens,), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = load(folder)(ids[None]).logits[0]
        found = plain_logits(folder, ids)
    assert expected.std() > 0.5
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


@pytest.mark.full
def test_more_settings_give_transformers_logits(tmp_path):
    changed = [
        make("llama", tmp_path / "biases", attention_bias=True),
        make("qwen3", tmp_path / "all-biases", attention_bias=True, hidden_act="gelu"),
        make("gemma3", tmp_path / "capped", final_logit_softcapping=2.0, attention_bias=True),
        make("smollm3", tmp_path / "local", use_sliding_window=True, sliding_window=8, no_rope_layer_interval=2),
        make("phi3", tmp_path / "window", sliding_window=8),
    ]
    ids = torch.randint(0, 384, (40,), generator=torch.Generator().manual_seed(1))
    for folder in changed:
        with torch.no_grad():
            torch.testing.assert_close(plain_logits(folder, ids), load(folder)(ids[None]).logits[0], atol=1e-4, rtol=0)


# -- What is left to the plain path -----------------------------------------------------------------------------------


def llama_spec(**changes):
    return decoder_spec(CONFIGS["meta-llama/Llama-3.2-1B"]).model_copy(update=changes)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"activation": "relu2"}, "uses the activation 'relu2'"),
        ({"conv_width": 17}, "has convolutions of 17 tokens"),
        ({"head_dim": 520}, "has heads of 520 numbers"),
        ({"num_kv_heads": 5}, "has query heads that do not share out"),
        ({"mlp_bias": True}, "has biases in its feed-forward"),
        ({"activation": "xielu"}, "uses the activation 'xielu'"),
        ({"mlp_gate": False}, "uses the activation 'silu' without a gate"),
        ({"causal": False}, "attends to later tokens"),
        ({"num_experts": 8}, "is a mixture of experts"),
        ({"hidden_size": 2044}, "multiples of 8"),
        (
            {"delta": DeltaSpec(key_heads=2, value_heads=4, key_dim=64, value_dim=96)},
            "has gated delta heads of 96 numbers",
        ),
    ],
)
def test_what_the_fast_decoder_does_not_do(changes, reason):
    assert reason in family("llama").supported(llama_spec(**changes))


def test_delta_heads_are_those_of_the_kernels():
    assert delta_rule.HEAD_SIZES == DELTA_HEADS


def test_ropes_the_fast_decoder_does_not_do():
    config = {**CONFIGS["Qwen/Qwen3-0.6B"], "rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}
    assert why_not_fast(config, decoder_spec(config)) == "uses dynamic rope"


def test_granites_that_are_mixtures_or_hybrids_have_no_specification():
    dense = GraniteMoeHybridConfig(num_local_experts=0, layer_types=["full_attention"] * 32).to_dict()
    assert why_not_fast(dense, decoder_spec(dense)) == ""
    for change in ({"num_local_experts": 8}, {"layer_types": ["linear_attention"] * 32}, {"residual_multiplier": 0}):
        assert decoder_spec({**dense, **change}) is None


def test_why_a_checkpoint_takes_the_plain_path():
    llama = CONFIGS["meta-llama/Llama-3.2-1B"]
    stored = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    for quantization, nf4, reason in (
        (stored, False, "is stored quantized"),
        (stored, True, ""),
        ({**stored, "bnb_4bit_quant_type": "fp4"}, True, "is stored quantized"),
        ({"quant_method": "gptq", "bits": 4}, True, "is stored quantized"),
        ("nf4", True, "is stored quantized"),
    ):
        assert why_not_fast({**llama, "quantization_config": quantization}, llama_spec(), nf4=nf4) == reason
    assert why_not_fast({**llama, "attention_dropout": 0.1}, llama_spec()) == ""  # it is off
    assert own_dropout({**llama, "attention_dropout": 0.1, "resid_pdrop": None}) == 0.1
    wrapper = {"model_type": "gemma3", "text_config": CONFIGS["google/gemma-3-1b-it"]}
    assert why_not_fast(wrapper, None) == "has parts beside its language model, such as one for images"
    assert why_not_fast({"model_type": "gpt2"}, None) == "is of the architecture 'gpt2'"
    older = OlmoConfig().to_dict()
    assert why_not_fast(older, decoder_spec(older)).startswith("is of the architecture")
    capped = {**CONFIGS["google/gemma-3-1b-it"], "attn_logit_softcapping": 50.0}
    assert why_not_fast(capped, decoder_spec(capped)) == "caps its attention scores"
    assert why_not_fast(capped | {"rope_scaling": {"rope_type": "new"}}, None) == "has settings Burnish does not know"


@pytest.mark.full
def test_families_load_no_torch():
    code = "import sys, burnish_engine.models.families; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
