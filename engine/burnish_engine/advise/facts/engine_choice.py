"""Decides which engine a run would use, by the rules of `train.choose_engine`. Loads no torch."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.contract.facts.machine import GpuFacts
from burnish_engine.contract.recipe.eight_bit_use import EIGHT_BITS, NO_EIGHT_BITS, EightBitUse
from burnish_engine.contract.recipe.recipe import Recipe, why_plain
from burnish_engine.models.checkpoint.spec import decoder_spec
from burnish_engine.models.decoder.frozen.format_choice import capability_of, check_eight_bits, eight_bit_use
from burnish_engine.models.families import stores_blocks, stores_fp8, stores_gguf, stores_nf4, why_not_fast
from burnish_engine.models.families.adapter_targets import StartedSection, why_plain_adapter, why_plain_experts
from burnish_kernels.registry import CAPABILITIES

Config = Mapping[str, Any]
"""A checkpoint's config.json."""


@dataclass(frozen=True)
class EngineChoice:
    """The engine that trains a run."""

    fast: bool  # whether Burnish's own engine trains; otherwise the plain one does (transformers and PEFT)
    nf4: bool = False  # whether the frozen weights are kept in 4 bits (NF4), or as a GGUF's blocks
    note: str = ""
    """Reason why the plain engine trains although the recipe did not ask for it, as a sentence; else empty."""
    eight_bits: EightBitUse = NO_EIGHT_BITS  # what is stored and multiplied in 8 bits


_DELTA_KERNELS = "fla"
_WITH_KERNELS = (
    "fla-core computes its delta nets; rows are packed where a probe finds them exact when the run starts, and padded "
    "elsewhere."
)
_WITHOUT_KERNELS = (
    "Its delta nets run on transformers' own code, each row padded; the package fla-core (burnish[hybrid]) has kernels."
)


def choose_engine(
    recipe: Recipe, spec: DecoderSpec, gpu: GpuFacts | None, precision: str, config: Config | None = None
) -> EngineChoice:
    """Choose the engine that would train a run.

    Args:
        recipe: recipe of the run.
        spec: shape of the base model.
        gpu: GPU that trains; None for the CPU.
        precision: precision of the base model's computation: "fp32", "bf16" or "fp16".
        config: config.json of the model; None for a model of the catalog, which its shape describes in full.

    Raises:
        UsageError: The recipe asks for something that the engine it names, or is left with, does not do.
    """
    check_optimizer(recipe)
    asked = recipe.train.engine
    reason = "" if asked == "plain" else fast_obstacle(recipe, spec, gpu, config)
    if reason and asked == "fast":
        raise UsageError(f"{reason}.", 'Set train.engine = "plain" (or "auto") to train it with transformers and PEFT.')
    if asked == "plain" or reason:
        if recipe.devices.strategy == "data_parallel" and (len(recipe.devices.gpus) > 1 or recipe.devices.exact):
            refuse_sharing(recipe, reason)
        check_plain_engine(recipe, precision, reason, device_problem(gpu))
        check_stored(config or {})
        return EngineChoice(fast=False, nf4=recipe.model.quantize == "nf4", note=plain_note(reason, config, gpu))
    check_blocks(recipe, config or {})
    check_eight_bits(recipe, spec, precision, capability_of(gpu))
    nf4 = keeps_packed(recipe, config)
    return EngineChoice(fast=True, nf4=nf4, eight_bits=eight_bit_use(recipe, recipe.train.products, nf4=nf4))


def check_blocks(recipe: Recipe, config: Config) -> None:
    """Refuse to round weights that a GGUF has in blocks once more.

    Raises:
        UsageError: The recipe asks for it.
    """
    if stores_blocks(config) and recipe.model.quantize != "none":
        raise UsageError(
            f'model.quantize = "{recipe.model.quantize}" would round the weights of a quantized GGUF once more.',
            'Set model.quantize = "none": they stay in memory as they are in the file.',
        )


def check_plain_engine(recipe: Recipe, precision: str, reason: str, problem: str) -> None:
    """Refuse settings that the plain engine does not support, where it trains.

    Args:
        recipe: recipe of the run.
        precision: precision of the base model's computation.
        reason: reason against the fast engine, as the first half of a sentence; empty where the recipe asks for the
            plain one.
        problem: reason why Burnish's kernels do not run on the device; empty where they do, or are not needed.

    Raises:
        UsageError: The recipe has such a setting.
    """
    why = reason or 'The recipe asks for the plain engine (train.engine = "plain")'
    if recipe.model.quantize == "fp8" or recipe.train.products in EIGHT_BITS:
        raise UsageError(
            f"{why}, and only the fast engine keeps or multiplies weights in 8 bits.",
            'Set model.quantize = "none" or "nf4", and train.products = "16" or "auto".',
        )
    if recipe.model.quantize != "none" and problem:
        raise UsageError(
            f"model.quantize = {recipe.model.quantize!r} needs Burnish's kernels: {problem}.",
            'Set model.quantize = "none".',
        )
    if recipe.model.quantize == "nf4" and isinstance(recipe.adapter, StartedSection) and recipe.adapter.whole_matrix:
        raise UsageError(
            f"The adapter to continue from trains {recipe.adapter.whole_matrix} itself, which 4-bit weights forbid.",
            'Set model.quantize = "none".',
        )
    if precision == "fp16":
        raise UsageError(f"{why}, and only the fast engine trains in fp16.", 'Set train.precision to "bf16" or "fp32".')


_LOADERS = {
    "awq": "gptqmodel", "gptq": "gptqmodel", "compressed-tensors": "compressed_tensors", "bitsandbytes": "bitsandbytes",
    "hqq": "hqq", "aqlm": "aqlm", "quanto": "optimum", "torchao": "torchao", "auto-round": "auto_round", "mxfp4": "",
    "fp8": "",
}  # fmt: skip
"""Methods by which transformers loads stored weights that can be trained on, each with the package that it needs."""


def check_stored(config: Config) -> None:
    """Refuse weights that are stored quantized in a form that transformers cannot load here, where it would train.

    Args:
        config: config.json of the model.

    Raises:
        UsageError: The method is not known, or its package is not installed.
    """
    stored = config.get("quantization_config")
    if not stored:
        return
    if stores_gguf(config):
        raise UsageError(
            "The model is a GGUF, which only the fast engine reads, and that engine does not do this run.",
            'Set train.engine = "auto" and train a LoRA adapter, or fetch the model\'s safetensors.',
        )
    method = stored.get("quant_method") if isinstance(stored, Mapping) else None
    if method is None and isinstance(stored, Mapping) and (stored.get("load_in_4bit") or stored.get("load_in_8bit")):
        method = "bitsandbytes"
    package = _LOADERS.get(method) if isinstance(method, str) else None
    if package is not None and (not package or importlib.util.find_spec(package) is not None):
        return
    why = f"takes the package {package}, which is not installed" if package else "the plain engine does not know"
    raise UsageError(
        f"The model's weights are stored quantized (quant_method = {str(method)!r:.60}), which {why}.",
        "Train on the same model in 16 bits.",
    )


def refuse_sharing(recipe: Recipe, reason: str) -> NoReturn:
    """Refuse to share the steps of a run on the plain engine.

    Args:
        recipe: recipe of the run.
        reason: reason against the fast engine, as the first half of a sentence; empty where the recipe asks for the
            plain one.

    Raises:
        UsageError: Always.
    """
    whole = 'devices.strategy = "sharded" shares a whole model out. ' if recipe.adapter.method == "full" else ""
    raise UsageError(
        f"{reason or 'The recipe asks for the plain engine'}, and the plain one trains no adapter on several GPUs.",
        f'{whole}For one GPU, leave --gpus out, with devices.strategy = "single" and devices.exact = false.',
    )


def plain_note(reason: str, config: Config | None = None, gpu: GpuFacts | None = None) -> str:
    """Tell a person that the plain engine trains although the recipe did not ask for it, and how it does delta nets.

    Args:
        reason: reason, as the first half of a sentence; empty where the recipe asked for the plain engine.
        config: config.json of the model.
        gpu: GPU that trains; None for the CPU.
    """
    note = f"{reason}; the plain one trains this, more slowly." if reason else ""
    if gpu is None or not has_delta_nets(config or {}):
        return note
    return f"{note} {_WITH_KERNELS if importlib.util.find_spec(_DELTA_KERNELS) else _WITHOUT_KERNELS}".strip()


def has_delta_nets(config: Config) -> bool:
    """Whether fla-core has kernels for layers of a model in transformers."""
    return any(config.get(key) for key in ("linear_num_value_heads", "linear_num_heads", "linear_attn_config"))


def unused_pins_note(recipe: Recipe) -> str:
    """Tell a person which pinned parts of a memory plan the plain engine ignores; empty where none is pinned."""
    names = [pin.partition(" ")[0] for pin in recipe.memory.pins]
    return f"The plain engine keeps to no memory plan: it has no use for {', '.join(names)}." if names else ""


_PACKAGES = {
    "adamw8bit": "bitsandbytes", "paged_adamw8bit": "bitsandbytes", "lion": "lion_pytorch",
    "schedule_free": "schedulefree",
}  # fmt: skip
"""Optional packages that some optimizers need; all other optimizers come with required packages."""


def check_optimizer(recipe: Recipe) -> None:
    """Refuse an optimizer whose library is not installed.

    Raises:
        UsageError: The library is not installed.
    """
    name = recipe.train.optimizer
    package = _PACKAGES.get(name)
    if package and importlib.util.find_spec(package) is None:
        raise UsageError(
            f'train.optimizer = "{name}" needs {package}, which is not installed.',
            'Set train.optimizer = "adamw", or set Burnish up again.',
        )


def keeps_packed(recipe: Recipe, config: Config | None) -> bool:
    """Whether a run keeps the frozen weights packed: in 4 bits (NF4), or in the blocks of a GGUF."""
    return recipe.model.quantize == "nf4" or (config is not None and (stores_nf4(config) or stores_blocks(config)))


def storage_notes(recipe: Recipe, config: Config) -> list[str]:
    """List what a person should know about weights that the checkpoint stores quantized, as sentences."""
    asked = recipe.model.quantize
    if stores_nf4(config) and asked == "none":
        return ["The model's weights are stored in 4 bits (NF4), so this run is QLoRA."]
    if not stores_fp8(config):
        return []
    if asked == "none" and recipe.train.products not in EIGHT_BITS:
        return [
            "The model's weights are stored in FP8 and unpacked to 16 bits here; "
            'model.quantize = "fp8" would keep them in half of the memory.'
        ]
    if (products := recipe.train.products) in ("int8", "mxfp8"):
        return [f"The model's weights are stored in FP8, and rounded once more to {products.upper()} here."]
    return ["The model's weights are stored in FP8. Where blocks have a scale each, they are rounded once more."]


def dropout_notes(share: float) -> list[str]:
    """Tell a person that a model's own dropout is off, as a sentence; nothing where it has none.

    Args:
        share: largest probability of dropout in the model.
    """
    what = f"The model has dropout of its own (at most {share:g}), made for pretraining: it is off in this run."
    return [f"{what} adapter.dropout sets the adapter's."] if share else []


def fast_obstacle(recipe: Recipe, spec: DecoderSpec, gpu: GpuFacts | None, config: Config | None = None) -> str:
    """The reason why the fast engine does not train a run, as the first half of a sentence; empty where it does."""
    known: DecoderSpec | None = spec
    if config is None:
        config = {"model_type": spec.family}
    else:
        known = decoder_spec(dict(config))  # the shape may be a rough one, of a family that is not known
    reason = why_not_fast(dict(config), known, nf4=True)
    if reason:
        return f"The model {reason}, which the fast engine does not do"
    beyond = why_plain_experts(spec, recipe) or why_plain_adapter(recipe.adapter)
    return why_plain(recipe) or beyond or device_problem(gpu)


def device_problem(gpu: GpuFacts | None) -> str:
    """The reason why Burnish's kernels do not run on a GPU, as the first half of a sentence; empty where they do.

    None stands for the CPU, which needs no such kernels.
    """
    capability = capability_of(gpu)
    if gpu is None or capability is None:
        return ""
    if capability < min(CAPABILITIES):
        return f"{gpu.name} is older than Burnish's kernels are made for"
    return "" if importlib.util.find_spec("triton") else "Triton is not installed"
