"""Build every optimizer that a recipe can name, from its library, behind one interface for both engines.

AdamW, Adafactor and (see `muon`) Muon are torch's; the 8-bit ones are bitsandbytes' (Dettmers et al. 2022): moments in
blocks of 256 with one scale each, tensors below 4096 numbers in fp32. Paged ones keep the moments of large tensors in
host memory that the GPU reads and writes page by page. Lion (Chen et al. 2023, arXiv 2302.06675) is lion-pytorch's,
schedule-free AdamW (Defazio et al. 2024, arXiv 2405.15682) its authors'. Muon (Jordan 2024) is scaled to AdamW's usual
size as in Liu et al. 2025 (arXiv 2502.16982), so that one learning rate serves its matrices and the rest, which is
AdamW's. LoRA+ is Hayou et al. 2024 (arXiv 2402.12354): a learning rate of B's own.

The fast engine has its own AdamW and, for matrices alone, its own Muon (`flat_muon`); it uses this for all others.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.recipe.recipe_train import TrainSection
from burnish_engine.train.optimizers.muon import BatchedMuon

Named = list[tuple[str, torch.nn.Parameter]]
RATE = "rate"
"""Key of a parameter group for its factor on the learning rate."""
MUON_MOMENTUM, LION_MOMENTUM = 0.95, 0.99  # values of their papers
_B_NAMES = ("lora_B.", "lora_embedding_B.")


@dataclass(frozen=True)
class TrainedTensor:
    """A tensor that an optimizer changes.

    Attributes:
        value: parameter, fp32.
        decay: whether weight decay applies.
        rate: factor on the learning rate.
        table: whether it is an embedding or a head, which Muon must not orthogonalize.
    """

    value: torch.nn.Parameter
    decay: bool = True
    rate: float = 1.0
    table: bool = False


class Optimizers:
    """One optimizer of a library, or two that share the parameters.

    Args:
        parts: optimizers whose parameter groups have the key `RATE`.

    Attributes:
        parts: list of these optimizers.
    """

    def __init__(self, parts: Sequence[torch.optim.Optimizer]) -> None:
        self.parts = list(parts)

    def set_rate(self, learning_rate: float) -> None:
        """Set the learning rate of the next steps."""
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = learning_rate * group[RATE]

    def step(self) -> None:
        """Take a step with the gradients that the parameters have."""
        for part in self.parts:
            part.step()

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for part in self.parts:
            part.zero_grad()

    @contextmanager
    @torch.no_grad()
    def averaged(self) -> Iterator[bool]:
        """Swap in the weights to evaluate and save; afterwards restore the parameters to the bit.

        Schedule-free training takes gradients at weights y, and its result is the average x; with every other
        optimizer nothing changes.

        Yields:
            Whether the parameters differ inside.
        """
        averaging = [part for part in self.parts if is_averaging(part) and part.param_groups[0]["train_mode"]]
        held = [(value, value.detach().clone()) for part in averaging for value, state in part.state.items() if state]
        if not held:
            yield False
            return
        try:
            for part in averaging:
                part.eval()
            yield True
        finally:
            for part in averaging:
                for group in part.param_groups:
                    group["train_mode"] = True
            for value, before in held:  # going back by calculation would change last digits
                value.copy_(before)


def is_averaging(part: torch.optim.Optimizer) -> bool:
    """Return whether an optimizer is schedule-free."""
    return "train_mode" in part.defaults


def make_optimizer(
    section: TrainSection, parameters: Named, *, whole: bool = False, tables: Collection[str] = ()
) -> Optimizers:
    """Build the recipe's optimizer for modules of transformers and PEFT.

    Vectors (norms, biases, DoRA magnitudes) get no weight decay; LoRA's B gets its own learning rate.

    Args:
        section: recipe section with the optimizer's name and settings.
        parameters: fp32 weights by name.
        whole: whether they are a whole model, for which temporary copies would take as much memory as a moment.
        tables: names of embeddings and head.

    Raises:
        SetupError: The optimizer's library does not run here.
    """
    trained = [
        TrainedTensor(value, decay=value.ndim >= 2, rate=rate_of(section, name), table=name in tables)
        for name, value in parameters
    ]
    return build_optimizer(section, trained, whole=whole)


def rate_of(section: TrainSection, name: str) -> float:
    """Return the factor on the learning rate of a parameter of transformers or PEFT."""
    return section.lora_plus_ratio if any(part in name for part in _B_NAMES) else 1.0


def build_optimizer(section: TrainSection, trained: Sequence[TrainedTensor], *, whole: bool = False) -> Optimizers:
    """Build the recipe's optimizer for any tensors.

    Raises:
        SetupError: The optimizer's library does not run here.
    """
    if section.optimizer == "muon":
        matrices = [one for one in trained if one.value.ndim == 2 and not one.table]
        rest = [one for one in trained if one.value.ndim != 2 or one.table]
        parts = [_muon(section, matrices)] if matrices else []
        return Optimizers([*parts, *([_adamw(section, rest, whole=whole)] if rest else [])])
    if section.optimizer == "adamw":
        return Optimizers([_adamw(section, trained, whole=whole)])
    if section.optimizer == "adafactor":
        return Optimizers([torch.optim.Adafactor(_groups(section, trained), lr=section.learning_rate)])
    if section.optimizer == "lion":
        betas = (section.beta1, section.momentum or LION_MOMENTUM)
        lion = _library("lion_pytorch", "lion").Lion
        return Optimizers([lion(_groups(section, trained), lr=section.learning_rate, betas=betas)])
    if section.optimizer == "schedule_free":
        made = _library("schedulefree", "schedule_free").AdamWScheduleFree(
            _groups(section, trained), **_adam_options(section), foreach=not whole
        )
        made.train()
        return Optimizers([made])
    device = trained[0].value.device
    optimizers = _bitsandbytes(section.optimizer, device)
    paged = section.optimizer == "paged_adamw8bit" and device.type == "cuda"
    kind = optimizers.PagedAdamW8bit if paged else optimizers.AdamW8bit
    return Optimizers([kind(_groups(section, trained), **_adam_options(section))])


def _groups(section: TrainSection, trained: Sequence[TrainedTensor]) -> list[dict[str, Any]]:
    """Group parameters by weight decay and learning rate, in the order of their first parameter."""
    found: dict[tuple[float, float], list[torch.nn.Parameter]] = {}
    for one in trained:
        found.setdefault((section.weight_decay if one.decay else 0.0, one.rate), []).append(one.value)
    return [
        {"params": values, "weight_decay": decay, "lr": section.learning_rate * rate, RATE: rate}
        for (decay, rate), values in found.items()
    ]


def _adam_options(section: TrainSection) -> dict[str, Any]:
    return {"lr": section.learning_rate, "betas": (section.beta1, section.beta2), "eps": section.epsilon}


def _adamw(section: TrainSection, trained: Sequence[TrainedTensor], *, whole: bool) -> torch.optim.Optimizer:
    how = {"fused": True} if whole else {"foreach": True}
    return torch.optim.AdamW(_groups(section, trained), **_adam_options(section), **how)


def _muon(section: TrainSection, matrices: Sequence[TrainedTensor]) -> torch.optim.Optimizer:
    return BatchedMuon(_groups(section, matrices), lr=section.learning_rate, momentum=section.momentum or MUON_MOMENTUM)


def _library(package: str, name: str) -> Any:
    """Import the package of an optimizer."""
    try:
        return importlib.import_module(package)
    except (ImportError, OSError, RuntimeError) as error:
        raise SetupError(
            f"{package.partition('.')[0]}, which {name!r} needs, could not be loaded: {error}.",
            'Set train.optimizer = "adamw", or set Burnish up again.',
        ) from error


def _bitsandbytes(name: str, device: torch.device) -> Any:
    """Import the optimizers of bitsandbytes."""
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it names parts that only its own products would use
    optimizers = _library("bitsandbytes.optim", name)
    library = _library("bitsandbytes.cextension", name).lib
    if device.type == "cuda" and not library.compiled_with_cuda:
        raise SetupError(
            f"bitsandbytes, which {name!r} needs, has no library for this CUDA version.",
            'Set train.optimizer = "adamw", or set Burnish up again.',
        )
    return optimizers
