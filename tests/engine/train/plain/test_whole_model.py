"""Training every weight: the numbers of a plain script, exact resume, and folders that transformers loads."""

import json
import shutil

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from burnish_engine.advise.facts import engine_choice
from burnish_engine.contract.errors import ExitCode, UsageError
from burnish_engine.contract.run.events import StepDone
from burnish_engine.data.prepare import prepare
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.runs.control import send
from burnish_engine.runs.store import create_run
from burnish_engine.train.base.engine_spec import EngineSpec
from burnish_engine.train.base.stream import BatchStream
from burnish_engine.train.engine_loader import make_engine
from burnish_engine.train.lifecycle import checkpoint as checkpoints
from burnish_engine.train.plain.plain_step import summed_loss
from burnish_engine.train.plain.whole_model import WholeModel
from burnish_engine.train.run import run_training

from support.runs.tiny_runs import losses, tiny_recipe

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = torch.device("cpu")
STEPS = 20
SETTINGS = {
    "learning_rate": 1e-3, "schedule": '"constant"', "warmup_share": 0.0, "weight_decay": 0.1, "accumulation": 2,
    "epochs": 40.0, "micro_batch_tokens": 160,
}  # fmt: skip


@pytest.fixture
def opened(tmp_path):
    """Open an engine that trains every weight: (optimizer, precision, folder to continue with) -> engine."""

    def open_engine(optimizer="adamw", precision="fp32", trained=None, step=0, **train):
        recipe = full_recipe(tmp_path, optimizer=f'"{optimizer}"', **SETTINGS | train)
        source = open_model(recipe.model.path)
        tokenizer = load_tokenizer(source)
        stream = BatchStream(prepare(recipe, tokenizer).train, recipe.train)
        engine = make_engine(EngineSpec(source, recipe, stream, tokenizer, precision, CPU, trained))
        engine.start(step, 1000, 2000)
        return engine

    return open_engine


def full_recipe(folder, **settings):
    recipe = tiny_recipe(folder, rows=16, **settings)
    return recipe.model_copy(update={"adapter": recipe.adapter.model_copy(update={"method": "full"})})


def steps_of(engine, count):
    for _ in range(count):
        engine.queue_step()
    return [(result.loss, result.grad_norm) for result in engine.results(wait=True)]


def by_a_script(engine, steps=STEPS):
    """Losses of transformers and AdamW, nothing of ours but the order of the rows: one row at a time."""
    section = engine._recipe.train
    model = AutoModelForCausalLM.from_pretrained(engine._recipe.model.path, dtype=torch.float32).train()
    matrices = [value for value in model.parameters() if value.ndim >= 2]
    vectors = [value for value in model.parameters() if value.ndim < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=section.learning_rate, betas=(section.beta1, section.beta2), eps=section.epsilon,
    )  # fmt: skip
    losses = []
    for step in range(steps):
        batches = [engine._stream[2 * step], engine._stream[2 * step + 1]]
        count = sum(int((batch.labels >= 0).sum()) for batch in batches)
        total = 0.0
        for batch in batches:
            for start, end in zip(batch.boundaries[:-1], batch.boundaries[1:], strict=True):
                ids, labels = (torch.from_numpy(part[start:end]) for part in (batch.input_ids, batch.labels))
                logits = model(input_ids=ids[None]).logits[0]
                loss = torch.nn.functional.cross_entropy(logits, labels, ignore_index=-100, reduction="sum") / count
                loss.backward()
                total += float(loss.detach())
        torch.nn.utils.clip_grad_norm_(model.parameters(), section.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    return losses, model


@pytest.mark.full
def test_twenty_steps_are_those_of_a_plain_script(opened):
    engine = opened()
    ours = [loss for loss, _ in steps_of(engine, STEPS)]
    theirs, model = by_a_script(engine)
    assert ours[-1] < ours[0] - 0.5
    assert ours == pytest.approx(theirs, abs=1e-5)
    for (_, our), their in zip(engine.parameters, model.parameters(), strict=True):
        torch.testing.assert_close(our, their, rtol=0, atol=2e-4)


@pytest.mark.full
@pytest.mark.parametrize("optimizer", ["adamw", "adamw8bit"])
def test_a_stopped_run_goes_on_to_the_same_file(tmp_path, burnish_home, optimizer):
    recipe = full_recipe(tmp_path, max_steps=6, optimizer=f'"{optimizer}"', precision='"bf16"')
    whole, cut = create_run(recipe, tmp_path / "whole"), create_run(recipe, tmp_path / "cut")

    def stop(event):
        if isinstance(event, StepDone) and event.step == 4:
            send(cut, "stop")

    assert run_training(whole).exit_code == ExitCode.DONE
    assert run_training(cut, listener=stop).exit_code == ExitCode.STOPPED
    assert run_training(cut).exit_code == ExitCode.DONE
    assert losses(cut) == losses(whole)
    one, two = ((paths.model / "model.safetensors").read_bytes() for paths in (whole, cut))
    assert one == two


@pytest.mark.full
def test_the_run_s_model_is_loaded_by_plain_transformers(tmp_path, opened):
    engine = opened(precision="bf16")
    steps_of(engine, 2)
    checkpoints.save_adapter(engine, tmp_path / "model")
    steps_of(engine, 1)
    checkpoints.save_adapter(engine, tmp_path / "model")  # over the older one
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert model.dtype == torch.float32
    for (_, ours), (_, theirs) in zip(engine.parameters, model.named_parameters(), strict=True):
        assert torch.equal(ours, theirs)
    base = open_model(engine._recipe.model.path)
    assert AutoTokenizer.from_pretrained(tmp_path / "model").chat_template == load_tokenizer(base).chat_template
    before, after = (json.loads((folder / "config.json").read_text()) for folder in (base.folder, tmp_path / "model"))
    assert {key for key in before | after if before.get(key) != after.get(key)} <= {"dtype", "transformers_version"}
    with safe_open(tmp_path / "model" / "model.safetensors", "pt") as file:
        assert "lm_head.weight" not in file.keys()  # noqa: SIM118  tied to the embedding, so stored once
    assert not list((tmp_path / "model").glob("*.bin"))


def test_a_base_s_own_files_go_along(tmp_path):
    recipe = full_recipe(tmp_path)
    base = tmp_path / "base"
    (base / "LICENSE").write_text("free")
    # transformers writes no such file: greedy decoding does not use a temperature.
    odd = {"do_sample": False, "temperature": 0.6, "eos_token_id": 2}
    (base / "generation_config.json").write_text(json.dumps(odd))
    whole = WholeModel(open_model(recipe.model.path), "fp32", CPU)
    whole.save(tmp_path / "model")
    assert (tmp_path / "model" / "LICENSE").read_text() == "free"
    assert json.loads((tmp_path / "model" / "generation_config.json").read_text()) == odd
    assert whole.model.generation_config.temperature == 0.6


@pytest.mark.full
def test_updates_below_bf16_s_last_digit_are_not_lost(opened):
    engine = opened(precision="bf16", learning_rate=1e-6)
    (name, master), *_ = engine.parameters
    copy = dict(engine.model.named_parameters())[name]
    assert (copy.dtype, master.dtype) == (torch.bfloat16, torch.float32)
    start = master.detach().clone()
    steps_of(engine, 5)
    moved = (master - start).abs()
    assert 1e-6 < moved.max() < 1e-5
    still = copy.float() == start.bfloat16().float()
    assert (still & (moved > 0)).float().mean() > 0.7  # five updates, and they do not show in bf16 yet
    for key, value in engine.parameters:
        assert torch.equal(dict(engine.model.named_parameters())[key], value.bfloat16())


def test_gradients_of_several_passes_are_summed_in_fp32(opened):
    engine = opened(precision="bf16")
    batches = [engine._stream[0], engine._stream[1]]
    alone = []
    for batch in batches:
        (summed_loss(engine.model, batch, CPU, "packed") / 100).backward()
        alone.append([value.grad.clone() for _, value in engine.parameters])
        engine._drop_gradients()
    for batch in batches:
        (summed_loss(engine.model, batch, CPU, "packed") / 100).backward()
    assert all(value.grad is None for value in engine.model.parameters())
    for (_, value), first, second in zip(engine.parameters, *alone, strict=True):
        assert torch.equal(value.grad, first + second)
        assert torch.equal(first.bfloat16().float(), first)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("stored", [torch.float32, torch.float16, torch.bfloat16])
def test_masters_are_the_stored_weights_exactly(tmp_path, stored):
    recipe = full_recipe(tmp_path)
    folder = shutil.copytree(tmp_path / "base", tmp_path / "other")
    AutoModelForCausalLM.from_pretrained(recipe.model.path, dtype=stored).save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    whole = WholeModel(open_model(str(folder)), "bf16", CPU)
    for name, value in whole.parameters:
        assert value.dtype == torch.float32
        assert torch.equal(value, tensors[name].float())


def test_recomputing_does_not_change_the_steps(opened):
    torch.testing.assert_close(steps_of(opened(recompute=True), 3), steps_of(opened(), 3), rtol=1e-5, atol=1e-6)


def test_rounded_weights_cannot_be_trained(tmp_path):
    recipe = full_recipe(tmp_path)
    config = json.loads((tmp_path / "base" / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    (tmp_path / "base" / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match="stored quantized") as told:
        WholeModel(open_model(recipe.model.path), "fp32", CPU)
    assert 'adapter.method = "lora"' in told.value.remedy


@pytest.mark.full
def test_a_missing_bitsandbytes_is_told_before_anything_is_loaded(opened, monkeypatch):
    monkeypatch.setattr(engine_choice.importlib.util, "find_spec", lambda name: None if name == "bitsandbytes" else 1)
    with pytest.raises(UsageError, match="needs bitsandbytes, which is not installed") as told:
        opened("adamw8bit")
    assert 'train.optimizer = "adamw"' in told.value.remedy
    assert opened("adamw").facts.trains == "model"


@pytest.mark.full
def test_settings_without_effect_are_told(opened):
    (why, idle) = opened().notes
    assert "adapters only" in why
    assert "adapter.rank, adapter.alpha and adapter.dropout do not apply" in idle
