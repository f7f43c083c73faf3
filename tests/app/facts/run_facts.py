"""Constructed runs for tests and screenshots of the frame's pages: every status with the events that lead to it."""

import math
import random
import time
from functools import cache

from burnish_engine.contract.facts.task_score import TaskReply, TaskScore
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.run.comparison import ComparedRun, DifferenceRow, RunsComparison
from burnish_engine.contract.run.events import (
    CheckpointSaved,
    DataReady,
    EvaluationDone,
    ExchangeMeasured,
    GeneralTextDone,
    GuardReported,
    LayersPlaced,
    PhaseChanged,
    PhaseProgress,
    PlanMade,
    RolledBack,
    RunEnded,
    RunStarted,
    SampleDone,
    StepDone,
    TaskScored,
    Warned,
)
from burnish_engine.contract.run.notes import RunNotes
from burnish_engine.contract.run.process_end import ProcessEnd
from burnish_engine.contract.run.state import RunStateFile
from burnish_engine.contract.serve.replies import RunSummary

TOTAL = 600
LONG_NAME = "客服问答 second attempt with the shorter system prompt and without the duplicates of last week"
LONG_MODEL = "/home/ada/models/some-organization/A-Model-With-A-Long-Name-8B-Instruct-2507"
PROMPT = "My order has not arrived. What now?"
BEFORE = "I am sorry to hear that! There are many possible reasons why an order"
AFTER = "Cause: the parcel is held at the depot.\nFix: ask for the tracking number and open a trace with the carrier."
NOW = time.time()


def events(steps, *, total=TOTAL, seed=1, ended=None, phase="training", bad=False):
    """Return the events of a plausible run up to step `steps`."""
    chance = random.Random(seed)
    made = [
        PhaseChanged(phase="loading", detail="embedded"),
        PhaseChanged(phase="preparing"),
        Warned(code="data", message="3 of 1,204 rows were longer than 1,024 tokens and were cut."),
        RunStarted(
            run="support-desk", pid=1, process_created=1.0, device="NVIDIA GeForce RTX 4090", precision="bf16",
            engine="plain", total_steps=total,
        ),
        DataReady(
            train_rows=1144, validation_rows=60, dropped_rows=0, truncated_rows=3, train_tokens=310_000,
            supervised_tokens=210_000, micro_batches_per_epoch=300, fill=0.93,
        ),
        PlanMade(
            memory_bytes=6_300_000_000, memory_free_bytes=23_500_000_000, tokens_per_s=18_400, seconds=total * 0.108,
            fits=True,
        ),
        EvaluationDone(step=0, loss=2.61, tokens=9000, seconds=3),
        SampleDone(step=0, prompt=PROMPT, reply=BEFORE, stopped=False),
        PhaseChanged(phase=phase),
    ]  # fmt: skip
    checks = ["no_targets", "labels", "padding", "leak", "zero_gradient", "detached"]
    made.insert(-1, GuardReported(step=0, when="before", verdict="training", sentence="Fine.", passed=checks))
    for step in range(1, steps + 1):
        made.append(a_step(step, total, chance))
        if step == 31:
            after = [*checks, "unchanged", "base_changed"]
            made.append(GuardReported(step=31, when="after_warmup", verdict="training", sentence="Fine.", passed=after))
        if step % 100 == 0:
            made.append(EvaluationDone(step=step, loss=1.18 + 1.4 * math.exp(-step / 110), tokens=9000, seconds=3))
            made.append(CheckpointSaved(step=step, path=f"checkpoints/step-{step:06d}", seconds=0.4))
            made.append(SampleDone(step=step, prompt=PROMPT, reply=AFTER, stopped=True))  # fmt: skip
    if bad:
        made.append(a_step(steps + 1, total, chance).model_copy(update={"loss": math.nan}))
    if ended:
        made += [_at_the_end(ended, after)] if ended.outcome == "finished" and steps > 31 else []
        made.append(ended)
    return numbered(made)


def _at_the_end(ended, passed):
    """Return the guard's last verdict, on a run that finished."""
    return GuardReported(step=ended.step, when="end", verdict="training", sentence="Fine.", passed=passed)


def saved(steps):
    """Return the events of a run that saved at its last step, as one that was stopped or suspended does."""
    path = f"checkpoints/step-{steps:06d}"
    return numbered([*events(steps), CheckpointSaved(step=steps, path=path, seconds=0.4)])


def resumed(steps, start):
    """Return the events of a run that was interrupted and went on from its last checkpoint."""
    last = RunStarted(
        run="support-desk", pid=2, process_created=2.0, device="NVIDIA GeForce RTX 4090", precision="bf16",
        engine="plain", total_steps=TOTAL, resumed_from_step=start,
    )  # fmt: skip
    chance = random.Random(5)
    further = [a_step(step, TOTAL, chance) for step in range(start + 1, steps + 40)]
    return numbered([*events(steps), PhaseChanged(phase="loading"), last, PhaseChanged(phase="training"), *further])


def numbered(lines):
    """Return the events with sequence numbers and times, as a file holds them."""
    return [event.model_copy(update={"seq": n, "t": NOW - len(lines) + n}) for n, event in enumerate(lines)]


def a_step(step, total, chance):
    """Return a plausible step event."""
    loss = 1.05 + 1.55 * math.exp(-step / 90) + chance.gauss(0, 0.09)
    rate = 2e-4 * min(step / (0.05 * total), 0.55 + 0.45 * math.cos(math.pi * step / total))
    speed = 18_400 + chance.gauss(0, 500)
    return StepDone(
        step=step, epoch=2 * step / total, loss=loss, learning_rate=max(rate, 0), grad_norm=0.8 + chance.random() * 0.3,
        tokens=2048, supervised_tokens=1400, tokens_per_s=speed, supervised_tokens_per_s=speed * 0.7, step_s=0.11,
        memory_bytes=int(6.2e9 + min(step, 30) * 1e7), eta_s=(total - step) * 0.11,
    )  # fmt: skip


def summary(observed_status, step=240, *, folder="/runs/20261121-1012-support-desk", **changes):
    """Return a run's summary, as the engine lists it; keyword arguments change fields."""
    status = {"interrupted": "running", "not responding": "running"}.get(observed_status, observed_status)
    fields = {
        "run": folder.rsplit("/", 1)[-1], "name": "support-desk", "status": status, "step": step, "total_steps": TOTAL,
        "loss": 1.214 if step else None, "evaluation_loss": 1.361 if step else None, "device": "cuda-0",
        "created": NOW - 4000, "heartbeat": NOW - 60,
    }  # fmt: skip
    top = {key: changes.pop(key) for key in ("waits_for", "model", "data", "held_out", "notes") if key in changes}
    state_file = RunStateFile(**{**fields, **changes})
    return RunSummary(folder=folder, state=state_file, standing=observed_status, **{"model": "Qwen/Qwen3-0.6B", **top})


FAILED = RunEnded(
    outcome="failed", exit_code=13, step=131,
    message="At step 132 the loss is nan and the gradient norm inf; the step was not taken. Start a new run with a "
    "lower train.learning_rate (now 0.002); earlier checkpoints are kept.",
)  # fmt: skip
FINISHED = RunEnded(outcome="finished", exit_code=0, step=TOTAL, seconds=TOTAL * 0.11)

OVERFIT = GuardReported(
    step=240, when="training", verdict="suspicious", check="overfitting",
    sentence="The held-out loss rises while the training loss falls: it went from 1.224 to 1.291 as the training loss "
    "fell from 1.366 to 1.120.",
    cause="The model learns the rows by heart: more passes over them do not make it better on new ones.",
    remedy="Use fewer train.epochs, a lower train.learning_rate or more rows; evaluation.patience stops by itself.",
    passed=["no_targets", "labels", "padding", "leak", "unchanged"],
)  # fmt: skip
SHIFTED = GuardReported(
    step=0, when="before", verdict="not_training", check="labels",
    sentence="The labels are shifted by one: the loss is 9.31, and 2.61 against each token itself.",
    cause="Each position is taught the token it sees instead of the next token: the labels were not shifted.",
    remedy="Nothing in a recipe does this: please report it with the run's folder.",
)  # fmt: skip
BY_GUARD = RunEnded(outcome="failed", exit_code=13, step=0, message=f"{SHIFTED.sentence} {SHIFTED.cause}")


_RISING = ((150, 1.224), (200, 1.291))


def troubled():
    """Return the events of a run with unusable steps 130 to 132, a rollback to step 100, and beginning overfitting."""
    made, chance = events(129), random.Random(3)
    for step in (130, 131, 132):
        made.append(a_step(step, TOTAL, chance).model_copy(update={"loss": math.nan, "grad_norm": math.inf}))
    reason = (
        "3 of the last 3 steps were bad; at step 132 the loss was nan and the gradient norm inf, so it was not taken."
    )
    made.append(RolledBack(step=132, to_step=100, factor=0.5, reason=reason))
    made += [a_step(step, TOTAL, chance) for step in range(101, 241)]
    evaluations = [EvaluationDone(step=step, loss=loss, tokens=9000, seconds=3) for step, loss in _RISING]
    return numbered([*made, *evaluations, OVERFIT])


def died(**end):
    """Return an interrupted run whose process was seen to die."""
    return summary("interrupted").model_copy(update={"process_end": ProcessEnd(t=NOW, **end)})


def failed_with(code, step, message):
    """Return a failed run and its events."""
    ended = RunEnded(outcome="failed", exit_code=code, step=step, message=message)
    return summary("failed", step, message=message, exit_code=code), events(step, ended=ended)


def begun(*further):
    """Return the events of a run that has not made a step, up to some stage."""
    opened = [PhaseChanged(phase="loading", detail="embedded"), PhaseChanged(phase="preparing")]
    if not further:
        return numbered([*opened, PhaseProgress(done=412, total=1204)])
    started, data, plan = events(0)[3:6]
    lines = [*opened, plan.model_copy(update={"total_seconds": 96.0}), PhaseChanged(phase="weights"), started, data]
    return numbered([*lines, *further])


CHECKING = [PhaseChanged(phase="checking"), PhaseProgress(done=8, total=14, unit="checks", what="leak")]
LAYERS = [PhaseProgress(done=17, total=28, unit="layers")]
HELD_OUT = [
    PhaseChanged(phase="checking"), PhaseChanged(phase="evaluating"), PhaseProgress(done=12, total=40),
]  # fmt: skip
NO_MEMORY = (
    "Out of memory at step 12 with 8192 tokens a pass (CUDA out of memory), and there is no smaller plan left. Lower "
    "train.micro_batch_tokens (and data.max_length); then start again."
)
NO_SPACE = (
    "The checkpoint step-000130 could not be written: no space is left on /data. Free some space, or keep fewer "
    "checkpoints."
)
NO_DRIVER = (
    "The GPU or its driver failed at step 131 (CUDA error: an illegal memory access was encountered). Resume the run. "
    "If it happens again, restart the machine, run `burnish doctor`, and take back overclocking."
)


def preferring(steps=240, *, ended=None):
    """Return the events of a plausible run that learns from preference pairs, with forgetting measured at its end."""
    chance, made = random.Random(7), []
    for event in events(steps, ended=None):
        if isinstance(event, StepDone):
            made.append(event.model_copy(update=_preferred(event.step, chance, noise=1.0)))
        elif isinstance(event, EvaluationDone):
            figures = _preferred(event.step, chance, noise=0.2) | {
                "kl_to_base": 0.11 * (1 - math.exp(-event.step / 150))
            }
            made.append(event.model_copy(update=figures))
        else:
            made.append(event)
    made.insert(8, GeneralTextDone(step=0, loss=2.64, tokens=2048, seconds=4))
    if ended:
        made += [GeneralTextDone(step=steps, loss=2.79, tokens=2048, seconds=4), ended]
    return numbered(made)


def _preferred(step, chance, *, noise):
    """Return plausible figures of preference learning at a step."""
    learned = 1 - math.exp(-step / 120)
    margin = 1.9 * learned + chance.gauss(0, 0.25) * noise
    return {
        "loss": math.log(1 + math.exp(-margin)), "margin": margin,
        "accuracy": min(max(0.5 + 0.42 * learned + chance.gauss(0, 0.06) * noise, 0.0), 1.0),
        "chosen_log_prob": -92 + 4 * learned + chance.gauss(0, 2) * noise,
        "rejected_log_prob": -101 - 17 * learned + chance.gauss(0, 2) * noise,
    }  # fmt: skip


def scored(lines):
    """Return the events of a run with a score of its task before the first step and, where it ended, of its result."""
    wrong = TaskReply(
        row=3, asked="Does the parcel count as lost?", wanted='{"kind": "parcel", "lost": true}',
        reply="It depends on how long you have been waiting for it.", why="it is no valid JSON",
    )  # fmt: skip
    before = TaskScore(metric="json", passed=[n % 17 == 0 for n in range(50)], cut=31, failures=[wrong])
    after = TaskScore(metric="json", passed=[n % 17 != 1 for n in range(50)], failures=[wrong])
    first = next(n for n, event in enumerate(lines) if isinstance(event, EvaluationDone)) + 1
    made = [*lines[:first], TaskScored(step=0, score=before, seconds=8), *lines[first:]]
    if isinstance(made[-1], RunEnded):
        made.insert(-1, TaskScored(step=made[-1].step, score=after, seconds=3))
    return numbered(made)


PLACED = LayersPlaced(activations="offloaded:10,narrow:17,products:1", weights="card:20,host:8")
EXCHANGE = ExchangeMeasured(gpus=2, form="whole", gradient_bytes=40_370_176, measured_ms=0.176, expected_ms=0.17)
RANKED = LayersPlaced(activations="rotated:28", weights="ranks:24,card:4")
TRAIN_SCENES = {
    "queued": (summary("queued", 0, waits_for="/runs/20261121-0930-legal-notes"), []),
    "preparing": (summary("running", 0), events(0)[:2]),
    "rows": (summary("running", 0), begun()),
    "layers": (summary("running", 0), begun(*LAYERS)),
    "checking": (summary("running", 0), begun(*CHECKING)),
    "held_out": (summary("running", 0), begun(*HELD_OUT)),
    "out_of_memory": failed_with(10, 12, NO_MEMORY),
    "disk_full": failed_with(15, 131, NO_SPACE),
    "driver": failed_with(17, 131, NO_DRIVER),
    "killed": (died(exit_status=-9), events(240)),
    "no_system_memory": (died(exit_status=-9, memory_kills=1), events(240)),
    "training": (summary("running"), events(240)),
    "recovered": (summary("running", 279), resumed(240, 200)),
    "elsewhere": (summary("running", where="ssh:tower"), events(240)),
    "elsewhere_waits": (
        summary("running", 0, where="slurm", message="Waits in the cluster's queue (Priority)."),
        events(0)[:1],
    ),
    "long_name": (summary("running", name=LONG_NAME, model=LONG_MODEL), events(240)),
    "placed": (summary("running"), numbered([*events(240), PLACED])),
    "shared": (summary("running"), numbered([*events(240)[:2], EXCHANGE, *events(240)[2:]])),
    "paused": (summary("paused"), events(240, phase="paused")),
    "suspended": (summary("suspended"), saved(240)),
    "stopped": (summary("stopped"), saved(240)),
    "finished": (summary("finished", TOTAL), scored(events(TOTAL, ended=FINISHED))),
    "failed": (summary("failed", 131, message=FAILED.message), events(131, ended=FAILED)),
    "interrupted": (summary("interrupted"), events(240)),
    "not_responding": (summary("not responding"), events(240)),
    "troubled": (summary("running"), troubled()),
    "not_training": (summary("failed", 0, message=BY_GUARD.message), numbered([*events(0), SHIFTED, BY_GUARD])),
    "preferring": (summary("running"), preferring()),
    "preferred": (summary("finished", TOTAL), preferring(TOTAL, ended=FINISHED)),
    "bad_loss": (summary("running", 131), events(131, bad=True)),
}


def write_run(folder, run, lines):
    """Write a run folder with these events, as old now as they were at import, and return its summary."""
    paths = RunPaths(folder)
    folder.mkdir(parents=True, exist_ok=True)
    passed = time.time() - NOW
    now = [event.model_copy(update={"t": event.t + passed}) for event in lines]
    paths.events.write_text("".join(event.model_dump_json() + "\n" for event in now), encoding="utf-8")
    paths.state.write_text(run.state.model_dump_json(), encoding="utf-8")
    if run.standing == "finished":
        paths.adapter.mkdir(exist_ok=True)
        (paths.adapter / "adapter_model.safetensors").write_bytes(b"")
    return run.model_copy(update={"folder": str(folder)})


RUNS = [
    summary("running"),
    summary("queued", 0, folder="/runs/20261121-1040-faq", name="faq", waits_for="/runs/20261121-1012-support-desk"),
    summary(
        "finished", 600, folder="/runs/20261120-0930-legal-notes", name="legal-notes", loss=0.912,
        evaluation_loss=1.022, created=NOW - 90_000, heartbeat=NOW - 80_000,
    ),
    summary(
        "interrupted", 120, folder="/runs/20261119-0930-recipes", name="recipes", model="embedded",
        created=NOW - 190_000, heartbeat=NOW - 189_000,
    ),
    summary(
        "failed", 12, folder="/runs/20261012-0930-hot", name="hot", loss=None, evaluation_loss=4.1,
        message="It diverged.", created=NOW - 3_000_000, heartbeat=NOW - 2_999_950,
    ),
]  # fmt: skip


PREFERRED = summary(
    "finished", 600, folder="/runs/20261119-1730-preferred", name="preferred", loss=0.281, evaluation_loss=0.333,
    accuracy=0.92, margin=1.87, created=NOW - 150_000, heartbeat=NOW - 148_000,
)  # fmt: skip


@cache
def swept(seed, *, rate, ended=True, steps=TOTAL, best=1.18):
    """Return the events of a run at a learning rate, with a held-out loss that ends near `best`."""
    chance, made = random.Random(seed), []
    for event in events(steps, seed=seed, ended=FINISHED if ended else None):
        if isinstance(event, StepDone):
            fall = math.exp(-event.step * rate * 60)
            made.append(
                event.model_copy(
                    update={
                        "loss": best - 0.1 + 1.5 * fall + chance.gauss(0, 0.08),
                        "learning_rate": event.learning_rate * rate / 2e-4,
                    }
                )
            )
        elif isinstance(event, EvaluationDone) and event.step:
            made.append(event.model_copy(update={"loss": best + 1.4 * math.exp(-event.step * rate * 55)}))
        elif isinstance(event, SampleDone) and event.step:
            made.append(event.model_copy(update={"reply": REPLIES[seed % len(REPLIES)]}))
        else:
            made.append(event)
    return tuple(numbered(made))


REPLIES = (
    AFTER,
    "Cause: the carrier waits for a customs paper.\nFix: send the invoice and ask for a trace.\nCheck: the status "
    "changes within a day.",
    "Cause: unknown.\nFix: please wait two more days, then write to us again with your order number.",
)
MANY = (
    ("support-desk: rate 0.0005", "running", 240, 5e-4, 1.21, ("rate",), ""),
    ("support-desk: rate 0.0001", "queued", 0, 1e-4, 1.3, ("rate",), ""),
    (
        "support-desk: rate 0.0003",
        "finished",
        TOTAL,
        3e-4,
        1.148,
        ("keep", "rate"),
        "Best so far; answers in our form.",
    ),
    ("support-desk: rate 0.0002", "finished", TOTAL, 2e-4, 1.176, ("rate",), ""),
    ("support-desk: rank 32", "finished", TOTAL, 2.2e-4, 1.169, ("rank",), ""),
    ("support-desk: rank 8", "finished", TOTAL, 1.8e-4, 1.193, ("rank",), ""),
    ("legal-notes", "finished", TOTAL, 2e-4, 1.022, ("client",), "For the lawyers."),
    ("faq", "stopped", 380, 2e-4, 1.44, (), ""),
    ("recipes", "interrupted", 120, 2e-4, 1.9, (), ""),
    ("support-desk", "suspended", 300, 2e-4, 1.26, ("old data",), ""),
    ("bench-notes demo", "finished", 60, 2e-3, 1.6, ("demo",), ""),
    ("hot", "failed", 131, 2e-3, 2.9, (), ""),
)
"""Runs as a person has them after a week: name, status, steps, learning rate, best held-out loss, tags, notes."""


def many_runs(root):
    """Write the runs of MANY and return their summaries, newest first."""
    made = []
    for number, (name, status, step, rate, best, tags, text) in enumerate(MANY):
        lines = swept(number, rate=rate, steps=step, best=best, ended=status == "finished") if step else []
        evaluated = [event.loss for event in lines if isinstance(event, EvaluationDone)]
        losses = [event.loss for event in lines if isinstance(event, StepDone)]
        run = summary(
            status, step, folder=f"/runs/2026112{9 - number // 2}-10{number:02}-run", name=name,
            model="embedded" if "demo" in name else "Qwen/Qwen3-0.6B", data="support.jsonl" if "support" in name else
            f"{name.split()[0]}.jsonl", held_out="s" if name.startswith("support-desk:") else name,
            notes=RunNotes(tags=tags, text=text), loss=losses[-1] if losses else None,
            evaluation_loss=evaluated[-1] if evaluated else None,
            created=NOW - 4000 - 21_000 * number, heartbeat=NOW - 60 - 20_500 * number,
            message=FAILED.message if status == "failed" else "", waits_for="/runs/a" if status == "queued" else "",
        )  # fmt: skip
        made.append(write_run(root / run.folder.rsplit("/", 1)[-1], run, lines))
    return made


def compared(runs):
    """Return the comparison of runs, with some of the differences that real ones have."""
    outcomes = [
        ComparedRun(
            run=run.state.run, standing=run.standing, step=run.state.step, total_steps=TOTAL, loss=run.state.loss,
            held_out_loss=run.state.evaluation_loss, held_out_step=run.state.step, held_out_tokens=9000,
            tokens_per_s=18_400.0 - 310 * place, memory_bytes=int(6.3e9 + 2e8 * place), training_s=66.0 + 3 * place,
        )
        for place, run in enumerate(runs)
    ]  # fmt: skip
    several = list(range(len(runs)))
    rows = [
        DifferenceRow(group="recipe", key="train.learning_rate", values=[round(3e-4 - 5e-5 * n, 7) for n in several]),
        DifferenceRow(group="recipe", key="adapter.rank", values=[(16, 16, 32, 8)[n % 4] for n in several]),
        DifferenceRow(group="recipe", key="train.optimizer", values=[("adamw", "lion")[n % 2] for n in several]),
        DifferenceRow(group="data", key="training rows", values=[1144, 1144, 1201, 1144, 1144, 1144][: len(runs)]),
        DifferenceRow(group="versions", key="torch", values=["2.9.1" if n else "2.9.0" for n in several]),
    ]
    notes = ["The runs made different numbers of steps."] if len({run.state.step for run in runs}) > 1 else []
    return RunsComparison(folders=[run.folder for run in runs], outcomes=outcomes, rows=rows, notes=notes)
