"""Scenes of Sweep and Duel. A duel's facts are made by the engine from constructed outcomes."""

import time
from pathlib import Path

from app.facts import data_facts as facts
from app.facts.run_events import TOTAL, swept
from app.facts.run_summaries import many_runs, summary, write_run
from app.page_scenes.screenshots import scene, settle

from burnish_engine.contract.facts.sweeps import SweepFile, SweepPlan, SweepRunPlan, SweptRun
from burnish_engine.contract.paths import user_data_dir
from burnish_engine.contract.recipe.sweep import SweepSetting
from burnish_engine.contract.run.duels import DuelCheck, DuelDifferenceFacts, DuelFacts, DuelRun, DuelSideFacts
from burnish_engine.contract.run.events import EvaluationDone, StepDone
from burnish_engine.contract.serve.messages import Failure

SETTINGS = [
    SweepSetting(key="train.learning_rate", values=[1e-4, 2e-4, 4e-4]),
    SweepSetting(key="adapter.rank", values=[8, 32]),
]
CELLS = [(rate, rank) for rate in (1e-4, 2e-4, 4e-4) for rank in (8, 32)]


def sweep_plan(*, unfit=0):
    runs = [
        SweepRunPlan(
            name=f"learning_rate {rate}, rank {rank}", values=[rate, rank], seconds=1310.0 + 40 * rank,
            memory_bytes=int(6.4e9 + 3e7 * rank), disk_bytes=900_000_000, fits=number >= unfit,
            problem="" if number >= unfit else "46.4 GiB are needed, 21.9 GiB are free.",
        )
        for number, (rate, rank) in enumerate(CELLS)
    ]  # fmt: skip
    return SweepPlan(settings=SETTINGS, runs=runs, device="NVIDIA GeForce RTX 4090", disk_free_bytes=90_000_000_000)


def a_sweep(root, *, ended=6):
    """Write the runs of a sweep of which some have ended; return it and the summaries."""
    runs = []
    for number, (rate, rank) in enumerate(CELLS):
        status = "finished" if number < ended else "running" if number == ended else "queued"
        steps = {"finished": TOTAL, "running": 250, "queued": 0}[status]
        best = 1.21 - 0.03 * (rank == 32) + 0.06 * abs(rate / 2e-4 - 1)
        lines = swept(number, rate=rate, steps=steps, best=best, ended=status == "finished") if steps else []
        held_out = [event.loss for event in lines if isinstance(event, EvaluationDone)]
        losses = [event.loss for event in lines if isinstance(event, StepDone)]
        run = summary(
            status, steps, folder=f"/runs/sweep-{number}", name=f"support-desk: rate {rate}, rank {rank}", held_out="s",
            loss=losses[-1] if losses else None, evaluation_loss=held_out[-1] if held_out else None,
        )  # fmt: skip
        runs.append(write_run(root / f"sweep-{number}", run, lines))
    made = [SweptRun(folder=run.folder, values=list(cell)) for run, cell in zip(runs, CELLS, strict=True)]
    return SweepFile(name="support-desk", created=time.time() - 9000, settings=SETTINGS, runs=made), runs


def _draft(window):
    window.bench.set_data_files(["/home/ada/data/support.jsonl"])
    window.bench.set_dataset(facts.dataset())


def _sweep(window, plan=None):
    _draft(window)
    page = window.page("sweep")
    page.shown()
    page.settings._add()
    if plan is not None:
        page.plan.ask()
        window.client.answer("plan_sweep", sweep_plan=plan)
        page.plan._timer.stop()
    return page


@scene("sweep-empty")
def sweep_empty(window):
    window.page("sweep").shown()


@scene("sweep-drafted")
def sweep_drafted(window):
    _sweep(window, sweep_plan())


@scene("sweep-wrong")
def sweep_wrong(window):
    page = _sweep(window)
    page.settings.rows[0].values.setText("1e-4, fast")


@scene("sweep-unfit")
def sweep_unfit(window):
    _sweep(window, sweep_plan(unfit=2))


def _swept(window, ended):
    page = _sweep(window, sweep_plan())
    sweep, runs = a_sweep(user_data_dir() / "runs", ended=ended)
    page._show_sweeps([sweep])
    page.runs_changed(runs)
    deadline = time.monotonic() + 5
    while not len(page.view.charts.curves.axis.steps) > 1 and time.monotonic() < deadline:
        settle()
    page.runs_changed(runs)
    return page


@scene("sweep-running")
def sweep_running(window):
    _swept(window, 3)


@scene("sweep-done")
def sweep_done(window):
    page = _swept(window, 6)
    settle()
    page._scroll.ensureWidgetVisible(page.results)
    page._scroll.verticalScrollBar().setValue(page.results.y() - 20)


# Duel

SIDES = [
    DuelSideFacts(letter="A", name="draft", rate=2e-4, run_s=1290.0),
    DuelSideFacts(letter="B", name="rank 32", rate=2e-4, run_s=1420.0),
]
DIFFERENCES = [
    DuelDifferenceFacts(key="adapter.rank", values=["16", "32"], kind="compared"),
    DuelDifferenceFacts(key="name", values=["support-desk", "support-desk: rank 32"], kind="decided", why="a name"),
]
CHECKS = ("learned from", "evaluated on", "schedule", "length", "device", "precision", "versions")


def a_duel(status, *, folder="", made=(), current=None, **more):
    return DuelFacts(
        folder=folder, created=time.time() - 8000, status=status, sides=SIDES, differences=DIFFERENCES,
        factors=[0.3, 1.0, 3.0], seeds=3, runs=(12, 28), seconds=(12 * 1355.0, 28 * 1355.0), made=list(made),
        current=current, **more,
    )  # fmt: skip


def factorial(status, **more):
    """Make a duel of two factors, and its sides."""
    tried = [
        SweepSetting(key="masking.kind", values=["off", "magma"]),
        SweepSetting(key="train.schedule", values=["cosine", "wsd"]),
    ]
    names = [f"masking {kind}, schedule {schedule}" for kind in ("off", "magma") for schedule in ("cosine", "wsd")]
    sides = [DuelSideFacts(letter="ABCD"[place], name=name, rate=2e-4) for place, name in enumerate(names)]
    differences = [
        DuelDifferenceFacts(key="train.schedule", values=["cosine", "wsd"] * 2, kind="compared"),
        DuelDifferenceFacts(key="masking.kind", values=["off", "off", "magma", "magma"], kind="compared"),
    ]
    changes = {"tried": tried, "sides": sides, "differences": differences, "runs": (24, 56)}
    return a_duel(status, **more).model_copy(update=changes)


def duel_runs(root, count):
    """Write the first runs of a duel: a grid of three rates on each side, then three seeds."""
    specs = [("grid", side, 7, rate) for rate in (6e-5, 2e-4, 6e-4) for side in (0, 1)]
    specs += [("seeds", side, seed, 2e-4) for seed in (8, 9, 10) for side in (0, 1)]
    made = []
    for number, (phase, side, seed, rate) in enumerate(specs[:count]):
        best = 1.19 - 0.02 * side + 0.05 * abs(rate / 2e-4 - 1) + 0.004 * (seed - 8) * (phase == "seeds")
        folder = root / f"{phase}-{'ab'[side]}-lr{rate:g}-seed{seed}"
        write_run(folder, summary("finished", TOTAL, folder=str(folder)), swept(number, rate=rate, best=best))
        made.append(
            DuelRun(
                id=folder.name, folder=str(folder), side=side, phase=phase, seed=seed, rate=rate, ended="finished",
                step=TOTAL, total_steps=TOTAL, held_out_loss=best, tokens_per_s=18_400.0, memory_bytes=int(6e9),
                seconds=1300.0,
            )
        )  # fmt: skip
    return made


def verdicts(*, won=True):
    from burnish_engine.contract.run.duels import DuelVerdictFacts

    pair = {"sides": (0, 1), "level": 0.95}
    loss = {"difference": 0.0198, "low": 0.0121, "high": 0.0275, "pairs": [0.017, 0.0195, 0.0229]}
    if not won:
        loss = {"difference": 0.004, "low": -0.009, "high": 0.017, "pairs": [0.009, -0.001, 0.004]}
    return [
        DuelVerdictFacts(
            measure="held_out_loss", title="held-out loss", form="nats", names=("draft at 0.0002", "rank 32 at 0.0002"),
            kind="winner" if won else "not distinguishable", winner=1 if won else None, text="", **pair, **loss,
        ),
        DuelVerdictFacts(
            measure="tokens_per_s", title="speed", form="share", names=("draft", "rank 32"), kind="winner", winner=0,
            difference=0.041, low=0.028, high=0.054, pairs=[0.036, 0.041, 0.046], text="", **pair,
        ),
        DuelVerdictFacts(
            measure="memory_bytes", title="peak memory", form="share", names=("draft", "rank 32"), kind="winner",
            winner=0, difference=-0.032, low=-0.034, high=-0.03, pairs=[-0.033, -0.032, -0.031], text="", **pair,
        ),
        DuelVerdictFacts(
            measure="joules_per_1000_tokens", title="energy per token", form="share", names=("draft", "rank 32"),
            kind="not distinguishable", difference=-0.006, low=-0.021, high=0.009, pairs=[-0.01, 0.001, -0.009],
            text="", **pair,
        ),
        DuelVerdictFacts(
            measure="instability", title="instability events", form="count", names=("draft", "rank 32"), kind="equal",
            difference=0.0, low=0.0, high=0.0, pairs=[0.0, 0.0, 0.0], text="", **pair,
        ),
    ]  # fmt: skip


def _duel(window, made=None):
    _draft(window)
    page = window.page("duel")
    page.shown()
    page.runs_changed(many_runs(user_data_dir() / "runs"))
    if made is not None:
        page.show_duels([made], made.folder)
        deadline = time.monotonic() + 5
        while not len(page.curves.charts.curves.axis.steps) > 1 and time.monotonic() < deadline:
            settle()
    return page


@scene("duel-empty")
def duel_empty(window):
    _duel(window)


@scene("duel-planned")
def duel_planned(window):
    page = _duel(window)
    row = page.planning.second.settings.rows[0]
    row.name.setCurrentIndex(row.name.findData("adapter.rank"))
    row.values.setText("32")
    page.planning.card.ask()
    window.client.answer("plan_duel", duels=[a_duel("planned")])
    page.planning.card._timer.stop()


@scene("duel-factors")
def duel_factors(window):
    page = _duel(window)
    page.planning.kind.button("factors").click()
    page.planning.factors.add.click()
    row = page.planning.factors.rows[1]
    row.name.setCurrentIndex(row.name.findData("train.schedule"))
    row.values.setText("cosine, wsd")
    page.planning.card.ask()
    window.client.answer("plan_duel", duels=[factorial("planned")])
    page.planning.card._timer.stop()


@scene("duel-unfair")
def duel_unfair(window):
    page = _duel(window)
    page.planning.card._timer.stop()
    what = "draft and rank 32 cannot be compared fairly: train.epochs is 2 / 3 (another token budget)."
    remedy = "Give all recipes the same values there, or add --anyway."
    page.planning.card.show_failure(Failure(id="", what=what, remedy=remedy, exit_code=2))


def _current(made, side, seed):
    return made[-1].model_copy(update={"side": side, "seed": seed, "ended": "", "step": 240})


@scene("duel-running")
def duel_running(window):
    made = duel_runs(user_data_dir() / "duel", 9)
    _duel(window, a_duel("running", folder="/duels/1", made=made[:8], current=_current(made, 0, 9)))


@scene("duel-stopped")
def duel_stopped(window):
    made = duel_runs(user_data_dir() / "duel", 9)
    message = "The run seeds-a-lr0.0002-seed9 of this duel failed: the disk is full."
    _duel(window, a_duel("stopped", folder="/duels/1", made=made[:8], current=_current(made, 0, 9), message=message))


def _judged(window, won, headline):
    checks = [DuelCheck(what=what, verdict="same") for what in CHECKS]
    caution = "With 3 pairs a difference is told apart from none only if it is larger than 2.5 times their spread."
    made = duel_runs(user_data_dir() / "duel", 12)
    report = str(Path("/duels/1/report.html"))
    _duel(
        window,
        a_duel(
            "finished", folder="/duels/1", made=made, verdicts=verdicts(won=won), headline=headline, checks=checks,
            caution=caution, report=report,
        ),
    )  # fmt: skip


@scene("duel-done")
def duel_done(window):
    _judged(window, True, "rank 32 at 0.0002 has a lower held-out loss than draft at 0.0002.")


@scene("duel-undecided")
def duel_undecided(window):
    _judged(window, False, "draft at 0.0002 and rank 32 at 0.0002 are not distinguishable by held-out loss.")
