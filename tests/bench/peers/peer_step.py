"""One peer's LoRA training speed and memory, in a process that `peers` starts. Prints RESULT and a JSON row.

    python tests/bench peer_step --engine unsloth|trl|liger --model FOLDER [--method lora|qlora] [--tokens 4096]
        [--checkpointing none|offload] [--attention fa2|sdpa] [--length N] [--padded] [--record FILE]

Rank 16, alpha 16 on all projections, bf16 or NF4 with double quantization, packed rows of 2,048 tokens; with --length
a batch of equally long documents, one a row, which needs neither packing nor padding. Experts get a rank of their own,
16 over the experts of a token unless --expert-rank says otherwise. Only whole steps are timed (not the loading of
batches or logging between them), which favors the peers. Under torchrun it is DDP: --tokens are those of each GPU, and
the row counts those of all.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from bench.peers.documents import COUNT, LONGEST, documents

USUAL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
DELTA = ["in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"]
TARGETS = {
    "lfm2": ["q_proj", "k_proj", "v_proj", "out_proj", "in_proj", "w1", "w2", "w3"],
    "qwen3_5_text": [*USUAL, *DELTA],
}
"""All projections of the decoder layers by model_type, where they have other names."""
RANK = 16
PLACE, RANKS = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def model_config(options: argparse.Namespace) -> dict[str, Any]:
    """The model's config.json."""
    return json.loads((Path(options.model) / "config.json").read_text(encoding="utf-8"))


def targets(options: argparse.Namespace) -> list[str]:
    """The model's projections."""
    return TARGETS.get(model_config(options)["model_type"], USUAL)


def expert_ranks(options: argparse.Namespace) -> dict[str, Any]:
    """Arguments that give the experts a rank of their own; none for a dense model."""
    slots = model_config(options).get("num_experts_per_tok")
    if not slots:
        return {}
    rank = options.expert_rank or max(1, RANK // slots)
    ranks = dict.fromkeys(("experts.gate_up_proj", "experts.down_proj"), rank)
    return {"rank_pattern": ranks, "alpha_pattern": ranks}


def load_unsloth(options: argparse.Namespace) -> Any:
    """The model with its adapter."""
    import torch
    from unsloth import FastLanguageModel

    model, _ = FastLanguageModel.from_pretrained(
        options.model,
        max_seq_length=LONGEST,
        load_in_4bit=options.method == "qlora",
        dtype=torch.bfloat16,
        local_files_only=True,
        **({"device_map": {"": PLACE}} if RANKS > 1 else {}),
    )
    return FastLanguageModel.get_peft_model(
        model,
        r=RANK,
        lora_alpha=RANK,
        lora_dropout=0,
        target_modules=targets(options),
        bias="none",
        use_gradient_checkpointing="unsloth" if options.checkpointing == "offload" else False,
        random_state=0,
        **expert_ranks(options),
    )


def load_transformers(options: argparse.Namespace) -> Any:
    """The model without adapter: TRL makes it."""
    import torch
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    loader = AutoModelForCausalLM
    if options.engine == "liger":
        from liger_kernel.transformers import AutoLigerKernelForCausalLM

        loader = AutoLigerKernelForCausalLM
    nf4 = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
    return loader.from_pretrained(
        options.model,
        dtype=torch.bfloat16,
        device_map={"": PLACE},
        quantization_config=nf4 if options.method == "qlora" else None,
        attn_implementation="flash_attention_2" if options.attention == "fa2" else "sdpa",
    )


def load(options: argparse.Namespace) -> tuple[Any, Any]:
    """The model, and the adapter that TRL adds to it; None where the model has it."""
    from peft import LoraConfig

    if options.engine == "unsloth":
        return load_unsloth(options), None
    adapter = LoraConfig(
        r=RANK, lora_alpha=RANK, lora_dropout=0, target_modules=targets(options), task_type="CAUSAL_LM"
    )
    return load_transformers(options), adapter


def settings(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments that all of TRL's trainers get."""
    return {
        "output_dir": tempfile.mkdtemp(),
        "max_steps": options.steps,
        "learning_rate": 2e-4,
        "logging_steps": 1,
        "bf16": True,
        "max_length": LONGEST,
        "report_to": [],
        "save_strategy": "no",
        "gradient_checkpointing": options.checkpointing != "none",
        "warmup_steps": 5,
        "lr_scheduler_type": "linear",
        "seed": 0,
        "dataloader_num_workers": 2,
    }


def make_trainer(options: argparse.Namespace) -> Any:
    """TRL's trainer, which Unsloth patches and Liger's models fit."""
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import SFTConfig, SFTTrainer

    model, adapter = load(options)
    ids = [document.tolist() for document in documents(options.documents, length=options.length)]
    return SFTTrainer(
        model=model,
        train_dataset=Dataset.from_dict({"input_ids": ids}),
        processing_class=AutoTokenizer.from_pretrained(options.model),
        peft_config=adapter,
        args=SFTConfig(
            **settings(options),
            per_device_train_batch_size=options.tokens // (options.length or LONGEST),
            gradient_accumulation_steps=1,  # Unsloth's own default is 2
            optim=options.optimizer,
            packing=not (options.padded or options.length),
            ddp_find_unused_parameters=False if RANKS > 1 else None,
            dataset_num_proc=1,
        ),
    )


class Watch:
    """Times of every step and its real tokens, padding excluded; its passes, if they are to be recorded."""

    def __init__(self, trainer: Any, *, records: bool = False) -> None:
        import torch
        from transformers import TrainerCallback

        self.begins: list[float] = []
        self.ends: list[float] = []
        self.tokens: list[int] = []  # of each step, however many passes it has
        self.first_step_s = 0.0
        self.passes: list[dict[str, Any]] = []
        watch = self

        class Clock(TrainerCallback):
            def on_step_begin(self, *_: Any, **__: Any) -> None:
                torch.cuda.synchronize()
                watch.begins.append(time.perf_counter())
                watch.tokens.append(0)

            def on_step_end(self, *_: Any, **__: Any) -> None:
                torch.cuda.synchronize()
                watch.ends.append(time.perf_counter())
                watch.first_step_s = watch.first_step_s or time.time() - psutil.Process().create_time()

        trainer.add_callback(Clock())
        inner = trainer.training_step

        def counted(model: Any, inputs: Any, *args: Any, **keywords: Any) -> Any:
            mask = inputs.get("attention_mask")
            is_mask = mask is not None and mask.dim() == 2 and mask.max() <= 1
            self.tokens[-1] += int(mask.sum()) if is_mask else inputs["input_ids"].numel()
            if records:  # looked at later: nothing is to be slowed down
                names = ("input_ids", "packed_seq_lengths", "position_ids", "attention_mask")
                self.passes.append({name: inputs[name] for name in names if inputs.get(name) is not None})
            return inner(model, inputs, *args, **keywords)

        trainer.training_step = counted

    def speeds(self, warm_up: int) -> dict[str, float]:
        """Return tokens a second of all GPUs (median step, all steps, wall clock) after the first `warm_up` steps.

        The median counts: one step in which something is compiled once more would decide the mean.
        """
        if RANKS > 1:
            import torch

            tokens = torch.tensor(self.tokens, device="cuda")
            torch.distributed.all_reduce(tokens)
            self.tokens = tokens.tolist()
        seconds = [end - begin for begin, end in zip(self.begins, self.ends, strict=True)][warm_up:]
        tokens = self.tokens[warm_up:]
        return {
            "tok_s": statistics.median(count / taken for count, taken in zip(tokens, seconds, strict=True)),
            "mean_tok_s": sum(tokens) / sum(seconds),
            "wall_tok_s": sum(tokens) / (self.ends[-1] - self.begins[warm_up]),
            "step_ms": 1000 * statistics.median(seconds),
            "tokens_per_step": sum(tokens) / len(seconds),
        }

    def save_packs(self, file: Path) -> None:
        """Write the passes for `burnish bench step --packs`; nothing where documents cannot be told apart."""
        ids, lengths, documents = [], [], []
        for inputs in self.passes:
            own = inputs["input_ids"].reshape(-1).cpu().numpy()
            mask = inputs.get("attention_mask")
            if "packed_seq_lengths" in inputs:
                sizes = inputs["packed_seq_lengths"].cpu().numpy()
            elif "position_ids" in inputs:
                starts = np.flatnonzero(inputs["position_ids"].reshape(-1).cpu().numpy() == 0)
                sizes = np.diff([*starts, len(own)])
            elif mask is not None and mask.shape == inputs["input_ids"].shape:  # a document a row
                own, sizes = own[mask.reshape(-1).cpu().numpy() == 1], mask.sum(dim=1).cpu().numpy()
            else:
                return
            if sizes.sum() != len(own):
                return
            ids.append(own)
            lengths.append(sizes)
            documents.append(len(sizes))
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez(file, ids=np.concatenate(ids), lengths=np.concatenate(lengths), documents=np.array(documents))


def parser_of(description: str | None, engines: list[str], steps: int, warm_up: int) -> argparse.ArgumentParser:
    """A command line with the options that all peers have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", required=True, choices=engines)
    parser.add_argument("--model", required=True, help="folder, made by random_models")
    parser.add_argument("--method", choices=["lora", "qlora"], default="lora")
    parser.add_argument("--checkpointing", choices=["none", "offload"], default="none")
    parser.add_argument("--attention", choices=["fa2", "sdpa"], default="sdpa", help="Unsloth takes what is installed")
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--warm-up", type=int, default=warm_up)
    return parser


def train(
    options: argparse.Namespace, make: Callable[[argparse.Namespace], Any], *, records: bool = False
) -> tuple[Any, Watch, dict[str, Any]]:
    """Train on this process's GPU; return the trainer, its watch, and the columns that all peers' rows have."""
    if options.engine == "unsloth":
        import unsloth  # noqa: F401  it patches what is imported after it
    import torch

    torch.cuda.set_device(PLACE)
    torch.manual_seed(0)
    trainer = make(options)
    watch = Watch(trainer, records=records)
    torch.cuda.reset_peak_memory_stats()
    trainer.train()
    row = watch.speeds(options.warm_up) | {
        "first_step_s": watch.first_step_s,
        "peak_allocated_gib": torch.cuda.max_memory_allocated() / 2**30,
        "peak_reserved_gib": torch.cuda.max_memory_reserved() / 2**30,
        "loss": [entry["loss"] for entry in trainer.state.log_history if "loss" in entry],
        "device": torch.cuda.get_device_name(),
        "model": Path(options.model).name,
    }
    return trainer, watch, row


def main() -> None:
    """Train, then print the row."""
    parser = parser_of(__doc__, ["unsloth", "trl", "liger"], 18, 6)
    parser.add_argument("--tokens", type=int, default=4096, help="a step: rows of 2,048")
    parser.add_argument("--optimizer", default="adamw_8bit")
    parser.add_argument("--expert-rank", type=int, default=0, help="of Unsloth's experts; 0: 16 over those of a token")
    parser.add_argument("--documents", type=int, default=COUNT)
    parser.add_argument("--padded", action="store_true", help="one document a row, padded, instead of packing")
    parser.add_argument("--length", type=int, default=0, help="tokens of every document; 0: as in instruction data")
    parser.add_argument("--record", type=Path, help="write the passes here (npz)")
    options = parser.parse_args()
    trainer, watch, row = train(options, make_trainer, records=options.record is not None)
    row |= {
        "grad_norm": [entry.get("grad_norm") for entry in trainer.state.log_history if "loss" in entry],
        "attention_used": getattr(trainer.model.config, "_attn_implementation", None),
        "packing": trainer.args.packing,
        "trained_weights": sum(one.numel() for one in trainer.model.parameters() if one.requires_grad),
    }
    if options.record is not None:
        watch.save_packs(options.record)
    if int(os.environ.get("RANK", "0")) == 0:
        print("RESULT", json.dumps(row | {"gpus": RANKS}), flush=True)


if __name__ == "__main__":
    main()
