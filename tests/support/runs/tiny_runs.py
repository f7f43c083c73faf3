"""Tiny runs: recipes, and what is read back of a run: events, losses, the adapter."""

from pathlib import Path

from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe.recipe_file import parse_recipe
from burnish_engine.contract.run.events import EvaluationDone, StepDone
from burnish_engine.runs.control import send
from burnish_engine.runs.events_file import read_events

from support.models.tiny import conversations, make_llama, write_jsonl

WATCHED = '[evaluation]\nevery = 3\nprompts = ["My lamp is broken?"]\nsample_tokens = 3\nsample_share = 0\n'
"""Of a recipe whose runs are looked at on the way."""


def tiny_recipe(folder, *, rows=40, extra="", **train):
    """A recipe over a tiny model and dataset made in `folder`; keyword arguments go into [train].

    The general text, a third of such a run's time, is measured only where `extra` asks for it.
    """
    folder = Path(folder)
    model = folder / "base"
    if not model.exists():
        make_llama(model)
    data = write_jsonl(folder / "train.jsonl", conversations(rows))
    held = write_jsonl(folder / "held.jsonl", conversations(8, offset=1000))
    settings = {
        "epochs": 3.0, "micro_batch_tokens": 256, "learning_rate": 5e-3, "precision": '"fp32"', "checkpoint_every": 3,
        "warmup_share": 0.1, **train,
    }  # fmt: skip
    lines = "\n".join(
        f"{key} = {str(value).lower() if isinstance(value, bool) else value}" for key, value in settings.items()
    )
    recipe = parse_recipe(
        f"""
[model]
path = '{model}'
[data]
files = ['{data}']
validation_files = ['{held}']
max_length = 128
[adapter]
rank = 4
alpha = 8
dropout = 0.1
[devices]
kind = "cpu"
threads = 1
[train]
{lines}
{extra}
"""
    )
    if "general_text" in extra:
        return recipe
    return recipe.model_copy(update={"evaluation": recipe.evaluation.model_copy(update={"general_text": False})})


def of_kind(paths: RunPaths, kind):
    """The run's events of a kind, in order."""
    return [event for event in read_events(paths.events) if isinstance(event, kind)]


def trained(paths: RunPaths) -> bytes:
    """The adapter's file."""
    return (paths.adapter / "adapter_model.safetensors").read_bytes()


def losses(paths: RunPaths) -> dict[int, float]:
    """Loss of every step; where a step was made twice (after a crash), the last one."""
    return {event.step: event.loss for event in read_events(paths.events) if isinstance(event, StepDone)}


def evaluations(paths: RunPaths) -> dict[int, float]:
    """Held-out loss by step."""
    return {event.step: event.loss for event in read_events(paths.events) if isinstance(event, EvaluationDone)}


def commanding(paths, at_step, *names):
    """A listener that sends commands after a step, as a client would."""

    def listen(event):
        if isinstance(event, StepDone) and event.step == at_step:
            for name in names:
                send(paths, name)

    return listen
