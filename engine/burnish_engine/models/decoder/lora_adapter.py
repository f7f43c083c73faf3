"""The LoRA or DoRA adapter of Burnish's decoder: which modules have one, its fp32 masters, and PEFT's file format.

The fp32 master weights of all matrices lie in one flat buffer, A and B of a module one after the other. Their copies in
the compute dtype lie in the stacked matrices (see `stacked_linear`). The files on disk are the ones that PEFT writes,
so any program that reads PEFT adapters reads ours.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.contract.recipe.recipe_train import ALL_LINEAR, AUTO, AdapterSection
from burnish_engine.models.decoder.experts.adapted_experts import (
    AdaptedExperts,
    read_adapted_experts,
    wrapped_inside,
)
from burnish_engine.models.families import Module
from burnish_engine.models.families.adapter_targets import has_name
from burnish_engine.models.families.experts import ExpertStack, parameter_name
from burnish_engine.models.saved_adapters.adapter_files import read_files
from burnish_engine.models.saved_adapters.peft_form import as_peft_reads
from burnish_engine.models.saved_adapters.saved_adapter import (
    CONFIG_FILE,
    PREFIX,
    WEIGHTS_FILE,
    alpha_of,
    is_promised,
    refuse_missing,
    refuse_not_finite,
    refuse_other_rank,
    refuse_other_ranks,
    refuse_strange,
)

_MAGNITUDE = "lora_magnitude_vector"
_PLAIN_LORA: dict[str, Any] = {
    "alpha_pattern": {}, "auto_mapping": None, "bias": "none", "fan_in_fan_out": False, "init_lora_weights": True,
    "layers_pattern": None, "layers_to_transform": None, "modules_to_save": None, "peft_type": "LORA",
    "rank_pattern": {}, "revision": None, "use_dora": False, "use_rslora": False,
}  # fmt: skip
"""Keys of adapter_config.json as peft.LoraConfig writes them for LoRA on linear layers. Others have PEFT's defaults."""


@dataclass(frozen=True)
class AdaptedModule:
    """One module with an adapter.

    Attributes:
        module: linear module of the checkpoint.
        rank: number of rows of A, and of columns of B.
        scale: factor of B·A·x.
        dora: whether the lengths of the output rows are trained too (DoRA).
    """

    module: Module
    rank: int
    scale: float
    dora: bool = False

    @property
    def path(self) -> str:
        """Name of the module."""
        return self.module.path

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of A, B and DoRA's magnitudes, by their names in PEFT's file."""
        place, rows = f"{PREFIX}{self.module.path}", self.module.rows
        found: dict[str, tuple[int, ...]] = {
            f"{place}.lora_A.weight": (self.rank, self.module.columns), f"{place}.lora_B.weight": (rows, self.rank),
        }  # fmt: skip
        return found | ({f"{place}.{_MAGNITUDE}": (rows,)} if self.dora else {})


@dataclass(frozen=True)
class AdapterPlan:
    """Which modules get an adapter, and how PEFT's config describes it.

    Attributes:
        modules: modules with an adapter, in the order of the decoder's modules.
        dropout: probability of dropout on the adapters' input; 0 where experts have adapters.
        config: entries of adapter_config.json other than PEFT's defaults.
        experts: stacks of experts with adapters, layer by layer.
    """

    modules: tuple[AdaptedModule, ...]
    dropout: float
    config: dict[str, Any]
    experts: tuple[AdaptedExperts, ...] = ()

    @property
    def parts(self) -> tuple[AdaptedModule | AdaptedExperts, ...]:
        """Everything with an adapter, in the order of the flat buffer."""
        return *self.modules, *self.experts


NO_ADAPTER = AdapterPlan((), 0.0, {})


def plan_adapter(
    section: AdapterSection, modules: Iterable[Module], stacks: Iterable[ExpertStack] = (), expert_rank: int = 0
) -> AdapterPlan:
    """Plan the adapter that a recipe asks for.

    Args:
        section: the recipe's adapter section.
        modules: linear modules of the model.
        stacks: stacks of experts of the model.
        expert_rank: rank of each expert's adapter, from `adapter_targets.expert_rank`; 0: the section's rank.

    Raises:
        UsageError: Nothing in the model has any of the asked names.
    """
    everything, experts = list(modules), list(stacks)
    paths = [*(module.path for module in everything), *(stack.path for stack in experts)]
    names = list(dict.fromkeys(map(_last, paths)))
    targets, everywhere = section.targets, AUTO in section.targets or ALL_LINEAR in section.targets
    wanted = [
        name
        for name in (sorted({_last(module.path) for module in everything}) if everywhere else targets)
        if any(has_name(module.path, name) for module in everything)
    ]
    parameters = sorted(
        {
            parameter_name(stack.path)
            for stack in experts
            if AUTO in targets or any(has_name(stack.path, target) for target in targets)
        }
    )
    if not wanted and not parameters:
        raise UsageError(
            f"None of the adapter targets {targets} is a matrix of this model, which has {names}.",
            'Set adapter.targets to some of these, or to ["auto"].',
        )
    rslora, rank = section.method == "rslora", expert_rank or section.rank
    config: dict[str, Any] = {
        "r": section.rank,
        "lora_alpha": section.alpha if section.alpha % 1 else int(section.alpha),
        "lora_dropout": section.dropout,
        "target_modules": wanted,
        "use_rslora": rslora,
        "use_dora": section.method == "dora",
    }
    if parameters:
        config["target_parameters"] = parameters
    if parameters and rank != section.rank:
        config["rank_pattern"] = dict.fromkeys(parameters, rank)
    scale = section.alpha / (math.sqrt(section.rank) if rslora else section.rank)
    chosen = (
        AdaptedModule(module, section.rank, scale, dora=section.method == "dora")
        for module in everything
        if any(has_name(module.path, name) for name in wanted)
    )
    reached = [stack for stack in experts if any(has_name(stack.path, name) for name in parameters)]
    inner, of_experts = wrapped_inside(reached), section.alpha / (math.sqrt(rank) if rslora else rank)
    adapted = (AdaptedExperts(stack, rank, of_experts, stack.path in inner) for stack in reached)
    return AdapterPlan(tuple(chosen), section.dropout, config, tuple(adapted))


def read_plan(folder: Path, modules: Iterable[Module], stacks: Iterable[ExpertStack] = ()) -> AdapterPlan:
    """Read the plan of a saved adapter: ranks and scales of its modules and experts.

    Args:
        folder: folder of the adapter.
        modules: linear modules of the model.
        stacks: stacks of experts of the model.

    Raises:
        SetupError: The folder holds no LoRA adapter for these modules, its two files do not belong together, or
            only the plain path has its kind.
    """
    files = read_files(folder)
    config, shapes = files.config, files.shapes
    if reason := files.obstacle:
        raise SetupError(f"The adapter in {folder} {reason}.", "Use it with the plain path.")
    by_path = {module.path: module for module in modules}
    chosen = []
    experts = read_adapted_experts(
        folder, config.get("target_parameters") or [], shapes, list(stacks),
        lambda path, rank: _scale(folder, config, path, rank),
    )  # fmt: skip
    dora = bool(config.get("use_dora"))
    parts = ("lora_A.weight", "lora_B.weight", *([_MAGNITUDE] if dora else []))
    known = {f"{PREFIX}{path}.{part}" for path in by_path for part in parts}
    refuse_strange(folder, shapes.keys() - known - {name for adapted in experts for name in adapted.shapes})
    missing: list[str] = []
    for path, module in by_path.items():
        names = [f"{PREFIX}{path}.{part}" for part in parts]
        absent = [name for name in names if name not in shapes]
        if absent:
            missing += absent if len(absent) < len(names) or is_promised(folder, config, path) else []
            continue
        a, b, *lengths = (shapes[name] for name in names)
        if a[1:] != (module.columns,) or b != (module.rows, a[0]) or lengths not in ([], [(module.rows,)]):
            magnitudes = f", magnitudes {lengths[0]}" if lengths else ""
            raise SetupError(
                f"The adapter in {folder} has A {a}, B {b}{magnitudes} for {path}, whose weight is "
                f"{(module.rows, module.columns)}.",
                "Use it with its own base.",
            )
        if not a[0]:
            raise SetupError(f"The adapter in {folder} has the rank 0 for {path}.", "Copy it again.")
        chosen.append(AdaptedModule(module, a[0], _scale(folder, config, path, a[0]), dora))
    refuse_missing(folder, missing)
    refuse_other_ranks(folder, config, shapes)
    for adapted in experts:
        refuse_other_rank(folder, config, adapted.path, adapted.rank)
    dropout = config.get("lora_dropout") or 0.0
    if not (isinstance(dropout, int | float) and 0.0 <= dropout < 1.0):
        raise SetupError(
            f"The adapter in {folder} has the dropout {dropout!r:.60}.", "Correct its adapter_config.json."
        )
    if experts and dropout:
        raise SetupError(
            f"The adapter in {folder} has the dropout {dropout:g}, and experts take none.",
            "Correct its adapter_config.json.",
        )
    return AdapterPlan(tuple(chosen), dropout, config, tuple(experts))


class LoraAdapter:
    """The fp32 master weights of an adapter.

    Args:
        plan: modules, ranks and scales of the adapter.
        tensors: A, B and DoRA's magnitudes of each part, in order: fp32 views of the flat buffer.
    """

    def __init__(self, plan: AdapterPlan, tensors: list[torch.Tensor]) -> None:
        self.plan = plan
        shapes = {name: shape for adapted in plan.parts for name, shape in adapted.shapes.items()}
        self._experts = {name: adapted for adapted in plan.experts for name in adapted.shapes}
        self._named = {name: tensor.view(shape) for (name, shape), tensor in zip(shapes.items(), tensors, strict=True)}

    def named(self) -> dict[str, torch.Tensor]:
        """Return every tensor by its name in PEFT's file; those of experts in the shape that they have in memory."""
        return dict(self._named)

    @property
    def tensors(self) -> list[torch.Tensor]:
        """Every tensor, in the order of `named`."""
        return list(self._named.values())

    def of(self, adapted: AdaptedModule | AdaptedExperts) -> list[torch.Tensor]:
        """Return A, B and DoRA's magnitudes of a part."""
        return [self._named[name] for name in adapted.shapes]

    def initialize(self, seed: int) -> None:
        """Initialize A and B: A uniform (Kaiming with a = sqrt(5)), B zero, with the numbers that PEFT draws.

        PEFT makes two linear layers for each module, which draw weights of their own, and then draws A anew; the same
        is done here, so that the same seed gives the same start as with transformers and PEFT. Experts come after all
        modules; all of a stack have one layer together.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for adapted in sorted(self.plan.modules, key=lambda adapted: _turn(adapted.module)):
                a, b = self.of(adapted)[:2]
                a.copy_(_drawn(adapted.module.columns, adapted.rank, adapted.module.rows))
                b.zero_()
            for experts in self.plan.experts:
                a, b = self.of(experts)
                stack, ranks = experts.stack, experts.stack.experts * experts.rank
                a.copy_(_drawn(stack.columns, ranks, stack.rows).view(a.shape))
                b.zero_()

    def load(self, folder: Path) -> None:
        """Read the matrices from a folder that has the same plan.

        Raises:
            SetupError: Some of their values are infinite or no numbers.
        """
        broken = []
        with safe_open(folder / WEIGHTS_FILE, framework="pt") as file:
            for name, matrix in self.named().items():
                stored = file.get_tensor(name)
                broken += [] if bool(torch.isfinite(stored).all()) else [name]
                matrix.copy_(self._experts[name].from_file(name, stored) if name in self._experts else stored)
        refuse_not_finite(folder, broken)

    def save(self, folder: Path, base: str) -> None:
        """Write PEFT's two files into an existing folder, without importing PEFT, which takes seconds.

        Args:
            folder: folder to write to.
            base: path or name of the base model, for the config.
        """
        said = {
            "base_model_name_or_path": base,
            "inference_mode": True,
            "peft_version": importlib.metadata.version("peft"),
            "task_type": "CAUSAL_LM",
        }
        layers = [one.path for one in self.plan.modules if one.module.peft_converts]
        config = as_peft_reads(folder, _PLAIN_LORA | self.plan.config | said, layers)
        (folder / CONFIG_FILE).write_text(json.dumps(config, indent=2, sort_keys=True), encoding="utf-8")
        tensors = {name: matrix.detach().cpu() for name, matrix in self.named().items()}
        tensors |= {name: experts.to_file(name, tensors[name]) for name, experts in self._experts.items()}
        stored = {name: matrix.contiguous() for name, matrix in tensors.items()}
        save_file(stored, folder / WEIGHTS_FILE, metadata={"format": "pt"})


def _drawn(columns: int, rank: int, rows: int) -> torch.Tensor:
    """Draw A as PEFT does, with the numbers that it draws for both layers before."""
    drawn = torch.nn.Linear(columns, rank, bias=False).weight
    torch.nn.Linear(rank, rows, bias=False)
    torch.nn.init.kaiming_uniform_(drawn, a=math.sqrt(5))
    return drawn.detach()


def _scale(folder: Path, config: dict[str, Any], path: str, rank: int) -> float:
    """Return alpha over rank (rsLoRA: over its root)."""
    return alpha_of(folder, config, path) / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _turn(module: Module) -> tuple[int, int]:
    """Return a module's sort key in PEFT's order, which is transformers': Phi-3's o_proj before its qkv_proj."""
    if module.stack not in ("mixer_in", "mixer_out"):
        return module.layer, 2
    return module.layer, 1 if _last(module.path) == "qkv_proj" else 0


def _last(path: str) -> str:
    return path.rpartition(".")[2]
