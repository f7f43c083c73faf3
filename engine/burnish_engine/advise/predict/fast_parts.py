"""Lists the predicted memory peak of a run on the fast engine, part by part. Loads no torch."""

from __future__ import annotations

from collections import Counter

from burnish_engine.advise.facts.planned_run import FastRun
from burnish_engine.advise.facts.shape import NF4_BYTES, adapter_parameters
from burnish_engine.advise.predict.cpu_memory import LIBRARIES_BYTES
from burnish_engine.advise.predict.fast_experts import is_packed
from burnish_engine.advise.predict.fast_memory import CONTEXT_BYTES, POOL_BYTES, POOL_SHARE, FastMemory, memory_of
from burnish_engine.advise.predict.plain.whole_model_memory import optimizer_note
from burnish_engine.advise.predict.plan_options import PlanOptions, split_plan
from burnish_engine.advise.predict.transfers import SLOTS
from burnish_engine.contract.facts.advice import MemoryPart
from burnish_engine.contract.recipe.memory_plan import LEVEL_NAMES, MemoryPlan
from burnish_engine.models.families.adapter_targets import expert_rank


def memory_parts(run: FastRun, plan: MemoryPlan) -> list[MemoryPart]:
    """List the components of the peak on the training device; their sum is the process's peak."""
    memory, (levels, options) = memory_of(run), split_plan(plan)
    found, weights = memory.peaks(levels, options.mlp_chunk_tokens), memory.weights
    activations, head = int(found.activations[0]), memory.head_bytes(options)
    loose = int(memory.fragmentation_bytes(found, levels, options)[0])
    workspace = int(found.pass_peak[0]) - activations
    freed, freed_experts = memory.freed_bytes(options), memory.freed_experts(options)
    tables = 0
    if run.nf4 and weights.tables:
        tables = weights.tables - int((freed - freed_experts) * (1 - 0.5 / NF4_BYTES))
    experts = weights.experts - freed_experts
    stored = weights.stored - freed - tables - experts - memory.tables_on_host(options)
    parts = [MemoryPart(name="base weights", bytes=stored, note=_weights_note(run, options))]
    if weights.experts:
        parts.append(MemoryPart(name="experts", bytes=experts, note=_experts_note(run)))
    if options.layers_on_ranks:
        note = f"a {_ordinal(run.ranks)} of {len(options.layers_on_ranks)} layers'; other GPUs hold the rest"
        parts.append(MemoryPart(name="shared weights", bytes=memory.share_bytes(options), note=note))
    if options.streamed:
        sources = {"host memory": options.layers_on_host, "GPUs that share them": options.layers_on_ranks}
        source = " and ".join(name for name, layers in sources.items() if layers)
        note = f"{SLOTS} layers' at a time, copied from {source}"
        parts.append(MemoryPart(name="streamed weights", bytes=memory.slot_bytes(options), note=note))
    if tables:
        parts.append(MemoryPart(name="quantization tables", bytes=tables, note="scales of NF4"))
    if weights.scratch:
        parts.append(MemoryPart(name="unpacked weights", bytes=weights.scratch, note=_scratch_note(run)))
    if codes := memory.head_codes(options):
        parts.append(MemoryPart(name="head in 8 bits", bytes=codes, note="INT8, beside its 16 bits, for the logits"))
    of_experts = adapter_parameters(run.spec, run.recipe.adapter, form="stacked")
    others = memory.trained - of_experts
    if of_experts:
        rank = expert_rank(run.recipe.adapter, run.spec.experts_per_token)
        note = f"{of_experts:,} weights, fp32; rank {rank} for each expert"
        parts.append(MemoryPart(name="expert adapters", bytes=of_experts * 4, note=note))
    parts += [
        MemoryPart(name="adapter", bytes=others * 4, note=f"{others:,} weights, fp32"),
        MemoryPart(name="gradients", bytes=memory.trained * 4, note="fp32"),
        MemoryPart(
            name="optimizer", bytes=memory.optimizer.device, note=optimizer_note(memory.run.recipe, memory.optimizer)
        ),
    ]
    if memory.exchange:
        is_exact = run.recipe.devices.exact
        note = "gradients of passes, apart" if is_exact else "what rounding leaves out, and what is sent"
        parts.append(MemoryPart(name="exchange of gradients", bytes=memory.exchange, note=note))
    counts = Counter(plan.layers)
    kept = f"{memory.tokens:,} tokens; " + ", ".join(f"{counts[one]} {one}" for one in LEVEL_NAMES if counts[one])
    parts.append(MemoryPart(name="activations", bytes=activations, note=kept))
    # The head and a layer are never at work at the same time.
    if head >= workspace:
        note = f"{run.largest.supervised_tokens:,} learned tokens, {options.head_chunk_tokens:,} at once"
        parts.append(MemoryPart(name="head and loss", bytes=head, note=note))
    else:
        note = "of one layer" + (f", {options.mlp_chunk_tokens:,} tokens at once" if options.mlp_chunk_tokens else "")
        parts.append(MemoryPart(name="workspace", bytes=workspace, note=note))
    return [*parts, *_overhead(memory, parts, loose)]


def _weights_note(run: FastRun, options: PlanOptions) -> str:
    blocks = any(layer.blocks for layer in run.spec.layers)
    packed = "the file's blocks" if blocks else "NF4" if run.nf4 else run.eight_bits.stored.upper()
    note = f"{packed}, the rest {run.precision}" if packed else run.precision
    away = {
        "embeddings": options.embedding_on_host,
        "head": options.head_on_host,
        f"{len(options.layers_on_host)} of {run.spec.num_layers} layers": bool(options.layers_on_host),
    }
    names = " and ".join(name for name, there in away.items() if there)
    note = f"{note}; {names} in host memory" if names else note
    return f"{note}; {len(options.layers_on_ranks)} layers shared" if options.layers_on_ranks else note


def _ordinal(ranks: int) -> str:
    """Return what one of so many equal parts is called."""
    return {2: "half", 3: "third", 4: "quarter"}.get(ranks, f"{ranks}th")


def _experts_note(run: FastRun) -> str:
    spec = run.spec
    stored = "MXFP4, as published" if spec.has_mxfp4_experts else "NF4" if run.nf4 else ""
    stored = stored or ("FP8" if run.eight_bits.stores_experts else run.precision)
    return f"{stored}; {spec.num_experts} a layer, of which a token visits {spec.experts_per_token}"


def _scratch_note(run: FastRun) -> str:
    dense = "gate and up, and one more matrix" if run.nf4 or run.eight_bits.stored else ""
    unpacks = is_packed(run.spec, nf4=run.nf4) or bool(run.eight_bits.products)
    experts = "a group of experts" if run.spec.num_experts and unpacks else ""
    return "; ".join(filter(None, (dense, experts)))


def _overhead(memory: FastMemory, parts: list[MemoryPart], loose: int) -> list[MemoryPart]:
    """List the parts that are not tensors: the context, libraries and the allocator's slack."""
    if not memory.run.cuda:
        return [
            MemoryPart(name="fragmentation", bytes=memory.cpu_slack, note="freed, and kept by the allocator"),
            MemoryPart(name="libraries", bytes=LIBRARIES_BYTES, note="torch, tokenizers"),
        ]
    loose += int(POOL_SHARE * (loose + sum(part.bytes for part in parts)))
    return [
        MemoryPart(name="graph pools", bytes=POOL_BYTES, note="captured passes, cuBLAS workspace"),
        MemoryPart(name="fragmentation", bytes=loose, note="of the allocator"),
        MemoryPart(name="CUDA context", bytes=CONTEXT_BYTES, note="driver, kernels, graphs"),
    ]
