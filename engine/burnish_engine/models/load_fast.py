"""Our decoder ready to speak, where it does the model and the adapter at hand."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import torch

from burnish_engine.contract.errors import SetupError
from burnish_engine.models.decoder_generate import DecoderSpeaker
from burnish_engine.models.decoder_load import LoadedDecoder, load_decoder
from burnish_engine.models.families import family, why_not_fast
from burnish_engine.models.lora_adapter import CONFIG_FILE, NO_ADAPTER, LoraAdapter, read_plan
from burnish_engine.models.lora_adapter import why_not_fast as why_not_fast_adapter
from burnish_engine.models.precision import DTYPES
from burnish_engine.models.source import ModelSource
from burnish_kernels.adamw.op import FlatLayout, write_shadows
from burnish_kernels.attention.op import capability
from burnish_kernels.registry import CAPABILITIES


def load_for_generation(
    source: ModelSource, adapter: Path | None, precision: str, device: torch.device
) -> tuple[DecoderSpeaker | None, str]:
    """Our decoder with an adapter, for replies.

    Args:
        source: The base model.
        adapter: A PEFT adapter's folder, or None for the base.
        precision: "fp32", "bf16" or "fp16".
        device: Where it computes.

    Returns:
        The speaker and an empty text; or None and why, in a sentence, where only the plain path does this model or
        adapter (or can say what is wrong with it).

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
        reason = why_not_fast_adapter(_config(adapter))
        if reason:
            return None, f"The adapter {reason}, so transformers runs it."
        try:
            plan = read_plan(adapter, known.modules(spec))
        except SetupError as error:
            return None, error.what
    loaded = load_decoder(
        source, dtype=DTYPES[precision], device=device, positions=1, plan=plan, quantize=source.stored_quantized
    )
    if adapter is not None:
        _load_shadows(loaded, adapter)
    return DecoderSpeaker(loaded.decoder, declared_ends(source)), ""


def declared_ends(source: ModelSource) -> list[int]:
    """Tokens that generation_config.json and config.json name as ends of a reply, as transformers reads them."""
    values = [source.config["eos_token_id"] if "eos_token_id" in source.config else _default_end(source)]
    file = source.folder / "generation_config.json"
    if file.is_file():
        try:
            values.append(json.loads(file.read_text(encoding="utf-8")).get("eos_token_id"))
        except (OSError, ValueError, AttributeError) as error:
            raise SetupError(f"{file} cannot be read: {error}.", "Download the model again.") from error
    found: list[int] = []
    for value in values:
        found += [value] if isinstance(value, int) else list(value or [])
    return list(dict.fromkeys(found))


def _default_end(source: ModelSource) -> int | list[int] | None:
    """What a model that names none has by its architecture. Asking that takes seconds, so only here."""
    from transformers import AutoConfig

    found: int | list[int] | None = AutoConfig.from_pretrained(source.folder, local_files_only=True).eos_token_id
    return found


def device_problem(device: torch.device) -> str:
    """Why our kernels do not run there; empty where they do, or are not needed."""
    if device.type != "cuda":
        return ""
    if (capability(device) or 0) < min(CAPABILITIES):
        return f"{torch.cuda.get_device_name(device)} is older than Burnish's kernels are made for"
    return "" if importlib.util.find_spec("triton") else "Triton is not installed"


def _load_shadows(loaded: LoadedDecoder, adapter: Path) -> None:
    """The adapter in the compute dtype, in its place in the matrices; nothing else of it is needed."""
    layout = FlatLayout(loaded.segments, loaded.arena.device)
    flat = torch.zeros(layout.total, dtype=torch.float32, device=loaded.arena.device)
    LoraAdapter(loaded.plan, layout.views(flat)).load(adapter)
    write_shadows(layout, flat, loaded.arena)


def _config(adapter: Path) -> dict[str, object]:
    """The adapter's config; nothing where it cannot be read, which `read_plan` then tells."""
    try:
        config = json.loads((adapter / CONFIG_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}
