"""The guard's probe of the plain engine: it uses the engine's own loss, layout and model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from typing_extensions import override

from burnish_engine.data.tokens.pack import IGNORED, MicroBatch
from burnish_engine.train.base.random_state import snapshot_random_state
from burnish_engine.train.guard.engine_probe import Audit, EngineProbe, TensorAudit
from burnish_engine.train.plain import plain_step
from burnish_engine.train.plain.plain_engine import PlainEngine

_LAYER = re.compile(r"^(.*?\.layers\.\d+)\.")
_ADAPTER = ".lora_"
_EXPERT = "expert"  # one that no token was sent to has no gradient, rightly


class PlainProbe(EngineProbe):
    """Probe of the plain engine.

    Args:
        engine: loaded engine; it may be in the middle of training, between two steps.
    """

    def __init__(self, engine: PlainEngine) -> None:
        self._engine = engine

    @override
    def audit(self, batch: MicroBatch) -> Audit:
        engine = self._engine
        put_back = snapshot_random_state(engine._device)
        try:
            targets = self._inputs(batch)[1]
            with plain_step.documents_apart(batch, engine._layout), engine.computing():
                loss = sum(
                    (
                        plain_step.summed_loss(engine.model, part, engine._device, engine._layout)
                        for part in self._parts(batch)
                    ),
                    torch.zeros((), device=engine._device),
                )
                mean = loss / max(batch.supervised_tokens, 1)
                mean.backward()
            if engine._whole:
                engine._whole.collect_gradients()
            parts = {name: _tensor_audit(name, value) for name, value in self._expected().items()}
        finally:
            engine._drop_gradients()
            put_back()
        return Audit(float(mean.detach()), int((targets != IGNORED).sum()), parts)

    @override
    @torch.no_grad()
    def logits(self, batch: MicroBatch, rows: torch.Tensor) -> torch.Tensor:
        parts = self._parts(batch)
        if len(parts) > 1:
            edges = zip(parts, batch.boundaries[:-1].tolist(), batch.boundaries[1:].tolist(), strict=True)
            return torch.cat([self.logits(part, rows[(rows >= a) & (rows < b)] - a) for part, a, b in edges])
        model = self._engine.model
        inputs, _ = self._inputs(batch)
        apart = plain_step.documents_apart(batch, self._engine._layout)
        with plain_step.evaluating(model), apart, self._engine.computing():
            logits = model(**inputs, use_cache=False).logits
        if self._engine.facts.layout not in plain_step.BY_ROW:
            return logits[0][rows.to(logits.device)].float().cpu()
        places = np.searchsorted(batch.boundaries, rows.numpy(), side="right") - 1
        offsets = rows.numpy() - batch.boundaries[places]
        return logits[torch.from_numpy(places), torch.from_numpy(offsets).long()].float().cpu()

    @override
    def trained(self) -> Mapping[str, torch.Tensor]:
        return {name: value.detach() for name, value in self._engine.parameters}

    @override
    def frozen(self) -> Mapping[str, torch.Tensor]:
        if self._engine.facts.trains == "model":
            return {}
        trained = {name for name, _ in self._engine.parameters}
        named = self._engine.model.named_parameters()
        return {name: value.detach() for name, value in named if name not in trained and _ADAPTER not in name}

    @override
    @contextmanager
    def without_adapter(self) -> Iterator[bool]:
        if self._engine.facts.trains == "model":
            yield False
            return
        with self._engine.model.disable_adapter():
            yield True

    def _parts(self, batch: MicroBatch) -> list[MicroBatch]:
        """Split a batch where each row has a pass of its own."""
        return plain_step.passes_of(batch, "alone", 0) if self._engine.facts.layout == "alone" else [batch]

    def _inputs(self, batch: MicroBatch) -> tuple[dict[str, Any], torch.Tensor]:
        return plain_step.model_inputs(self._engine.model, batch, self._engine._device, self._engine._layout)

    def _expected(self) -> dict[str, torch.nn.Parameter]:
        """Return the parameters that should have a gradient, also where something took them out of training."""
        found = {name: value for name, value in self._engine.parameters if value.numel()}
        if self._engine.facts.trains == "adapter":
            found |= {name: value for name, value in self._engine.model.named_parameters() if _ADAPTER in name}
        return found


def _tensor_audit(name: str, value: torch.nn.Parameter) -> TensorAudit:
    module, adapter, _ = name.partition(_ADAPTER)
    layer = _LAYER.match(name)
    group = module if adapter else layer[1] if layer else ""
    norm = 0.0 if value.grad is None else float(value.grad.norm())
    return TensorAudit("" if _EXPERT in name else group, norm, not bool(value.detach().any()))
