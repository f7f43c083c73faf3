"""The fast engine: Burnish's own decoder and kernels, packed passes of static shape, captured steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from burnish_engine.contract.recipe import Recipe
from burnish_engine.data.tokenize import Document
from burnish_engine.models.decoder_generate import DecoderSpeaker
from burnish_engine.models.decoder_layer import KEEP_ATTENTION, KEEP_PRODUCTS
from burnish_engine.models.decoder_load import load_decoder
from burnish_engine.models.families import family, why_not_fast
from burnish_engine.models.generate import generate_replies
from burnish_engine.models.load_fast import declared_ends, device_problem
from burnish_engine.models.lora_adapter import plan_adapter, read_plan
from burnish_engine.models.precision import DTYPES, exact_products
from burnish_engine.models.sampling import Reply
from burnish_engine.models.source import ModelSource
from burnish_engine.train.engine import StepResult
from burnish_engine.train.fast_evaluate import held_out_loss
from burnish_engine.train.fast_model import make_trainable
from burnish_engine.train.fast_trainer import FastTrainer
from burnish_engine.train.packed_batch import PackedLayout, buckets
from burnish_engine.train.prefetch import Prefetcher
from burnish_engine.train.schedule import learning_rate
from burnish_engine.train.stream import BatchStream
from burnish_kernels.attention.op import tile_rows

_HEAD_ROWS = 4096
"""Most rows of a chunk of the head. Fewer leave multiprocessors idle in its backward product; more only take memory."""
_HEAD_ROWS_CPU = 256
_HEAD_STEP = 256


def why_not(source: ModelSource, recipe: Recipe, device: torch.device) -> str:
    """Why the fast engine does not train this, as the first half of a sentence; empty where it does."""
    reason = why_not_fast(source.config, source.spec, nf4=True)
    if reason:
        return f"The model {reason}, which the fast engine does not do"
    if recipe.adapter.method == "dora":
        return "The fast engine does not do DoRA"
    return device_problem(device)


class FastEngine:
    """See `Engine`.

    Args:
        source: The base model, for which `why_not` found nothing.
        recipe: The run.
        stream: Its micro-batches.
        tokenizer: For replies.
        precision: "fp32", "bf16" or "fp16".
        device: Where to train.
        adapter: Folder of the adapter to go on with; None starts a new one.
    """

    name = "fast"
    layout = "packed"

    def __init__(
        self,
        source: ModelSource,
        recipe: Recipe,
        stream: BatchStream,
        tokenizer: Any,
        *,
        precision: str,
        device: torch.device,
        adapter: Path | None = None,
    ) -> None:
        spec, known = source.spec, family(source.spec.family) if source.spec else None
        assert spec is not None
        assert known is not None
        exact_products()
        self.notes: list[str] = []
        self._recipe, self._stream, self._tokenizer, self._base = recipe, stream, tokenizer, str(source.folder)
        section = recipe.train
        modules = known.modules(spec)
        plan = read_plan(adapter, modules) if adapter else plan_adapter(recipe.adapter, modules)
        named = {module.path.rpartition(".")[2] for module in modules}
        skipped = [name for name in recipe.adapter.targets if name not in named and name != "all-linear"]
        if skipped:
            self.notes.append(f"This model has no layers named {', '.join(skipped)}; they get no adapter.")
        if source.stored_quantized and recipe.model.quantize == "none":
            self.notes.append("The model's weights are stored in 4 bits (NF4), so this run is QLoRA.")
        loaded = load_decoder(
            source,
            dtype=DTYPES[precision],
            device=device,
            positions=max(section.micro_batch_tokens, 64),
            plan=plan,
            quantize=recipe.model.quantize == "nf4" or source.stored_quantized,
        )
        self.model = make_trainable(loaded)
        if adapter:
            self.model.adapter.load(adapter)
        else:
            self.model.adapter.initialize(section.seed)
        self.model.optimizer.write_shadows()
        self._layouts = self._make_layouts(device)
        keep = KEEP_ATTENTION if section.recompute else KEEP_PRODUCTS
        self._trainer = FastTrainer(self.model, section, self._layouts, [keep] * spec.num_layers)
        self._speaker = DecoderSpeaker(loaded.decoder, declared_ends(source))
        self._prefetcher: Prefetcher | None = None

    def _make_layouts(self, device: torch.device) -> list[PackedLayout]:
        decoder, section = self.model.loaded.decoder, self._recipe.train
        height = tile_rows(decoder.spec.head_dim, decoder.dtype, device)
        rope, cpu = decoder.rope, device.type == "cpu"
        supervised = self._stream.most_supervised
        return [
            PackedLayout(
                rows,
                height,
                head_rows(min(supervised, rows), cpu=cpu),
                long_above=rope.long_above,
                long_offset=rope.long_offset or 0,
            )
            for rows in buckets(section.micro_batch_tokens, section.pack, self._stream.most_tokens)
        ]

    def start(self, step: int, total_steps: int, total_micro_batches: int) -> None:
        """See `Engine`."""
        section = self._recipe.train
        self._prefetcher = Prefetcher(
            self._stream,
            self._layouts,
            first=step * section.accumulation,
            total=total_micro_batches,
            accumulation=section.accumulation,
            learning_rate=lambda number: learning_rate(section, number, total_steps),
            pinned=self.model.device.type == "cuda",
        )

    def queue_step(self) -> None:
        """See `Engine`."""
        assert self._prefetcher is not None
        self._trainer.step(self._prefetcher)
        if self._trainer.problem:
            self.notes.append(self._trainer.problem)
            self._trainer.problem = ""

    def results(self, *, wait: bool = False) -> Iterator[StepResult]:
        """See `Engine`."""
        return self._trainer.results(wait=wait)

    def held_out_loss(self, documents: Sequence[Document], budget: int) -> tuple[float, int]:
        """See `Engine`."""
        layout = max(self._layouts, key=lambda one: one.rows)
        longest = max((len(document) for document in documents), default=0)
        if longest > layout.rows:  # training's passes may all be shorter than the budget
            layout = replace(layout, rows=buckets(budget, packed=True, most=longest)[-1])
        with self._trainer.on_stream():
            return held_out_loss(self.model.loaded.decoder, documents, min(budget, layout.rows), layout)

    def replies(self, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> list[Reply]:
        """See `Engine`."""
        with self._trainer.on_stream():
            return generate_replies(self._speaker, self._tokenizer, list(prompts), max_new_tokens)

    def save_adapter(self, folder: Path) -> None:
        """See `Engine`."""
        folder.mkdir(parents=True)
        with self._trainer.on_stream():
            self.model.adapter.save(folder, self._base)

    def optimizer_tensors(self) -> dict[str, torch.Tensor]:
        """See `Engine`."""
        with self._trainer.on_stream():
            return self.model.state()

    def restore_optimizer(self, tensors: dict[str, torch.Tensor]) -> None:
        """See `Engine`."""
        self.model.restore(tensors)

    def close(self) -> None:
        """See `Engine`."""
        if self._prefetcher:
            self._prefetcher.close()


def head_rows(supervised: int, *, cpu: bool = False) -> int:
    """Rows of one chunk of the head.

    Chunks are of equal size, and few of their rows are padding in the pass that learns from the most tokens.

    Args:
        supervised: Most supervised rows of a pass.
        cpu: Padding costs time there, and small products nothing.
    """
    most = _HEAD_ROWS_CPU if cpu else _HEAD_ROWS
    rows = max(supervised, 1)
    chunks = -(-rows // most)
    return -(-rows // chunks // _HEAD_STEP) * _HEAD_STEP
