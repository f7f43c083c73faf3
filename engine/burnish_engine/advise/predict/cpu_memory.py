"""Predicts the memory that a run of the fast engine on the CPU takes beside the tensors of its plan. Loads no torch.

The kernels' references in PyTorch need workspace that kernels do not, glibc keeps freed memory for the next tensors,
and the process has its libraries. Tests compare the workspace with the tensors of real passes. The constants were
fitted to ten runs of 3 to 60 steps, most of `python tests/bench plan_accuracy --device cpu`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from burnish_engine.advise.facts.planned_run import FastRun
from burnish_engine.advise.facts.shape import BYTES_OF, MIB
from burnish_engine.advise.predict.fast_experts import cpu_bytes
from burnish_engine.advise.predict.fast_layer import LayerShape, evaluated_bytes
from burnish_engine.advise.predict.fast_shape import head_chunk_tokens
from burnish_engine.contract.facts.facts import LayerSpec

LIBRARIES_BYTES = 350 * MIB
"""Memory of the process without tensors: Python, torch, tokenizers, pages of files among it. It was 324 MiB once the
model was loaded, and 344 to 368 after the first pass."""
_NOT_RETURNED = 0.16  # share of each layer's freed fp32 tensors that glibc keeps: holes between what layers save
_ROUNDED_LOGITS, _REFERENCE_LOGITS = 3, 2
"""Chunks of 16-bit logits that glibc keeps besides, and those that it keeps more after the log-probabilities of a
reference were computed."""
_LARGEST_IN_HEAP = 32 * MIB  # larger blocks return to the system at once: mallopt(3), M_MMAP_THRESHOLD
_ACTIVATION_BYTES = 8  # bytes of a number of the feed-forward beside the layer's own tensors
_FUSED_BYTES = {4: 12, 2: 20}  # bytes of a query's number: three gradients; of 16 bits, copies in fp32 too
_SCORE_BYTES = 8  # bytes of a pair of tokens and a head: the scores and their exponentials, fp32
_SCORE_BLOCK = 512  # queries whose scores the reference of attention holds at once


def kept_by_allocator(run: FastRun, shapes: Sequence[LayerShape], tokens: int) -> int:
    """Count the bytes that the allocator keeps after they were freed; operations compute in fp32 in any precision.

    Args:
        run: the run.
        shapes: kinds of layers of its model.
        tokens: number of tokens of the micro-batch, padding included.
    """
    freed = max(evaluated_bytes(replace(one, width=4), tokens, 0) for one in shapes)
    layers = int(_NOT_RETURNED * run.spec.num_layers * freed)
    if run.precision == "fp32":
        return layers
    chunks = _ROUNDED_LOGITS + (_REFERENCE_LOGITS if run.recipe.preference.needs_reference else 0)
    rows = head_chunk_tokens(run.largest.supervised_tokens, cuda=False)
    return layers + chunks * min(rows * run.spec.vocab_size * BYTES_OF[run.precision], _LARGEST_IN_HEAP)


def workspace_bytes(run: FastRun, shapes: Sequence[LayerShape], chunk: int) -> int:
    """Count the bytes that a layer's operations take at once beside the layer's tensors.

    Args:
        run: the run.
        shapes: kinds of layers of its model.
        chunk: number of tokens that pass the feed-forward at once.
    """
    return max(max(_feed_forward_bytes(run, one, chunk), _attention_bytes(run, one.layer)) for one in shapes)


def _feed_forward_bytes(run: FastRun, shape: LayerShape, chunk: int) -> int:
    slots = run.spec.experts_per_token if shape.experts else 1
    experts = cpu_bytes(run.spec, shape.experts, chunk, shape.width, nf4=run.nf4)
    return _ACTIVATION_BYTES * shape.wide * chunk * slots + experts


def _attention_bytes(run: FastRun, layer: LayerSpec) -> int:
    """Count what attention's backward pass takes of the longest document; see `burnish_kernels.attention.cpu`.

    PyTorch's fused operations hold no scores. They know no soft caps, sinks and windows: there the reference runs, and
    autograd keeps the scores of all documents.
    """
    spec, largest = run.spec.of_layer(layer), run.largest
    if not layer.attends:
        return 0
    longest = min(largest.longest or largest.tokens, largest.tokens)
    width, query = BYTES_OF[run.precision], spec.num_heads * spec.head_dim
    window = spec.sliding_window if layer.kind == "sliding_attention" else None
    seen = min(window or longest, longest)
    if spec.attention_softcap is None and not spec.attention_sinks and seen == longest:
        return _FUSED_BYTES[width] * query * longest
    spans = [(longest, longest), (largest.tokens - longest, min(largest.span or longest, longest))]
    pairs = sum(tokens * min(span, (span + _SCORE_BLOCK) / 2, seen + _SCORE_BLOCK) for tokens, span in spans)
    block = 4 * _SCORE_BLOCK * min(longest, seen + _SCORE_BLOCK)  # the gradient of a block's scores
    copies = _FUSED_BYTES[width] * query * longest if width != 4 else 0
    return int(spec.num_heads * (_SCORE_BYTES * pairs + block)) + copies
