"""The guard's probe of the fast engine: it uses the engine's own prefetcher, micro-batch step and kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import torch
from typing_extensions import override

from burnish_engine.advise.facts.workload import BUCKET_MULTIPLE
from burnish_engine.data.tokens.pack import IGNORED, MicroBatch
from burnish_engine.models.decoder.experts.expert_weights import weight_tensors
from burnish_engine.models.decoder.stacked_linear import StackedLinear
from burnish_engine.train.fast.fast_engine import FastEngine
from burnish_engine.train.fast.fast_evaluate import without_dropout
from burnish_engine.train.fast.micro_batch_step import MicroBatchStep
from burnish_engine.train.fast.packed_batch import BatchCounts, BucketLayout, sequence_metadata
from burnish_engine.train.fast.prefetch import Prefetcher
from burnish_engine.train.guard.engine_probe import Audit, EngineProbe, TensorAudit


class FastProbe(EngineProbe):
    """Probe of the fast engine.

    Args:
        engine: loaded engine; it may be in the middle of training, between two steps.
    """

    def __init__(self, engine: FastEngine) -> None:
        self._engine = engine
        self._model = engine.model
        self._decoder = engine.model.loaded.decoder

    @override
    def audit(self, batch: MicroBatch) -> Audit:
        trainer, optimizer = self._engine._trainer, self._model.optimizer
        layout, host, counts, counted = self._laid_out(batch)
        try:
            with trainer.on_stream(), trainer.idle_memory():
                device, levels = self._decoder.device, self._engine.plan.layers
                loss = torch.zeros(1, dtype=torch.float32, device=device)
                offloader = trainer.offloader
                if offloader is not None and offloader.tokens < layout.capacity:
                    offloader = None  # training's passes are shorter than this one, which then makes its own
                step = MicroBatchStep(self._model, layout, host.to(device), levels, loss, offloader)
                step.run(counts)
                scale = optimizer.loss_scale
                gradients = optimizer.layout.views(optimizer.grad)
                norms = torch.stack([view.norm() for view in gradients]) / scale
                zero = torch.stack([(tensor == 0).all() for tensor in self._model.adapter.tensors])
                found = torch.cat([loss, norms, zero.to(loss.dtype)]).tolist()
        finally:
            with trainer.on_stream():
                optimizer.grad.zero_()
        names = list(self._model.adapter.named())
        groups = [adapted.path for adapted in self._model.adapter.plan.parts for _ in adapted.shapes]
        parts = {
            name: TensorAudit(group, norm, bool(empty))
            for name, group, norm, empty in zip(
                names, groups, found[1 : 1 + len(names)], found[1 + len(names) :], strict=True
            )
        }
        return Audit(found[0], counted, parts)

    @override
    @torch.no_grad()
    def logits(self, batch: MicroBatch, rows: torch.Tensor) -> torch.Tensor:
        layout, host, _, _ = self._laid_out(batch)
        trainer, decoder = self._engine._trainer, self._decoder
        with trainer.on_stream(), trainer.idle_memory(), without_dropout(decoder):
            fields = layout.views(host.to(decoder.device))
            done = decoder.forward(fields.ids_T, sequence_metadata(layout, fields))
            logits = decoder.logits(done.hidden_TH.index_select(0, rows.to(decoder.device))).cpu()
            del done
        return logits

    @override
    def trained(self) -> Mapping[str, torch.Tensor]:
        self._wait()
        return self._model.adapter.named()

    @override
    def frozen(self) -> Mapping[str, torch.Tensor]:
        self._wait()
        decoder = self._decoder
        found = {"embedding": decoder.embedding_VH, "final norm": decoder.final_norm_H}
        if decoder.head.matrix_VH is not decoder.embedding_VH:
            found["head"] = decoder.head.matrix_VH
        if decoder.layer_inputs is not None:
            found |= decoder.layer_inputs.tensors
        found |= {f"head's {name}": tensor for name, tensor in decoder.head.codes().items()}
        for layer in decoder.layers:
            weights, index = layer.weights, layer.shape.index
            found |= {f"layer {index} {name}": vector for name, vector in weights.vectors.items()}
            for name, stack in weights.stacks.items():
                found |= _frozen_of(f"layer {index} {name}", stack, is_here=index not in decoder.ring.layers)
            if weights.experts and index not in decoder.ring.layers:
                for role, experts in weights.experts.stacks.items():
                    tensors = weight_tensors(experts.weight)
                    found |= {f"layer {index} experts {role} {key}": tensor for key, tensor in tensors.items()}
        for index, held in decoder.ring.layers.items():
            is_shared = index in decoder.ring.shares
            place = f"own part of layer {index}" if is_shared else f"layer {index} in host memory"
            found[place] = held.view(torch.int64)  # fewer numbers than bytes
        return found

    @override
    @contextmanager
    def without_adapter(self) -> Iterator[bool]:
        with self._engine.without_adapter():
            yield True

    def _laid_out(self, batch: MicroBatch) -> tuple[BucketLayout, torch.Tensor, BatchCounts, int]:
        """Lay a micro-batch out in a bucket of its size; return layout, buffer, counts and the number of targets."""
        usual = self._engine.layouts[0]
        capacity = max(-(-batch.tokens // BUCKET_MULTIPLE) * BUCKET_MULTIPLE, BUCKET_MULTIPLE)
        # Of preferences it looks at pieces of rows, as rows that are learned as they stand.
        layout = replace(
            usual, content="rows", capacity=capacity, head_chunk_tokens=min(usual.head_chunk_tokens, capacity)
        )
        with Prefetcher(
            [batch], [layout], first=0, total=1, accumulation=1, learning_rate=lambda _step: 0.0
        ) as prefetcher:  # fmt: skip
            host = prefetcher.next()
            buffer = host.buffer.clone()
        targets = layout.arrays(buffer.numpy()).head_target_R
        return layout, buffer, host.counts, int((targets != IGNORED).sum())

    def _wait(self) -> None:
        """Wait until all queued steps are done, because the tensors are read on another stream next."""
        if self._decoder.device.type == "cuda":
            torch.cuda.synchronize(self._decoder.device)


def _frozen_of(name: str, stack: StackedLinear, *, is_here: bool) -> dict[str, torch.Tensor]:
    """Return the frozen tensors of a stack; its weight only where that stays on the device."""
    found = {} if stack.bias_N is None else {f"{name} bias": stack.bias_N}
    if not is_here:
        return found
    stored = stack.frozen.tensors(stack.outputs, stack.inputs)
    return found | {f"{name} {key}".rstrip(): value for key, value in stored.items()}
