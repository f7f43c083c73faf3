"""Write an adapter alone as a GGUF, which llama.cpp and Ollama add to a base GGUF when they load it.

llama.cpp multiplies B·A by alpha / rank, with one alpha per file and the rank of each tensor (llama-adapter.h,
`get_scale`). Any other scale (rsLoRA, alpha and rank patterns) is multiplied into B here.
"""

from __future__ import annotations

from pathlib import Path

import torch

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.version import burnish_version
from burnish_engine.export.base.staging import publish, require_space, staging_folder
from burnish_engine.export.gguf.families import family_of
from burnish_engine.export.gguf.families.base import GgufFamily
from burnish_engine.export.gguf.write import clean_name
from burnish_engine.export.weights.adapter import AdapterWeights, read_adapter
from burnish_engine.export.weights.merge import MergedWeights
from burnish_engine.models.checkpoint.source import ModelSource

_MERGE = "Export it merged instead: `--to gguf` or `--to safetensors`."


def export_adapter_gguf(source: ModelSource, adapter: Path, out: Path, name: str) -> Path:
    """Write an adapter as a GGUF in fp32.

    Args:
        source: The base model.
        adapter: folder of the PEFT adapter.
        out: folder of the file, which is called NAME-lora.gguf.
        name: name of the model.

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
    MergedWeights(source, adapter)  # checks that names and shapes fit this base
    family = family_of(str(source.config.get("model_type")))
    target = out / f"{clean_name(name)}-lora.gguf"
    size = 4 * sum(update.a.numel() + update.b.numel() for update in found.updates.values())
    require_space(out, size, "The adapter")
    with staging_folder(out) as staging:
        _write(found, family, source, staging / "adapter.gguf", name)
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
    if adapter.replacements:
        first = min(adapter.replacements)
        return f"The adapter replaces whole tensors (first {first}), which llama.cpp cannot do."
    return ""


def _write(adapter: AdapterWeights, family: GgufFamily, source: ModelSource, path: Path, name: str) -> None:
    import gguf

    spec = source.spec
    if spec is None:
        raise UsageError(f"The architecture of {source.name} is not known in detail.", _MERGE)
    places = family.places(spec.num_layers)
    first = next(iter(adapter.updates.values()))
    alpha = first.scale * first.a.shape[0]
    writer = gguf.GGUFWriter(path, family.architecture)
    try:
        writer.add_type(gguf.GGUFType.ADAPTER)
        writer.add_string("adapter.type", "lora")
        writer.add_float32("adapter.lora.alpha", alpha)
        writer.add_string("general.name", clean_name(name))
        writer.add_string("general.base_model.0.name", clean_name(source.name))
        writer.add_uint32("general.base_model.count", 1)
        writer.add_string("burnish.version", burnish_version())
        writer.add_string("burnish.adapter_sha256", adapter.digest)
        for base, update in adapter.updates.items():
            targets = places(base)
            if not targets:
                raise UsageError(f"llama.cpp's {family.architecture} has no tensor for {base}.", _MERGE)
            baked = update.scale / (alpha / update.a.shape[0])
            b: torch.Tensor = family.change(spec, base, update.b) * baked
            for target, part in zip(targets, b.chunk(len(targets)), strict=True):
                writer.add_tensor(f"{target}.lora_a", update.a.contiguous().numpy())
                writer.add_tensor(f"{target}.lora_b", part.contiguous().numpy())
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()
