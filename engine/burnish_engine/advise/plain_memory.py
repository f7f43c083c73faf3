"""Predicts the memory peak of a run on the plain engine (transformers + PEFT), component by component. Loads no torch.

What autograd keeps was read off with `torch.autograd.graph.saved_tensors_hooks` on Llama and Qwen3 layers; the
constants at the top were measured with `tests/bench/plan_accuracy.py`, which also says how far the predictions are off.
"""

from __future__ import annotations

import sys

from burnish_engine.advise.engine_choice import device_problem
from burnish_engine.advise.shape import BYTES_OF, MIB, adapted, parameters
from burnish_engine.advise.trained_bytes import optimizer_bytes, trained_parameters
from burnish_engine.advise.whole_model_memory import Passing, optimizer_note, whole_model_parts
from burnish_engine.advise.workload import Pass
from burnish_engine.contract.advice import MemoryPart
from burnish_engine.contract.coverage import Matrix
from burnish_engine.contract.facts import DecoderSpec, LayerSpec
from burnish_engine.contract.machine import GpuFacts
from burnish_engine.contract.recipe import Recipe

_GROWING_SEGMENTS_SHARE = 0.19  # of the head's peak: H100, torch 2.11, eight runs, torch's peak against NVML's
_FIXED_SEGMENTS_SHARE = 1.1  # the same without expandable segments, seven runs
_CONTEXT_BYTES = 820 * MIB  # H100; smaller cards need less
_MALLOC_SHARE = {"fp32": 0.69, "bf16": 0.40}  # of one pass's activations, kept or not: glibc returns little of it
# Of that, where every weight is trained: gradients are large blocks that go back to the system; what 8-bit moments are
# unpacked into does not. Peaks of resident memory of SmolLM2-135M, 512 tokens a pass: +9 % and +5 %.
_RETURNED_SHARE = 0.5
_LIBRARIES_BYTES = 620 * MIB
# oneDNN keeps what it made for each new length of a pass: runs of 10, 40 and 60 steps held 0.05, 0.29 and 0.59 GB more,
# and after about a hundred passes it levels off.
_CACHE_BYTES_PER_PASS, _CACHING_PASSES = 9_500_000, 100

# Families whose models were seen to attend by our kernels, with the same results.
_OUR_ATTENTION = {"gemma3_text", "granite", "llama", "mistral", "olmo2", "phi3", "qwen2", "qwen3", "smollm3"}

_EAGER = {"gpt_oss": False, "gemma2": True, "vaultgemma": True, "granite_swa": True, "granitemoe_swa": True}
"""Families that transformers has no fused attention for (`_supports_sdpa`), and whether their softmax is in fp32: they
keep a number for each head and pair of tokens."""
_EAGER_COPIES = 3  # of those numbers at work in a layer's backward pass: the softmax's, their gradient, the scores'


def plain_memory(
    recipe: Recipe,
    spec: DecoderSpec,
    largest: Pass,
    *,
    cuda: bool,
    precision: str,
    passes: int | None = None,
    apart: bool = False,
) -> list[MemoryPart]:
    """Components of the peak on the training device, which sum up to what the process holds at its worst moment.

    Args:
        recipe: The run.
        spec: The base model's shape.
        largest: Its largest pass.
        cuda: An NVIDIA GPU; else the CPU.
        precision: Of the base weights, "fp32" or "bf16".
        passes: How many passes the run makes; None: many.
        apart: Attention is ours; see `attends_apart`.
    """
    width = BYTES_OF[precision]
    trained = trained_parameters(spec, recipe.adapter)
    by_layer = [layer_kept_bytes(recipe, spec, layer, largest.tokens, width, apart=apart) for layer in spec.layers]
    kept, head = sum(by_layer), head_bytes(spec, largest.supervised)
    layer_peak = _layer_backward_bytes(spec, largest.tokens, width)
    if recipe.train.recompute:
        kept = len(spec.layers) * largest.tokens * spec.hidden_size * width
        layer_peak += max(by_layer)
    mask = 0
    if recipe.train.pack and not apart:  # one byte a pair of tokens; added numbers where attention is not fused
        kinds = len({layer.kind for layer in spec.layers})
        mask = largest.tokens**2 * (kinds * width if spec.family in _EAGER else 1)
        if spec.family in _EAGER:
            layer_peak = max(layer_peak, _EAGER_COPIES * spec.num_heads * largest.tokens**2 * width)
    parts = [MemoryPart(name="base weights", bytes=parameters(spec) * width, note=precision)]
    if recipe.adapter.method == "full":
        outside = largest.tokens * spec.hidden_size * (4 + width) + largest.supervised * spec.hidden_size * width
        passing = Passing(kept + outside + mask, head, layer_peak, 0 if recipe.train.recompute else max(by_layer))
        parts += whole_model_parts(recipe, spec, passing, cuda=cuda, precision=precision)
        returned = _RETURNED_SHARE if recipe.train.optimizer == "adamw" else 1.0
        parts.append(_overhead(head, int(sum(by_layer) * returned), precision, cuda=cuda))
        parts.append(_runtime(passes, cuda=cuda))
        return parts
    state = optimizer_bytes(spec, recipe.adapter, recipe.train.optimizer, cuda=cuda)
    parts += [
        MemoryPart(name="adapter", bytes=trained * 4, note=f"{trained:,} weights, fp32"),
        MemoryPart(name="gradients", bytes=trained * 4, note="fp32"),
        MemoryPart(name="optimizer", bytes=state.device + state.largest, note=optimizer_note(recipe, state)),
        MemoryPart(name="activations", bytes=kept + mask, note=_activations_note(recipe, largest)),
    ]
    # The head's backward pass and a layer's are never at work at the same time.
    if head >= layer_peak:
        parts.append(MemoryPart(name="head and loss", bytes=head, note=f"{largest.supervised:,} learned tokens"))
    else:
        parts.append(MemoryPart(name="backward pass of a layer", bytes=layer_peak))
    parts.append(_overhead(head, sum(by_layer), precision, cuda=cuda))
    parts.append(_runtime(passes, cuda=cuda))
    return parts


def attends_apart(recipe: Recipe, spec: DecoderSpec, gpu: GpuFacts | None) -> bool:
    """Whether passes will be attended by our kernels (`models.packed_attention`); no where that is not sure."""
    known = spec.family in _OUR_ATTENTION and spec.attention_softcap is None and 16 <= spec.head_dim <= 256
    return recipe.train.pack and known and gpu is not None and not device_problem(gpu)


def layer_kept_bytes(
    recipe: Recipe, spec: DecoderSpec, layer: LayerSpec, tokens: int, width: int, *, apart: bool = False
) -> int:
    """What autograd keeps of one layer for the backward pass, bytes.

    Args:
        recipe: Its adapter decides which inputs are kept.
        spec: The model's shape.
        layer: The layer.
        tokens: Tokens of the pass.
        width: Bytes of a base number.
        apart: Attention is ours, which sees one document at a time; else transformers' under a mask.
    """
    hidden, query, key = spec.hidden_size, spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    wide = spec.intermediate_size * (spec.experts_per_token if layer.feed_forward == "mixture_of_experts" else 1)
    targets = adapted(spec, layer, recipe.adapter)
    whole = recipe.adapter.method == "full"
    numbers = 2 * hidden * 4 + 3 * wide * width  # both norms' inputs in fp32; gate, its activation, and up
    if layer.kind == "short_convolution":
        numbers += 5 * hidden * width
    else:
        # q, k and v (which transformers expands), output; log-sum-exp
        numbers += 2 * (query + (key if apart else query)) * width + 4 * spec.num_heads
        if spec.qk_norm:
            numbers += (query + key) * 4
            # Their weights' gradients ask for the normalized numbers, and all norms for one factor a row.
            numbers += (query + key) * width + (spec.num_heads + spec.num_kv_heads) * 4 if whole else 0
    if whole:  # normalized numbers of both norms, the inputs of the products, of which two are shared
        numbers += 4 * hidden * width + wide * width + 2 * 4
    linear = [matrix for matrix in targets if matrix.form == "linear"]
    numbers += _adapter_inputs(linear, width, hidden) + len(linear) * recipe.adapter.rank * 4
    if recipe.adapter.dropout:
        numbers += sum(matrix.columns * 5 for matrix in linear)  # dropped copy in fp32 and its mask
    if recipe.adapter.method == "dora":
        numbers += sum(matrix.rows * (4 + width) for matrix in linear)
    pairs = recipe.train.pack and layer.kind != "short_convolution" and not apart
    mask = tokens * tokens * pair_bytes(spec, width) if pairs else 0
    # PEFT adds the update to a whole stack of experts, and autograd keeps the sum.
    stacks = sum(matrix.weights * width for matrix in targets if matrix.form == "stacked")
    return tokens * numbers + mask + stacks


def pair_bytes(spec: DecoderSpec, width: int) -> int:
    """Bytes that autograd keeps of a layer's attention for each pair of tokens of a packed pass.

    Args:
        spec: shape of the model.
        width: bytes of a number of the base model.
    """
    softmax_in_fp32 = _EAGER.get(spec.family)
    if softmax_in_fp32 is None:
        return width  # the mask
    return spec.num_heads * (4 + width if softmax_in_fp32 and width != 4 else width)


def head_bytes(spec: DecoderSpec, supervised: int) -> int:
    """Peak of the head and the loss: log-probabilities, their gradient and the logits' gradient, all in fp32; bytes."""
    return supervised * spec.vocab_size * 12


def _adapter_inputs(targets: list[Matrix], width: int, hidden: int) -> int:
    """Bytes a token of the adapters' kept inputs: an fp32 copy each, or in fp32 the shared input itself."""
    if width != 4:
        return sum(matrix.columns * 4 for matrix in targets)
    by_name = {matrix.name.rpartition(".")[2]: matrix.columns for matrix in targets}
    shared = (
        {"q_proj", "k_proj", "v_proj", "qkv_proj", "in_proj"},
        {"gate_proj", "up_proj", "gate_up_proj", "w1", "w3"},
    )
    total = sum(hidden * 4 for group in shared if group & by_name.keys())
    grouped = set().union(*shared)
    return total + sum(columns * 4 for name, columns in by_name.items() if name not in grouped | {"o_proj", "out_proj"})


def _layer_backward_bytes(spec: DecoderSpec, tokens: int, width: int) -> int:
    """Gradients alive at once in a layer's feed-forward, its widest place, bytes."""
    wide = spec.intermediate_size
    return tokens * (wide * (2 * 4 + 3 * width) + spec.hidden_size * (4 + 2 * width))


def _activations_note(recipe: Recipe, largest: Pass) -> str:
    how = "layer inputs only, the rest is recomputed" if recipe.train.recompute else "all kept"
    return f"{largest.tokens:,} tokens a pass, {how}"


def _overhead(head: int, passing: int, precision: str, *, cuda: bool) -> MemoryPart:
    """What the allocator holds beyond what is in use.

    The head's tensors are the largest and change their size with every pass. Segments that grow in place, which
    Windows does not have, waste a sixth of what fixed ones do.
    """
    if not cuda:
        return MemoryPart(name="allocator", bytes=int(_MALLOC_SHARE[precision] * passing), note="fragmentation")
    share = _FIXED_SEGMENTS_SHARE if sys.platform == "win32" else _GROWING_SEGMENTS_SHARE
    return MemoryPart(name="allocator", bytes=int(share * head), note="fragmentation")


def _runtime(passes: int | None, *, cuda: bool) -> MemoryPart:
    if cuda:
        return MemoryPart(name="CUDA context", bytes=_CONTEXT_BYTES, note="driver, kernels, cuBLAS workspace")
    growing = _CACHING_PASSES if passes is None else min(passes, _CACHING_PASSES)
    size = _LIBRARIES_BYTES + growing * _CACHE_BYTES_PER_PASS
    return MemoryPart(name="libraries", bytes=size, note="torch, transformers, and kernels cached for each length")
