"""Runs that met a lack of memory: where they may meet it, and their record afterwards."""

from burnish_engine.contract.run.events import CheckpointSaved, SampleDone, StepDone, Warned
from burnish_engine.models.decoder.lora_adapter import LoraAdapter
from burnish_engine.train.fast import fast_engine
from burnish_engine.train.fast.fast_engine import FastEngine
from burnish_engine.train.fast.fast_trainer import FastTrainer
from burnish_engine.train.fast.micro_batch_step import MicroBatchStep
from burnish_engine.train.lifecycle import checkpoint as checkpoints
from burnish_engine.train.plain import plain_engine
from burnish_engine.train.plain.plain_engine import PlainEngine

from support.runs.tiny_runs import evaluations, of_kind, trained

ENGINES = ["fast", "plain"]
SMALLER = {"fast": "narrow", "plain": "recompute"}
STEPS = 5
PLACES = {
    "fast": {
        "pass": (MicroBatchStep, "_backward"),
        "head": (MicroBatchStep, "_head_chunk"),
        "upload": (FastTrainer, "_pass"),
        "before the update": (FastTrainer, "_update"),
        "evaluation": (fast_engine, "pass_losses"),
        "replies": (fast_engine, "generate_replies"),
        "save": (LoraAdapter, "save"),
        "moments": (FastEngine, "optimizer_tensors"),
        "page-locked memory": (fast_engine, "Prefetcher"),
    },
    "plain": {
        "pass": (plain_engine, "summed_loss"),
        "clipping": (PlainEngine, "_clip"),
        "evaluation": (plain_engine, "held_out_loss"),
        "replies": (plain_engine, "generate_replies"),
        "save": (PlainEngine, "save_adapter"),
        "moments": (PlainEngine, "optimizer_tensors"),
    },
}

ALL_OR_NOTHING = ("before the update", "page-locked memory")  # what comes after them cannot run out of memory


def smaller_plans(paths):
    """Messages of a run about the smaller plans that it took up."""
    return [event.message for event in of_kind(paths, Warned) if event.code == "smaller_plan"]


def deeds(paths):
    """Return the record of a run without its times."""
    steps = [(event.step, event.loss, event.grad_norm, event.tokens, event.epoch) for event in of_kind(paths, StepDone)]
    replies = [(event.step, event.reply) for event in of_kind(paths, SampleDone)]
    saved = [event.step for event in of_kind(paths, CheckpointSaved)]
    return steps, evaluations(paths), replies, saved


def assert_like(paths, engine, smaller, plans=1):
    """Assert that a run did and learned what the one of `smaller` did, over so many smaller plans."""
    assert deeds(paths) == deeds(smaller(engine))
    assert trained(paths) == trained(smaller(engine))
    assert len(smaller_plans(paths)) == plans


def newest_of(paths):
    """Newest checkpoint of a run."""
    return checkpoints.find_checkpoint(paths.checkpoints)[0]
