"""One peer's DPO speed and memory, in a process of its own. Prints RESULT and a JSON row.

    python tests/bench peer_pairs --engine trl|unsloth --model FOLDER [--method lora|qlora] [--pairs 8]
        [--accumulation 4] [--reference step|cached] [--checkpointing none|offload] [--attention fa2|sdpa]

Pairs have the lengths of `burnish bench step --objective dpo`, and tokens are counted as there: prompt and reply of
both halves, padding left out. TRL 1.15 ignores `padding_free` and pads each batch. Unsloth's fused loss is switched on.
Only whole steps are timed; the reference's log-probabilities are computed in each step, or before the first one.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

import numpy as np

from bench.peers.documents import LONGEST, MEDIAN_LOG, SHORTEST, SIGMA_LOG
from bench.peers.peer_step import load, parser_of, settings, train

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
    from transformers import AutoTokenizer
    from trl import DPOConfig, DPOTrainer

    model, adapter = load(options)
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    count = options.steps * options.pairs * options.accumulation
    return DPOTrainer(
        model=model,
        train_dataset=Dataset.from_list(pairs(tokenizer, count)),
        processing_class=tokenizer,
        peft_config=adapter,
        args=DPOConfig(
            **settings(options),
            per_device_train_batch_size=options.pairs,
            gradient_accumulation_steps=options.accumulation,
            optim="adamw_8bit",
            precompute_ref_log_probs=options.reference == "cached",
            dataset_num_proc=None,
        ),
    )


def main() -> None:
    """Train, then print the row."""
    parser = parser_of(__doc__, ["unsloth", "trl"], 12, 4)
    parser.add_argument("--pairs", type=int, default=8, help="a pass")
    parser.add_argument("--accumulation", type=int, default=4, help="passes a step")
    parser.add_argument("--reference", choices=["step", "cached"], default="cached")
    options = parser.parse_args()
    os.environ["UNSLOTH_FUSED_PREFERENCE_LOSS"] = "1"
    _, _, row = train(options, make_trainer)
    asked = ("engine", "reference", "pairs", "accumulation", "checkpointing")
    print("RESULT", json.dumps(row | {name: getattr(options, name) for name in asked}), flush=True)


if __name__ == "__main__":
    main()
