"""Whole runs over preferences against TRL's trainers: same model, adapter, rows and steps, same figures.

Both continue from the same adapter, which is TRL's reference too where it is given a model with one.
"""

from __future__ import annotations

import pytest
import torch

from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.run.events import StepDone
from burnish_engine.runs.store import create_run
from burnish_engine.train.run import run_training

from support.models import tiny_models
from support.models.tiny import write_jsonl
from support.runs.tiny_runs import of_kind, tiny_recipe

trl = pytest.importorskip("trl")
STEPS, RATE = 3, 2e-3
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""ChatML without a line break after a turn: TRL learns that too, here the end of the turn is the last token learned."""


def messages(role, text):
    return [{"role": role, "content": text}]


def rows_of(objective):
    asked = [messages("user", f"Is lamp {number} on?") for number in range(6)]
    good = [messages("assistant", "Gladly, it is. " * (number % 3 + 1)) for number in range(6)]
    bad = [messages("assistant", f"No {number}.") for number in range(6)]
    if objective == "kto":
        replies = [good[number] if number % 3 else bad[number] for number in range(6)]
        return [
            {"prompt": prompt, "completion": reply, "label": bool(number % 3)}
            for number, (prompt, reply) in enumerate(zip(asked, replies, strict=True))
        ]
    return [
        {"prompt": prompt, "chosen": chosen, "rejected": rejected}
        for prompt, chosen, rejected in zip(asked, good, bad, strict=True)
    ]


def theirs(objective, base, adapter, rows, folder, beta):
    """Figures that TRL logs at each step; a step has all rows."""
    from datasets import Dataset
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    model = PeftModel.from_pretrained(model, str(adapter), is_trainable=True)
    tokenizer = AutoTokenizer.from_pretrained(base)
    tokenizer.chat_template = TEMPLATE
    settings = {
        "output_dir": str(folder), "per_device_train_batch_size": len(rows), "max_steps": STEPS, "learning_rate": RATE,
        "lr_scheduler_type": "constant", "logging_steps": 1, "beta": beta, "max_length": 128, "use_cpu": True,
        "report_to": [], "save_strategy": "no", "disable_tqdm": True, "max_grad_norm": 1.0, "bf16": False,
        "gradient_checkpointing": False, "dataloader_pin_memory": False,
    }  # fmt: skip
    config, trainer = (trl.KTOConfig, trl.KTOTrainer) if objective == "kto" else (trl.DPOConfig, trl.DPOTrainer)
    made = trainer(
        model=model,
        args=config(**settings),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
    )
    made.train()
    return [entry for entry in made.state.log_history if "loss" in entry]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("engine", ["fast", "plain"])
@pytest.mark.parametrize("objective", ["dpo", "kto"])
def test_every_step_has_the_figures_of_trl(tmp_path, objective, engine):
    rows, beta = rows_of(objective), 0.4
    preference = f'[preference]\nobjective = "{objective}"\nbeta = {beta}\n'
    recipe = tiny_recipe(
        tmp_path, max_steps=STEPS, epochs=9.0, learning_rate=RATE, schedule='"constant"', warmup_share=0.0,
        micro_batch_tokens=1024, engine=f'"{engine}"', extra=preference,
    )  # fmt: skip
    adapter = tiny_models.lora(recipe.model.path, tmp_path / "adapter", rank=4)
    template = tmp_path / "chat.jinja"
    template.write_text(TEMPLATE, encoding="utf-8")
    data = {
        "template": str(template),
        "files": [str(write_jsonl(tmp_path / "rows.jsonl", rows))],
        "validation_files": [],
        "validation_share": 0.0,
    }
    sections = {
        "adapter": recipe.adapter.model_copy(update={"start": str(adapter), "dropout": 0.0}),
        "data": recipe.data.model_copy(update=data),
    }
    paths = create_run(recipe.model_copy(update=sections), tmp_path / "run")
    assert run_training(paths).exit_code == ExitCode.DONE
    ours, logged = of_kind(paths, StepDone), theirs(objective, recipe.model.path, adapter, rows, tmp_path / "trl", beta)
    assert len(ours) == len(logged) == STEPS
    names = {"loss": "loss", "grad_norm": "grad_norm", "rewards/margins": "margin", "logps/chosen": "chosen_log_prob",
             "logps/rejected": "rejected_log_prob"}  # fmt: skip
    names |= {"kl": "kl"} if objective == "kto" else {"rewards/accuracies": "accuracy"}
    for step, entry in zip(ours, logged, strict=True):
        found = {name: getattr(step, field) for name, field in names.items()}
        assert found == pytest.approx({name: float(entry[name]) for name in names}, rel=3e-5, abs=1e-6)
    assert ours[-1].loss < ours[0].loss
