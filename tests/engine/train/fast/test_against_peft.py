"""Both engines against a script of transformers and PEFT alone: same data, seed and precision, same losses."""

import pytest
import torch

from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.run.events import RunStarted, StepDone
from burnish_engine.data.prepare import prepare
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.models.transformers_path import plain
from burnish_engine.runs.control import send
from burnish_engine.runs.events_file import read_events
from burnish_engine.runs.store import create_run
from burnish_engine.train.base.stream import BatchStream
from burnish_engine.train.run import run_training

from support.models import tiny_models
from support.runs.tiny_runs import evaluations, losses, tiny_recipe, trained

STEPS = 12
METHODS = {"lora": {}, "rslora": {"use_rslora": True}, "dora": {"use_dora": True}}


def script(recipe, rows_of_steps, validation):
    """Losses and held-out losses of a plain loop over single, unpadded rows. Shares no code with the engine's step."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(recipe.train.seed)
    base = AutoModelForCausalLM.from_pretrained(recipe.model.path, dtype=torch.float32)
    torch.manual_seed(recipe.train.seed)
    model = get_peft_model(
        base,
        LoraConfig(
            r=recipe.adapter.rank,
            lora_alpha=recipe.adapter.alpha,
            target_modules="all-linear",
            task_type="CAUSAL_LM",
            **METHODS[recipe.adapter.method],
        ),
    )
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3, weight_decay=0.0)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)

    def summed(rows):
        total, count = 0.0, 0
        for ids, learned in rows:
            labels = torch.tensor([i if keep else -100 for i, keep in zip(ids, learned, strict=True)])
            targets = int((labels[1:] != -100).sum())
            total = total + model(input_ids=torch.tensor(ids)[None], labels=labels[None]).loss * targets
            count += targets
        return total / count

    def held_out():
        with torch.no_grad():
            return float(summed(validation))

    found, before = [], held_out()
    for rows in rows_of_steps:
        loss = summed(rows)
        loss.backward()
        torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        found.append(float(loss.detach()))
    return found, before, held_out()


CASES = [
    ("lora", "auto", 1, False),
    ("lora", "auto", 3, True),
    ("rslora", "auto", 1, True),
    ("dora", "auto", 3, True),
    ("dora", "plain", 1, False),
    ("lora", "plain", 3, True),
    pytest.param("lora", "auto", 2, True, id="convolutions"),
    pytest.param("lora", "auto", 2, True, id="delta nets"),
]
HYBRIDS = {"convolutions": "lfm2", "delta nets": "qwen3-5"}


@pytest.mark.full
@pytest.mark.parametrize(("method", "engine", "accumulation", "pack"), CASES)
def test_same_losses_as_transformers_and_peft(tmp_path, request, method, engine, accumulation, pack):
    if shape := HYBRIDS.get(request.node.callspec.id):
        tiny_models.make(shape, tmp_path / "base", tokenizer=True)
    recipe = tiny_recipe(
        tmp_path, rows=60, epochs=20.0, max_steps=STEPS, schedule='"constant"', warmup_share=0.0,
        accumulation=accumulation, pack=pack, checkpoint_every=0, engine=f'"{engine}"',
    )  # fmt: skip
    adapter = recipe.adapter.model_copy(update={"dropout": 0.0, "method": method})
    recipe = recipe.model_copy(update={"adapter": adapter})
    source = open_model(recipe.model.path)
    data = prepare(recipe, load_tokenizer(source))
    stream = BatchStream(data.train, recipe.train)
    rows_of_steps = []
    for step in range(STEPS):
        rows = []
        for index in range(step * accumulation, (step + 1) * accumulation):
            batch = stream[index]
            for start, end in zip(batch.boundaries[:-1], batch.boundaries[1:], strict=True):
                ids = batch.input_ids[start:end].tolist()
                document = next(d for d in data.train if list(d.input_ids) == ids)
                rows.append((ids, list(document.supervised)))
        rows_of_steps.append(rows)
    validation = [(list(d.input_ids), list(d.supervised)) for d in data.validation]

    paths = create_run(recipe, tmp_path / "run")
    assert run_training(paths).exit_code == 0
    (started,) = [event for event in read_events(paths.events) if isinstance(event, RunStarted)]
    assert started.engine == ("plain" if engine == "plain" else "fast")
    theirs, before, after = script(recipe, rows_of_steps, validation)
    ours = losses(paths)
    assert [ours[step] for step in sorted(ours)] == pytest.approx(theirs, abs=1e-5)
    assert theirs[-1] < theirs[0] - 0.3  # it learned
    assert evaluations(paths)[0] == pytest.approx(before, abs=1e-5)
    assert evaluations(paths)[STEPS] == pytest.approx(after, abs=1e-5)


@pytest.mark.full
@pytest.mark.parametrize(
    ("shape", "method", "quantize"),
    [
        ("lfm2", "lora", "none"),
        ("lfm2", "rslora", "none"),
        ("lfm2", "dora", "none"),
        ("lfm2", "dora", "nf4"),
        ("qwen3-5", "lora", "nf4"),
    ],
)
def test_a_hybrid_goes_on_bit_for_bit(tmp_path, shape, method, quantize):
    """Short convolutions or delta nets, and attention, in one model, packed; stopped after half of its steps."""
    tiny_models.make(shape, tmp_path / "base", tokenizer=True)
    recipe = tiny_recipe(tmp_path, max_steps=6)
    adapter = {"method": method, "dropout": 0.0 if method == "dora" else recipe.adapter.dropout}
    changes = {
        "adapter": recipe.adapter.model_copy(update=adapter),
        "model": recipe.model.model_copy(update={"quantize": quantize}),
    }
    whole, stopped = (create_run(recipe.model_copy(update=changes), tmp_path / name) for name in ("one", "two"))
    assert run_training(whole).exit_code == 0

    def stop(event):
        if isinstance(event, StepDone) and event.step == 3:
            send(stopped, "stop")

    assert run_training(stopped, listener=stop).exit_code == ExitCode.STOPPED
    assert run_training(stopped).exit_code == 0
    (started, *_) = [event for event in read_events(stopped.events) if isinstance(event, RunStarted)]
    assert started.engine == "fast"
    assert losses(stopped) == losses(whole)
    assert trained(stopped) == trained(whole)


@pytest.mark.full
@pytest.mark.parametrize("shape", ["", "lfm2"])
def test_the_adapter_loads_in_plain_peft_with_the_same_logits(tmp_path, shape):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if shape:
        tiny_models.make(shape, tmp_path / "base", tokenizer=True)
    recipe = tiny_recipe(tmp_path, max_steps=6)
    paths = create_run(recipe, tmp_path / "run")
    assert run_training(paths).exit_code == 0
    base = AutoModelForCausalLM.from_pretrained(recipe.model.path, dtype=torch.float32)
    ids = AutoTokenizer.from_pretrained(recipe.model.path)("My lamp is broken?", return_tensors="pt").input_ids
    plain_logits = base(ids).logits
    theirs = PeftModel.from_pretrained(base, paths.adapter).eval()(ids).logits
    source = open_model(recipe.model.path)
    ours = plain.load_adapter(plain.load_base(source, "fp32", torch.device("cpu")), paths.adapter).eval()(ids).logits
    assert (ours - theirs).abs().max() < 1e-5
    assert (theirs - plain_logits).abs().max() > 1e-2  # it was trained
