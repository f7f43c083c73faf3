"""One peer's DPO speed and memory, in a process of its own. Prints RESULT and a JSON row.

    python tests/bench/peer_pairs.py --engine trl|unsloth --model FOLDER [--method lora|qlora] [--pairs 8]
        [--accumulation 4] [--reference step|cached] [--checkpointing none|offload] [--attention fa2|sdpa]

Pairs have the lengths of `burnish bench step --objective dpo`, and tokens are counted as there: prompt and reply of
both halves, padding left out. TRL 1.15 ignores `padding_free` and pads each batch. Unsloth's fused loss is switched on.
Only whole steps are timed; the reference's log-probabilities are computed in each step, or before the first one.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from documents import LONGEST, MEDIAN_LOG, SHORTEST, SIGMA_LOG
from peer_step import RANK, Watch, load_transformers, load_unsloth, targets

LONGEST_WORD_ID = 40_000


def words(tokenizer: Any) -> list[str]:
    """Texts that are one token each, however they are joined: a space and letters."""
    kept = []
    for index in range(10, min(len(tokenizer), LONGEST_WORD_ID)):
        text = tokenizer.decode([index])
        if text[:1] == " " and text[1:].isascii() and text[1:].isalpha():
            kept.append(text)
    return kept


def pairs(tokenizer: Any, count: int) -> list[dict[str, str]]:
    """`count` pairs; a quarter of the shorter row is the prompt, and the end token is added by the trainer."""
    random, known = np.random.default_rng(0), words(tokenizer)
    drawn = random.lognormal(MEDIAN_LOG, SIGMA_LOG, size=(count, 2)).astype(int).clip(SHORTEST, LONGEST)

    def text(length: int) -> str:
        return "".join(known[index] for index in random.integers(0, len(known), size=length))

    made = []
    for chosen, rejected in drawn.tolist():
        prompt = max(min(chosen, rejected) // 4, 1)
        replies = {"chosen": text(chosen - prompt - 1), "rejected": text(rejected - prompt - 1)}
        made.append({"prompt": text(prompt)} | replies)
    return made


def make_trainer(options: argparse.Namespace) -> Any:
    """TRL's trainer, which Unsloth patches."""
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoTokenizer
    from trl import DPOConfig, DPOTrainer

    adapter = None
    if options.engine == "unsloth":
        model = load_unsloth(options)
    else:
        model = load_transformers(options)
        adapter = LoraConfig(
            r=RANK, lora_alpha=RANK, lora_dropout=0, target_modules=targets(options), task_type="CAUSAL_LM"
        )
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    count = options.steps * options.pairs * options.accumulation
    return DPOTrainer(
        model=model,
        train_dataset=Dataset.from_list(pairs(tokenizer, count)),
        processing_class=tokenizer,
        peft_config=adapter,
        args=DPOConfig(
            output_dir=tempfile.mkdtemp(),
            per_device_train_batch_size=options.pairs,
            gradient_accumulation_steps=options.accumulation,
            max_steps=options.steps,
            learning_rate=2e-4,
            logging_steps=1,
            optim="adamw_8bit",
            bf16=True,
            max_length=LONGEST,
            precompute_ref_log_probs=options.reference == "cached",
            report_to=[],
            save_strategy="no",
            gradient_checkpointing=options.checkpointing != "none",
            warmup_steps=5,
            lr_scheduler_type="linear",
            seed=0,
            dataset_num_proc=None,
            dataloader_num_workers=2,
        ),
    )


def main() -> None:
    """Train, then print the row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", required=True, choices=["unsloth", "trl"])
    parser.add_argument("--model", required=True, help="folder, made by random_models.py")
    parser.add_argument("--method", choices=["lora", "qlora"], default="lora")
    parser.add_argument("--pairs", type=int, default=8, help="a pass")
    parser.add_argument("--accumulation", type=int, default=4, help="passes a step")
    parser.add_argument("--reference", choices=["step", "cached"], default="cached")
    parser.add_argument("--checkpointing", choices=["none", "offload"], default="none")
    parser.add_argument("--attention", choices=["fa2", "sdpa"], default="sdpa", help="Unsloth takes what is installed")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--warm-up", type=int, default=4)
    options = parser.parse_args()
    os.environ["UNSLOTH_FUSED_PREFERENCE_LOSS"] = "1"
    if options.engine == "unsloth":
        import unsloth  # noqa: F401  it patches what is imported after it
    import torch

    torch.manual_seed(0)
    trainer = make_trainer(options)
    watch = Watch(trainer)
    torch.cuda.reset_peak_memory_stats()
    trainer.train()
    logs = [entry for entry in trainer.state.log_history if "loss" in entry]
    row = watch.speeds(options.warm_up) | {
        "engine": options.engine,
        "model": Path(options.model).name,
        "reference": options.reference,
        "pairs": options.pairs,
        "accumulation": options.accumulation,
        "checkpointing": options.checkpointing,
        "peak_allocated_gib": torch.cuda.max_memory_allocated() / 2**30,
        "first_step_s": watch.first_step_s,
        "loss": [entry["loss"] for entry in logs],
        "device": torch.cuda.get_device_name(),
    }
    print("RESULT", json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
