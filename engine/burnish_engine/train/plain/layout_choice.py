"""Choose the layout of passes on the plain engine by measurements on the loaded model, not from a list of models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from burnish_engine.contract.errors import SetupError
from burnish_engine.data.tokens.pack import MicroBatch
from burnish_engine.models.device.device import is_out_of_memory
from burnish_engine.models.transformers_path import delta_kernels, packed_attention
from burnish_engine.models.transformers_path.packed_masks import document_masks
from burnish_engine.train.base.leaks import (
    TOLERANCE,
    Ids,
    Logits,
    embedded_tokens,
    find_leak,
    find_shift,
    gradient_crosses,
    unlabeled_pass,
)
from burnish_engine.train.base.random_state import snapshot_random_state
from burnish_engine.train.plain.plain_step import (
    BY_ROW,
    PlainLayout,
    documents_apart,
    evaluating,
    padded_inputs,
    takes_logits_to_keep,
)

PROBE_LENGTHS = (5, 9, 7)
DOCUMENTS_LENGTHS = (5, 150, 9, 70)
"""Lengths of the random documents in tokens; `DOCUMENTS_LENGTHS` exceeds a tile of our kernels."""
_SMALL_WINDOW = 4  # tokens; windows of real models are longer than the probe's documents
_WINDOWS = ("sliding_window", "attention_chunk_size")
COMPUTE_DTYPE = "burnish_compute_dtype"
"""Attribute of a model that computes in another dtype than that of its weights."""
_PACKED = "fla-core computes the delta nets of packed rows, which was probed: a row's logits are those it has alone"
_REMEDY = "The package fla-core (burnish[hybrid]) would compute delta nets faster, and rows packed if its probe passes"
_PRECISIONS = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


def choose_layout(
    model: Any,
    vocab_size: int,
    device: torch.device,
    pack: bool,
    before: str | None = None,
    rows: Sequence[Ids] = (),
    full: Sequence[Ids] = (),
) -> tuple[PlainLayout, str]:
    """Choose the fastest layout in which the model provably keeps documents apart, and set up its attention for it.

    Args:
        model: transformers model without adapter.
        vocab_size: number of token ids; valid ids are below it.
        device: device of the model.
        pack: whether rows may be packed.
        before: layout of the run so far, which is kept where it can be; None: the run begins.
        rows: token ids of some of the run's rows, the ones that the guard measures too; random ones come on top.
        full: token ids of the rows of a full pass, from `leaks.full_pass`; none: no such pass is tried.

    Returns:
        The layout, and a sentence for the user where it is not the usual one; else empty.

    Raises:
        SetupError: The model cannot compute even a single row.
    """
    runs_on = delta_kernels.switch_over(model, device)
    if not pack or before == "padded":
        _check_computes(model, vocab_size, device)
        return "padded", ""
    kept: dict[str | None, PlainLayout] = {"packed": "packed", "masked": "masked", "alone": "alone"}
    if before in kept and (before == "alone" or runs_on != "torch"):  # packed by kernels that are not here any more
        return kept[before], ""
    note = ""
    if packed_attention.can_attend(model, device):
        reason = _why_not_documents(model, vocab_size, device, rows, full)
        if not reason:
            return "documents", _exact(runs_on)
        note = f"Attention stays transformers' own: {reason}."
    elif before == "documents":
        note = "The run began on a GPU with Burnish's attention; it continues with transformers' own."
    packed = why_not(model, vocab_size, device, "packed", rows, full)
    if not packed:
        return "packed", _joined(note, _exact(runs_on))
    masked = why_not(model, vocab_size, device, "masked", rows, full)
    if not masked:
        why = f"Rows are packed under explicit masks: without them, {packed}"
        return "masked", _joined(note, why, _exact(runs_on))
    _check_computes(model, vocab_size, device)
    too = ", with explicit masks too" if masked == packed else ""
    padded = _shift(model, device, "padded", full)
    how: PlainLayout = "alone" if padded else "padded"
    said = "Each row gets a pass of its own" if padded else "Rows are padded"
    return how, _joined(
        note,
        f"{said}: when they share a pass, {packed}{too}",
        _REMEDY if runs_on == "torch" and device.type == "cuda" else "",
    )


def _exact(runs_on: delta_kernels.DeltaKernels) -> str:
    """Return the probe's verdict on delta nets in packed rows; empty where the model has none."""
    return _PACKED if runs_on == "fla" else ""


def why_not(
    model: Any,
    vocab_size: int,
    device: torch.device,
    layout: PlainLayout,
    rows: Sequence[Ids] = (),
    full: Sequence[Ids] = (),
) -> str:
    """Return why a layout does not keep this model's documents apart, as half a sentence; empty where it does.

    Args:
        model: transformers model without adapter; it attends as the layout asks.
        vocab_size: number of token ids; valid ids are below it.
        device: device of the model.
        layout: layout to try: "packed", "masked" or "documents".
        rows: token ids of some of the run's rows, see `choose_layout`.
        full: token ids of the rows of a full pass, see `choose_layout`.
    """
    documents = [*_probe(vocab_size, layout), *rows]
    put_back = snapshot_random_state(device)
    try:
        with evaluating(model):
            with _small_windows(model, layout):
                reason = _measured(model, device, layout, documents)
            return reason or _shift(model, device, layout, full)
    # any architecture of transformers: what it does not like ends in errors of any kind, and the reason is reported
    except Exception as error:
        if is_out_of_memory(error):
            raise
        return _in_short(error)
    finally:
        put_back()


def _check_computes(model: Any, vocab_size: int, device: torch.device) -> None:
    """Run padded rows through a model whose rows are padded, since no other layout has shown that it computes."""
    inputs, _ = padded_inputs(unlabeled_pass(_probe(vocab_size, "padded")), device)
    try:
        with torch.no_grad():
            model(**inputs, use_cache=False)
    # as in `why_not`: config and weights may say what this architecture does not compute
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise SetupError(
            f"transformers loads this model and cannot compute with it: {_in_short(error)}.",
            "Check that config.json is that of the model, or choose another model.",
        ) from error


def _measured(model: Any, device: torch.device, layout: PlainLayout, documents: Sequence[Ids]) -> str:
    batch = unlabeled_pass(documents)
    with documents_apart(batch, layout):
        crosses = gradient_crosses(model, _inputs(model, batch, device, layout), batch.boundaries)
    if crosses:
        return "tokens of one row reach the next one"

    return find_leak(_logits_of(model, device, layout), documents, _tolerance(model))


def _shift(model: Any, device: torch.device, layout: PlainLayout, full: Sequence[Ids]) -> str:
    """Return how a full pass changes a row's logits; empty where it does not, or where there is none to try."""
    if not full:
        return ""
    with evaluating(model):
        return find_shift(_logits_of(model, device, layout), full, _tolerance(model), same_shape=layout not in BY_ROW)


def _logits_of(model: Any, device: torch.device, layout: PlainLayout) -> Logits:
    """Return the function that computes a pass in a layout, and single rows without any."""

    @torch.no_grad()
    def logits(batch: MicroBatch, places: torch.Tensor) -> torch.Tensor:
        alone = len(batch.rows) == 1
        with documents_apart(batch, "alone" if alone else layout):
            inputs = _inputs(model, batch, device, "packed" if alone else layout)
            if alone or layout not in BY_ROW:
                kept = {"logits_to_keep": places.to(device)} if takes_logits_to_keep(model) else {}
                found = model(**inputs, **kept, use_cache=False).logits[0]
                return (found if kept else found[places.to(found.device)]).float()
            found = model(**inputs, use_cache=False).logits
        row = torch.searchsorted(torch.from_numpy(batch.boundaries[1:].astype(np.int64)), places, right=True)
        return found[row, places - torch.from_numpy(batch.boundaries.astype(np.int64))[row]].float()

    return logits


def _tolerance(model: Any) -> float:
    return TOLERANCE[_PRECISIONS[getattr(model, COMPUTE_DTYPE, next(model.parameters()).dtype)]]


def _inputs(model: Any, batch: MicroBatch, device: torch.device, layout: PlainLayout) -> dict[str, Any]:
    if layout in BY_ROW:
        return padded_inputs(batch, device)[0]
    ids, positions = (torch.from_numpy(array)[None].to(device) for array in (batch.input_ids, batch.positions))
    inputs = {"input_ids": ids, "position_ids": positions}
    return inputs | ({"attention_mask": document_masks(model, positions)} if layout == "masked" else {})


def _why_not_documents(
    model: Any, vocab_size: int, device: torch.device, rows: Sequence[Ids], full: Sequence[Ids]
) -> str:
    """Switch the model to our attention kernels and try it; where that fails, switch back and return why."""
    put_back, was_training = snapshot_random_state(device), model.training
    try:
        packed_attention.switch_over(model)
        _try_backward(model, vocab_size, device)
        reason = why_not(model, vocab_size, device, "documents", rows, full)
        if not reason:
            return ""
        reason = f"with Burnish's, documents are not kept apart ({reason})"
    except Exception as error:  # as in `why_not`
        if is_out_of_memory(error):
            raise
        reason = _in_short(error)
    finally:
        model.train(was_training)
        put_back()
    packed_attention.switch_back(model)
    return reason


def _try_backward(model: Any, vocab_size: int, device: torch.device) -> None:
    """Run a pass in training mode, which reveals dropout in attention, and back to the embedded tokens."""
    batch = unlabeled_pass(_probe(vocab_size, "documents"))
    inputs = _inputs(model, batch, device, "documents")
    with documents_apart(batch, "documents") as seen, embedded_tokens(model) as embedded:
        logits = model.train()(**inputs, use_cache=False).logits
        torch.autograd.grad(logits[..., :1].float().sum(), embedded)
        if not seen or not seen.calls:
            raise packed_attention.CannotAttendError(f"{type(model).__name__} attends in a way of its own")


def _probe(vocab_size: int, layout: PlainLayout) -> list[Ids]:
    """Draw the token ids of random documents."""
    generator = np.random.default_rng(0)
    lengths = DOCUMENTS_LENGTHS if layout == "documents" else PROBE_LENGTHS
    return [generator.integers(0, vocab_size, length) for length in lengths]


@contextmanager
def _small_windows(model: Any, layout: PlainLayout) -> Iterator[None]:
    """Shorten attention windows inside, so that the probe reaches beyond them; our kernels need no such change."""
    config = getattr(model, "config", None)
    config = config.get_text_config() if config is not None and layout != "documents" else None
    before = {key: value for key in _WINDOWS if (value := getattr(config, key, None))}
    try:
        for key in before:
            setattr(config, key, _SMALL_WINDOW)
        yield
    finally:
        for key, value in before.items():
            setattr(config, key, value)


def _in_short(error: Exception) -> str:
    kind = "" if isinstance(error, packed_attention.CannotAttendError) else f"{type(error).__name__}: "
    return f"{kind}{error}".splitlines()[0][:200]


def _joined(*sentences: str) -> str:
    return " ".join(f"{sentence.removesuffix('.')}." for sentence in sentences if sentence)
