"""The plain engine: transformers for the model, PEFT for an adapter, one waiting step after another.

With `adapter.method = "full"` there is no adapter: every weight is trained.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import override

from burnish_engine.advise.facts.engine_choice import dropout_notes
from burnish_engine.contract.recipe.recipe import Recipe, setting_notes
from burnish_engine.data.tokens.pack import MicroBatch
from burnish_engine.models.checkpoint.source import ModelSource, open_model
from burnish_engine.models.device.precision import exact_products
from burnish_engine.models.families.adapter_targets import check_targets
from burnish_engine.models.generation.generate import generate_replies
from burnish_engine.models.generation.sampling import GeneratedReply, Sampling
from burnish_engine.models.transformers_path import plain
from burnish_engine.models.transformers_path.model_shape import (
    inside_and_outside,
    measured_coverage,
    placed_matrices,
    placed_tables,
    quantize_base,
)
from burnish_engine.models.transformers_path.own_dropout import switch_off_dropout
from burnish_engine.train.base.engine import (
    SMALLEST,
    Engine,
    EngineFacts,
    EvaluationRequest,
    StepResult,
    whole_update,
)
from burnish_engine.train.base.engine_spec import EngineSpec
from burnish_engine.train.base.leaks import choose_rows, full_pass
from burnish_engine.train.base.policy import figures_from
from burnish_engine.train.base.preference import figures_of
from burnish_engine.train.base.random_state import snapshot_random_state
from burnish_engine.train.base.schedule import learning_rate
from burnish_engine.train.optimizers.optimizer import Optimizers, make_optimizer
from burnish_engine.train.optimizers.optimizer_state import optimizer_tensors, restore_optimizer
from burnish_engine.train.plain.evaluate import held_out_loss
from burnish_engine.train.plain.layout_choice import choose_layout
from burnish_engine.train.plain.masked_step import MaskedStep
from burnish_engine.train.plain.own_replies import own_replies_loss, token_log_probs
from burnish_engine.train.plain.plain_step import (
    documents_apart,
    passes_of,
    sequence_log_probs,
    summed_loss,
    supervised_log_probs,
)
from burnish_engine.train.plain.preference_step import (
    FIGURES,
    StepCounts,
    estimate_kl,
    log_probs,
    mean_divergence,
    preference_loss,
)
from burnish_engine.train.plain.whole_model import WholeModel

_RECOMPUTE = "recompute"
"""Name of the one smaller plan: activation checkpointing, which recomputes activations in the backward pass."""


class PlainEngine(Engine):
    """Engine that trains an adapter or a whole model with transformers and PEFT.

    Args:
        spec: specification of the engine.
    """

    def __init__(self, spec: EngineSpec) -> None:
        recipe, device, adapter = spec.recipe, spec.device, spec.adapter
        self._recipe, self._stream, self._tokenizer, self._device = recipe, spec.stream, spec.tokenizer, device
        exact_products()
        self.notes = setting_notes(recipe, "train", "adapter")
        self._whole: WholeModel | None = None
        if recipe.adapter.method == "full":
            # What `save_adapter` wrote is the whole model; the one it was made from is not needed any more.
            self._whole = self._whole_model(open_model(str(adapter)) if adapter else spec.source, spec)
            base = self._whole.model
        else:
            in_4_bits = recipe.model.quantize == "nf4"
            base = plain.load_base(spec.source, spec.precision, torch.device("cpu") if in_4_bits else device)
            base = quantize_base(base, device) if in_4_bits else base
        self.notes += dropout_notes(switch_off_dropout(base))
        placed = placed_matrices(base)
        if adapter is None and not self._whole:
            self.notes += check_targets(*inside_and_outside([*placed, *placed_tables(base)]), recipe.adapter)
        rows = [row.input_ids for row in choose_rows(spec.stream.documents)]
        self._layout, note = choose_layout(
            base, len(base.get_input_embeddings().weight), device, recipe.train.pack, spec.layout, rows,
            full_pass(spec.stream.documents, recipe.train.micro_batch_tokens),
        )  # fmt: skip
        self.notes += [note] if note else []
        if self._whole:
            self.model = base
        elif adapter:
            self.model = plain.load_adapter(base, adapter, trainable=True)
        else:
            self.model = plain.attach_adapter(base, recipe.adapter, recipe.train.seed)
        self._coverage = measured_coverage(placed, self.model)
        self._plan = ""
        if recipe.train.recompute or spec.plan in (_RECOMPUTE, SMALLEST):
            self.shrink()
        self.model.train()
        self.parameters = self._whole.parameters if self._whole else plain.trainable_parameters(self.model)
        self._optimizer = self._new_optimizer(recipe)
        self._results: list[StepResult] = []

    def _whole_model(self, source: ModelSource, spec: EngineSpec) -> WholeModel:
        """Load a model of which every weight is trained."""
        return WholeModel(source, spec.precision, spec.device)

    @property
    @override
    def facts(self) -> EngineFacts:
        copies = 4 if self._recipe.train.optimizer == "schedule_free" else 3  # the weights and two moments
        copies += self._recipe.masking.is_active  # a mean for the masks, where the optimizer has none
        return EngineFacts(
            name="plain",
            trains="model" if self._whole else "adapter",
            layout=self._layout,
            coverage=self._coverage,
            memory_plan=self._plan,
            locked_bytes=0,
            state_bytes=copies * sum(value.nbytes for _, value in self.parameters),
        )

    @override
    def start(
        self, step: int, total_steps: int, total_micro_batches: int, source: Sequence[MicroBatch] | None = None
    ) -> None:
        self._step, self._total_steps, self._total = step, total_steps, total_micro_batches
        self._given = source
        self._drop_gradients()
        self._results.clear()

    @override
    def queue_step(self) -> None:
        put_back = snapshot_random_state(self._device)
        try:
            self._do_step()
        except BaseException:
            self._drop_gradients()
            put_back()
            raise

    @override
    def shrink(self) -> str:
        if self._plan == _RECOMPUTE:
            return ""
        self._plan = _RECOMPUTE
        self.model.enable_input_require_grads()
        self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        return "activations are computed again in the backward pass, slower by about a third"

    loading_plan = ""

    @override
    def snapshot(self) -> Callable[[], None]:
        values = [value.detach().to("cpu", copy=True) for _, value in self.parameters]
        moments = self._optimizer_state(copy=True)

        @torch.no_grad()
        def put_back() -> None:
            for (_, value), before in zip(self.parameters, values, strict=True):
                value.copy_(before)
            if self._whole:
                self._whole.sync_copies()
            self.restore_optimizer(moments)

        return put_back

    def _do_step(self) -> None:
        began = time.perf_counter()
        section = self._recipe.train
        batches = self._next_batches()
        supervised = sum(batch.supervised_tokens for batch in batches)
        total, figures = 0.0, torch.zeros(FIGURES, device=self._device)
        preference = self._recipe.preference
        counts = self._preference_counts(batches) if preference.is_active else None
        passes = [part for batch in batches for part in passes_of(batch, self._layout, section.micro_batch_tokens)]
        for batch in self._own_passes([one for one in passes if one.supervised_tokens]):
            # Divided by the supervised tokens of the whole optimizer step: how rows fall into passes must not matter.
            with documents_apart(batch, self._layout):
                if preference.learns_rewards:
                    log_prob_R = supervised_log_probs(self.model, batch, self._device, self._layout)
                    loss, part_3 = own_replies_loss(self._recipe.reinforce, log_prob_R, batch)
                    figures[:3] += part_3 / supervised
                elif counts:
                    log_prob_S = sequence_log_probs(self.model, batch, self._device, self._layout)
                    loss, part = preference_loss(preference, log_prob_S, batch, counts)
                    figures += part
                else:
                    loss = summed_loss(self.model, batch, self._device, self._layout) / max(supervised, 1)
                loss.backward()
            total += float(loss.detach())
        total = self._over_ranks(total, figures)
        if self._whole:
            self._whole.collect_gradients()
        rate = learning_rate(section, self._step + 1, self._total_steps)
        norm = self._clip(section.max_grad_norm) if supervised else 0.0
        taken = torch.isfinite(torch.tensor([total, norm])).all().item()
        if supervised and taken:
            self._optimizer.set_rate(rate)
            with whole_update():
                self._optimizer.step()
                if self._whole:
                    self._whole.sync_copies()
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
                preference=figures_of(preference, figures.tolist()) if counts else None,
                replies=figures_from(self._recipe.reinforce, figures.tolist()) if preference.learns_rewards else None,
            )
        )

    def _next_batches(self) -> list[MicroBatch]:
        """Return the micro-batches of the next step."""
        if self._given is not None:
            return list(self._given)
        count = self._recipe.train.accumulation
        first = self._step * count
        return [self._stream[index] for index in range(first, min(first + count, self._total))]

    def computing(self) -> AbstractContextManager[None]:
        """Return a context for what runs the model outside a step; of a model that ranks share, it watches them."""
        return nullcontext()

    def _own_passes(self, passes: list[MicroBatch]) -> list[MicroBatch]:
        """Return the passes of a step that are made here: all of them."""
        return passes

    def _over_ranks(self, total: float, _figures: torch.Tensor) -> float:
        """Add up a step's loss over all that shared it, and its figures in place; here there is one."""
        return total

    def _preference_counts(self, batches: Sequence[MicroBatch]) -> StepCounts:
        """Count what the step's means divide by, and estimate its divergence where the objective needs it."""
        section, kl = self._recipe.preference, 0.0
        if section.estimates_kl:
            budget = self._recipe.train.micro_batch_tokens
            kl = estimate_kl(self.model, batches, budget=budget, device=self._device, layout=self._layout)
        return StepCounts.of(section, batches, kl)

    @override
    def results(self, *, wait: bool = False) -> Iterator[StepResult]:
        found, self._results = self._results, []
        return iter(found)

    @override
    def held_out_loss(self, request: EvaluationRequest) -> tuple[float, int]:
        with self._averaged(), self.computing():
            return held_out_loss(self.model, request, self._device, self._layout)

    @override
    def log_probs(self, request: EvaluationRequest, adapter: Path | bool = True) -> npt.NDArray[np.float32]:
        with self._averaged(), self.computing(), self._other_adapter(adapter):
            return log_probs(self.model, request, self._device, self._layout)

    @override
    def token_log_probs(self, request: EvaluationRequest, adapter: Path | bool = True) -> list[npt.NDArray[np.float32]]:
        with self._averaged(), self.computing(), self._other_adapter(adapter):
            return token_log_probs(self.model, request, self._device, self._layout)

    @override
    def kl_to_base(self, request: EvaluationRequest) -> float | None:
        if self._whole:
            return None
        with self._averaged():
            return mean_divergence(self.model, request, self._device, self._layout)

    @contextmanager
    def _other_adapter(self, adapter: Path | bool) -> Iterator[None]:
        """Use the adapter of a folder inside, or none; True: the trained one."""
        if adapter is True or self._whole:
            yield
        elif adapter is False:
            with self.model.disable_adapter():
                yield
        else:
            trained = [value.detach().clone() for _, value in self.parameters]
            try:
                plain.read_adapter(self.model, adapter)
                yield
            finally:
                with torch.no_grad():
                    for (_, value), before in zip(self.parameters, trained, strict=True):
                        value.copy_(before)

    @override
    def replies(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, samplings: Sequence[Sampling] = ()
    ) -> list[GeneratedReply]:
        with self._averaged(), self.computing():
            return generate_replies(self.model, self._tokenizer, list(prompts), max_new_tokens, samplings=samplings)

    @override
    def save_adapter(self, folder: Path) -> None:
        with self._averaged():
            if self._whole:
                self._whole.save(folder)
                return
            plain.save_adapter(self.model, folder)

    @override
    def optimizer_tensors(self) -> dict[str, torch.Tensor]:
        return self._optimizer_state()

    @override
    def restore_optimizer(self, tensors: dict[str, torch.Tensor]) -> None:
        if isinstance(self._optimizer, MaskedStep):
            self._optimizer.restore(tensors)
        else:
            restore_optimizer(self._optimizer, self.parameters, tensors)
        if self._whole:
            self._whole.sync_copies()  # schedule-free training brings its weights with it

    @override
    def close(self) -> None:
        """Do nothing: this engine has no thread."""

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """Swap in the weights to evaluate and save, in the model too; see `Optimizers.averaged`."""
        others = False
        try:
            with self._optimizer.averaged() as others:
                if others and self._whole:
                    self._whole.sync_copies()
                yield
        finally:
            if others and self._whole:
                self._whole.sync_copies()

    def _new_optimizer(self, recipe: Recipe) -> Optimizers | MaskedStep:
        tables = _tables(self.model)
        if recipe.masking.is_active:
            return MaskedStep(recipe.train, recipe.masking, self.parameters, tables)
        return make_optimizer(recipe.train, self.parameters, whole=self._whole is not None, tables=tables)

    def _optimizer_state(self, *, copy: bool = False) -> dict[str, torch.Tensor]:
        if isinstance(self._optimizer, MaskedStep):
            return self._optimizer.tensors()
        return optimizer_tensors(self._optimizer, self.parameters, copy=copy)

    def _drop_gradients(self) -> None:
        if self._whole:
            self._whole.drop_gradients()
        self._optimizer.zero_grad()

    def _clip(self, max_norm: float) -> float:
        values = [value for _, value in self.parameters if value.grad is not None]
        return float(torch.nn.utils.clip_grad_norm_(values, max_norm or float("inf")))


def _tables(model: Any) -> set[str]:
    """List the names of embeddings and head among the model's parameters."""
    modules = [module for module in model.modules() if isinstance(module, torch.nn.Embedding)]
    weights = {id(module.weight) for module in (*modules, model.get_output_embeddings()) if module is not None}
    return {name for name, value in model.named_parameters() if id(value) in weights}
