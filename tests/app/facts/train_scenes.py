"""A run in every state that the page Train has to show, as its summary and the events that lead to it."""

from app.facts.run_events import (
    FAILED,
    FINISHED,
    NOW,
    TOTAL,
    begun,
    events,
    numbered,
    preferring,
    resumed,
    saved,
    scored,
    troubled,
)
from app.facts.run_summaries import LONG_MODEL, LONG_NAME, summary

from burnish_engine.contract.run.events import (
    ExchangeMeasured,
    GuardReported,
    LayersPlaced,
    PhaseChanged,
    PhaseProgress,
    RunEnded,
)
from burnish_engine.contract.run.process_end import ProcessEnd

SHIFTED = GuardReported(
    step=0, when="before", verdict="not_training", check="labels",
    sentence="The labels are shifted by one: the loss is 9.31, and 2.61 against each token itself.",
    cause="Each position is taught the token it sees instead of the next token: the labels were not shifted.",
    remedy="Nothing in a recipe does this: please report it with the run's folder.",
)  # fmt: skip
BY_GUARD = RunEnded(outcome="failed", exit_code=13, step=0, message=f"{SHIFTED.sentence} {SHIFTED.cause}")


def died(**end):
    """Return an interrupted run whose process was seen to die."""
    return summary("interrupted").model_copy(update={"process_end": ProcessEnd(t=NOW, **end)})


def failed_with(code, step, message):
    """Return a failed run and its events."""
    ended = RunEnded(outcome="failed", exit_code=code, step=step, message=message)
    return summary("failed", step, message=message, exit_code=code), events(step, ended=ended)


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
