"""Load Burnish's decoder for text generation, where it supports the model and the adapter."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch

from burnish_engine.contract.errors import SetupError
from burnish_engine.models.checkpoint.import_lock import IMPORT_LOCK
from burnish_engine.models.checkpoint.source import ModelSource, generation_ends
from burnish_engine.models.decoder.decoder_load import DecoderOptions, LoadedDecoder, connect_magnitudes, load_decoder
from burnish_engine.models.decoder.lora_adapter import NO_ADAPTER, LoraAdapter, read_plan
from burnish_engine.models.device.precision import DTYPES
from burnish_engine.models.families import family, stores_blocks, stores_nf4, why_not_fast
from burnish_engine.models.generation.decoder_generate import DecoderGenerator
from burnish_engine.models.saved_adapters.adapter_files import read_files
from burnish_kernels.adamw.op import FlatLayout, write_compute_copies
from burnish_kernels.attention.op import capability
from burnish_kernels.registry import CAPABILITIES


def load_for_generation(
    source: ModelSource,
    adapter: Path | None,
    precision: str,
    device: torch.device,
    *,
    exact: bool = False,
    nf4: bool = False,
) -> tuple[DecoderGenerator | None, str]:
    """Load Burnish's decoder with an adapter to generate replies.

    Args:
        source: base model.
        adapter: folder of a PEFT adapter, or None for the base.
        precision: dtype name "fp32", "bf16" or "fp16".
        device: device that computes.
        exact: whether a reply has the same bits whatever others are asked for.
        nf4: whether the linear weights are kept as NF4 also where the checkpoint stores them in 16 bits.

    Returns:
        The text generator and an empty text; or None and the reason in a sentence, where only the plain path does this
        model or adapter (or can say what is wrong with it).

    Raises:
        SetupError: Weights are missing or damaged.
    """
    spec, reason = source.spec, why_not_fast(source.config, source.spec, nf4=True)
    known = family(spec.family) if spec is not None else None
    if reason or spec is None or known is None:
        return None, f"The model {reason}, so transformers runs it."
    reason = device_problem(device)
    if reason:
        return None, f"{reason}, so transformers runs the model."
    plan = NO_ADAPTER
    if adapter is not None:
        try:
            reason = read_files(adapter).obstacle
            if reason:
                return None, f"The adapter {reason}, so transformers runs it."
            plan = read_plan(adapter, known.modules(spec), known.all_expert_stacks(spec))
        except SetupError as error:
            return None, error.what
    packed = nf4 or stores_nf4(source.config) or stores_blocks(source.config)
    options = DecoderOptions(DTYPES[precision], device, positions=1, plan=plan, quantize=packed)
    loaded = load_decoder(source, options)
    if adapter is not None:
        _load_compute_copies(loaded, adapter)
    return DecoderGenerator(loaded.decoder, declared_ends(source), keeps_slots=True, exact=exact), ""


def declared_ends(source: ModelSource) -> list[int]:
    """Return the tokens that generation_config.json and config.json name as ends of a reply, as transformers does."""
    named = source.config["eos_token_id"] if "eos_token_id" in source.config else _default_end(source)
    own = [named] if isinstance(named, int) else named or []
    return list(dict.fromkeys([*own, *generation_ends(source.folder)]))


def _default_end(source: ModelSource) -> int | list[int] | None:
    """Return the end token that the architecture of a model has by default. Asking takes seconds, so only here."""
    with IMPORT_LOCK:
        from transformers import AutoConfig

    found: int | list[int] | None = AutoConfig.from_pretrained(source.folder, local_files_only=True).eos_token_id
    return found


def device_problem(device: torch.device) -> str:
    """Explain why Burnish's kernels do not run on a device; empty where they do, or are not needed."""
    if device.type != "cuda":
        return ""
    if (capability(device) or 0) < min(CAPABILITIES):
        return f"{torch.cuda.get_device_name(device)} is older than Burnish's kernels are made for"
    return "" if importlib.util.find_spec("triton") else "Triton is not installed"


def _load_compute_copies(loaded: LoadedDecoder, adapter: Path) -> None:
    """Write the adapter in the compute dtype into the matrices; of its fp32 weights, DoRA's magnitudes are kept."""
    layout = FlatLayout(loaded.segments, loaded.compute_buffer.device)
    flat = torch.zeros(layout.total, dtype=torch.float32, device=loaded.compute_buffer.device)
    tensors = LoraAdapter(loaded.plan, layout.views(flat))
    tensors.load(adapter)
    write_compute_copies(layout, flat, loaded.compute_buffer)
    connect_magnitudes(loaded, LoraAdapter(loaded.plan, [tensor.clone() for tensor in tensors.tensors]))
