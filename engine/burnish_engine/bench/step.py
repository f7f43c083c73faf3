"""Measure optimizer steps of the fast engine on random weights of a known shape, and their time by kind of kernel."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil
import torch

from burnish_engine.advise.facts.workload import buckets
from burnish_engine.bench.documents import packs, preference_documents, recorded_packs
from burnish_engine.bench.shapes import RandomWeights, shape
from burnish_engine.bench.step_options import StepOptions
from burnish_engine.contract.garbage import collect_as_usual
from burnish_engine.contract.recipe.memory_plan import MemoryPlan, places_alone
from burnish_engine.contract.recipe.recipe import ModelSection, Recipe
from burnish_engine.contract.recipe.recipe_preference import PreferenceSection
from burnish_engine.contract.recipe.recipe_train import AdapterSection, MaskingSection
from burnish_engine.data.tokens.mismatch import MismatchedDocuments
from burnish_engine.data.tokens.pack import EpochPlan
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.models.decoder.decoder_load import DecoderOptions, build_decoder
from burnish_engine.models.decoder.frozen.format_choice import check_eight_bits
from burnish_engine.models.decoder.lora_adapter import plan_adapter
from burnish_engine.models.device.device import capability_of
from burnish_engine.models.device.precision import DTYPES, exact_products
from burnish_engine.models.families import family
from burnish_engine.models.families.adapter_targets import expert_rank
from burnish_engine.models.host_memory.layer_shares import RankMemory
from burnish_engine.train.base.engine import StepResult
from burnish_engine.train.base.exchange import GradientExchange
from burnish_engine.train.base.stream import BatchStream, References
from burnish_engine.train.exchange.rank_exchange import RankExchange
from burnish_engine.train.fast.fast_model import make_trainable
from burnish_engine.train.fast.fast_trainer import FastTrainer
from burnish_engine.train.fast.gradient_slices import backward_cuts, gradient_slices
from burnish_engine.train.fast.memory_choice import lockable_memory, plan_within
from burnish_engine.train.fast.packed_batch import BucketLayout, batch_content
from burnish_engine.train.fast.prefetch import Prefetcher
from burnish_engine.train.lifecycle.measure import memory_reader
from burnish_engine.train.parallel.exchange_choice import SLICES
from burnish_kernels.attention.op import tile_rows

GIB = 2**30
_PROFILED = 3  # number of steps
_ATTENTION_KERNELS = {"forward_kernel", "dq_kernel", "dkdv_kernel"}  # whole names: others end in the same words


class StepBench:
    """Trainer on random weights and documents, with measurements.

    Args:
        options: settings of the measurement.
        ranks: number of processes that share each step, with a pass for each.
        exchange: exchange with the others; None: there are none.
        begin: function called before each step.
        memory: memory of the ranks that share layers' weights.
        plan: memory plan; None: as the options say.
        planned: function that is told the plan before weights are made.
    """

    def __init__(
        self,
        options: StepOptions,
        ranks: int = 1,
        exchange: GradientExchange | None = None,
        begin: Callable[[], object] = lambda: None,
        memory: RankMemory | None = None,
        plan: MemoryPlan | None = None,
        planned: Callable[[MemoryPlan], object] = lambda _plan: None,
    ) -> None:
        self.options, self.spec = options, shape(options.shape, options.layers)
        self._ranks, self._begin = ranks, begin
        self.predicted: dict[str, float] = {}
        self.device = torch.device(options.device)
        self._check_eight_bits()
        # Before the device is used, so that what others hold of it is not counted.
        self._held = memory_reader(self.device)
        exact_products()
        known = family(self.spec.family)
        assert known is not None
        section = AdapterSection(
            rank=options.rank,
            alpha=float(options.rank),
            expert_rank=options.expert_rank,
            targets=list(options.targets),
        )
        rows = -(-options.tokens // 64) * 64
        self.packs = self._packs()
        self._sharing = memory.size if memory else 1
        self.plan = plan or self._plan(section)
        if memory is None:
            self.plan = self.plan.model_copy(update={"weights": places_alone(self.plan.weights)})
        planned(self.plan)
        wanted = DecoderOptions(
            dtype=DTYPES[options.precision],
            device=self.device,
            positions=options.tokens,
            plan=plan_adapter(
                section,
                known.modules(self.spec),
                known.all_expert_stacks(self.spec),
                expert_rank(section, self.spec.experts_per_token),
            ),
            quantize=options.method == "qlora",
            eight_bits=options.eight_bits,
            embedding_on_host=self.plan.embedding_on_host,
            head_on_host=self.plan.head_on_host,
            layers_on_host=frozenset(self.plan.layers_on_host),
            layers_on_ranks=frozenset(self.plan.layers_on_ranks),
            memory=memory,
        )
        loaded = build_decoder(RandomWeights(self.spec, self.device), self.spec, wanted)
        loaded.decoder.chunk_feed_forward(self.plan.mlp_rows)
        self.model = make_trainable(loaded, MaskingSection(kind=options.masking), 0, options.section)
        self.model.initialize(0)
        height = tile_rows(self.spec.largest_head, DTYPES[options.precision], self.device)
        preference = options.preference
        self.layout = BucketLayout(rows, height, min(self.plan.head_rows, rows), content=batch_content(preference))
        self.layouts = [self.layout]
        if preference and preference.estimates_kl:  # mismatched documents may be a few tokens more than their rows
            smaller, chunk = buckets(options.tokens, packed=True)[0], self.layout.head_chunk_tokens
            self.layouts += [replace(self.layout, capacity=smaller, head_chunk_tokens=min(chunk, smaller))]
        self.trainer = FastTrainer(
            self.model, options.section, self.layouts, self.plan.layers, graphs=options.graphs, objective=preference
        )
        if self.trainer.offloader:
            self.trainer.offloader.serial = options.serial_offload
        self.trainer.exchange = exchange
        if isinstance(exchange, RankExchange):
            names, optimizer = list(self.model.adapter.named()), self.model.optimizer
            slices = gradient_slices(names, optimizer.layout, SLICES if options.exchange == "sliced" else 1)
            exchange.use(slices, optimizer.grad, rounded=options.exchange == "bf16")
            self.trainer.cut_backward(backward_cuts(slices, self.plan))

    def _check_eight_bits(self) -> None:
        options = self.options
        model = ModelSection(quantize="fp8" if options.fp8_stored else "none")
        train = options.section.model_copy(update={"products": options.products})
        recipe = Recipe(model=model).model_copy(update={"train": train})
        check_eight_bits(recipe, self.spec, options.precision, capability_of(self.device))

    def _packs(self) -> EpochPlan | BatchStream:
        options = self.options
        shown = options.objective if options.objective != "sft" else options.passes_of
        if shown != "sft":
            return self._preferences(PreferenceSection(objective=shown))
        count = (options.warmup + options.steps + _PROFILED + 2) * self._ranks
        if options.packs is not None:
            return recorded_packs(options.packs, options.tokens, count, vocabulary=self.spec.vocab_size)
        if options.one_document:
            return packs(options.tokens, count, length=options.tokens)
        return packs(options.tokens, step=self._ranks)

    def _preferences(self, section: PreferenceSection) -> BatchStream:
        documents = preference_documents(self.options.tokens, pairs=section.learns_pairs)
        reads_others = self.options.objective == section.objective and section.estimates_kl
        mismatched = MismatchedDocuments(documents, self.options.tokens) if reads_others else None
        packed = self.options.section.model_copy(update={"micro_batch_tokens": self.options.tokens})
        stream = BatchStream(documents, packed, mismatched=mismatched)
        none = np.zeros((0, 1), np.float32)
        other = self._uniform(mismatched) if mismatched else none
        stream.references = References(self._uniform(documents), none, other, none)
        return stream

    def _uniform(self, documents: Sequence[Document]) -> npt.NDArray[np.float32]:
        """Compute [documents, sequences] the log-probabilities where every token is as likely."""
        counts = [
            [int(part.sum()) for part in np.split(one.supervised, [one.rejected_from] if one.rejected_from else [])]
            for one in documents
        ]
        return (-np.log(self.spec.vocab_size) * np.array(counts)).astype(np.float32)

    def _plan(self, section: AdapterSection) -> MemoryPlan:
        """Choose the memory plan for the budget, or build it from the options."""
        options = self.options
        if not options.budget_gib:
            given = options.keep
            return MemoryPlan(
                layers=tuple(given[min(index, len(given) - 1)] for index in range(self.spec.num_layers)),
                mlp_rows=options.mlp_rows,
                head_rows=options.head_rows,
                embedding_on_host=options.tables_on_host,
                head_on_host=options.tables_on_host,
                weights=options.weights,
            )
        packs = self.packs if isinstance(self.packs, EpochPlan) else map(self.packs.__getitem__, range(8))
        lengths = np.concatenate([np.diff(batch.boundaries) for batch in islice(packs, 8)])
        chosen = plan_within(
            options.budget_gib * GIB,
            Recipe(adapter=section, train=options.section, masking=MaskingSection(kind=options.masking)),
            self.spec,
            lengths.tolist(),
            self.device,
            tokens=options.tokens,
            precision=options.precision,
            nf4=options.method == "qlora",
            eight_bits=options.eight_bits,
            ranks=self._sharing,
            host_bytes=lockable_memory(self.device) // self._sharing,
        )
        self.predicted = {"gib": chosen.peak_bytes / GIB, "step_ms": 1000 * chosen.seconds}
        return chosen.plan

    def prefetcher(self, first: int, count: int) -> Prefetcher:
        """Make a prefetcher of the micro-batches of steps `first` to `first + count`, from 0."""
        pinned, exchange = self.device.type == "cuda", self.trainer.exchange
        return Prefetcher(
            self.packs,
            self.layouts,
            first=first * self._ranks,
            total=(first + count) * self._ranks,
            accumulation=self._ranks,
            learning_rate=lambda _step: 2e-4,
            pinned=pinned,
            deal=exchange.deal if exchange else None,
        )

    def step(self, prefetcher: Prefetcher) -> int:
        """Queue a step; return its tokens, of all ranks."""
        self._begin()
        return self.trainer.step(prefetcher).tokens

    def time_steps(
        self, prefetcher: Prefetcher, count: int, queued: Callable[[int], object] = lambda _number: None
    ) -> tuple[list[int], list[float]]:
        """Run steps back to back; return the tokens and the milliseconds of each.

        Args:
            prefetcher: source of the micro-batches.
            count: number of steps.
            queued: function that receives how many were queued, before each.
        """
        marks, tokens = [self._mark()], []
        for number in range(count):
            queued(number)
            tokens.append(self.step(prefetcher))
            marks.append(self._mark())
        return tokens, _between(marks)

    def run(self, progress: Callable[[float], object] = lambda _share: None) -> dict[str, Any]:
        """Warm up, measure, and report.

        Args:
            progress: function that receives the share of the steps that were queued.
        """
        collect_as_usual()
        options, cuda = self.options, self.device.type == "cuda"
        count = options.warmup + options.steps
        results: list[StepResult] = []
        with self.prefetcher(0, count) as prefetcher:
            self.step(prefetcher)
            results += self.trainer.results(wait=True)
            first_step_s = time.time() - psutil.Process().create_time()
            for number in range(1, options.warmup):
                progress(number / count)
                self.step(prefetcher)
            results += self.trainer.results(wait=True)
            tokens, times = self.time_steps(
                prefetcher, options.steps, lambda number: progress((options.warmup + number) / count)
            )
            results += self.trainer.results(wait=True)
        report = {
            "engine": "burnish",
            "shape": options.shape,
            "method": options.method,
            "tokens": options.tokens,
            "objective": options.objective,
            "precision": options.precision,
            "weights": options.weights_format,
            "products": options.products,
            "device": torch.cuda.get_device_name() if cuda else "CPU",
            "tok_s": float(np.median([1000 * count / taken for count, taken in zip(tokens, times, strict=True)])),
            "mean_tok_s": 1000 * sum(tokens) / sum(times),
            "step_ms": float(np.median(times)),
            "fill": sum(tokens) / (options.steps * options.tokens * self._ranks),
            "first_step_s": first_step_s,
            "graphs": self.trainer.problem or ("captured" if options.graphs and cuda else "off"),
            "loss": [results[0].loss, results[-1].loss],
            "grad_norm": [results[0].grad_norm, results[-1].grad_norm],
        }
        if self.predicted:
            report |= {"plan": self.plan.model_dump() | {"layers": self.plan.text}, "predicted": self.predicted}
        return report | (self._memory() if cuda else {})

    def _mark(self) -> Any:
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(self.trainer.stream)
        return event

    def _memory(self) -> dict[str, Any]:
        # Peaks of the whole process: replaying a captured pass allocates nothing, capturing it did.
        held = self._held()
        if held:  # now; what torch gave back was there before
            held += torch.cuda.max_memory_reserved() - torch.cuda.memory_reserved()
        return {
            "peak_allocated_gib": torch.cuda.max_memory_allocated() / GIB,
            "peak_reserved_gib": torch.cuda.max_memory_reserved() / GIB,
            "shared_gib": self.model.loaded.decoder.ring.shares.bytes / GIB,
            "streamed_gib": self.model.loaded.decoder.ring.host_bytes / GIB,
            "host_gib": self.trainer.offloader.host_bytes / GIB if self.trainer.offloader else 0.0,
            "nvml_gib": held / GIB if held else None,
        }

    def profile(self) -> dict[str, float]:
        """Profile a few steps: milliseconds a step by kind of kernel, and of idle time."""
        from torch.profiler import ProfilerActivity, profile

        first = self.options.warmup + self.options.steps
        with self.prefetcher(first, _PROFILED + 2) as prefetcher:
            self.trainer.step(prefetcher)
            list(self.trainer.results(wait=True))
            with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as trace:
                for _ in range(_PROFILED):
                    self.trainer.step(prefetcher)
                list(self.trainer.results(wait=True))
        return summarize(trace, _PROFILED)


def summarize(trace: Any, steps: int) -> dict[str, float]:
    """Sum up the busy time of a step by kind and by kernel (the 25 longest), milliseconds."""
    spans, kinds, names = [], dict[str, float](), dict[str, float]()
    for event in trace.events():
        if event.device_type.name != "CUDA" or event.name.startswith("Context Sync"):
            continue
        span = event.time_range
        spans.append((span.start, span.end))
        milliseconds = (span.end - span.start) / 1000 / steps
        kinds[kind_of(event.name)] = kinds.get(kind_of(event.name), 0.0) + milliseconds
        names[event.name[:70]] = names.get(event.name[:70], 0.0) + milliseconds
    busy = end = 0.0
    for start, stop in sorted(spans):
        busy += max(0.0, stop - max(start, end))
        end = max(end, stop)
    total = (end - min(start for start, _ in spans)) / 1000 / steps
    longest = sorted(names.items(), key=lambda item: -item[1])[:25]
    return {"total": total, "idle": total - busy / 1000 / steps, **kinds, **{f"  {name}": ms for name, ms in longest}}


def kind_of(kernel: str) -> str:
    """Classify a kernel by its name: copy, attention, gemm or other."""
    lowered = kernel.lower()
    if "memcpy" in lowered or "memset" in lowered:
        return "copy"
    if lowered in _ATTENTION_KERNELS or any(word in lowered for word in ("attention", "dkdv", "_dq", "_delta")):
        return "attention"
    if any(word in lowered for word in ("gemm", "nvjet", "cutlass", "xmma", "splitk", "cublas")):
        return "gemm"
    return "other"


def _between(marks: list[Any]) -> list[float]:
    """Compute the milliseconds between marks."""
    if isinstance(marks[0], float):
        return [1000 * (later - earlier) for earlier, later in pairwise(marks)]
    marks[-1].synchronize()
    return [earlier.elapsed_time(later) for earlier, later in pairwise(marks)]
