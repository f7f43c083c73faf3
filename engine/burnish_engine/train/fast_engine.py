"""The fast engine: Burnish's own decoder and kernels, packed passes of static shape, captured steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from burnish_engine.advise.engine_choice import in_4_bits
from burnish_engine.advise.fast_shape import head_rows
from burnish_engine.contract.coverage import Coverage, count_coverage
from burnish_engine.contract.facts import DecoderSpec
from burnish_engine.contract.memory_plan import Level, MemoryPlan
from burnish_engine.contract.recipe import Recipe, why_plain
from burnish_engine.contract.recipe_train import optimizer_notes
from burnish_engine.data.pack import MicroBatch
from burnish_engine.data.tokenize import Document
from burnish_engine.hardware.host_memory import host_memory
from burnish_engine.models.adapter_targets import check_spec_targets
from burnish_engine.models.decoder_generate import DecoderSpeaker
from burnish_engine.models.decoder_load import load_decoder
from burnish_engine.models.families import family, why_not_fast
from burnish_engine.models.families.matrices import layer_matrices
from burnish_engine.models.generate import generate_replies
from burnish_engine.models.keep import KEEP_LEVELS
from burnish_engine.models.load_fast import declared_ends, device_problem
from burnish_engine.models.lora_adapter import AdapterPlan, plan_adapter, read_plan
from burnish_engine.models.precision import DTYPES, exact_products
from burnish_engine.models.sampling import Reply
from burnish_engine.models.source import ModelSource
from burnish_engine.train.engine import StepResult, Trained
from burnish_engine.train.fast_evaluate import held_out_loss
from burnish_engine.train.fast_model import make_trainable
from burnish_engine.train.fast_trainer import FastTrainer
from burnish_engine.train.memory_choice import choose_memory_plan, lockable_memory, pass_buckets
from burnish_engine.train.packed_batch import PackedLayout, buckets
from burnish_engine.train.prefetch import Prefetcher
from burnish_engine.train.schedule import learning_rate
from burnish_engine.train.smaller_plan import smaller_plan, what_changed
from burnish_engine.train.stream import BatchStream
from burnish_kernels.attention.op import tile_rows


def _coverage(spec: DecoderSpec, adapters: AdapterPlan) -> Coverage:
    """Count which matrices of the decoder's layers the adapter reaches."""
    reached = {adapted.module.path for adapted in adapters.modules}
    return count_coverage(
        (matrix, f"model.layers.{number}.{matrix.name}" in reached)
        for number, layer in enumerate(spec.layers)
        for matrix in layer_matrices(spec, layer)
    )


def why_not(source: ModelSource, recipe: Recipe, device: torch.device) -> str:
    """Why the fast engine does not train this, as the first half of a sentence; empty where it does."""
    reason = why_not_fast(source.config, source.spec, nf4=True)
    if reason:
        return f"The model {reason}, which the fast engine does not do"
    return why_plain(recipe) or device_problem(device)


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
        plan: How to use memory; None decides from what is free.

    Attributes:
        plan: What was decided.
        coverage: See `Engine`.
    """

    name = "fast"
    trains: Trained = "adapter"
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
        plan: MemoryPlan | None = None,
    ) -> None:
        spec, known = source.spec, family(source.spec.family) if source.spec else None
        assert spec is not None
        assert known is not None
        exact_products()
        self.notes = optimizer_notes(recipe.train)
        self._prefetcher: Prefetcher | None = None
        self._trainers: list[FastTrainer] = []
        self._recipe, self._stream, self._tokenizer, self._base = recipe, stream, tokenizer, str(source.folder)
        section = recipe.train
        modules = known.modules(spec)
        if not adapter:
            self.notes += check_spec_targets(spec, recipe.adapter)
        adapters = read_plan(adapter, modules) if adapter else plan_adapter(recipe.adapter, modules)
        self.coverage = _coverage(spec, adapters)
        if source.stored_quantized and recipe.model.quantize == "none":
            self.notes.append("The model's weights are stored in 4 bits (NF4), so this run is QLoRA.")
        nf4 = in_4_bits(recipe, source.config)
        plan = plan or choose_memory_plan(recipe, spec, stream, device, precision=precision, nf4=nf4)
        loaded = load_decoder(
            source,
            dtype=DTYPES[precision],
            device=device,
            positions=max(section.micro_batch_tokens, 64),
            plan=adapters,
            quantize=nf4,
            embedding_on_host=plan.embedding_on_host,
            head_on_host=plan.head_on_host,
        )
        self.model = make_trainable(loaded, recipe.masking, section.seed, section)
        if adapter:
            self.model.adapter.load(adapter)
        else:
            self.model.adapter.initialize(section.seed)
        self.model.optimizer.write_shadows()
        self.use_plan(plan)
        self._speaker = DecoderSpeaker(loaded.decoder, declared_ends(source))

    def use_plan(self, plan: MemoryPlan) -> None:
        """Go on with this plan; `start` has to be called again."""
        self.close()
        if self._trainers and self.model.device.type == "cuda":
            torch.cuda.synchronize(self.model.device)  # what an unfinished step queued
        self._trainers.clear()  # its memory goes before the next one's is taken
        decoder, device = self.model.loaded.decoder, self.model.device
        self.plan = plan
        decoder.tile_feed_forward(plan.mlp_rows)
        self._layouts = self._make_layouts(plan.head_rows)
        keep = [KEEP_LEVELS[level] for level in plan.layers]
        lockable = lockable_memory(device)
        self._trainers.append(FastTrainer(self.model, self._recipe.train, self._layouts, keep, lockable=lockable))

    @property
    def memory_plan(self) -> str:
        """See `Engine`."""
        return self.plan.model_dump_json()

    @property
    def locked_bytes(self) -> int:
        """See `Engine`."""
        return sum(trainer.offload.host_bytes for trainer in self._trainers if trainer.offload)

    def shrink(self) -> str:
        """See `Engine`."""
        rows, spec = max(layout.rows for layout in self._layouts), self.model.loaded.decoder.spec
        widths: dict[Level, int] = {
            "host": spec.hidden_size + spec.num_heads * spec.head_dim,
            "input": spec.hidden_size,
        }
        number, free = rows * spec.num_layers * self.model.loaded.decoder.dtype.itemsize, host_memory()[1]
        barred = [level for level, width in widths.items() if number * width >= free + self.locked_bytes]
        old, new = self.plan, smaller_plan(self.plan, rows, barred=barred)
        if new is None:
            return ""
        self.use_plan(new)
        return what_changed(old, new)

    @property
    def loading_plan(self) -> str:
        """See `Engine`."""
        smaller = self.plan.model_copy(update={"embedding_on_host": True, "head_on_host": True})
        return "" if smaller == self.plan or self.model.device.type == "cpu" else smaller.model_dump_json()

    @property
    def state_bytes(self) -> int:
        """See `Engine`."""
        return 4 * self.model.optimizer.param.nbytes  # the weights, two moments, and of some the weights once more

    def snapshot(self) -> Callable[[], None]:
        """See `Engine`."""
        optimizer = self.model.optimizer
        with self._on_stream():
            weights = optimizer.param.to("cpu", copy=True)
            state = {name: value.clone() for name, value in self.model.state().items()}  # on the CPU they are it

        def put_back() -> None:
            with self._on_stream():
                optimizer.param.copy_(weights)
                self.model.restore(state)
                optimizer.write_shadows()

        return put_back

    @property
    def _trainer(self) -> FastTrainer:
        return self._trainers[0]

    def _on_stream(self) -> AbstractContextManager[object]:
        """After all that was queued; without a trainer, for which memory may not have sufficed, nothing is."""
        return self._trainer.on_stream() if self._trainers else nullcontext()

    def _make_layouts(self, most_head_rows: int) -> list[PackedLayout]:
        decoder, section = self.model.loaded.decoder, self._recipe.train
        height = tile_rows(decoder.spec.head_dim, decoder.dtype, decoder.device)
        rope, cuda, pinned = decoder.rope, decoder.device.type == "cuda", bool(self._recipe.memory.head_rows)
        return [
            PackedLayout(
                rows,
                height,
                min(most_head_rows, rows if pinned else head_rows(rows, cuda=cuda)),
                long_above=rope.long_above,
                long_offset=rope.long_offset or 0,
            )
            for rows in pass_buckets(section, self._stream)
        ]

    def start(
        self, step: int, total_steps: int, total_micro_batches: int, source: Sequence[MicroBatch] | None = None
    ) -> None:
        """See `Engine`."""
        section = self._recipe.train
        self.close()
        self._trainer.begin_anew()
        self._prefetcher = Prefetcher(
            self._stream if source is None else source,
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
        return self._trainer.results(wait=wait) if self._trainers else iter(())

    def held_out_loss(self, documents: Sequence[Document], budget: int) -> tuple[float, int]:
        """See `Engine`."""
        layout = max(self._layouts, key=lambda one: one.rows)
        longest = max((len(document) for document in documents), default=0)
        if longest > layout.rows:  # training's passes may all be shorter than the budget
            layout = replace(layout, rows=buckets(budget, packed=True, most=longest)[-1])
        with self._trainer.on_stream(), self.model.averaged(), self._trainer.idle_memory():
            return held_out_loss(self.model.loaded.decoder, documents, min(budget, layout.rows), layout)

    def replies(self, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> list[Reply]:
        """See `Engine`."""
        with self._on_stream(), self.model.averaged():
            return generate_replies(self._speaker, self._tokenizer, list(prompts), max_new_tokens)

    def save_adapter(self, folder: Path) -> None:
        """See `Engine`."""
        folder.mkdir(parents=True)
        with self._on_stream(), self.model.averaged():
            self.model.adapter.save(folder, self._base)

    def optimizer_tensors(self) -> dict[str, torch.Tensor]:
        """See `Engine`."""
        with self._on_stream():
            return self.model.state()

    def restore_optimizer(self, tensors: dict[str, torch.Tensor]) -> None:
        """See `Engine`."""
        self.model.restore(tensors)

    def close(self) -> None:
        """See `Engine`."""
        if self._prefetcher:
            self._prefetcher.close()
            self._prefetcher = None
