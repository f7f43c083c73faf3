"""Events of a run: one tagged union, written by the engine, read by everybody.

Each line of `events.jsonl` is one event as JSON.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, Field, TypeAdapter

from burnish_engine.contract.facts.advice import PlanBasis, TimePart
from burnish_engine.contract.facts.task_score import TaskScore
from burnish_engine.contract.number import Number
from burnish_engine.contract.record import Record

Verdict = Literal["training", "suspicious", "not_training"]
"""training: nothing found. suspicious: a sign that something is wrong. not_training: the run does not do its job."""


Phase = Literal[
    "loading",
    "preparing",
    "weights",
    "checking",
    "dry_run",
    "writing",
    "training",
    "evaluating",
    "sampling",
    "scoring",
    "saving",
    "paused",
]

ProgressUnit = Literal["rows", "pairs", "replies", "layers", "checks"]

MOST_EVENTS = 10**9
"""Most events of a run."""


class _Event(Record):
    v: Literal[1] = 1
    seq: int = Field(
        default=0,
        ge=0,
        lt=MOST_EVENTS,
        description="Position in the file where the run is trained; a copy elsewhere may lack lines lost on the way.",
    )
    t: float = Field(default=0.0, ge=0, description="Wall-clock time, seconds since the epoch.")


class RunStarted(_Event):
    """The engine process took the run over, for the first time or again."""

    type: Literal["run_started"] = "run_started"
    run: str
    pid: int
    process_created: float = Field(description="Creation time of the process, seconds since the epoch.")
    device: str
    precision: str
    engine: str = Field(description="fast: Burnish's own decoder. plain: transformers + PEFT.")
    products: str = Field(
        default="16",
        description="What products with the frozen weights are computed in: 16 (the precision), fp8, int8 or mxfp8.",
    )
    products_reason: str = Field(default="", description="Why, as a sentence, where the recipe left it to timing.")
    resumed_from_step: int | None = Field(default=None, description="Optimizer step of the checkpoint resumed from.")
    total_steps: int = Field(description="Optimizer steps the run will make.")
    versions: dict[str, str] = Field(default_factory=dict)


class PhaseChanged(_Event):
    """The engine changed its phase."""

    type: Literal["phase"] = "phase"
    phase: Phase = Field(
        description="loading: model files and tokenizer are opened. preparing: rows become tokens. weights: the model "
        "is loaded. checking: the guard looks at the run before its first step. dry_run: the longest pass and a save "
        "are tried. sampling: the model answers the fixed prompts. scoring: it answers held-out rows, and the replies "
        "are scored. writing: it writes replies to learn from."
    )
    detail: str = ""


class PhaseProgress(_Event):
    """The present phase came further. Written about once a second; the next phase begins anew."""

    type: Literal["progress"] = "progress"
    done: int = Field(description="Number that is done.")
    total: int = Field(description="What `done` goes up to; it may be an estimate.")
    unit: ProgressUnit = Field(default="rows", description="What is counted.")
    what: str = Field(default="", description="checks: name of the check that is being made.")


class DataReady(_Event):
    """The data is prepared. Rows in = rows used + rows reported."""

    type: Literal["data_ready"] = "data_ready"
    train_rows: int
    validation_rows: int
    dropped_rows: int
    truncated_rows: int
    train_tokens: int
    supervised_tokens: int
    micro_batches_per_epoch: int
    fill: Number = Field(description="Share of the token budget that packing filled, 0 to 1.")


class PlanMade(_Event):
    """The run plan was made: predictions against what was free at that moment."""

    type: Literal["plan"] = "plan"
    memory_bytes: int = Field(description="Predicted peak of the training device's memory.")
    memory_free_bytes: int
    tokens_per_s: Number
    seconds: Number = Field(description="Predicted time of the steps.")
    total_seconds: Number = Field(
        default=0.0, description="The same with checks, evaluations, prompts and saves; 0 where not known."
    )
    times: list[TimePart] = Field(default=[], description="Parts of `total_seconds`.")
    fits: bool
    basis: PlanBasis | None = Field(default=None, description="By component, before past runs corrected it.")

    @property
    def run_s(self) -> float:
        """Predicted time of the whole run, or where that is not known of its steps, seconds; 0 where neither is."""
        return self.total_seconds or self.seconds


class LayersPlaced(_Event):
    """The fast engine took a memory plan up: at the beginning, and whenever memory ran out and it became smaller."""

    type: Literal["layers"] = "layers"
    activations: str = Field(description="Save level of each layer, in the form of the recipe's `memory.layers`.")
    weights: str = Field(description="Place of their frozen weights, in the form of `memory.weights`; card: all there.")


class ExchangeMeasured(_Event):
    """The processes that share a run timed one exchange of gradients, before the first step."""

    type: Literal["exchange"] = "exchange"
    gpus: int = Field(description="Number of GPUs, or of processes on the CPU.")
    form: Literal["whole", "sliced", "bf16", "exact"] = Field(description="How the run exchanges its gradients.")
    gradient_bytes: int = Field(description="Size of the gradients in fp32.")
    measured_ms: Number = Field(description="Time of one sum of so many bytes, in fp32 and at once.")
    expected_ms: Number | None = Field(
        default=None, description="Predicted from the links; null on the CPU, and between machines."
    )


class _PairFigures(_Event):
    """Figures of learning from preferences; null where rows are learned as they stand, or no row has the figure."""

    margin: Number | None = Field(
        default=None, description="Preferences: mean reward of the chosen replies less that of the rejected ones."
    )
    accuracy: Number | None = Field(
        default=None,
        description="Share of pairs with a positive margin, 0 to 1; kto: of rows whose reward lies on their label's "
        "side of the KL estimate.",
    )
    chosen_log_prob: Number | None = Field(
        default=None,
        description="Mean log-probability of the chosen replies, nats: dpo and kto of a reply, else of a token.",
    )
    rejected_log_prob: Number | None = Field(default=None, description="The same of the rejected replies.")
    preference_loss: Number | None = Field(
        default=None, description="Part of the loss that compares replies; orpo: its weighted odds ratio loss."
    )
    sft_loss: Number | None = Field(
        default=None,
        description="Mean cross entropy per token of the chosen replies, nats, before its weight; null where the "
        "objective adds none.",
    )
    kl: Number | None = Field(
        default=None,
        description="kto: estimated divergence from the reference, nats a reply, 0 or more; its rewards are compared "
        "with it.",
    )


class StepDone(_PairFigures):
    """An optimizer step was made."""

    type: Literal["step"] = "step"
    step: int
    epoch: Number
    loss: Number = Field(description="Mean cross entropy per supervised token of the whole step, nats; or of a pair.")
    learning_rate: Number
    grad_norm: Number = Field(description="Global L2 norm before clipping.")
    tokens: int = Field(description="Real tokens of this step, padding excluded.")
    supervised_tokens: int
    tokens_per_s: Number
    supervised_tokens_per_s: Number
    step_s: Number = Field(description="Wall time of the step, seconds.")
    memory_bytes: int = Field(
        description="Peak device memory so far (CUDA), or the process's peak of resident memory (CPU)."
    )
    process_bytes: int = Field(
        default=0,
        description="Peak so far of all that the process holds of the device, context included; 0 where not known.",
    )
    cpu_share: Number | None = Field(
        default=None,
        description="CPU: share of its threads' time in which the run was given a processor core, 0 to 1.",
    )
    eta_s: Number = Field(description="Predicted time to the end of the run, with evaluations and saves, seconds.")

    @property
    def held_bytes(self) -> int:
        """The memory to compare a prediction with: the whole process's where known, else that of torch's tensors."""
        return self.process_bytes or self.memory_bytes


class EvaluationDone(_PairFigures):
    """The held-out loss was measured. Step 0 is the model before any training."""

    type: Literal["evaluation"] = "evaluation"
    step: int
    loss: Number = Field(description="Mean cross entropy per supervised held-out token, nats; or loss of a pair.")
    tokens: int
    seconds: Number
    kl_to_base: Number | None = Field(
        default=None,
        description="Preferences and rewards: mean divergence of the next token from the model without its adapter, "
        "nats a token, over held-out prompts with their replies.",
    )


class GeneralTextDone(_Event):
    """The loss on the general text that comes with Burnish was measured. Step 0 is the model before any training."""

    type: Literal["general_text"] = "general_text"
    step: int
    loss: Number = Field(description="Mean cross entropy per token, nats.")
    tokens: int
    seconds: Number


class HeldOutPairsDone(_Event):
    """The held-out preference pairs were measured by what all objectives share, so that runs compare.

    That is after the last step, and with early stopping at each evaluation, since any may be the result.
    """

    type: Literal["held_out_pairs"] = "held_out_pairs"
    step: int
    pairs: int
    accuracy: Number = Field(
        description="Share of the pairs whose chosen reply has the higher log-probability, summed over its tokens."
    )
    chosen_loss: Number = Field(description="Mean cross entropy per token of the chosen replies, nats.")


class TaskScored(_Event):
    """The model replied to held-out rows, and the replies were scored. Step 0 is the model before any training."""

    type: Literal["task_score"] = "task_score"
    step: int
    score: TaskScore = TaskScore()
    seconds: Number


class JudgedReply(Record):
    """A reply of the model that was rewarded, shortened."""

    prompt: str = Field(description="The end of the turns before it.")
    reply: str
    reward: Number


class JudgedGroup(Record):
    """The replies to one prompt, shortened."""

    prompt: str = Field(description="The end of the turns before them.")
    reward: Number = Field(description="Mean reward of its replies.")
    replies: list[JudgedReply] = Field(default=[], description="The best replies, the worst one last.")


class RewardsGiven(_Event):
    """Replies that the model wrote while training were rewarded and learned from."""

    type: Literal["rewards"] = "rewards"
    step: int = Field(description="Optimizer steps made, those on these replies included.")
    reward: Number = Field(description="Mean reward of a reply.")
    spread: Number = Field(description="Standard deviation of the rewards over all replies.")
    parts: dict[str, Number] = Field(default={}, description="Mean of each reward before its weight, by its name.")
    replies: int = Field(description="Replies written.")
    groups: int = Field(description="Prompts that they were written to.")
    dropped_groups: int = Field(description="Groups whose rewards were all the same, which teach nothing.")
    reply_tokens: Number = Field(description="Mean length of a reply.")
    cut_replies: int = Field(description="Replies that were cut at the longest length.")
    entropy: Number | None = Field(
        default=None,
        description="Mean negative log-probability of a token that was learned from, nats; null: none.",
    )
    kl: Number | None = Field(
        default=None,
        description="Estimated divergence from the model as training began, nats a token; null: none.",
    )
    clipped: Number = Field(default=0.0, description="Share of tokens left out because their ratio went too far.")
    written_s: Number = Field(description="Time in which the replies were written, seconds.")
    judged_s: Number = Field(description="Time in which they were rewarded, seconds.")
    best: JudgedReply | None = Field(default=None, description="The reply with the highest reward.")
    worst: JudgedReply | None = Field(default=None, description="The reply with the lowest reward.")
    best_group: JudgedGroup | None = Field(default=None, description="The prompt with the highest mean reward.")
    worst_group: JudgedGroup | None = Field(default=None, description="The prompt with the lowest mean reward.")

    @property
    def tokens_per_s(self) -> float:
        """Tokens written a second."""
        return self.replies * self.reply_tokens / self.written_s if self.written_s else 0.0


class SampleDone(_Event):
    """The model replied to one of the fixed prompts."""

    type: Literal["sample"] = "sample"
    step: int
    prompt: str
    reply: str
    stopped: bool = Field(description="Whether the model ended the reply by itself.")


class CheckpointSaved(_Event):
    """A complete checkpoint lies on disk."""

    type: Literal["checkpoint"] = "checkpoint"
    step: int
    path: str = Field(description="Relative to the run folder.")
    seconds: Number


class CommandDone(_Event):
    """A command was carried out or refused."""

    type: Literal["command"] = "command"
    id: str
    name: str
    accepted: bool
    detail: str = ""


class Warned(_Event):
    """A warning that the person should know; the run continues."""

    type: Literal["warning"] = "warning"
    code: str
    message: str


class GuardReported(_Event):
    """The guard reported whether the run really trains."""

    type: Literal["guard"] = "guard"
    step: int = Field(description="The step it was found at.")
    when: Literal["before", "after_warmup", "training", "end"] = Field(description="Which look at the run it was.")
    verdict: Verdict
    check: str = Field(default="", description="Short name of the check that failed; empty where none did.")
    sentence: str = Field(description="The verdict in words, with the value found.")
    cause: str = Field(default="", description="What is behind it, as far as can be told.")
    remedy: str = Field(default="", description="What to do.")
    passed: list[str] = Field(default_factory=list, description="Names of the checks that found nothing.")
    coverage: str = Field(default="", description="What an adapter reaches of the layers' weights, in words.")
    seconds: Number = Field(default=0.0, description="What this look took.")


class RolledBack(_Event):
    """The run went back to a checkpoint from before the trouble, and continues at a lower learning rate."""

    type: Literal["rolled_back"] = "rolled_back"
    step: int = Field(description="The step at which there was enough trouble.")
    to_step: int = Field(description="Step of the checkpoint; 0: the beginning.")
    factor: Number = Field(description="Learning rates are multiplied by it from here on.")
    reason: str


class BestKept(_Event):
    """The result is the step that an earlier evaluation found best, not the last one."""

    type: Literal["best_kept"] = "best_kept"
    step: int = Field(description="The step it is from.")
    loss: Number = Field(description="Its held-out loss, nats.")
    at_step: int = Field(description="The step the run ended at.")
    stopped_early: bool = Field(description="Whether the run ended because the loss did not improve any more.")


class RunMeasurement(Record):
    """The memory and speed that a run really took in one process."""

    process_bytes: int = Field(
        default=0, description="Peak of all that the process held of the device, context included; 0 where not known."
    )
    allocated_bytes: int = Field(default=0, description="Peak of torch's tensors on a GPU; else 0.")
    reserved_bytes: int = Field(default=0, description="Peak of what torch's allocator held of a GPU; else 0.")
    tokens_per_s: float | None = Field(default=None, description="Median over the steps; null after too few.")


class RunEnded(_Event):
    """The run will not continue in this process."""

    type: Literal["run_ended"] = "run_ended"
    outcome: Literal["finished", "stopped", "suspended", "failed"]
    exit_code: int
    step: int
    message: str = ""
    seconds: Number = 0.0
    measured: RunMeasurement | None = Field(default=None, description="What it took in this process.")


Event = Annotated[
    RunStarted
    | PhaseChanged
    | PhaseProgress
    | DataReady
    | PlanMade
    | LayersPlaced
    | ExchangeMeasured
    | StepDone
    | EvaluationDone
    | GeneralTextDone
    | HeldOutPairsDone
    | TaskScored
    | RewardsGiven
    | SampleDone
    | CheckpointSaved
    | CommandDone
    | Warned
    | GuardReported
    | RolledBack
    | BestKept
    | RunEnded,
    Field(discriminator="type"),
]
"""Union of all events."""


def event_classes() -> tuple[type[BaseModel], ...]:
    """List every event class, for tests and documentation."""
    return get_args(get_args(Event)[0])


_ADAPTER: TypeAdapter[Any] = TypeAdapter(Event)


def parse_event(line: str | bytes) -> Event:
    """Parse the event on one line of `events.jsonl`.

    Raises:
        pydantic.ValidationError: The line is not a known event.
    """
    event: Event = _ADAPTER.validate_json(line)
    return event
