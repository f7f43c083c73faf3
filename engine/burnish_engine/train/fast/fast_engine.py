"""The fast engine: Burnish's own decoder and kernels, packed micro-batches of static shape, captured steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import override

from burnish_engine.advise.facts.engine_choice import dropout_notes, keeps_packed, storage_notes
from burnish_engine.advise.facts.planned_run import sharing
from burnish_engine.advise.facts.workload import buckets
from burnish_engine.advise.predict.fast_shape import head_chunk_tokens
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.contract.recipe.memory_plan import MemoryPlan, SaveLevel, places_alone
from burnish_engine.contract.recipe.recipe import setting_notes
from burnish_engine.data.tokens.documents import lengths_of
from burnish_engine.data.tokens.pack import MicroBatch, held_out_batches
from burnish_engine.hardware.host.host_memory import host_memory
from burnish_engine.hardware.probe import probe
from burnish_engine.models.decoder.decoder_load import DecoderOptions, load_decoder
from burnish_engine.models.decoder.frozen.format_choice import check_eight_bits, eight_bit_use
from burnish_engine.models.decoder.lora_adapter import plan_adapter, read_plan
from burnish_engine.models.device.device import capability_of
from burnish_engine.models.device.precision import DTYPES, exact_products
from burnish_engine.models.families import family, own_dropout
from burnish_engine.models.families.adapter_targets import check_spec_targets, expert_rank
from burnish_engine.models.generation.decoder_generate import DecoderGenerator
from burnish_engine.models.generation.generate import generate_replies
from burnish_engine.models.generation.load_fast import declared_ends
from burnish_engine.models.generation.paged.room import IdleMemory
from burnish_engine.models.generation.sampling import GeneratedReply, Sampling
from burnish_engine.train.base.engine import (
    SMALLEST,
    CountListener,
    Engine,
    EngineFacts,
    EvaluationRequest,
    StepResult,
    ignore_count,
)
from burnish_engine.train.base.engine_spec import EngineSpec
from burnish_engine.train.base.exchange import ERRORS, GradientSlice
from burnish_engine.train.base.schedule import learning_rate
from burnish_engine.train.fast.adapter_switch import other_adapter, without_adapter
from burnish_engine.train.fast.fast_evaluate import (
    EvaluationPasses,
    mean_divergence,
    mean_loss,
    pass_losses,
    sequence_log_probs,
    token_log_probs,
)
from burnish_engine.train.fast.fast_model import make_trainable
from burnish_engine.train.fast.fast_support import adapter_coverage
from burnish_engine.train.fast.fast_trainer import FastTrainer
from burnish_engine.train.fast.gradient_slices import backward_cuts, gradient_slices
from burnish_engine.train.fast.memory_choice import (
    choose_memory_plan,
    lockable_memory,
    pass_buckets,
    with_weights_on_host,
)
from burnish_engine.train.fast.packed_batch import BucketLayout, LearnedObjective, batch_content
from burnish_engine.train.fast.prefetch import NumberedBatches, Prefetcher
from burnish_engine.train.fast.smaller_plan import read_memory_plan, smaller_plan, what_changed
from burnish_kernels.attention.op import tile_rows


class FastEngine(Engine):
    """Engine that trains an adapter with Burnish's own decoder and kernels.

    Args:
        spec: specification of the engine, for whose model `why_not` returned nothing.

    Attributes:
        plan: memory plan in use.
    """

    def __init__(self, spec: EngineSpec) -> None:
        source, recipe, stream, device, adapter = spec.source, spec.recipe, spec.stream, spec.device, spec.adapter
        shape, known = source.spec, family(source.spec.family) if source.spec else None
        assert shape is not None
        assert known is not None
        exact_products()
        self.notes = setting_notes(recipe, "train")
        self._prefetcher: Prefetcher | None = None
        self._trainers: list[FastTrainer] = []
        self._recipe, self._stream, self._tokenizer, self._base = recipe, stream, spec.tokenizer, str(source.place)
        self._exchange = spec.exchange
        section = recipe.train
        parts = known.modules(shape), known.all_expert_stacks(shape)
        if not adapter:
            self.notes += check_spec_targets(shape, recipe.adapter)
            adapters = plan_adapter(recipe.adapter, *parts, expert_rank(recipe.adapter, shape.experts_per_token))
        else:
            adapters = read_plan(adapter, *parts)
        self._coverage = adapter_coverage(shape, adapters)
        self.notes += storage_notes(recipe, source.config) + dropout_notes(own_dropout(source.config))
        nf4, products = keeps_packed(recipe, source.config), spec.products or recipe.train.products
        given = recipe.model_copy(update={"train": section.model_copy(update={"products": products})})
        check_eight_bits(given, shape, spec.precision, capability_of(device), began=spec.name is not None)
        eight_bits = eight_bit_use(recipe, products, nf4=nf4)
        self._precision, self._nf4, self._eight_bits = spec.precision, nf4, eight_bits
        self._sharing = spec.memory.size if spec.memory else 1
        plan = read_memory_plan(spec.plan, shape) or choose_memory_plan(
            recipe, shape, stream, device, precision=spec.precision, nf4=nf4, eight_bits=eight_bits, ranks=self._sharing
        )
        lockable = lockable_memory(device)
        if spec.plan == SMALLEST:
            plan = self._with_weights_away(plan, shape, lockable)
        if self._sharing == 1:
            if "ranks" in recipe.memory.weights:
                self.notes.append("memory.weights: layers for ranks stay on the card, as no other process shares them.")
            plan = plan.model_copy(update={"weights": places_alone(plan.weights)})
        elif plan.layers_on_ranks:
            self._load_shared(spec, plan)
        options = DecoderOptions(
            dtype=DTYPES[spec.precision],
            device=device,
            positions=max(section.micro_batch_tokens, 64),
            plan=adapters,
            quantize=nf4,
            eight_bits=eight_bits,
            embedding_on_host=plan.embedding_on_host,
            head_on_host=plan.head_on_host,
            layers_on_host=frozenset(plan.layers_on_host),
            layers_on_ranks=frozenset(plan.layers_on_ranks),
            memory=spec.memory,
            lockable=lockable if device.type == "cuda" else None,
            progress=spec.progress,
        )
        loaded = load_decoder(source, options)
        self.model = make_trainable(loaded, recipe.masking, section.seed, section)
        if adapter:
            self.model.adapter.load(adapter)
            self.model.write_compute_copies()
        else:
            self.model.initialize(section.seed)
        self._slices: Sequence[GradientSlice] = ()
        self.use_plan(plan)
        idle = IdleMemory(lambda: self._trainer.idle_blocks(), lambda: self._trainer.idle_memory())  # noqa: PLW0108
        self._generator = DecoderGenerator(loaded.decoder, declared_ends(source), idle=idle)

    def _load_shared(self, spec: EngineSpec, plan: MemoryPlan) -> None:
        """Take note that ranks share layers' weights, before any are loaded: all ranks have to load together."""

    def _with_weights_away(self, plan: MemoryPlan, spec: DecoderSpec, room: int) -> MemoryPlan:
        """Return a plan that keeps as few weights on the device as possible; see `with_weights_on_host`."""
        return with_weights_on_host(
            plan,
            self._recipe,
            spec,
            room=room,
            precision=self._precision,
            nf4=self._nf4,
            eight_bits=self._eight_bits,
            ranks=self._sharing if sharing(self._recipe, probe(), self._sharing)[1] else 1,
        )

    def use_plan(self, plan: MemoryPlan) -> None:
        """Switch to a memory plan; the caller must call `start` again."""
        self.close()
        if self._trainers and self.model.device.type == "cuda":
            torch.cuda.synchronize(self.model.device)  # what an unfinished step queued
        self._trainers.clear()  # its memory goes before the next one's is taken
        decoder, device = self.model.loaded.decoder, self.model.device
        self.plan = plan
        decoder.chunk_feed_forward(plan.mlp_rows)
        self.layouts = self._make_layouts(plan.head_rows)
        lockable = lockable_memory(device)
        self._trainers.append(
            FastTrainer(
                self.model,
                self._recipe.train,
                self.layouts,
                plan.layers,
                lockable=lockable,
                objective=self._objective,
            )
        )
        self._trainer.cut_backward(backward_cuts(self._slices, plan))

    def slice_gradient(self, most: int) -> Sequence[GradientSlice]:
        """Let the backward pass complete the gradient in at most so many slices from now on, and return these."""
        model = self.model
        self._slices = gradient_slices(list(model.adapter.named()), model.optimizer.layout, most)
        self._trainer.cut_backward(backward_cuts(self._slices, self.plan))
        return self._slices

    @property
    def _objective(self) -> LearnedObjective | None:
        """Recipe section of the objective; None where rows are learned as they stand."""
        preference = self._recipe.preference
        if preference.learns_rewards:
            return self._recipe.reinforce
        return preference if preference.is_active else None

    @property
    @override
    def facts(self) -> EngineFacts:
        return EngineFacts(
            name="fast",
            trains="adapter",
            layout="packed",
            coverage=self._coverage,
            memory_plan=self.plan.model_dump_json(),
            locked_bytes=self._offloaded_bytes + self.model.loaded.pages.bytes,
            state_bytes=4 * self.model.optimizer.param.nbytes,  # weights, two moments, of some the weights once more
        )

    @property
    def _offloaded_bytes(self) -> int:
        return sum(trainer.offloader.host_bytes for trainer in self._trainers if trainer.offloader)

    @override
    def shrink(self) -> str:
        tokens, decoder = max(layout.capacity for layout in self.layouts), self.model.loaded.decoder
        number, free = tokens * decoder.dtype.itemsize, host_memory()[1]
        levels: tuple[SaveLevel, ...] = ("host", "input")
        widths = {level: sum(layer.offloaded_width(level) for layer in decoder.layers) for level in levels}
        barred = [level for level, width in widths.items() if number * width >= free + self._offloaded_bytes]
        old, new = self.plan, smaller_plan(self.plan, tokens, barred=barred)
        if new is None:
            return ""
        self.use_plan(new)
        return what_changed(old, new)

    @property
    @override
    def loading_plan(self) -> str:
        device, spec = self.model.device, self.model.loaded.decoder.spec
        if device.type == "cpu":
            return ""
        room = lockable_memory(device) + self.facts.locked_bytes  # which loading anew gives back
        smaller = self._with_weights_away(self.plan, spec, room)
        return "" if smaller == self.plan else smaller.model_dump_json()

    @override
    def snapshot(self) -> Callable[[], None]:
        optimizer = self.model.optimizer
        with self._on_stream():
            weights = optimizer.param.to("cpu", copy=True)
            # On the CPU these are the tensors themselves.
            state = {name: value.clone() for name, value in self.model.state().items()}

        def put_back() -> None:
            with self._on_stream():
                optimizer.param.copy_(weights)
                self.model.restore(state)
                self.model.write_compute_copies()

        return put_back

    @property
    def _trainer(self) -> FastTrainer:
        return self._trainers[0]

    def _on_stream(self) -> AbstractContextManager[object]:
        """Order the work inside after all queued steps; none are queued where memory did not suffice for a trainer."""
        return self._trainer.on_stream() if self._trainers else nullcontext()

    def _make_layouts(self, most_head_tokens: int) -> list[BucketLayout]:
        decoder, section = self.model.loaded.decoder, self._recipe.train
        height = tile_rows(decoder.spec.largest_head, decoder.dtype, decoder.device)
        rope, cuda, pinned = decoder.rope, decoder.device.type == "cuda", bool(self._recipe.memory.head_rows)
        return [
            BucketLayout(
                capacity,
                height,
                min(most_head_tokens, capacity if pinned else head_chunk_tokens(capacity, cuda=cuda)),
                long_above=rope.long_above,
                long_offset=rope.long_offset or 0,
                content=batch_content(self._objective),
            )
            for capacity in pass_buckets(section, self._stream)
        ]

    @override
    def start(
        self, step: int, total_steps: int, total_micro_batches: int, source: Sequence[MicroBatch] | None = None
    ) -> None:
        section = self._recipe.train
        self.close()
        self._trainer.reset()
        exchange = self._exchange if source is None else None  # a dry run is this rank's alone
        self._trainer.exchange = exchange
        passes = section.accumulation if source is None else len(source)
        first = step * passes
        self._prefetcher = Prefetcher(
            self._stream if source is None else NumberedBatches(source, first),
            self.layouts,
            first=first,
            total=total_micro_batches if source is None else first + passes,
            accumulation=passes,
            learning_rate=lambda number: learning_rate(section, number, total_steps),
            pinned=self.model.device.type == "cuda",
            deal=exchange.deal if exchange else None,
        )

    @override
    def queue_step(self) -> None:
        assert self._prefetcher is not None
        self._trainer.step(self._prefetcher)
        if self._trainer.problem:
            self.notes.append(self._trainer.problem)
            self._trainer.problem = ""

    @override
    def results(self, *, wait: bool = False) -> Iterator[StepResult]:
        return self._trainer.results(wait=wait) if self._trainers else iter(())

    @override
    def held_out_loss(self, request: EvaluationRequest) -> tuple[float, int]:
        return mean_loss(self.pass_losses(self.evaluation_passes(request), request.progress))

    def pass_losses(self, passes: EvaluationPasses, progress: CountListener = ignore_count) -> torch.Tensor:
        """Compute the loss of each pass of an evaluation; see `fast_evaluate.pass_losses`."""
        with self._trainer.on_stream(), self.model.averaged(), self._trainer.idle_memory():
            return pass_losses(self.model.loaded.decoder, passes, progress)

    @override
    def log_probs(self, request: EvaluationRequest, adapter: Path | bool = True) -> npt.NDArray[np.float32]:
        each = len(request.documents[0].sequence_lengths) if len(request.documents) else 1
        passes = self.evaluation_passes(request)
        return self.pass_log_probs(passes, each, adapter=adapter, progress=request.progress)

    def pass_log_probs(
        self, passes: EvaluationPasses, each: int, *, adapter: Path | bool, progress: CountListener = ignore_count
    ) -> npt.NDArray[np.float32]:
        """Compute log-probabilities in the passes of an evaluation; see `log_probs` and `sequence_log_probs`."""
        with (
            self._trainer.on_stream(),
            self.model.averaged(),
            other_adapter(self.model, adapter, self._on_stream),
            self._trainer.idle_memory(),
        ):
            return sequence_log_probs(self.model.loaded.decoder, passes, each, progress)

    @override
    def token_log_probs(self, request: EvaluationRequest, adapter: Path | bool = True) -> list[npt.NDArray[np.float32]]:
        passes = self.evaluation_passes(request)
        with (
            self._trainer.on_stream(),
            self.model.averaged(),
            other_adapter(self.model, adapter, self._on_stream),
            self._trainer.idle_memory(),
        ):
            return token_log_probs(self.model.loaded.decoder, passes)

    @override
    def kl_to_base(self, request: EvaluationRequest) -> float | None:
        passes = self.evaluation_passes(request)
        with self._trainer.on_stream(), self.model.averaged(), self._trainer.idle_memory():
            return mean_divergence(self.model.loaded.decoder, passes, self.without_adapter)

    def without_adapter(self) -> AbstractContextManager[None]:
        """Switch the adapter off inside."""
        return without_adapter(self.model, self._on_stream)

    @property
    def largest_layout(self) -> BucketLayout:
        """Layout of training's largest bucket."""
        return max(self.layouts, key=lambda one: one.capacity)

    def evaluation_passes(self, request: EvaluationRequest) -> EvaluationPasses:
        """Plan the passes of an evaluation."""
        documents, layout = request.documents, self.largest_layout
        longest = int(lengths_of(documents).max()) if len(documents) else 0
        if longest > layout.capacity:  # training's passes may all be shorter than the budget
            layout = replace(layout, capacity=buckets(request.budget, packed=True, most=longest)[-1])
        return EvaluationPasses(held_out_batches(documents, min(request.budget, layout.capacity)), layout)

    @property
    @override
    def replies_are_paged(self) -> bool:
        return self._generator.is_paged

    @override
    def replies(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, samplings: Sequence[Sampling] = ()
    ) -> list[GeneratedReply]:
        with self._on_stream(), self.model.averaged():
            return generate_replies(
                self._generator, self._tokenizer, list(prompts), max_new_tokens, samplings=samplings
            )

    @override
    def save_adapter(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        with self._on_stream(), self.model.averaged():
            self.model.adapter.save(folder, self._base)

    @override
    def optimizer_tensors(self) -> dict[str, torch.Tensor]:
        with self._on_stream():
            return self.model.state()

    @override
    def restore_optimizer(self, tensors: dict[str, torch.Tensor]) -> None:
        self.model.restore({name: value for name, value in tensors.items() if not name.startswith(ERRORS)})

    @override
    def close(self) -> None:
        if self._prefetcher:
            self._prefetcher.close()
            self._prefetcher = None
