"""Write an adapter alone as a GGUF, which llama.cpp and Ollama add to a base GGUF when they load it.

llama.cpp multiplies B·A by alpha / rank, with one alpha per file and the rank of each tensor (llama-adapter.h,
`get_scale`). Any other scale (rsLoRA, alpha and rank patterns) is multiplied into B here. A and B of a stack of experts
are stacks too, from which a token takes those of its experts (llama-graph.cpp, `build_lora_mm_id`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from burnish_engine.advise.facts.gguf_rules import gguf_rules
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.paths import ADAPTER_GGUF
from burnish_engine.contract.version import burnish_version
from burnish_engine.export.base.staging import publish, require_space, staging_folder
from burnish_engine.export.gguf.write import clean_name
from burnish_engine.export.weights.adapter import read_adapter
from burnish_engine.export.weights.adapter_weights import AdapterWeights, StackUpdate
from burnish_engine.export.weights.experts import StoredStack
from burnish_engine.export.weights.merge import MergedWeights
from burnish_engine.models.checkpoint.gguf_file.changes import changed
from burnish_engine.models.checkpoint.gguf_file.header import ADAPTER_DIGEST
from burnish_engine.models.checkpoint.gguf_file.tensor_names import places
from burnish_engine.models.checkpoint.gguf_file.value_heads import column_order
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.families.rules.gguf import GgufRules

_MERGE = "Export it merged instead: `--to gguf` or `--to safetensors`."


def export_adapter_gguf(
    source: ModelSource, adapter: Path, out: Path, name: str, check: Callable[[Path], object] = lambda _path: None
) -> Path:
    """Write an adapter as a GGUF in fp32.

    Args:
        source: The base model.
        adapter: folder of the PEFT adapter.
        out: folder of the file, which is called NAME-lora.gguf.
        name: name of the model.
        check: called with the finished file before it gets its name; may refuse it by an error.

    Returns:
        Path of the file.

    Raises:
        UsageError: llama.cpp cannot represent this kind of adapter (DoRA, embeddings, whole modules), or the family.
        SetupError: The adapter is damaged, or belongs to another model.
        NoSpaceError: The file does not fit the disk.
    """
    found = read_adapter(adapter)
    if why := _why_not(found):
        raise UsageError(why, _MERGE)
    weights = MergedWeights(source, adapter, kind="lora-gguf")  # checks that names and shapes fit this base
    if weights.unties:
        raise UsageError("The adapter changes the head alone, which the base's GGUF holds as its embedding.", _MERGE)
    rules = gguf_rules(str(source.config.get("model_type")))
    target = out / f"{clean_name(name)}{ADAPTER_GGUF}"
    size = 4 * sum(update.a.numel() + update.b.numel() for update in found.updates.values())
    size += 4 * sum(2 * update.a.numel() + update.b.numel() for update in found.stacks.values())
    require_space(out, size, "The adapter")
    with staging_folder(out) as staging:
        _write(found, rules, weights, staging / "adapter.gguf", name)
        check(staging / "adapter.gguf")
        publish(staging / "adapter.gguf", target)
    return target


def why_merged(adapter: Path) -> str:
    """Explain in a sentence why llama.cpp cannot add an adapter to a base; empty where it can.

    Raises:
        SetupError: The adapter is damaged.
    """
    return _why_not(read_adapter(adapter))


def _why_not(adapter: AdapterWeights) -> str:
    dora = [name for name, update in adapter.updates.items() if update.magnitude is not None]
    embeddings = [name for name, update in adapter.updates.items() if update.embedding]
    for what, names in (("is a DoRA adapter", dora), ("changes an embedding", embeddings)):
        if names:
            return f"The adapter {what} ({names[0]}), which llama.cpp cannot add to a base."
    for what, altered in (
        ("replaces whole tensors", adapter.replacements),
        ("trains rows of tokens", adapter.rows),
        ("adds to biases", adapter.shifts),
    ):
        if altered:
            return f"The adapter {what} (first {min(altered)}), which llama.cpp cannot do."
    return ""


def _write(adapter: AdapterWeights, rules: GgufRules, weights: MergedWeights, path: Path, name: str) -> None:
    import gguf

    source = weights.source
    spec = source.spec
    if spec is None:
        raise UsageError(f"The architecture of {source.name} is not known in detail.", _MERGE)
    names = places(rules, spec.num_layers)
    alpha = _alpha(adapter)
    writer = gguf.GGUFWriter(path, rules.architecture)
    try:
        writer.add_type(gguf.GGUFType.ADAPTER)
        writer.add_string("adapter.type", "lora")
        writer.add_float32("adapter.lora.alpha", alpha)
        writer.add_string("general.name", clean_name(name))
        writer.add_string("general.base_model.0.name", clean_name(source.name))
        writer.add_uint32("general.base_model.count", 1)
        writer.add_string("burnish.version", burnish_version())
        writer.add_string(ADAPTER_DIGEST, adapter.digest)
        for base, update in adapter.updates.items():
            targets = names(base)
            if not targets:
                raise UsageError(f"llama.cpp's {rules.architecture} has no tensor for {base}.", _MERGE)
            baked = update.scale / (alpha / update.a.shape[0])
            b: torch.Tensor = changed(rules, spec, base, update.b) * baked
            order = column_order(spec, base)
            a = update.a if order is None else update.a[:, order]
            for target, part in zip(targets, b.chunk(len(targets)), strict=True):
                _add(writer, target, a, part)
        for base, stacked in adapter.stacks.items():
            factors = _expert_factors(stacked, weights.stacks[base], stacked.scale / (alpha / stacked.rank))
            for target, (a, b) in zip(names(base), factors, strict=True):
                _add(writer, target, a, b)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()


def _alpha(adapter: AdapterWeights) -> float:
    """Choose the file's alpha: that of the adapter's first tensor."""
    for update in adapter.updates.values():
        return update.scale * update.a.shape[0]
    stacked = next(iter(adapter.stacks.values()))
    return stacked.scale * stacked.rank


def _expert_factors(
    update: StackUpdate, stack: StoredStack, factor: float
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield A [experts, r, in] and B [experts, out, r] for each of a stack's parts; gate and up share A."""
    a = update.a.reshape(update.experts, update.rank, -1)
    b = update.b.reshape(-1, update.rank, update.experts).permute(2, 0, 1) * factor
    for part in stack.parts:
        yield a, b[:, stack.rows(part)]


def _add(writer: Any, target: str, a: torch.Tensor, b: torch.Tensor) -> None:
    writer.add_tensor(f"{target}.lora_a", a.contiguous().numpy())
    writer.add_tensor(f"{target}.lora_b", b.contiguous().numpy())
