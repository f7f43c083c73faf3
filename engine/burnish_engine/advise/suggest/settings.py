"""Proposes training settings for a model, a dataset and a device, each with one sentence of reason. No torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from burnish_engine.advise.facts.engine_choice import Config, fast_obstacle
from burnish_engine.advise.facts.workload import CPU_ROW_TOKENS, Workload, held_out_share, wanted_length, workload
from burnish_engine.advise.plan.recipe_fit import (
    RecipeFit,
    best_gpu,
    best_precision,
    device_section,
    fit_recipe,
    smallest_fit,
)
from burnish_engine.advise.suggest.explain import SettingsContext, SuggestedSettings, explain
from burnish_engine.advise.suggest.objective import RATE_SHARE
from burnish_engine.contract.facts.facts import DatasetFacts, DecoderSpec
from burnish_engine.contract.facts.machine import MachineFacts
from burnish_engine.contract.recipe.memory_plan import MemorySection
from burnish_engine.contract.recipe.recipe import ModelSection, Recipe
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.contract.recipe.recipe_evaluation import EvaluationSection
from burnish_engine.contract.recipe.recipe_export import TargetSection
from burnish_engine.contract.recipe.recipe_preference import Objective, PreferenceSection
from burnish_engine.contract.recipe.recipe_reinforce import ReinforceSection, RewardSection, usual_rewards
from burnish_engine.contract.recipe.recipe_task import TaskSection
from burnish_engine.contract.recipe.recipe_train import AdapterSection, TrainSection
from burnish_engine.models.families import stores_blocks
from burnish_engine.scoring.recognize import suggested_section

_STEPS_WANTED = 200  # enough for warmup, decay and a curve to read; more tokens a step beyond that
_MOST_STEP_TOKENS = 16_384
_LEAST_STEP_ROWS = 4  # fewer rows a step make the gradient noise
_STEP_TOKENS_UNKNOWN = 8_192
_CPU_STEP_TOKENS = 2_048  # a step of about ten seconds, so that a person sees it learn
_CHECKPOINT_S = 600.0  # most work a crash may cost
_RSLORA_RANK = 64
_SLOWER_IN_4_BITS = 0.8  # least share of the speed with which 4 bits are preferred to 16-bit weights in host memory


@dataclass(frozen=True)
class FitInputs:
    """A model and all that its settings depend on."""

    path: str  # name of the model in the recipe
    spec: DecoderSpec  # shape of the model
    machine: MachineFacts  # facts of the machine that trains
    target: TargetSection  # target section of the recipe
    dataset: DatasetFacts | None  # facts that `inspect` found about the data, with this objective
    preference: PreferenceSection | None = None  # what is learned of preferences; None: what the facts are of
    config: Config | None = None  # config.json of the model; None where the model is not on this machine


def propose(inputs: FitInputs, *, separate_validation: bool = False) -> SuggestedSettings | None:
    """Propose settings for one model; None where it cannot be trained on this machine.

    Args:
        inputs: model, machine, target and data.
        separate_validation: whether there are validation files, so that no rows need be held out.
    """
    machine, dataset = inputs.machine, inputs.dataset
    fit = quick_fit(inputs)
    if fit is None:
        return None
    work = workload(dataset, fit.recipe.data.max_length) if dataset else None
    settings = SuggestedSettings(fit, fit.recipe)
    train, data, adapter = fit.recipe.train, fit.recipe.data, fit.recipe.adapter
    step_tokens = _step_tokens(work, machine, train.epochs)
    accumulation = max(1, round(step_tokens / _pass_tokens(work, train.micro_batch_tokens)))
    learns_rewards = fit.recipe.preference.learns_rewards
    steps = fit.plan.steps if learns_rewards else _steps(work, train, accumulation)
    if dataset and not separate_validation:
        data = data.model_copy(update={"validation_share": held_out_share(dataset)})
    step_s = accumulation * _pass_tokens(work, train.micro_batch_tokens) / max(fit.plan.tokens_per_s, 1e-9)
    train = train.model_copy(
        update={
            "accumulation": accumulation,
            "warmup_share": _warmup_share(steps),
            "checkpoint_every": _checkpoint_every(step_s, steps),
        }
    )
    evaluation = EvaluationSection(every=_evaluate_every(steps))
    task = fit.recipe.task if learns_rewards else task_section(dataset)
    settings.recipe = fit.recipe.model_copy(
        update={
            "task": task,
            "data": data,
            "train": train,
            "adapter": adapter,
            "evaluation": evaluation,
            "target": inputs.target,
        }
    )
    explain(settings, SettingsContext(inputs.spec, machine, dataset, work, step_s, separate_validation))
    return settings


def task_section(dataset: DatasetFacts | None) -> TaskSection:
    """Choose how the task is scored, by what the dataset's replies look like; not at all where that is not known."""
    report = dataset.report if dataset is not None else None
    if report is None or report.task is None or (report.task_fit is not None and not report.task_fit.usable_rows):
        return TaskSection()
    return suggested_section(report.task)


def _rewarded_task(dataset: DatasetFacts | None) -> TaskSection:
    """Choose how replies are scored that are learned from by rewards; a run cannot do without a score."""
    task = task_section(dataset)
    return task if task.is_active else TaskSection(metric="exact_match")


def quick_fit(inputs: FitInputs) -> RecipeFit | None:
    """Fit a model's recipe without the reasons, which is enough to rank it.

    The weights are in 16 bits where the card has room for them and for whole rows, else in 4 bits where that fits
    better or is not much slower than 16-bit weights in host memory.
    """
    recipe, dataset = _start_recipe(inputs), inputs.dataset
    work = workload(dataset, recipe.data.max_length) if dataset else None
    most = _step_tokens(work, inputs.machine, recipe.train.epochs)

    def fitted(chosen: Recipe) -> RecipeFit | None:
        return fit_recipe(chosen, inputs.spec, inputs.machine, dataset, most_tokens=most, config=inputs.config)

    fit = fitted(recipe)
    streams = fit is not None and fit.plan.memory_plan is not None and bool(fit.plan.memory_plan.weights)
    on_card = fitted(recipe.model_copy(update={"memory": MemorySection(weights="card")})) if streams else fit
    if on_card is not None and on_card.comfortable and on_card.recipe.data.max_length >= recipe.data.max_length:
        return fit
    quantized = _as_qlora(recipe, inputs)
    other = fitted(quantized) if quantized else None
    if fit is None or other is None:
        return fit or other
    better, good = (other.comfortable, other.length_share), (fit.comfortable, fit.length_share)
    instead = streams and better == good and other.plan.tokens_per_s > _SLOWER_IN_4_BITS * fit.plan.tokens_per_s
    return other if better > good or instead else fit


def smallest(inputs: FitInputs) -> SuggestedSettings:
    """Propose the smallest settings where nothing fits; their plan shows what is missing."""
    recipe = _start_recipe(inputs)
    recipe = recipe.model_copy(update={"adapter": recipe.adapter.model_copy(update={"rank": 8, "alpha": 16.0})})
    recipe = _as_qlora(recipe, inputs) or recipe
    fit = smallest_fit(recipe, inputs.spec, inputs.machine, inputs.dataset, inputs.config)
    return SuggestedSettings(fit, fit.recipe)


def _as_qlora(recipe: Recipe, inputs: FitInputs) -> Recipe | None:
    """Change a recipe to QLoRA; None where that is not possible, and on a CPU, where time is short before memory is."""
    model = recipe.model.model_copy(update={"quantize": "nf4"})
    quantized = recipe.model_copy(update={"model": model})
    gpu = best_gpu(inputs.machine)
    if stores_blocks(inputs.config or {}):
        return None
    return None if gpu is None or fast_obstacle(quantized, inputs.spec, gpu, inputs.config) else quantized


def _start_recipe(inputs: FitInputs) -> Recipe:
    """Make the settings that do not depend on the memory."""
    spec, machine, dataset, preference = inputs.spec, inputs.machine, inputs.dataset, inputs.preference
    if preference is None:  # to rank models: what pairs take is the same for all objectives
        pairs = dataset is not None and dataset.sequence_lengths is not None
        preference = PreferenceSection(objective="dpo" if pairs else "sft")
    length = wanted_length(dataset, spec.max_context)
    if not machine.gpus:
        length = min(length, CPU_ROW_TOKENS)
    task, reinforce, rewards = TaskSection(), ReinforceSection(), list[RewardSection]()
    if preference.learns_rewards:
        task = _rewarded_task(dataset)
        reinforce, rewards = ReinforceSection(max_tokens=task.max_tokens), usual_rewards(task.metric)
        length = min(length + task.max_tokens, spec.max_context)  # its own replies may be longer than the rows'
    work = workload(dataset, length) if dataset else None
    return Recipe(
        model=ModelSection(path=inputs.path),
        data=DataSection(max_length=length),
        adapter=_adapter(work),
        train=TrainSection(
            epochs=_epochs(work, preference.objective),
            micro_batch_tokens=length * preference.sequences,
            learning_rate=learning_rate(spec.hidden_size, preference.objective),
            precision=_precision(machine),
        ),
        preference=preference,
        reinforce=reinforce,
        reward=rewards,
        task=task,
        target=inputs.target,
        devices=device_section(machine),
    )


def learning_rate(hidden_size: int, objective: Objective = "sft") -> float:
    """The peak learning rate of a LoRA adapter scaled by alpha / rank = 2, rounded to one digit.

    5e-4 x (2000 / hidden)^0.775: Schulman and Thinking Machines Lab, "LoRA Without Regret" (2025), fitted on Llama and
    independent of the rank; kept within 1e-4 and 1e-3. On SmolLM2-135M our own grid (tests/bench/LOG.md) is flat
    between 1e-3 and 2e-3. Preferences take the share of it that `objective.RATE_SHARE` has, with sources.

    Args:
        hidden_size: hidden size of the model.
        objective: what is learned.
    """
    rate = min(max(5e-4 * (2000 / hidden_size) ** 0.775, 1e-4), 1e-3)
    return float(f"{RATE_SHARE[objective] * rate:.0e}")


def _adapter(work: Workload | None) -> AdapterSection:
    """Choose the rank by the number of supervised tokens; alpha keeps the update's scale at 2 for any rank."""
    if work is None:
        return AdapterSection(rank=16, alpha=32.0)
    if work.supervised_tokens < 200_000:
        rank = 8
    elif work.supervised_tokens < 5_000_000:
        rank = 16
    elif work.supervised_tokens < 50_000_000:
        rank = 32
    else:
        rank = _RSLORA_RANK
    if rank < _RSLORA_RANK:
        return AdapterSection(rank=rank, alpha=2.0 * rank)
    return AdapterSection(method="rslora", rank=rank, alpha=2.0 * math.sqrt(rank))


def _precision(machine: MachineFacts) -> Literal["fp32", "bf16"]:
    return "bf16" if best_precision(machine) == "bf16" else "fp32"


def _epochs(work: Workload | None, objective: Objective) -> float:
    """Choose the epochs by the number of rows; of preferences half, as published recipes see theirs once.

    Zephyr's and SimPO's recipes pass once over some 60,000 pairs: what is preferred is learned by heart sooner than
    what to say.
    """
    few = ((300, 4.0), (3_000, 3.0), (20_000, 2.0))
    epochs = 2.0 if work is None else next((epochs for rows, epochs in few if work.rows < rows), 1.0)
    return epochs if objective == "sft" else max(1.0, epochs / 2)


def _step_tokens(work: Workload | None, machine: MachineFacts, epochs: float) -> int:
    """Choose the tokens of an optimizer step: small enough for some 200 steps, large enough for several rows."""
    most = _MOST_STEP_TOKENS if machine.gpus else _CPU_STEP_TOKENS
    if work is None:
        return min(_STEP_TOKENS_UNKNOWN, most)
    wanted = work.tokens * epochs / _STEPS_WANTED
    least = max(512.0, _LEAST_STEP_ROWS * work.row_tokens)
    tokens = min(max(wanted, least), max(most, least))
    return int(2 ** math.floor(math.log2(tokens)))


def _pass_tokens(work: Workload | None, budget: int) -> int:
    return budget if work is None else min(budget, work.tokens)


def _steps(work: Workload | None, train: TrainSection, accumulation: int) -> int | None:
    if work is None:
        return None
    return max(1, math.ceil(work.passes(train.micro_batch_tokens) * train.epochs / accumulation))


def _warmup_share(steps: int | None) -> float:
    return 0.05 if steps is None else round(min(0.1, max(0.03, 10 / steps)), 2)


def _checkpoint_every(step_s: float, steps: int | None) -> int:
    """Choose the steps between checkpoints: about ten minutes, at most half the run."""
    every = max(5, round(_CHECKPOINT_S / max(step_s, 1e-3)))
    rounded = every if every < 20 else round(every, -1)
    return min(rounded, 1000, max(1, steps // 2) if steps else 1000)


def _evaluate_every(steps: int | None) -> int:
    return 50 if steps is None else max(5, math.ceil(steps / 10))
