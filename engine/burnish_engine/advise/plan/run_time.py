"""Predicts how long a run takes: its steps, and what is done beside them. No torch.

That is the reference of preferences, checks, evaluations, the loss on general text, replies to prompts, and saves. The
same counts serve the plan, before anything was measured, and the running run, which puts measured times in place of
predicted ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from burnish_engine.advise.facts.planned_run import PlannedRun
from burnish_engine.advise.facts.shape import BYTES_OF, packed_width, parameters
from burnish_engine.advise.facts.trained_bytes import optimizer_bytes, trained_parameters
from burnish_engine.advise.plan.planned_work import planned_replies
from burnish_engine.advise.predict.transfers import link_gb_s
from burnish_engine.contract.facts.advice import MemoryPart, SamplePlan, SharedSteps, TimePart
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_data import REPLAY_TOKENS
from burnish_engine.contract.units import memory_size
from burnish_engine.hardware.gpu.gpu_table import gpu_rates
from burnish_engine.models.decoder.mixers.attention.declared import page_bytes
from burnish_engine.models.generation.generate import PAGED_TOGETHER, replies_at_once
from burnish_engine.models.generation.paged.pages import PAGES_SHARE
from burnish_kernels.paged_attention.config import PAGE

LOOKS = 3
"""Times that the guard looks at a run: before it, after warmup, at the end (`train/guard/guard.py`)."""
GENERAL_TEXT_TOKENS = 2048
"""Most tokens of the general text that are measured, so that it takes seconds on a processor."""
LEAST_ROUNDS, LEAST_TOKENS = 2, 32
"""Rounds of replies to fixed prompts, one before and one after training, and tokens of the shortest replies: what the
limit of their time leaves, before prompts are left out."""
_FORWARD_SHARE = {True: 1 / 3, False: 0.4}
"""Share of a training pass that a forward pass takes, by whether every weight is trained: the backward pass computes
gradients of inputs, which takes as long as the forward pass, and where weights are trained theirs, which takes as long
again (Kaplan et al. 2020, section 2.1). Beside an adapter, its own and the update come on top."""
KL_WORK = 0.45
"""Share of a pass that estimating the divergence for KTO adds: as many tokens are read once more, forward only."""
_LOOK_TOKENS = 450
"""Tokens whose training takes as long as a look, by count: 4 rows of 48 tokens (`train/base/leaks.py`) in a training
pass and three forward passes: alone, together, and with one exchanged. Checksums come on top."""

# Rough values, assumed where no source is named. Once a run has measured a save or replies, the measured time counts.
_MEMORY_SHARE = 0.75  # share of a memory's peak rate that generation reaches
_CPU_BYTES_PER_S = 8e9
"""Rate at which one thread reads weights: 80 tokens/s from 0.22 GB by two threads (`assets/guide/phone-tour.md`)."""
_TOKEN_S_PER_LAYER = 0.0005  # a layer's kernels for one token, some 50, started one after the other
_CAPTURED_S_PER_LAYER = 0.00004  # a layer's kernels in a captured step, ten (tests/bench/LOG.md, 2026-11-29)
_IDLE_PARTS = {"activations", "head and loss", "workspace"}
_SAVED_BYTES_PER_S, _SAVE_S = 3e8, 0.1  # a solid-state disk, waiting until the bytes are on it; files and folders


@dataclass(frozen=True)
class RunPace:
    """Seconds that each occasion of a run takes."""

    step_s: float  # an optimizer step
    look_s: float = 0.0  # a look of the guard; 0: it measures nothing
    evaluation_s: float = 0.0  # an evaluation of the held-out rows; 0: there are none
    prompts_s: float = 0.0  # the replies to all fixed prompts; 0: there are none
    save_s: float = 0.0  # a checkpoint
    general_text_s: float = 0.0  # a measurement of the loss on general text; 0: there are none
    task_s: float = 0.0  # the replies to held-out rows that are scored; 0: none are
    token_s: float = 0.0  # one token of every reply that grows
    replies_s: float = 0.0  # the replies of a round that are learned from, written and judged; 0: rows are learned
    replay_s: float = 0.0  # the rows that the base writes before training; 0: there are none
    reference_s: float = 0.0  # the log-probabilities that preferences are compared with, once; 0: there are none

    def with_times(self, times: Mapping[str, float]) -> RunPace:
        """Return the pace with other seconds, by `TimePart.name`; what is not named stays."""
        return replace(self, **{key: times[name] for name, key in _PACES.items() if name in times})

    @property
    def times(self) -> dict[str, float]:
        """Seconds that one of each takes, by `TimePart.name`."""
        return {name: getattr(self, key) for name, key in _PACES.items()}


_PACES = {
    "steps": "step_s",
    "replies": "replies_s",
    "replay": "replay_s",
    "checks": "look_s",
    "evaluations": "evaluation_s",
    "prompts": "prompts_s",
    "saves": "save_s",
    "general_text": "general_text_s",
    "task": "task_s",
    "reference": "reference_s",
}
"""Fields of `RunPace` by `TimePart.name`."""


def predicted_pace(
    run: PlannedRun,
    *,
    step_s: float,
    tokens_per_s: float,
    shared: SharedSteps | None = None,
    samples: SamplePlan | None = None,
    streamed: int = 0,
) -> RunPace:
    """Predict the pace of a run whose speed is known.

    Args:
        run: planned run.
        step_s: predicted time of a step.
        tokens_per_s: predicted speed of training.
        shared: how GPUs share its steps; they share evaluations of adapters too, and the first does the rest.
        samples: when fixed prompts are answered; None: as the recipe says.
        streamed: layers whose weights are copied to the device for every pass.
    """
    token_s = _token_s(run, streamed)
    recipe, guard = run.recipe, run.recipe.guard
    dealt = shared.gpus if shared and run.device.cuda and recipe.devices.strategy == "data_parallel" else 1
    tokens_per_s /= shared.times if shared else 1.0
    probes = guard.probes and guard.action != "off"
    forward_s = _FORWARD_SHARE[recipe.adapter.method == "full"] / tokens_per_s
    row_s = forward_s * (2 / (1 + KL_WORK) if recipe.preference.estimates_kl else 1.0)  # with its mismatched reply
    held_out = _held_out_tokens(recipe, run.dataset)
    return RunPace(
        step_s=step_s,
        look_s=_LOOK_TOKENS / tokens_per_s if probes else 0.0,
        evaluation_s=held_out * row_s / dealt,
        prompts_s=_samples_s(run, samples or whole_samples(recipe), token_s),
        token_s=token_s,
        save_s=_saved_bytes(run) / _SAVED_BYTES_PER_S + _SAVE_S,
        general_text_s=GENERAL_TEXT_TOKENS * forward_s if recipe.evaluation.general_text else 0.0,
        task_s=_task_s(run, forward_s, token_s),
        replies_s=_replies_s(run, forward_s, token_s) if recipe.preference.learns_rewards else 0.0,
        replay_s=_replay_s(run, token_s),
        reference_s=(_training_tokens(run.dataset) + held_out) * row_s if recipe.preference.needs_reference else 0.0,
    )


def plan_samples(run: PlannedRun, pace: RunPace, steps: int) -> SamplePlan | None:
    """Choose when a run answers its fixed prompts, so that this takes no more of its time than the recipe allows.

    Where not even one short round at the end is so cheap, that one is made.

    Args:
        run: planned run.
        pace: pace of the run; that of its replies does not matter.
        steps: optimizer steps of the run.

    Returns:
        The most that is allowed; None: there are no prompts.
    """
    recipe = run.recipe
    whole, share = whole_samples(recipe), recipe.evaluation.sample_share
    if not whole.prompts or not share:
        return whole if whole.prompts else None
    others_s = sum(part.seconds for part in time_parts(recipe, replace(pace, prompts_s=0.0), done=-1, steps=steps))
    made = whole
    for made in _fewer_samples(whole, steps, _together(run, whole.tokens)):
        if _rounds(made, -1, steps) * _samples_s(run, made, pace.token_s) <= share / (1 - share) * others_s:
            break
    return made


def whole_samples(recipe: Recipe) -> SamplePlan:
    """Return when a run answers its fixed prompts as long as nothing limits that."""
    section = recipe.evaluation
    return SamplePlan(prompts=len(section.prompts), tokens=section.sample_tokens, every=section.every)


def samples_note(recipe: Recipe, samples: SamplePlan | None) -> str:
    """Say in a sentence how replies to fixed prompts are limited; empty where they are not."""
    if samples is None or samples == whole_samples(recipe):
        return ""
    before = "before the first step, " if samples.before else ""
    on_the_way = f"every {samples.every:,} steps " if samples.every else ""
    return (
        f"So that fixed prompts take at most {recipe.evaluation.sample_share:.0%} of the run's time "
        f"(evaluation.sample_share), {samples.prompts:,} of {len(recipe.evaluation.prompts):,} are answered {before}"
        f"{on_the_way}and after the last step, with up to {samples.tokens:,} tokens."
    )


def fitting_note(run: PlannedRun, memory: Sequence[MemoryPart]) -> str:
    """Say in a sentence how many replies fit the memory that passes leave idle; empty where none are made there.

    Args:
        run: planned run.
        memory: predicted components of the peak.
    """
    recipe, dataset = run.recipe, run.dataset
    most = max(
        recipe.evaluation.sample_tokens if recipe.evaluation.prompts else 0,
        recipe.task.max_tokens if recipe.task.is_active else 0,
    )
    if not most or dataset is None or not _is_captured(run):
        return ""
    rows = max(dataset.train_rows + dataset.validation_rows, 1)
    tokens = math.ceil(dataset.tokens / rows) + most
    idle = sum(part.bytes for part in memory if part.name in _IDLE_PARTS)
    each = -(-tokens // PAGE) * page_bytes(run.spec, BYTES_OF[run.device.precision])
    count = int(idle * PAGES_SHARE / each) if each else 0
    return (
        f"About {count:,} replies of {tokens:,} tokens fit the {memory_size(idle)} that training leaves idle between "
        "passes; more wait, or lie in memory that is free."
    )


def _fewer_samples(whole: SamplePlan, steps: int, together: int) -> Iterator[SamplePlan]:
    """Yield fewer and fewer replies: less often, then shorter, then to fewer prompts, then only at the end."""
    made = whole
    yield made
    while made.every and _rounds(made, -1, steps) > LEAST_ROUNDS:
        made = made.model_copy(update={"every": made.every * 2})
        yield made
    while made.tokens > LEAST_TOKENS:
        made = made.model_copy(update={"tokens": max(made.tokens // 2, LEAST_TOKENS)})
        yield made
    while made.prompts > together:
        made = made.model_copy(update={"prompts": max(made.prompts // 2, together)})
        yield made
    yield made.model_copy(update={"before": False, "every": 0})


def _rounds(samples: SamplePlan, done: int, steps: int) -> int:
    """Count the rounds of replies that follow a step; arguments as for `time_parts`."""
    return _occasions(samples.every, done, steps) + (done < 0 and samples.before)


def _samples_s(run: PlannedRun, samples: SamplePlan, token_s: float) -> float:
    """Predict the time of one round of replies to the fixed prompts."""
    return math.ceil(samples.prompts / _together(run, samples.tokens)) * samples.tokens * token_s


def _together(run: PlannedRun, reply_tokens: int, prompt_tokens: int = 0) -> int:
    """Return how many replies grow at the same time."""
    if _is_captured(run):
        return PAGED_TOGETHER
    return replies_at_once(prompt_tokens, reply_tokens, run.recipe.train.micro_batch_tokens)


def time_parts(
    recipe: Recipe,
    pace: RunPace,
    *,
    done: int,
    steps: int,
    looks: int = LOOKS,
    samples: SamplePlan | None = None,
) -> list[TimePart]:
    """List what is left of a run after some steps.

    Args:
        recipe: recipe of the run.
        pace: time of each occasion.
        done: optimizer steps made; -1: the run did not begin, and its first evaluation is still to come.
        steps: optimizer steps of the whole run.
        looks: looks of the guard that are still to come.
        samples: when fixed prompts are answered; None: as the recipe says.
    """
    samples = samples or whole_samples(recipe)
    rounds = _rounds(samples, done, steps)
    left = steps - max(done, 0)
    evaluations = _occasions(recipe.evaluation.every, done, steps) + (done < 0)
    at_the_ends = evaluations if recipe.evaluation.patience else 1 + (done < 0)
    scores = evaluations if recipe.preference.learns_rewards else at_the_ends
    written = math.ceil(left / recipe.reinforce.updates) if recipe.preference.learns_rewards else 0
    step_part = TimePart(name="steps", count=left, seconds=left * pace.step_s)
    minutes = recipe.train.checkpoint_minutes
    by_time = int(step_part.seconds / (60 * minutes)) if minutes else 0
    saves = max(_occasions(recipe.train.checkpoint_every, done, steps), by_time + 1)
    parts = [
        TimePart(name="replay", count=1, seconds=pace.replay_s if done < 0 else 0.0),
        TimePart(name="reference", count=1, seconds=pace.reference_s if done < 0 else 0.0),
        step_part,
        TimePart(name="replies", count=written, seconds=written * pace.replies_s),
        TimePart(name="checks", count=looks, seconds=looks * pace.look_s),
        TimePart(name="evaluations", count=evaluations, seconds=evaluations * pace.evaluation_s),
        TimePart(name="general_text", count=at_the_ends, seconds=at_the_ends * pace.general_text_s),
        TimePart(name="task", count=scores, seconds=scores * pace.task_s),
        TimePart(name="prompts", count=rounds, seconds=rounds * pace.prompts_s, tokens=samples.tokens),
        TimePart(name="saves", count=saves, seconds=saves * pace.save_s),
    ]
    total = sum(part.seconds for part in parts)
    return [part.model_copy(update={"share": part.seconds / total}) for part in parts if part.seconds > 0]


def _occasions(every: int, done: int, steps: int) -> int:
    """Count what is done every so many steps and after the last one; what follows step `done` itself is still ahead."""
    if not every:
        return 1
    first = max(-(-done // every), 1)
    return len(range(first * every, steps, every)) + 1


def _held_out_tokens(recipe: Recipe, dataset: DatasetFacts | None) -> float:
    if dataset is None or not dataset.validation_rows:
        return 0.0
    rows = min(dataset.validation_rows, recipe.evaluation.max_rows or dataset.validation_rows)
    return dataset.tokens * rows / max(dataset.train_rows + dataset.validation_rows, 1)


def _training_tokens(dataset: DatasetFacts | None) -> float:
    """Return the tokens of all training rows, each counted once."""
    if dataset is None:
        return 0.0
    return dataset.tokens * dataset.train_rows / max(dataset.train_rows + dataset.validation_rows, 1)


def _task_s(run: PlannedRun, forward_s: float, token_s: float) -> float:
    """Predict the time of one score, as if every reply became as long as it may."""
    task, dataset = run.recipe.task, run.dataset
    if not task.is_active or dataset is None or not dataset.validation_rows:
        return 0.0
    fit = dataset.report.task_fit if dataset.report is not None else None
    if fit is not None and not fit.usable_rows:  # the score is left out
        return 0.0
    rows = min(task.max_rows, dataset.validation_rows)
    row_tokens = dataset.tokens / max(dataset.train_rows + dataset.validation_rows, 1)
    together = _together(run, task.max_tokens, int(row_tokens))
    return math.ceil(rows / together) * task.max_tokens * token_s + rows * row_tokens * forward_s


def _replies_s(run: PlannedRun, forward_s: float, token_s: float) -> float:
    """Predict the time of a round of replies that are learned from.

    Replies that are made together end with the longest of them, which is taken to be as long as it may.
    """
    section, replies = run.recipe.reinforce, planned_replies(run.recipe, run.dataset)
    together = _together(run, section.max_tokens, int(replies.prompt_tokens))
    read = section.groups if _is_captured(run) else replies.count  # in pages a group's prompt is read once
    steps = math.ceil(replies.count / together) * section.max_tokens
    step_s = token_s if run.device.gpu(run.machine) else max(token_s, together * forward_s)
    known = (section.kl_weight > 0) + (section.updates > 1)  # log-probabilities that are computed once more
    return steps * step_s + (read * replies.prompt_tokens + known * replies.tokens) * forward_s


def _replay_s(run: PlannedRun, token_s: float) -> float:
    """Predict the time of the rows that the base writes, each of which is taken to be as long as it may."""
    count = run.recipe.data.replay_rows(run.dataset.train_rows if run.dataset else 0)
    return math.ceil(count / _together(run, REPLAY_TOKENS)) * REPLAY_TOKENS * token_s


def _token_s(run: PlannedRun, streamed: int) -> float:
    """Predict the time of one token of replies that grow together: every weight is read once.

    Args:
        run: planned run.
        streamed: layers whose weights are copied from host memory first; such steps are not captured.
    """
    gpu = run.device.gpu(run.machine)
    rate = gpu_rates(gpu).bandwidth_gb_s * 1e9 * _MEMORY_SHARE if gpu else _CPU_BYTES_PER_S
    width = 1.0 if run.engine.eight_bits.stored else BYTES_OF[run.device.precision]
    if run.engine.nf4:
        width = packed_width(run.spec)
    layer_s = _CAPTURED_S_PER_LAYER if _is_captured(run) and not streamed else _TOKEN_S_PER_LAYER
    size, layers = parameters(run.spec) * width, len(run.spec.layers)
    copies_s = size * streamed / layers / (link_gb_s(gpu.pcie)[0] * 1e9) if gpu else 0.0
    return size / rate + copies_s + layers * layer_s


def _is_captured(run: PlannedRun) -> bool:
    """Return whether replies grow in pages, with captured steps."""
    return run.engine.fast and run.device.gpu(run.machine) is not None


def _saved_bytes(run: PlannedRun) -> int:
    recipe = run.recipe
    state = optimizer_bytes(run.spec, recipe.adapter, recipe.train.optimizer, cuda=False).total
    return trained_parameters(run.spec, recipe.adapter) * 4 + state
