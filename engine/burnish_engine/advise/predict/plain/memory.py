"""Predicts the memory peak of a run on the plain engine (transformers + PEFT), component by component. Loads no torch.

The tensors that autograd saves were listed with `torch.autograd.graph.saved_tensors_hooks` on Llama and Qwen3 layers.
The constants at the top were measured with `python tests/bench plan_accuracy`, which also reports the predictions'
errors.
"""

from __future__ import annotations

import math
import sys

from burnish_engine.advise.facts.engine_choice import device_problem
from burnish_engine.advise.facts.shape import (
    BYTES_OF,
    MIB,
    NF4_BYTES,
    adapted,
    embedding_parameters,
    parameters,
    parameters_in_4_bits,
)
from burnish_engine.advise.facts.trained_bytes import optimizer_bytes, trained_parameters
from burnish_engine.advise.facts.workload import MicroBatchSize
from burnish_engine.advise.predict.plain.whole_model_memory import (
    PassMemory,
    optimizer_note,
    sharded_parts,
    whole_context_bytes,
    whole_model_parts,
)
from burnish_engine.contract.facts.advice import MemoryPart
from burnish_engine.contract.facts.coverage import Matrix
from burnish_engine.contract.facts.facts import DecoderSpec, DeltaSpec, LayerSpec
from burnish_engine.contract.facts.machine import GpuFacts
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.models.families import family, layer_matrices, softmax_in_fp32
from burnish_engine.models.families.adapter_targets import StartedSection
from burnish_engine.models.families.matrices import MIXER_KINDS, ROUTER, feed_forward_width

_GROWING_SEGMENTS_SHARE = 0.19  # share of the head's peak: H100, torch 2.11, eight runs, torch's peak and NVML's
_FIXED_SEGMENTS_SHARE = 1.1  # that share without expandable segments, seven runs
_CONTEXT_BYTES = 820 * MIB  # H100; smaller cards need less
_MALLOC_SHARE = {"fp32": 0.69, "bf16": 0.40}  # share of a pass's activations, kept or not, that glibc does not return
_RECOMPUTED_SHARE = 0.9  # share of that where layers are recomputed one by one
# Share of it that stays where every weight is trained: gradients are large blocks that return to the system, buffers
# for 8-bit moments do not. Fitted to peaks of resident memory of SmolLM2-135M with 512 tokens a micro-batch.
_RETURNED_SHARE = 0.5
_LIBRARIES_BYTES = 620 * MIB
# oneDNN caches primitives for each new micro-batch length: runs of 10, 40 and 60 steps held 0.05, 0.29 and 0.59 GB
# more, and the cache stops growing after about a hundred micro-batches.
_CACHE_BYTES_PER_PASS, _CACHING_PASSES = 9_500_000, 100
_MIXER_BACKWARD = 1.15
"""Gradients in the backward pass of a mixer, as a share of what it kept: Mamba 1.14, Mamba 2 0.23 (CPU, fp32)."""
_DELTA_KEPT = {2: (8.75, 27.8, 30.1, 20.7, 3.9), 4: (24.9, 23.7, 36.7, 20.6, 3.8)}
"""Bytes that a gated delta net keeps of a token, by the width of a number: for each number of its keys, of keys
repeated for all value heads, of its values, for each token of a chunk and value head, and of its share of the states.
Fitted to `models.transformers_path.mixer_memory` for ten sizes, within 0.3 %."""
_DELTA_CHUNK = 64  # tokens that transformers computes together
_SHARED = {"shared experts", "feed-forward"}
"""Kinds of matrices beside the experts of a mixture that every token passes through."""
_EAGER_COPIES = 3  # copies of these numbers in a layer's backward pass: softmax, its gradient, the scores' gradient


def plain_memory(
    recipe: Recipe,
    spec: DecoderSpec,
    largest: MicroBatchSize,
    *,
    cuda: bool,
    precision: str,
    passes: int | None = None,
    own_attention: bool = False,
    free_bytes: int = 0,
) -> list[MemoryPart]:
    """List the components of the peak on the training device; their sum is the process's peak.

    Args:
        recipe: recipe of the run.
        spec: shape of the base model.
        largest: size of the largest micro-batch.
        cuda: whether an NVIDIA GPU trains; otherwise the CPU does.
        precision: precision of the base weights, "fp32" or "bf16".
        passes: number of micro-batches of the run; None: many.
        own_attention: whether Burnish's kernels compute attention; see `uses_own_attention`.
        free_bytes: free memory of a GPU, of which it depends what a model that is shared out keeps; 0: not known.
    """
    width = BYTES_OF[precision]
    trained = trained_parameters(spec, recipe.adapter)
    by_layer = [
        layer_kept_bytes(recipe, spec, layer, largest.tokens, width, own_attention=own_attention)
        for layer in spec.layers
    ]
    kept, head = sum(by_layer), head_bytes(spec, largest.supervised_tokens)
    layer_peak = max(_layer_backward_bytes(spec, layer, largest.tokens, recipe, width) for layer in set(spec.layers))
    if recipe.train.recompute:
        kept = len(spec.layers) * largest.tokens * spec.hidden_size * width
        layer_peak += max(by_layer)
    mask = 0
    if recipe.train.pack and not own_attention:  # one byte a pair of tokens; added numbers where attention is not fused
        kinds = len({layer.kind for layer in spec.layers})
        is_eager = softmax_in_fp32(spec.family) is not None
        mask = largest.tokens**2 * (kinds * width if is_eager else 1)
        if is_eager:
            layer_peak = max(layer_peak, _EAGER_COPIES * spec.num_heads * largest.tokens**2 * width)
    parts = _base_weights(recipe, spec, precision)
    if recipe.adapter.method == "full":
        outside = largest.tokens * spec.hidden_size * (4 + width) + largest.supervised_tokens * spec.hidden_size * width
        pass_memory = PassMemory(
            kept + outside + mask, head, layer_peak, 0 if recipe.train.recompute else max(by_layer)
        )
        parts += whole_model_parts(recipe, spec, pass_memory, cuda=cuda, precision=precision)
        if recipe.devices.strategy == "sharded":
            parts = sharded_parts(parts, spec, len(recipe.devices.gpus), precision, free_bytes)
        returned = _RETURNED_SHARE if recipe.train.optimizer == "adamw" else 1.0
        parts.append(_overhead(head, int(sum(by_layer) * returned), precision, cuda=cuda))
        parts.append(_runtime(passes, whole_context_bytes(recipe.devices) if cuda else 0))
        return parts
    state = optimizer_bytes(spec, recipe.adapter, recipe.train.optimizer, cuda=cuda)
    parts += [
        MemoryPart(name="adapter", bytes=trained * 4, note=f"{trained:,} weights, fp32"),
        MemoryPart(name="gradients", bytes=trained * 4, note="fp32"),
        MemoryPart(name="optimizer", bytes=state.device + state.largest, note=optimizer_note(recipe, state)),
        MemoryPart(name="activations", bytes=kept + mask, note=_activations_note(recipe, largest)),
    ]
    if rows := _token_rows(recipe, spec, width):
        parts.append(MemoryPart(name="tables with trained rows", bytes=rows, note="a copy and its gradient"))
    # The backward passes of the head and of a layer never run at the same time.
    if head >= layer_peak:
        parts.append(MemoryPart(name="head and loss", bytes=head, note=f"{largest.supervised_tokens:,} learned tokens"))
    else:
        parts.append(MemoryPart(name="backward pass of a layer", bytes=layer_peak))
    loose = sum(by_layer) * (_RECOMPUTED_SHARE if recipe.train.recompute else 1.0)
    parts.append(_overhead(head, int(loose), precision, cuda=cuda))
    parts.append(_runtime(passes, _CONTEXT_BYTES if cuda else 0))
    return parts


def _base_weights(recipe: Recipe, spec: DecoderSpec, precision: str) -> list[MemoryPart]:
    """List the frozen weights; those in 4 bits are dequantized one matrix at a time."""
    width, in_4_bits = BYTES_OF[precision], parameters_in_4_bits(spec) if recipe.model.quantize == "nf4" else []
    whole = parameters(spec) - sum(in_4_bits)
    parts = [MemoryPart(name="base weights", bytes=whole * width, note=precision)]
    if in_4_bits:
        packed = math.ceil(sum(in_4_bits) * NF4_BYTES) + 1028 * len(in_4_bits)  # levels and mean of each one's scales
        note = f"{sum(in_4_bits):,} weights in 4 bits, one matrix at a time in {precision}"
        parts.append(MemoryPart(name="4-bit weights", bytes=packed + max(in_4_bits) * width, note=note))
    return parts


def _token_rows(recipe: Recipe, spec: DecoderSpec, width: int) -> int:
    """Bytes of the tables into which PEFT writes trained rows in every pass, and of their gradients (`index_copy`)."""
    adapter = recipe.adapter
    if not isinstance(adapter, StartedSection):
        return 0
    tables = sum(one.how == "rows" for one in adapter.beyond)
    tables += bool(tables == 1 and spec.tied_embeddings)  # the head takes the embedding's rows
    return 2 * tables * embedding_parameters(spec) * width


def uses_own_attention(recipe: Recipe, spec: DecoderSpec, gpu: GpuFacts | None) -> bool:
    """Whether Burnish's kernels (`packed_attention`) will compute attention; False where that is not certain."""
    record = family(spec.family)
    tried = record is not None and record.own_attention
    known = tried and spec.attention_softcap is None and 16 <= spec.head_dim <= 256
    return recipe.train.pack and known and gpu is not None and not device_problem(gpu)


def layer_kept_bytes(
    recipe: Recipe, spec: DecoderSpec, layer: LayerSpec, tokens: int, width: int, *, own_attention: bool = False
) -> int:
    """Count what autograd saves of one layer for the backward pass, bytes.

    Args:
        recipe: recipe of the run, whose adapter decides which inputs are saved.
        spec: shape of the model.
        layer: the layer.
        tokens: number of tokens of the micro-batch.
        width: bytes of a number of the base model.
        own_attention: whether Burnish's kernels attend, one document at a time; otherwise transformers does, under a
            mask.
    """
    hidden, query, key = spec.hidden_size, spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    wide = feed_forward_width(spec, layer) * (spec.experts_per_token if layer.is_mixture else 1)
    targets = adapted(spec, layer, recipe.adapter)
    whole = recipe.adapter.method == "full"
    feeds, mixes, attends = _parts_of(layer)
    norms = feeds + (mixes or attends)
    numbers = norms * hidden * 4  # the norms' inputs in fp32
    numbers += 3 * wide * width if feeds else 0  # gate, its activation, and up; of xIELU input, square, exponential
    if not spec.mlp_gate:  # the sign of its input, and the factor of a trained alpha
        numbers += wide * (1 + whole * width)
    numbers += _mixture_kept(spec, layer, width, whole=whole)
    mixer_kept = _mixer_kept(recipe, spec, layer, width)
    numbers += mixer_kept
    if mixes and not mixer_kept:
        numbers += 5 * hidden * width
    if attends:
        # q, k and v (which transformers expands), output; log-sum-exp
        numbers += 2 * (query + (key if own_attention else query)) * width + 4 * spec.num_heads
        if any(matrix.name.endswith("q_proj") and matrix.rows == 2 * query for matrix in layer_matrices(spec, layer)):
            numbers += 4 * query * width  # a gate within q_proj: it, its sigmoid, a copy of the output, the product
        if spec.qk_norm:
            numbers += (query + key) * 4
            # The norms' weight gradients need the normalized numbers, and all norms one factor a token.
            numbers += (query + key) * width + (spec.num_heads + spec.num_kv_heads) * 4 if whole else 0
    if whole:  # normalized numbers of both norms, the inputs of the products, of which two are shared
        numbers += norms * (2 * hidden * width + 4) + (wide * width if feeds else 0)
    linear = [matrix for matrix in targets if matrix.form == "linear"]
    numbers += _adapter_inputs(linear, width, hidden, output=mixer_kept > 0) + len(linear) * recipe.adapter.rank * 4
    if recipe.adapter.dropout:
        numbers += sum(matrix.columns * 5 for matrix in linear)  # dropped copy in fp32 and its mask
    if recipe.adapter.method == "dora":
        numbers += sum(matrix.rows * (4 + width) for matrix in linear)
    pairs = recipe.train.pack and attends and not own_attention
    mask = tokens * tokens * pair_bytes(spec, width) if pairs else 0
    # PEFT adds the update to a whole stack of experts, and autograd saves the sum.
    stacks = sum(matrix.weights * width for matrix in targets if matrix.form == "stacked")
    return tokens * numbers + mask + stacks


def pair_bytes(spec: DecoderSpec, width: int) -> int:
    """Count the bytes that autograd saves of a layer's attention for each pair of tokens of a packed micro-batch.

    Args:
        spec: shape of the model.
        width: bytes of a number of the base model.
    """
    in_fp32 = softmax_in_fp32(spec.family)
    if in_fp32 is None:
        return width  # the mask
    return spec.num_heads * (4 + width if in_fp32 and width != 4 else width)


def head_bytes(spec: DecoderSpec, supervised_tokens: int) -> int:
    """The peak of head and loss, bytes: log-probabilities, their gradient and the logits' gradient, all in fp32."""
    return supervised_tokens * spec.vocab_size * 12


def _adapter_inputs(targets: list[Matrix], width: int, hidden: int, *, output: bool = False) -> int:
    """Bytes of a token in the adapters' saved inputs: an fp32 copy each, or in fp32 the shared input itself.

    The input of an output projection is saved in any case by attention and short convolutions, but with `output` not.
    """
    if width != 4:
        return sum(matrix.columns * 4 for matrix in targets)
    by_name = {matrix.name.rpartition(".")[2]: matrix.columns for matrix in targets}
    shared = (
        {"q_proj", "k_proj", "v_proj", "qkv_proj", "in_proj"},
        {"gate_proj", "up_proj", "gate_up_proj", "w1", "w3"},
    )
    total = sum(hidden * 4 for group in shared if group & by_name.keys())
    grouped = set().union(*shared)
    saved = grouped | ({"o_proj"} if output else {"o_proj", "out_proj"})
    return total + sum(columns * 4 for name, columns in by_name.items() if name not in saved)


def _parts_of(layer: LayerSpec) -> tuple[bool, bool, bool]:
    """Whether a layer has a feed-forward, a mixer other than attention, and attention."""
    attends = layer.attends
    if not layer.matrices:
        return True, not attends, attends
    kinds = {matrix.kind for matrix in layer.matrices}
    return bool(kinds - MIXER_KINDS - {"attention", ROUTER}), bool(kinds & MIXER_KINDS), attends


def _mixture_kept(spec: DecoderSpec, layer: LayerSpec, width: int, *, whole: bool) -> int:
    """Bytes of a token that a mixture keeps beside its experts' own numbers: routing, outputs, experts for all tokens.

    The outputs stay because the router's input has a gradient, with which they are multiplied.
    """
    if not layer.is_mixture:
        return 0
    matrices, chosen, hidden = layer_matrices(spec, layer), spec.experts_per_token, spec.hidden_size
    experts = max((matrix.count for matrix in matrices if matrix.form == "stacked"), default=spec.num_experts)
    numbers = experts * 4 + chosen * (4 * 8 + 8)  # probabilities in fp32; places as 64-bit numbers; weights
    numbers += chosen * hidden * width * (2 if whole else 1)  # with what each expert is given
    shared = [matrix for matrix in matrices if matrix.kind in _SHARED]
    wide = sum(matrix.weights for matrix in shared) // (3 * hidden)  # gate, up, down
    return numbers + wide * width * (4 if whole else 3)


def _mixer_kept(recipe: Recipe, spec: DecoderSpec, layer: LayerSpec, width: int) -> int:
    """Bytes of a token that a layer's state space, linear attention or convolution keeps; 0: nobody counted them."""
    kept, whole = layer.mixer_kept, recipe.adapter.method == "full"
    if layer.kind == "gated_delta" and spec.delta is not None:
        return _delta_kept(spec.delta, width, whole=whole)
    if kept is None:
        return 0
    if whole:
        return kept.whole_fp32 if width == 4 else kept.whole_bf16
    return kept.fp32 if width == 4 else kept.bf16


def _delta_kept(delta: DeltaSpec, width: int, *, whole: bool) -> int:
    """Bytes of a token that transformers' `torch_chunk_gated_delta_rule` keeps, with what is around it."""
    of_keys, of_repeated, of_values, of_chunk, of_states = _DELTA_KEPT[width]
    heads, keys, values = delta.value_heads, delta.key_dim, delta.value_dim
    chunk = of_chunk * _DELTA_CHUNK + of_states * keys * values / _DELTA_CHUNK
    values_bytes = of_values + (2 * width if whole else 0)
    return int(of_keys * delta.key_heads * keys + heads * (of_repeated * keys + values_bytes * values + chunk))


def _layer_backward_bytes(spec: DecoderSpec, layer: LayerSpec, tokens: int, recipe: Recipe, width: int) -> int:
    """The gradients that exist at once in a layer's feed-forward, or in a wider mixer, bytes."""
    wide = spec.intermediate_size
    feed_forward = wide * (2 * 4 + 3 * width) + spec.hidden_size * (4 + 2 * width)
    return tokens * max(feed_forward, int(_MIXER_BACKWARD * _mixer_kept(recipe, spec, layer, width)))


def _activations_note(recipe: Recipe, largest: MicroBatchSize) -> str:
    how = "layer inputs only, the rest is recomputed" if recipe.train.recompute else "all kept"
    return f"{largest.tokens:,} tokens a pass, {how}"


def _overhead(head: int, pass_memory: int, precision: str, *, cuda: bool) -> MemoryPart:
    """The memory that the allocator holds beyond the tensors in use.

    The head's tensors are the largest and change their size with every micro-batch. Segments that grow in place, which
    Windows lacks, waste a sixth of what fixed ones do.
    """
    if not cuda:
        return MemoryPart(name="allocator", bytes=int(_MALLOC_SHARE[precision] * pass_memory), note="fragmentation")
    share = _FIXED_SEGMENTS_SHARE if sys.platform == "win32" else _GROWING_SEGMENTS_SHARE
    return MemoryPart(name="allocator", bytes=int(share * head), note="fragmentation")


def _runtime(passes: int | None, context: int) -> MemoryPart:
    """List the memory that has no tensors: a CUDA context of so many bytes, or the CPU's libraries."""
    if context:
        return MemoryPart(name="CUDA context", bytes=context, note="driver, kernels, libraries")
    growing = _CACHING_PASSES if passes is None else min(passes, _CACHING_PASSES)
    size = _LIBRARIES_BYTES + growing * _CACHE_BYTES_PER_PASS
    return MemoryPart(name="libraries", bytes=size, note="torch, transformers, and kernels cached for each length")
