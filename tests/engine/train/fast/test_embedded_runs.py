"""Loss curves of the embedded model: alike in both engines."""

import pytest
import torch

from burnish_engine.contract.recipe.recipe_file import parse_recipe
from burnish_engine.contract.run.events import RunStarted
from burnish_engine.runs.events_file import read_events
from burnish_engine.runs.store import create_run
from burnish_engine.train.run import run_training

from support.runs.tiny_runs import losses

SAMPLE = """
[model]
path = "embedded"
[data]
files = ['{assets}/samples/bench-notes.train.jsonl']
validation_files = ['{assets}/samples/bench-notes.heldout.jsonl']
max_length = 128
[adapter]
rank = 8
alpha = 16
[devices]
kind = "{device}"
[train]
engine = "{engine}"
precision = "{precision}"
epochs = 20.0
max_steps = {steps}
micro_batch_tokens = {tokens}
accumulation = {accumulation}
learning_rate = 5e-4
checkpoint_every = 0
[evaluation]
general_text = false
max_rows = 1
[guard]
probes = {probes}
"""


def curve(tmp_path, name, **settings):
    """Losses of a run on the embedded model and the sample dataset."""
    paths = create_run(parse_recipe(SAMPLE.format(**settings)), tmp_path / name)
    outcome = run_training(paths)
    assert outcome.exit_code == 0, outcome.message
    assert next(event.engine for event in read_events(paths.events) if isinstance(event, RunStarted)) == name.split()[0]
    found = losses(paths)
    return [found[step] for step in sorted(found)]


@pytest.mark.full
@pytest.mark.slow
def test_the_embedded_model_learns_alike_in_both_engines(tmp_path, assets, embedded_model):
    settings = {
        "assets": assets, "device": "cpu", "precision": "fp32", "steps": 2, "tokens": 128, "accumulation": 1,
        "probes": "false",
    }  # fmt: skip
    fast = curve(tmp_path, "fast", engine="auto", **settings)
    slow = curve(tmp_path, "plain", engine="plain", **settings)
    print(fast, slow)
    assert len(fast) == 2
    assert fast == pytest.approx(slow, rel=1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_the_embedded_model_learns_alike_on_a_gpu(tmp_path, assets, embedded_model, precision):
    """A hundred steps; fp16 against the plain engine in fp32, which has none."""
    settings = {"assets": assets, "device": "cuda", "steps": 100, "tokens": 2048, "accumulation": 1, "probes": "true"}
    fast = curve(tmp_path, "fast", engine="fast", precision=precision, **settings)
    other = {"fp16": "fp32"}.get(precision, precision)
    slow = curve(tmp_path, "plain", engine="plain", precision=other, **settings)
    smooth, wanted = (torch.tensor(one).unfold(0, 10, 10).mean(1) for one in (fast, slow))
    print(precision, smooth, wanted)
    assert smooth.tolist() == pytest.approx(wanted.tolist(), rel=0.01)
    assert smooth[-1] < smooth[0] - 0.3
