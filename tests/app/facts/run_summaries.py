"""Constructed runs as the engine lists them, alone and several: their summaries, folders and comparison."""

import time

from app.facts.run_events import FAILED, NOW, TOTAL, swept

from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.run.comparison import ComparedRun, DifferenceRow, RunsComparison
from burnish_engine.contract.run.events import EvaluationDone, StepDone
from burnish_engine.contract.run.notes import RunNotes
from burnish_engine.contract.run.state import RunStateFile
from burnish_engine.contract.serve.replies import RunSummary

LONG_NAME = "客服问答 second attempt with the shorter system prompt and without the duplicates of last week"
LONG_MODEL = "/home/ada/models/some-organization/A-Model-With-A-Long-Name-8B-Instruct-2507"


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
