"""Checks that measure a few rows on the training engine: before training, after warmup, and at the end.

- The loss that a training pass reports is compared with the loss computed from logits of the same rows, one by one,
  with labels made here; a finding says where it fits labels that are shifted by one.
- Every trained tensor must have a gradient; a group whose gradient is exactly 0 while others' are not is cut off.
- Documents in a pass must not see each other: logits of each alone and in a pass are compared, and those of the others
  must not move when one document is exchanged.
- In the end the model with the adapter must give other logits than without it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from burnish_engine.data.tokens.pack import IGNORED, MicroBatch
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.train.base.leaks import TOLERANCE, choose_rows, compared_places, find_leak, pass_of
from burnish_engine.train.guard import findings
from burnish_engine.train.guard.batch_checks import expected_labels
from burnish_engine.train.guard.engine_probe import Audit, EngineProbe, TensorAudit
from burnish_engine.train.guard.findings import GuardFinding

__all__ = ["choose_rows", "pass_of"]

_ADAPTER_PARTS = 3  # A, B and DoRA's magnitudes; the groups of a whole model are layers, and have more
_DROPOUT_TOLERANCE = 0.2  # share of the loss, where dropout acts on an adapter that was trained already


@dataclass(frozen=True)
class ProbeConditions:
    """Conditions of a measurement, which decide its tolerances.

    Attributes:
        precision: compute precision, "fp32", "bf16" or "fp16".
        dropout: dropout probability of the adapter.
        fresh: whether nothing was trained yet.
    """

    precision: str
    dropout: float
    fresh: bool

    @property
    def tolerance(self) -> float:
        """Largest difference between two computations of a logit, as a share of the largest logit."""
        return TOLERANCE[self.precision]

    @property
    def loss_tolerance(self) -> float:
        """Largest difference between training's loss and the one computed from logits, as a share of the loss."""
        return self.tolerance if self.fresh or not self.dropout else _DROPOUT_TOLERANCE


@dataclass(frozen=True)
class RowsAlone:
    """Figures of some rows of which each was computed by itself.

    Attributes:
        losses: mean loss of the rows in nats for labels at shift 0 (the token itself), 1 (the next one) and 2.
        logits_PV: logits of each row at its `compared_places`, one row after the other.
    """

    losses: dict[int, float]
    logits_PV: torch.Tensor


def measure_alone(probe: EngineProbe, rows: Sequence[Document]) -> RowsAlone:
    """Compute each row by itself, once for all checks that compare with it."""
    sums, counts = dict.fromkeys((0, 1, 2), 0.0), dict.fromkeys((0, 1, 2), 0)
    compared = []
    for row in rows:
        batch, every = _alone(row, every=True)
        logits = probe.logits(batch, every)
        ids = torch.from_numpy(batch.input_ids)
        places = torch.from_numpy(np.flatnonzero(batch.labels != IGNORED))
        for shift in sums:
            here = places[places + shift < len(ids)]
            sums[shift] += float(functional.cross_entropy(logits[here], ids[here + shift], reduction="sum"))
            counts[shift] += len(here)
        compared.append(logits[compared_places(len(ids))])
    return RowsAlone({shift: sums[shift] / max(counts[shift], 1) for shift in sums}, torch.cat(compared))


def check_loss(audit: Audit, alone: RowsAlone, rows: Sequence[Document], at: ProbeConditions) -> list[GuardFinding]:
    """Compare training's loss of a pass over these rows with the one computed from their logits.

    Args:
        audit: training's pass over the rows.
        alone: figures of the rows by themselves.
        rows: the rows.
        at: conditions of the measurement.
    """
    batch = pass_of(rows)
    _, wanted = expected_labels(rows)
    real = int((wanted != IGNORED).sum())
    if batch.supervised_tokens == 0 or audit.counted == 0:
        return [findings.no_targets("a pass over rows with learned tokens holds")]
    if audit.counted > real:
        return [findings.padding(audit.counted, real, "the loss has labels at")]
    losses = alone.losses
    right, tolerance = losses[1], at.loss_tolerance
    if not math.isfinite(right):
        return [findings.not_finite(right, at.precision, fresh=at.fresh)]
    if audit.loss == 0.0 and right > tolerance:
        return [findings.zero_loss(f"in a pass over rows whose next tokens have {right:.4f} nats")]
    if math.isclose(audit.loss, right, rel_tol=tolerance, abs_tol=tolerance):
        return []
    nearest = min(losses, key=lambda shift: abs(losses[shift] - audit.loss))
    evidence = f"training reports {audit.loss:.4f} nats, the next tokens of these rows have {right:.4f}"
    if nearest != 1 and math.isclose(audit.loss, losses[nearest], rel_tol=tolerance, abs_tol=tolerance):
        how = "the token that stands there" if nearest == 0 else "the token after the next"
        return [findings.shifted(how, f"{evidence}, {how} has {losses[nearest]:.4f}")]
    return [findings.other_labels(evidence)]


def check_gradients(audit: Audit) -> list[GuardFinding]:
    """Check that every group of trained tensors has a gradient."""
    tensors = audit.tensors
    if not any(part.norm for part in tensors.values()):
        return [findings.zero_gradient("after a pass over a few rows")]
    groups: dict[str, list[TensorAudit]] = {}
    for part in tensors.values():
        groups.setdefault(part.group, []).append(part)
    groups.pop("", None)
    dead = [name for name, members in groups.items() if _is_dead(members)]
    return [findings.detached(dead, len(groups))] if dead else []


def check_leaks(
    probe: EngineProbe, alone: RowsAlone, rows: Sequence[Document], at: ProbeConditions
) -> list[GuardFinding]:
    """Check that documents of a pass do not see each other."""
    evidence = find_leak(probe.logits, [row.input_ids for row in rows], at.tolerance, alone.logits_PV)
    return [findings.leak(evidence)] if evidence else []


def same_output(probe: EngineProbe, rows: Sequence[Document]) -> bool | None:
    """Return whether the adapter changes no logit of these rows at all; None where there is no adapter."""
    pairs = [_alone(row, every=True) for row in rows]
    with probe.without_adapter() as there:
        if not there:
            return None
        base = [probe.logits(*pair) for pair in pairs]
    return all(torch.equal(one, probe.logits(*pair)) for one, pair in zip(base, pairs, strict=True))


def unmoved_groups(probe: EngineProbe, before: dict[str, int], after: dict[str, int]) -> tuple[list[str], int]:
    """List the groups of trained tensors that did not change at all, and count all groups."""
    groups: dict[str, list[str]] = {}
    for name in probe.trained():
        groups.setdefault(name.partition(".lora_")[0], []).append(name)
    still = [
        group for group, names in groups.items() if all(before.get(name) == after.get(name) for name in names)
    ]  # fmt: skip
    return still, len(groups)


def _is_dead(members: Collection[TensorAudit]) -> bool:
    """Return whether a group has no gradient, or an adapter none in one matrix although no other matrix is 0."""
    if not any(part.norm for part in members):
        return True
    return (
        len(members) <= _ADAPTER_PARTS
        and any(part.norm == 0.0 for part in members)
        and not any(part.starts_zero for part in members)
    )


def _alone(row: Document, *, every: bool = False) -> tuple[MicroBatch, torch.Tensor]:
    """Build a micro-batch of one row; return it with its last place, or with all places."""
    ids, labels = expected_labels([row])
    bounds = np.array([0, len(ids)], dtype=np.int32)
    batch = MicroBatch(ids, np.arange(len(ids), dtype=np.int64), labels, bounds, (0,))
    return batch, torch.arange(len(ids)) if every else torch.tensor([len(ids) - 1])
