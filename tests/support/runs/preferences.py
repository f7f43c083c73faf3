"""Passes of preferences over random tokens, pairs or labeled replies with mismatched ones, and a step over such."""

from dataclasses import replace

import numpy as np
import torch

from burnish_engine.data.tokens.pack import IGNORED
from burnish_engine.train.fast.micro_batch_step import MicroBatchStep
from burnish_engine.train.fast.packed_batch import StepScalars, fill_buffer, write_scalars
from burnish_engine.train.fast.reply_weights import SUMS, KlEstimate

from support.models import parity

LENGTHS = (12, 20, 9, 9, 31, 7)


def pairs(lengths=LENGTHS, seed=0):
    """Random pairs in one pass; the first tokens of each sequence are its prompt."""
    batch = parity.micro_batch(lengths, seed=seed, learned=1.0)
    for start in batch.boundaries[:-1]:
        batch.labels[start : start + 2] = IGNORED
    reference = np.random.default_rng(seed).normal(-30.0, 10.0, len(lengths)).astype(np.float32)
    return replace(batch, rows=tuple(range(len(lengths) // 2)), reference=reference)


def labeled(lengths=LENGTHS, seed=0):
    """Random replies labeled good or bad in one pass, and as many mismatched ones in another."""
    batch, other = pairs(lengths, seed), pairs(lengths[::-1], seed + 1)
    rows = tuple(range(len(lengths)))
    near = [-6.0 * batch.sequence_tokens, -6.4 * other.sequence_tokens]  # about what random weights say
    good = np.arange(len(lengths)) % 3 != 1
    other = replace(other, rows=rows, reference=near[1].astype(np.float32))
    return replace(batch, rows=rows, reference=near[0].astype(np.float32), desirable=good), other


def fast_step(model, section, batches, others=(), *, rows=None, head_rows=48, keep="products"):
    """Loss, figures and adapter gradients of a fast step over some passes, and over passes of mismatched replies."""
    optimizer, sums, kl = model.model.optimizer, torch.zeros(SUMS), KlEstimate(torch.device("cpu"))
    optimizer.grad.zero_()
    count = sum(len(batch.rows) for batch in batches)
    if section.learns_labels:
        good = sum(int(batch.desirable.sum()) for batch in batches)
        scalars = StepScalars(1 / count, 1e-3, 0.0, count / good, count / (count - good))
    else:
        scalars = StepScalars(1 / count, 1e-3, 1 / sum(int(batch.sequence_tokens[::2].sum()) for batch in batches))
    for batch, estimates in [*((one, True) for one in others), *((one, False) for one in batches)]:
        learned = "labels" if section.learns_labels else "pairs"
        layout = replace(model.layout(batch, rows, head_rows), content=learned)
        buffer = torch.zeros(layout.size, dtype=torch.int32)
        counts = fill_buffer(batch, layout, buffer.numpy())
        write_scalars(scalars, layout, buffer.numpy())
        keeps = [keep] * len(model.loaded.decoder.layers)
        with torch.no_grad():
            program = MicroBatchStep(model.model, layout, buffer, keeps, sums, objective=section, kl=kl)
            program.estimate_kl(counts) if estimates else program.run(counts)
    views = optimizer.layout.views(optimizer.grad)
    return sums, {name: view.clone() for name, view in zip(model.model.adapter.named(), views, strict=True)}
