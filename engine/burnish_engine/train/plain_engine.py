"""The plain engine: transformers for the model, PEFT for an adapter, one waiting step after another.

With `adapter.method = "full"` there is no adapter: every weight is trained.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from burnish_engine.contract.recipe import Recipe
from burnish_engine.contract.recipe_train import idle_note, optimizer_notes
from burnish_engine.data.pack import MicroBatch
from burnish_engine.data.tokenize import Document
from burnish_engine.models import plain
from burnish_engine.models.adapter_targets import check_targets
from burnish_engine.models.generate import generate_replies
from burnish_engine.models.model_shape import PlacedMatrix, inside_and_outside, measured_coverage, placed_matrices
from burnish_engine.models.precision import exact_products
from burnish_engine.models.sampling import Reply
from burnish_engine.models.source import ModelSource, open_model
from burnish_engine.train.engine import SMALLEST, StepResult, Trained, whole_update
from burnish_engine.train.evaluate import held_out_loss
from burnish_engine.train.layout_choice import choose_layout
from burnish_engine.train.leaks import choose_rows
from burnish_engine.train.masked_step import MaskedStep
from burnish_engine.train.optimizer import Optimizers, make_optimizer
from burnish_engine.train.optimizer_state import optimizer_tensors, restore_optimizer
from burnish_engine.train.plain_step import apart, parts_of, summed_loss
from burnish_engine.train.random_state import hold_random
from burnish_engine.train.schedule import learning_rate
from burnish_engine.train.stream import BatchStream
from burnish_engine.train.whole_model import WholeModel

_RECOMPUTE = "recompute"
"""The one smaller plan: activations are computed again in the backward pass."""


class PlainEngine:
    """See `Engine`.

    Args:
        source: The base model.
        recipe: The run.
        stream: Its micro-batches.
        tokenizer: For replies.
        precision: "fp32" or "bf16".
        device: Where to train.
        adapter: Folder of what was trained so far (the adapter, or the whole model) to go on with; None starts anew.
        layout: Of the run so far, kept where it can be; None finds out.
        plan: How to use memory; empty for as the recipe says.

    Attributes:
        coverage: See `Engine`.
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
        plan: str = "",
    ) -> None:
        self._recipe, self._stream, self._tokenizer, self._device = recipe, stream, tokenizer, device
        exact_products()
        self.notes = optimizer_notes(recipe.train)
        self._whole: WholeModel | None = None
        if recipe.adapter.method == "full":
            # What `save_adapter` wrote is the whole model; the one it was made from is not needed any more.
            self._whole = WholeModel(open_model(str(adapter)) if adapter else source, precision, device)
            base = self._whole.model
        else:
            base = plain.load_base(source, precision, device)
        placed = placed_matrices(base)
        self._tell_idle_settings(placed, recipe, fresh=adapter is None)
        rows = [row.input_ids for row in choose_rows(stream.documents)]
        self._layout, note = choose_layout(
            base, len(base.get_input_embeddings().weight), device, recipe.train.pack, layout, rows
        )
        self.notes += [note] if note else []
        if self._whole:
            self.model = base
        elif adapter:
            self.model = plain.load_adapter(base, adapter, trainable=True)
        else:
            self.model = plain.attach_adapter(base, recipe.adapter, recipe.train.seed)
        self.coverage = measured_coverage(placed, self.model)
        self.memory_plan = ""
        if recipe.train.recompute or plan in (_RECOMPUTE, SMALLEST):
            self.shrink()
        self.model.train()
        self._parameters = self._whole.parameters if self._whole else plain.trainable_parameters(self.model)
        self._optimizer = self._new_optimizer(recipe)
        self._results: list[StepResult] = []

    @property
    def trains(self) -> Trained:
        """See `Engine`."""
        return "model" if self._whole else "adapter"

    @property
    def layout(self) -> str:
        """See `Engine`."""
        return self._layout

    @property
    def locked_bytes(self) -> int:
        """See `Engine`."""
        return 0

    def start(
        self, step: int, total_steps: int, total_micro_batches: int, source: Sequence[MicroBatch] | None = None
    ) -> None:
        """See `Engine`."""
        self._step, self._total_steps, self._total = step, total_steps, total_micro_batches
        self._source = self._stream if source is None else source
        self._drop_gradients()
        self._results.clear()

    def queue_step(self) -> None:
        """See `Engine`."""
        put_back = hold_random(self._device)
        try:
            self._do_step()
        except BaseException:
            self._drop_gradients()
            put_back()
            raise

    def shrink(self) -> str:
        """See `Engine`."""
        if self.memory_plan == _RECOMPUTE:
            return ""
        self.memory_plan = _RECOMPUTE
        self.model.enable_input_require_grads()
        self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        return "activations are computed again in the backward pass, slower by about a third"

    loading_plan = ""

    @property
    def state_bytes(self) -> int:
        """See `Engine`."""
        copies = 4 if self._recipe.train.optimizer == "schedule_free" else 3  # the weights and two moments
        copies += self._recipe.masking.acts  # a mean for the masks, where the optimizer has none
        return copies * sum(value.nbytes for _, value in self._parameters)

    def snapshot(self) -> Callable[[], None]:
        """See `Engine`."""
        values = [value.detach().to("cpu", copy=True) for _, value in self._parameters]
        moments = self._moments(copy=True)

        @torch.no_grad()
        def put_back() -> None:
            for (_, value), before in zip(self._parameters, values, strict=True):
                value.copy_(before)
            if self._whole:
                self._whole.publish()
            self.restore_optimizer(moments)

        return put_back

    def _do_step(self) -> None:
        began = time.perf_counter()
        section = self._recipe.train
        first = self._step * section.accumulation
        batches = [self._source[index] for index in range(first, min(first + section.accumulation, self._total))]
        supervised = sum(batch.supervised_tokens for batch in batches)
        total = 0.0
        passes = [part for batch in batches for part in parts_of(batch, self._layout, section.micro_batch_tokens)]
        for batch in passes:
            if not batch.supervised_tokens:
                continue
            # Divided by the supervised tokens of the whole optimizer step: how rows fall into passes must not matter.
            with apart(batch, self._layout):
                loss = summed_loss(self.model, batch, self._device, self._layout) / max(supervised, 1)
                loss.backward()
            total += float(loss.detach())
        rate = learning_rate(section, self._step + 1, self._total_steps)
        norm = self._clip(section.max_grad_norm) if supervised else 0.0
        taken = torch.isfinite(torch.tensor([total, norm])).all().item()
        if supervised and taken:
            self._optimizer.set_rate(rate)
            with whole_update():
                self._optimizer.step()
                if self._whole:
                    self._whole.publish()
        self._drop_gradients()
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
        with self._averaged():
            return held_out_loss(self.model, documents, budget=budget, device=self._device, layout=self._layout)

    def replies(self, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> list[Reply]:
        """See `Engine`."""
        with self._averaged():
            return generate_replies(self.model, self._tokenizer, list(prompts), max_new_tokens=max_new_tokens)

    def save_adapter(self, folder: Path) -> None:
        """See `Engine`."""
        with self._averaged():
            if self._whole:
                self._whole.save(folder)
                return
            self.model.save_pretrained(str(folder), safe_serialization=True)
        (folder / "README.md").unlink(missing_ok=True)  # PEFT's model-card form, empty

    def optimizer_tensors(self) -> dict[str, torch.Tensor]:
        """See `Engine`."""
        return self._moments()

    def restore_optimizer(self, tensors: dict[str, torch.Tensor]) -> None:
        """See `Engine`."""
        if isinstance(self._optimizer, MaskedStep):
            self._optimizer.restore(tensors)
        else:
            restore_optimizer(self._optimizer, self._parameters, tensors)
        if self._whole:
            self._whole.publish()  # schedule-free training brings its weights with it

    def close(self) -> None:
        """See `Engine`."""

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """Inside, the model is what shall be used, evaluated and saved; see `Optimizers.averaged`."""
        others = False
        try:
            with self._optimizer.averaged() as others:
                if others and self._whole:
                    self._whole.publish()
                yield
        finally:
            if others and self._whole:
                self._whole.publish()

    def _new_optimizer(self, recipe: Recipe) -> Optimizers | MaskedStep:
        tables = _tables(self.model)
        if recipe.masking.acts:
            return MaskedStep(recipe.train, recipe.masking, self._parameters, tables)
        return make_optimizer(recipe.train, self._parameters, whole=self._whole is not None, tables=tables)

    def _moments(self, *, copy: bool = False) -> dict[str, torch.Tensor]:
        if isinstance(self._optimizer, MaskedStep):
            return self._optimizer.tensors()
        return optimizer_tensors(self._optimizer, self._parameters, copy=copy)

    def _tell_idle_settings(self, placed: list[PlacedMatrix], recipe: Recipe, *, fresh: bool) -> None:
        """Say which settings have no part in the run; refuse targets that miss parts of the model."""
        if self._whole:
            self.notes += [note] if (note := idle_note(recipe.adapter)) else []
        elif fresh:
            self.notes += check_targets(*inside_and_outside(placed), recipe.adapter)

    def _drop_gradients(self) -> None:
        if self._whole:
            self._whole.drop_gradients()
        self._optimizer.zero_grad()

    def _clip(self, max_norm: float) -> float:
        values = [value for _, value in self._parameters if value.grad is not None]
        return float(torch.nn.utils.clip_grad_norm_(values, max_norm or float("inf")))


def _tables(model: Any) -> set[str]:
    """Names of embeddings and head among the model's parameters."""
    modules = [module for module in model.modules() if isinstance(module, torch.nn.Embedding)]
    weights = {id(module.weight) for module in (*modules, model.get_output_embeddings()) if module is not None}
    return {name for name, value in model.named_parameters() if id(value) in weights}
