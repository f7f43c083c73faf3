"""Speed and quality of training in 8 bits: steps timed by turns; loss, KL and gradients beside 16 bits and NF4.

    python tests/bench eight_bit speed --out speed.jsonl [--rounds 2] [--only qwen3-4b]
    python tests/bench eight_bit quality --out quality.jsonl [--seeds 0 1 2] [--steps 300] [--device cuda]
        [--ways bf16 nf4 'nf4, int8 products']
    python tests/bench eight_bit table quality.jsonl

`speed` times `burnish bench step`, each in a process of its own, the ways of a model by turns. `quality` trains the
embedded model (or `--model FOLDER`) on the sample dataset (or `--files` and `--held-out`) in each way, with the same
seed, rows and adapter: mean loss of the last 100 steps, held-out loss, KL of the held-out replies' tokens to the model
trained in bf16, and the overall and the smallest cosine of the adapter's first gradient with B randomized, FP8 storage
against bf16, and NF4 with 8-bit products against NF4 with 16-bit ones. There MXFP8 runs on any GPU that `mxfp8_linear`
is compiled for: on those without its instruction in bf16, with the same numbers.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch

from burnish_engine.contract.recipe.recipe_file import parse_recipe
from burnish_engine.data.prepare import prepare
from burnish_engine.data.tokens.pack import MicroBatch, held_out_batches
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.models.decoder.frozen import format_choice
from burnish_engine.train.base.engine import EvaluationRequest
from burnish_engine.train.base.engine_spec import EngineSpec
from burnish_engine.train.base.random_state import seed_everything
from burnish_engine.train.base.stream import BatchStream
from burnish_engine.train.engine_loader import make_engine
from burnish_engine.train.fast.micro_batch_step import MicroBatchStep
from burnish_engine.train.fast.packed_batch import StepScalars, fill_buffer, write_scalars
from burnish_kernels.registry import FP8_CAPABILITIES

from bench import ROOT
from bench.shared.commands import bench_step
from bench.shared.rows import add_row, read_rows

SAMPLES = ROOT / "assets" / "samples"
WAYS = {
    "bf16": ("none", "16"),
    "fp8": ("fp8", "fp8"),
    "fp8 stored": ("fp8", "16"),
    "fp8 products": ("none", "fp8"),
    "nf4": ("nf4", "16"),
    "nf4, fp8 products": ("nf4", "fp8"),
    "int8": ("none", "int8"),
    "nf4, int8 products": ("nf4", "int8"),
    "mxfp8": ("none", "mxfp8"),
    "nf4, mxfp8 products": ("nf4", "mxfp8"),
}
"""Name of a way: model.quantize and train.products."""
SPEED = {
    "llama-3.2-1b": ("products", ("bf16", "fp8", "int8", "mxfp8")),
    "qwen3-4b": (
        "narrow:27,products",
        ("nf4", "nf4, fp8 products", "nf4, int8 products", "nf4, mxfp8 products", "fp8", "int8", "mxfp8"),
    ),
    "qwen3-0.6b": ("products", ("bf16", "fp8", "int8", "mxfp8")),
}
"""Shape: what layers keep, and the ways to time; one that the card does not do is written down with the reason."""
BESIDE = {
    "fp8": "bf16", "fp8 stored": "bf16", "fp8 products": "bf16", "nf4": "bf16", "nf4, fp8 products": "nf4",
    "int8": "bf16", "nf4, int8 products": "nf4", "mxfp8": "bf16", "nf4, mxfp8 products": "nf4",
}  # fmt: skip
"""The way that another one's first gradient is compared with."""
MOST_KL_TOKENS, LAST = 1500, 100


def speed(options: argparse.Namespace) -> None:
    """Time the ways of each shape by turns."""
    for shape, (keep, ways) in SPEED.items():
        if options.only and shape not in options.only:
            continue
        for turn in range(options.rounds):
            for way in ways:
                quantize, products = WAYS[way]
                settings = ["--shape", shape, "--tokens", options.tokens, "--keep", keep, "--steps", 16]
                row = {"shape": shape, "way": way, "turn": turn, "keep": keep}
                row |= bench_step([*settings, "--quantize", quantize, "--products", products])
                add_row(options.out, row)
                shown = ("tok_s", "step_ms", "peak_reserved_gib", "device", "graphs", "error")
                print(shape, way, {name: row[name] for name in shown if name in row}, flush=True)


class Trained:
    """An engine that trains in one of the ways.

    Args:
        options: what the command line says.
        way: name in `WAYS`.
        seed: seed of the adapter, the order of rows and the dropout.
    """

    def __init__(self, options: argparse.Namespace, way: str, seed: int) -> None:
        quantize, products = WAYS[way]
        recipe = parse_recipe(
            f"""
            [model]
            path = {json.dumps(options.model)}
            quantize = "{quantize}"
            [data]
            files = [{json.dumps(str(options.files))}]
            validation_files = [{json.dumps(str(options.held_out))}]
            max_length = 512
            [train]
            epochs = 1000.0
            max_steps = {max(options.steps, 1)}
            micro_batch_tokens = {options.tokens}
            learning_rate = {options.learning_rate}
            precision = "bf16"
            products = "{products}"
            seed = {seed}
            """
        )
        seed_everything(seed)
        source = open_model(options.model)
        tokenizer = load_tokenizer(source)
        data = prepare(recipe, tokenizer)
        self.held_out, self.stream = data.validation, BatchStream(data.train, recipe.train)
        self.budget, self.tokens = self.stream.budget(), options.tokens
        device = torch.device(options.device)
        self.engine = make_engine(EngineSpec(source, recipe, self.stream, tokenizer, "bf16", device))

    def train(self) -> list[float]:
        """Train all steps; return their losses."""
        self.engine.start(0, self.budget.steps, self.budget.micro_batches)
        losses = []
        for _ in range(self.budget.steps):
            self.engine.queue_step()
            losses += [result.loss for result in self.engine.results()]
        return losses + [result.loss for result in self.engine.results(wait=True)]

    @torch.no_grad()
    def log_probs(self) -> torch.Tensor:
        """Compute the log-probabilities of all tokens, [held-out supervised tokens, vocabulary]."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # steps run on a stream of their own
        decoder, found, count = self.engine.model.loaded.decoder, [], 0
        for batch in held_out_batches(self.held_out, self.tokens):
            fields, counts, sequences = self._upload(batch)
            rows = fields.head_position_R[: counts.supervised]
            hidden = decoder.forward(fields.ids_T, sequences).hidden_TH.index_select(0, rows)
            found.append(decoder.logits(hidden).log_softmax(dim=1)[: MOST_KL_TOKENS - count])
            count += len(found[-1])
            if count >= MOST_KL_TOKENS:
                break
        return torch.cat(found)

    @torch.no_grad()
    def first_gradient(self, seed: int) -> dict[str, torch.Tensor]:
        """Compute the adapter's gradient in the first micro-batch, with B drawn at random."""
        model = self.engine.model
        drawn = torch.Generator().manual_seed(seed)
        for name, tensor in model.adapter.named().items():
            if ".lora_B." in name:
                tensor.copy_(0.02 * torch.randn(tensor.shape, generator=drawn))
        model.write_compute_copies()
        layout, buffer, counts = self._buffer(self.stream[0])
        loss = torch.zeros(1, device=buffer.device)
        keeps = ["products"] * len(model.loaded.decoder.layers)
        model.optimizer.grad.zero_()
        MicroBatchStep(model, layout, buffer, keeps, loss).run(counts)
        views = model.optimizer.layout.views(model.optimizer.grad)
        return {name: view.double().cpu() for name, view in zip(model.adapter.named(), views, strict=True)}

    def _buffer(self, batch: MicroBatch):
        layout = max(self.engine.layouts, key=lambda one: one.capacity)
        buffer = torch.zeros(layout.size, dtype=torch.int32)
        counts = fill_buffer(batch, layout, buffer.numpy())
        write_scalars(StepScalars(1 / max(counts.supervised, 1), 1e-3), layout, buffer.numpy())
        return layout, buffer.to(self.engine.model.device), counts

    def _upload(self, batch: MicroBatch):
        from burnish_engine.models.decoder.layer_types import SequenceMetadata
        from burnish_kernels.attention.documents import Documents

        layout, buffer, counts = self._buffer(batch)
        fields = layout.views(buffer)
        documents = Documents(fields.start_T, fields.end_T, fields.tiles_G4, layout.tile_rows)
        return fields, counts, SequenceMetadata(fields.rope_row_T, documents)


def quality(options: argparse.Namespace) -> None:
    """Train each way with each seed and write a row for each."""
    format_choice.CARDS["mxfp8"] = ("any", FP8_CAPABILITIES)
    for seed in options.seeds:
        gradients: dict[str, dict[str, torch.Tensor]] = {}
        reference = None
        for way in options.ways:
            began = time.perf_counter()
            row: dict[str, object] = {"seed": seed, "way": way, "steps": options.steps, "device": options.device}
            probe = Trained(options, way, seed)
            gradients[way] = probe.first_gradient(seed)
            if BESIDE.get(way) in gradients:
                row |= _cosines(gradients[BESIDE[way]], gradients[way])
            probe.engine.close()
            del probe
            if not options.steps:
                add_row(options.out, row)
                print(json.dumps(row), flush=True)
                continue
            trained = Trained(options, way, seed)
            losses = trained.train()
            held_out, tokens = trained.engine.held_out_loss(EvaluationRequest(trained.held_out, trained.tokens))
            found = trained.log_probs()
            reference = found if reference is None else reference
            kl = float((reference.exp() * (reference - found)).sum(dtype=torch.float64)) / len(found)
            last = losses[-LAST:]
            row |= {"last": sum(last) / len(last), "first": losses[0], "held_out": held_out, "held_out_tokens": tokens}
            row |= {"kl": kl, "kl_tokens": len(found), "seconds": time.perf_counter() - began}
            trained.engine.close()
            del trained, found
            gc.collect()
            add_row(options.out, row)
            print(json.dumps(row), flush=True)
    if options.steps:
        table(options.out)


def _cosines(wanted: dict[str, torch.Tensor], found: dict[str, torch.Tensor]) -> dict[str, float | str]:
    """Compare two gradients: of all matrices together, and of the one that differs the most."""
    each = {
        name: float(torch.nn.functional.cosine_similarity(wanted[name].flatten(), found[name].flatten(), dim=0))
        for name in wanted
    }
    whole = [torch.cat([one.flatten() for one in side.values()]) for side in (wanted, found)]
    least = min(each, key=lambda name: each[name])
    return {
        "cosine": float(torch.nn.functional.cosine_similarity(*whole, dim=0)),
        "least_cosine": each[least],
        "least": least,
        "median_cosine": statistics.median(each.values()),
    }


def table(path: Path) -> None:
    """Print the rows of a file as a table, means over seeds; distances to bf16, and for NF4 products to NF4.

    A distance is that of the seeds that both ways have: losses of seeds differ by more than those of ways.
    """
    rows = defaultdict(list)
    for row in read_rows(path):
        rows[row["way"]].append(row)
    losses = {way: {row["seed"]: row["last"] for row in own} for way, own in rows.items()}

    def above(way: str, other: str) -> str:
        both = losses[way].keys() & losses.get(other, {}).keys()
        if not both:
            return ""
        mean = sum(losses[way][seed] for seed in both) / sum(losses[other][seed] for seed in both)
        return f"{100 * (mean - 1):+.2f} %"

    print("| way | seeds | last losses | to bf16 | to its 16-bit products | held out | KL to bf16 | cosine (least) |")
    print("|---|---|---|---|---|---|---|---|")
    for way, own in rows.items():
        mean = {key: float(np.mean([row[key] for row in own])) for key in ("last", "held_out", "kl")}
        cosines = [row["cosine"] for row in own if "cosine" in row]
        least = [row["least_cosine"] for row in own if "least_cosine" in row]
        shown = f"{np.mean(cosines):.4f} ({min(least):.4f})" if cosines else ""
        distances = f"{above(way, 'bf16')} | {above(way, BESIDE.get(way, 'bf16'))}"
        print(
            f"| {way} | {len(own)} | {mean['last']:.4f} | {distances} | "
            f"{mean['held_out']:.4f} | {mean['kl']:.5f} | {shown} |"
        )


def main() -> None:
    """Do what the first argument says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    jobs = parser.add_subparsers(dest="job", required=True)
    timed = jobs.add_parser("speed")
    timed.add_argument("--out", type=Path, required=True)
    timed.add_argument("--rounds", type=int, default=2)
    timed.add_argument("--tokens", type=int, default=16384)
    timed.add_argument("--only", nargs="*", choices=sorted(SPEED))
    learned = jobs.add_parser("quality")
    learned.add_argument("--out", type=Path, required=True)
    learned.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    learned.add_argument("--steps", type=int, default=300, help="0: the first gradient alone")
    learned.add_argument("--tokens", type=int, default=1024)
    learned.add_argument("--model", default="embedded")
    learned.add_argument("--files", type=Path, default=SAMPLES / "bench-notes.train.jsonl")
    learned.add_argument("--held-out", type=Path, default=SAMPLES / "bench-notes.heldout.jsonl")
    learned.add_argument("--learning-rate", type=float, default=1e-3)
    learned.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="bf16 comes first, and nf4")
    learned.add_argument("--device", default="cuda")
    shown = jobs.add_parser("table")
    shown.add_argument("path", type=Path)
    options = parser.parse_args()
    if options.job == "table":
        table(options.path)
    else:
        {"speed": speed, "quality": quality}[options.job](options)


if __name__ == "__main__":
    main()
