"""The plain engine: transformers for the base model, PEFT for the adapter, one waiting step after another."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from burnish_engine.contract.recipe import Recipe
from burnish_engine.data.tokenize import Document
from burnish_engine.models import plain
from burnish_engine.models.generate import generate_replies
from burnish_engine.models.precision import exact_products
from burnish_engine.models.sampling import Reply
from burnish_engine.models.source import ModelSource
from burnish_engine.train.engine import StepResult
from burnish_engine.train.evaluate import held_out_loss
from burnish_engine.train.optimizer import make_optimizer, optimizer_tensors, restore_optimizer
from burnish_engine.train.plain_step import Layout, choose_layout, summed_loss
from burnish_engine.train.schedule import learning_rate
from burnish_engine.train.stream import BatchStream


class PlainEngine:
    """See `Engine`.

    Args:
        source: The base model.
        recipe: The run.
        stream: Its micro-batches.
        tokenizer: For replies.
        precision: "fp32" or "bf16".
        device: Where to train.
        adapter: Folder of the adapter to go on with; None starts a new one.
        layout: Of the run so far; None finds out.
    """

    name = "plain"

    def __init__(
        self,
        source: ModelSource,
        recipe: Recipe,
        stream: BatchStream,
        tokenizer: Any,
        *,
        precision: str,
        device: torch.device,
        adapter: Path | None = None,
        layout: str | None = None,
    ) -> None:
        self._recipe, self._stream, self._tokenizer, self._device = recipe, stream, tokenizer, device
        exact_products()
        self.notes: list[str] = []
        base = plain.load_base(source, precision, device)
        skipped = plain.skipped_targets(base, recipe.adapter)
        if skipped:
            self.notes.append(f"This model has no layers named {', '.join(skipped)}; they get no adapter.")
        self._layout: Layout = "padded"
        if layout is None:
            self._layout = choose_layout(base, base.config.vocab_size, device, recipe.train.pack)
        elif layout == "packed":
            self._layout = "packed"
        if recipe.train.pack and self._layout == "padded":
            self.notes.append("This architecture carries state from one packed row into the next, so rows are padded.")
        if adapter:
            self.model = plain.load_adapter(base, adapter, trainable=True)
        else:
            self.model = plain.attach_adapter(base, recipe.adapter, recipe.train.seed)
        if recipe.train.recompute:
            self.model.enable_input_require_grads()
            base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        self.model.train()
        self._parameters = plain.trainable_parameters(self.model)
        self._optimizer = make_optimizer(recipe.train, self._parameters)
        self._results: list[StepResult] = []

    @property
    def layout(self) -> str:
        """See `Engine`."""
        return self._layout

    def start(self, step: int, total_steps: int, total_micro_batches: int) -> None:
        """See `Engine`."""
        self._step, self._total_steps, self._total = step, total_steps, total_micro_batches

    def queue_step(self) -> None:
        """See `Engine`."""
        began = time.perf_counter()
        section = self._recipe.train
        first = self._step * section.accumulation
        batches = [self._stream[index] for index in range(first, min(first + section.accumulation, self._total))]
        supervised = sum(batch.supervised_tokens for batch in batches)
        total = 0.0
        for batch in batches:
            if not batch.supervised_tokens:
                continue
            # Divided by the supervised tokens of the whole optimizer step: how rows fall into passes must not matter.
            loss = summed_loss(self.model, batch, self._device, self._layout) / max(supervised, 1)
            loss.backward()
            total += float(loss.detach())
        rate = learning_rate(section, self._step + 1, self._total_steps)
        norm = self._clip(section.max_grad_norm) if supervised else 0.0
        taken = torch.isfinite(torch.tensor([total, norm])).all().item()
        if supervised and taken:
            for group in self._optimizer.param_groups:
                group["lr"] = rate
            self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._step += 1
        self._results.append(
            StepResult(
                step=self._step,
                micro_batches=len(batches),
                tokens=sum(batch.tokens for batch in batches),
                supervised=supervised,
                loss=total,
                grad_norm=norm,
                learning_rate=rate,
                taken=bool(taken),
                loss_scale=1.0,
                seconds=time.perf_counter() - began,
            )
        )

    def results(self, *, wait: bool = False) -> Iterator[StepResult]:  # noqa: ARG002  nothing is ever under way
        """See `Engine`."""
        found, self._results = self._results, []
        return iter(found)

    def held_out_loss(self, documents: Sequence[Document], budget: int) -> tuple[float, int]:
        """See `Engine`."""
        return held_out_loss(self.model, documents, budget=budget, device=self._device, layout=self._layout)

    def replies(self, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> list[Reply]:
        """See `Engine`."""
        return generate_replies(self.model, self._tokenizer, list(prompts), max_new_tokens=max_new_tokens)

    def save_adapter(self, folder: Path) -> None:
        """See `Engine`."""
        self.model.save_pretrained(str(folder), safe_serialization=True)
        (folder / "README.md").unlink(missing_ok=True)  # PEFT's model-card form, empty

    def optimizer_tensors(self) -> dict[str, torch.Tensor]:
        """See `Engine`."""
        return optimizer_tensors(self._optimizer, self._parameters)

    def restore_optimizer(self, tensors: dict[str, torch.Tensor]) -> None:
        """See `Engine`."""
        restore_optimizer(self._optimizer, self._parameters, tensors)

    def close(self) -> None:
        """See `Engine`."""

    def _clip(self, max_norm: float) -> float:
        values = [value for _, value in self._parameters if value.grad is not None]
        return float(torch.nn.utils.clip_grad_norm_(values, max_norm or float("inf")))
