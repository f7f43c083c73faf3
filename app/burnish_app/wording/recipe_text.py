"""Names of the recipe's sections, fields and choices as the form shows them. No Qt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from burnish_app.look.language import tr
from burnish_app.wording.numbers import decimal_text
from burnish_engine.contract.recipe.sweep import value_text

OPTIMIZER = "train:optimizer"
"""Key of the part of the section train that the form shows on its own."""

SECTION_TITLES = {
    "model": tr("Base model"),
    "data": tr("Reading the data"),
    "adapter": tr("Adapter (what is trained)"),
    "train": tr("Training"),
    OPTIMIZER: tr("Optimizer"),
    "preference": tr("Learning from preferences"),
    "memory": tr("Memory"),
    "masking": tr("Experimental: masked updates"),
    "evaluation": tr("Evaluation and early stopping"),
    "task": tr("Score of the task"),
    "guard": tr("Is it really training?"),
    "export": tr("Export"),
    "target": tr("On the target"),
    "devices": tr("Devices"),
}

LABELS = {
    "name": tr("Name of the run"),
    "model.quantize": tr("Weights while training (LoRA or QLoRA)"),
    "data.validation_share": tr("Validation share (held out)"),
    "data.learn": tr("Supervised text (learn from)"),
    "data.system_prompt": tr("System prompt to add"),
    "data.max_length": tr("Maximum length (longest row)"),
    "data.overlong": tr("Longer rows"),
    "data.duplicates": tr("Copies of earlier rows"),
    "data.leaks": tr("Leaks (rows that are held out too)"),
    "data.degenerate": tr("Replies that say nothing"),
    "data.secrets": tr("Rows with keys or passwords"),
    "data.addresses": tr("Rows with e-mail addresses"),
    "data.damaged": tr("Rows with damaged letters"),
    "data.control_tokens": tr("Rows with control tokens"),
    "data.placeholders": tr("Rows with unfilled placeholders"),
    "data.tools": tr("Rows with tools that are not written"),
    "data.unwritten": tr("Rows that are not written whole"),
    "data.broken_rows": tr("Rows that cannot be read"),
    "data.encoding": tr("Letters are stored as"),
    "data.workers": tr("Processes that tokenize"),
    "train.epochs": tr("Epochs (times through the data)"),
    "adapter.rank": tr("Rank (size of the adapter)"),
    "adapter.alpha": tr("Alpha (scale of the adapter)"),
    "adapter.dropout": tr("Dropout (inputs left out)"),
    "train.max_steps": tr("Stop after (optimizer steps)"),
    "train.max_tokens": tr("Stop after (tokens)"),
    "train.micro_batch_tokens": tr("Micro-batch (tokens per pass)"),
    "train.accumulation": tr("Gradient accumulation (passes per step)"),
    "train.pack": tr("Packing (rows share a pass)"),
    "train.learning_rate": tr("Learning rate"),
    "train.schedule": tr("Learning rate schedule"),
    "train.warmup_share": tr("Warm up for (share of the steps)"),
    "train.final_share": tr("Final learning rate (share of the peak)"),
    "train.decay_share": tr("Decay over the last (share of the steps)"),
    "train.max_grad_norm": tr("Clip gradients at"),
    "train.recompute": tr("Activation checkpointing (recompute)"),
    "train.optimizer": tr("Optimizer"),
    "train.weight_decay": tr("Weight decay"),
    "train.precision": tr("Precision (computes in)"),
    "train.products": tr("Matrix products in 8 bits (of frozen weights)"),
    "train.engine": tr("Engine"),
    "train.seed": tr("Seed"),
    "train.checkpoint_every": tr("Checkpoint every"),
    "train.checkpoint_minutes": tr("Checkpoint at least every"),
    "train.keep_checkpoints": tr("Keep"),
    "train.beta1": tr("Beta 1"),
    "train.beta2": tr("Beta 2"),
    "train.epsilon": tr("Epsilon"),
    "train.momentum": tr("Momentum"),
    "train.lora_plus_ratio": tr("LoRA+: B's rate times"),
    "adapter.method": tr("Training method"),
    "adapter.targets": tr("Target modules (with adapters)"),
    "adapter.expert_rank": tr("Rank of each expert (mixtures)"),
    "adapter.start": tr("Adapter to go on from"),
    "preference.objective": tr("Objective (what is learned)"),
    "preference.beta": tr("Beta (of the objective)"),
    "preference.loss_type": tr("Loss function"),
    "preference.label_smoothing": tr("Label smoothing (swapped labels)"),
    "preference.rpo_alpha": tr("SFT weight (learns the chosen reply)"),
    "preference.simpo_gamma": tr("SimPO's margin"),
    "preference.desirable_weight": tr("Weight of good replies"),
    "preference.undesirable_weight": tr("Weight of bad replies"),
    "memory.layers": tr("Activations that layers save"),
    "memory.weights": tr("Where layers keep their weights"),
    "memory.budget_gib": tr("Memory budget"),
    "memory.mlp_rows": tr("Feed-forward chunk (at once)"),
    "memory.head_rows": tr("Logits chunk (at once)"),
    "masking.kind": tr("Masking method"),
    "masking.probability": tr("Update probability"),
    "masking.temperature": tr("Temperature"),
    "masking.decay": tr("Decay of the scale"),
    "masking.start": tr("Scale at the start"),
    "masking.momentum": tr("Momentum of the step"),
    "masking.share": tr("Masked together"),
    "masking.blocks": tr("Matrices that may be masked"),
    "masking.rate": tr("Learning rate factor"),
    "evaluation.every": tr("Evaluate every"),
    "evaluation.max_rows": tr("Held-out rows used"),
    "evaluation.general_text": tr("Measure forgetting"),
    "evaluation.prompts": tr("Sample prompts (asked as it learns)"),
    "evaluation.sample_tokens": tr("Longest reply"),
    "evaluation.patience": tr("Patience (stop early after)"),
    "evaluation.min_improvement": tr("Minimum improvement"),
    "task.metric": tr("Score of the task (metric)"),
    "task.pattern": tr("Pattern (regular expression)"),
    "task.json_schema": tr("JSON Schema"),
    "task.choices": tr("Choices (labels)"),
    "task.ignore_case": tr("Ignore upper and lower case"),
    "task.tolerance": tr("Tolerance"),
    "task.relative_tolerance": tr("Tolerance (share of the number)"),
    "task.max_rows": tr("Scored rows (at most)"),
    "task.max_tokens": tr("Longest scored reply"),
    "guard.action": tr("If it is not"),
    "guard.probes": tr("Probes (measure on a few rows)"),
    "guard.troubles": tr("Bad steps that are trouble"),
    "guard.window": tr("Counted within"),
    "guard.rollback": tr("Roll back once"),
    "export.quants": tr("Quantization types (files to make)"),
    "export.importance": tr("Importance matrix (careful rounding)"),
    "export.importance_tokens": tr("Importance matrix tokens"),
    "export.merge_onto": tr("Add the adapter to"),
    "export.size_limit_mb": tr("Largest file wanted"),
    "target.context": tr("Context it is used with"),
    "target.quant": tr("Preferred file"),
    "devices.where": tr("Where to run"),
    "devices.timeout_hours": tr("Longest time there"),
    "devices.kind": tr("Train on"),
    "devices.strategy": tr("Several GPUs"),
    "devices.gpus": tr("GPUs"),
    "devices.exact": tr("Same bits on any number"),
    "devices.exchange": tr("Exchange of gradients"),
    "devices.threads": tr("CPU threads"),
}
"""Label of each field: the field's term, with a plain word where that helps. The tooltip holds the key itself; a field
that is not listed is called by its key."""

_TERMS = Counter(label.partition(" (")[0] for label in LABELS.values())
_AMBIGUOUS = {term for term, count in _TERMS.items() if count > 1}

CHOICES: dict[str, dict[str, str]] = {
    "model.quantize": {
        "none": tr("as they are (LoRA)"),
        "nf4": tr("in 4 bits (QLoRA)"),
        "fp8": tr("in 8 bits (FP8)"),
    },
    "devices.strategy": {
        "single": tr("one trains alone"),
        "data_parallel": tr("share every step"),
        "sharded": tr("share every step and the weights"),
    },
    "devices.exchange": {
        "auto": tr("as the links ask for"),
        "whole": tr("after the backward pass"),
        "sliced": tr("in slices, during it"),
        "bf16": tr("rounded to 16 bits"),
    },
    "train.products": {
        "16": tr("off"),
        "fp8": tr("on (FP8)"),
        "int8": tr("on (INT8)"),
        "mxfp8": tr("on, in blocks (MXFP8)"),
        "auto": tr("where that is faster"),
    },
    "data.learn": {"responses": tr("all replies"), "last": tr("the last reply")},
    "data.overlong": {
        "auto": tr("go on if text, are cut if chat"),
        "truncate": tr("are cut"),
        "drop": tr("are left out"),
        "split": tr("are split"),
    },
    "data.duplicates": {
        "keep": tr("stay"),
        "drop": tr("are left out"),
        "drop_near": tr("are left out, near ones too"),
    },
    "data.leaks": {"keep": tr("stay in training"), "drop": tr("are not trained on")},
    "data.degenerate": {"keep": tr("stay"), "drop": tr("are left out")},
    "data.secrets": {"keep": tr("stay"), "drop": tr("are left out")},
    "data.addresses": {"keep": tr("stay"), "drop": tr("are left out")},
    "data.damaged": {"keep": tr("stay"), "drop": tr("are left out")},
    "data.control_tokens": {"keep": tr("stay"), "drop": tr("are left out")},
    "data.placeholders": {"keep": tr("stay"), "drop": tr("are left out")},
    "data.tools": {"keep": tr("stay"), "drop": tr("are left out")},
    "data.unwritten": {
        "keep": tr("stay"),
        "drop": tr("are left out"),
        "respell": tr("are written in an equal form"),
    },
    "data.broken_rows": {"stop": tr("stop the reading"), "drop": tr("are left out")},
    "guard.action": {"stop": tr("end the run"), "warn": tr("say so and go on"), "off": tr("do not check")},
    "target.quant": {"auto": tr("the finest that runs well there")},
    "train.optimizer": {
        "adamw": tr("AdamW"),
        "adamw8bit": tr("AdamW in 8 bits"),
        "paged_adamw8bit": tr("AdamW in 8 bits, paged"),
        "muon": tr("Muon"),
        "lion": tr("Lion"),
        "adafactor": tr("Adafactor"),
        "schedule_free": tr("AdamW, schedule-free"),
    },
    "preference.objective": {
        "sft": tr("learn replies (SFT)"),
        "dpo": tr("prefer replies (DPO)"),
        "orpo": tr("learn and prefer (ORPO)"),
        "simpo": tr("prefer per token (SimPO)"),
        "kto": tr("good and bad (KTO)"),
    },
    "preference.loss_type": {"ipo": tr("IPO"), "kto": tr("KTO"), "apo_zero_unpaired": tr("APO-zero")},
    "masking.kind": {"off": tr("off"), "magma": tr("Magma"), "skip_update": tr("SkipUpdate")},
    "masking.blocks": {"layers": tr("attention and feed-forward"), "all": tr("everything")},
    "task.metric": {
        "none": tr("not scored"),
        "exact_match": tr("exact match"),
        "regex": tr("regular expression"),
        "json": tr("valid JSON"),
        "choice": tr("one of several choices"),
        "number": tr("number within a tolerance"),
    },
    "export.merge_onto": {"base": tr("the 16-bit base"), "dequantized": tr("the 4-bit weights it trained on")},
}
"""Texts of choices: field key to value to text. A choice that is not listed is called by its value."""

PLACEHOLDERS = {"name": tr("by model and time")}
"""Words in an empty line that say what it stands for: field key to words."""

_OFF, _AUTO = tr("off"), tr("auto")
ZERO_WORDS = {
    **dict.fromkeys(
        (
            "train.max_steps", "train.max_tokens", "train.max_grad_norm", "train.checkpoint_every",
            "train.checkpoint_minutes", "preference.rpo_alpha", "evaluation.patience",
        ),
        _OFF,
    ),
    **dict.fromkeys(
        (
            "adapter.expert_rank", "train.momentum", "memory.budget_gib", "memory.mlp_rows", "memory.head_rows",
            "export.size_limit_mb", "devices.threads", "devices.timeout_hours", "data.workers",
        ),
        _AUTO,
    ),
    "evaluation.every": tr("start and end"),
    "evaluation.max_rows": tr("all"),
}  # fmt: skip
"""Words that stand for 0 where it is no amount: field key to word."""

NOTES: dict[tuple[str, Any], str] = {
    ("train.optimizer", "adamw8bit"): tr("A quarter of AdamW's memory; waits for the GPU twice a step."),
    ("train.optimizer", "paged_adamw8bit"): tr(
        "Optimizer state stays in system memory and is paged in: least GPU memory."
    ),
    ("train.optimizer", "muon"): tr("Half of AdamW's memory. The same learning rates fit."),
    ("train.optimizer", "lion"): tr("Half of AdamW's memory. Wants a learning rate 3 to 10 times lower."),
    (
        "train.optimizer",
        "adafactor",
    ): tr("Nearly no memory. Its learning rate is a share of a weight's size: usually 0.01."),
    ("train.optimizer", "schedule_free"): tr(
        "Needs no schedule. Takes 1 to 10 times the learning rate, and more memory."
    ),
    ("model.quantize", "fp8"): tr("Half of the memory of 16 bits, a third of NF4's error. Dense models only."),
    ("train.products", "fp8"): tr("For RTX 40, RTX 50 and H100. The loss was 0.6 % higher; INT8 costs less."),
    ("train.products", "auto"): tr("Timed for a few seconds on this GPU when the run begins."),
    ("train.products", "int8"): tr(
        "Nearly as fast as FP8 on an H100; runs on RTX 30 too. On documentation, a small model's loss rose by 0.1 %."
    ),
    ("train.products", "mxfp8"): tr(
        "For RTX 50 alone. Others measured twice FP8's speed on a GeForce; Burnish ran it on none yet."
    ),
    ("masking.kind", "magma"): tr(
        "Experimental. It helped in our two small duels; only one of your own shows it here."
    ),
    ("masking.kind", "skip_update"): tr("Experimental: published for pretraining. A duel shows whether it helps here."),
    ("preference.loss_type", "sigmoid"): tr("The usual one."),
    ("preference.loss_type", "hinge"): tr("Learns nothing more from a pair that differs by a margin."),
    ("preference.loss_type", "ipo"): tr("Aims at a fixed difference between the two replies of a pair."),
    ("preference.loss_type", "robust"): tr("For pairs of which a known share is labeled the wrong way around."),
    ("preference.loss_type", "apo_zero_unpaired"): tr(
        "Faster: does not estimate how far the model has gone from what it was."
    ),
    ("task.metric", "none"): tr(
        "Right replies are not counted. Choose a metric to see what training does for the task."
    ),
    ("guard.action", "warn"): tr("A run that does not train will use the machine to its end."),
    ("guard.action", "off"): tr("Nothing will tell a run that trains from one that does not."),
}
"""Notes about values, keyed by (field key, value)."""


def setting_name(key: str) -> str:
    """Name a setting for people.

    Args:
        key: dotted key.
    """
    return LABELS.get(key) or key.rpartition(".")[2].replace("_", " ").capitalize()


def setting_term(key: str) -> str:
    """Name a setting by its term alone, without the plain words in brackets.

    Args:
        key: dotted key.
    """
    term = setting_name(key).partition(" (")[0]
    return setting_name(key) if term in _AMBIGUOUS else term


def setting_text(key: str, value: object) -> str:
    """Format a value of a setting for people.

    Args:
        key: dotted key.
        value: value, or its text.
    """
    text = decimal_text(value) if isinstance(value, float) else value_text(value)
    if key in ZERO_WORDS and value == 0:
        return ZERO_WORDS[key]
    return CHOICES.get(key, {}).get(text, text)


def changes_text(changes: Mapping[str, object]) -> str:
    """Say which settings have which values, such as "learning rate 0.0002, rank 8".

    Args:
        changes: value of each setting by dotted key.
    """
    return ", ".join(f"{setting_term(key).casefold()} {setting_text(key, value)}" for key, value in changes.items())
