"""Says what the value of a main setting means, given what was suggested and the data. Pure functions, no Qt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from burnish_app.look.language import tr
from burnish_app.wording.numbers import percent
from burnish_app.wording.recipe_text import CHOICES
from burnish_engine.contract.facts.facts import DatasetFacts, LengthStats

Values = dict[str, Any]


def value_reason(key: str, values: Values, suggested: Values, dataset: DatasetFacts | None) -> str:
    """Return a sentence on a value that is not the suggested one; empty: nothing is known to say.

    Args:
        key: dotted key of the field.
        values: edited recipe as nested tables; not necessarily valid.
        suggested: suggested recipe as nested tables.
        dataset: facts about the data; None: not known.
    """
    section, _, name = key.rpartition(".")
    if not section or key not in _SENTENCES:
        return ""
    value, usual = values[section][name], suggested[section][name]
    if isinstance(value, str) != isinstance(usual, str) or value == usual:
        return ""
    return _SENTENCES[key](value, usual, values, dataset)


def usual_reason(key: str, values: Values) -> str:
    """Return a sentence on a suggested value that the engine gives no reason for; empty: there is none.

    Args:
        key: dotted key of the field.
        values: edited recipe as nested tables.
    """
    section, _, name = key.rpartition(".")
    return _USUAL.get((key, str(values[section][name])), "") if section else ""


def share_above(lengths: LengthStats, tokens: int) -> float:
    """Return the share of rows that are longer, 0 to 1; within a bar of the histogram rows are taken as spread evenly.

    Args:
        lengths: lengths of the rows.
        tokens: length, tokens.
    """
    if tokens >= lengths.longest:
        return 0.0
    rows = sum(count for _, count in lengths.histogram)
    longer, lower = 0.0, 0
    for upper, count in lengths.histogram:
        if tokens < upper:
            longer += count * min((upper - tokens) / max(upper - lower, 1), 1.0)
        lower = upper
    return longer / rows if rows else 0.0


def _epochs(value: float, usual: float, _values: Values, _dataset: DatasetFacts | None) -> str:
    if value > usual:
        return tr("More often than suggested: the last times may memorize the rows instead of learning from them.")
    return tr("Less often than suggested: sooner done, and may leave something unlearned.")


def _max_steps(value: int, _usual: int, values: Values, _dataset: DatasetFacts | None) -> str:
    if not value:
        return tr("Trains all epochs.")
    return tr("Ends there if {epochs:g} epochs have more steps.").format(epochs=values["train"]["epochs"])


def _learning_rate(value: float, usual: float, _values: Values, _dataset: DatasetFacts | None) -> str:
    ratio = f"{max(value, usual) / min(value, usual):.2g}" if min(value, usual) > 0 else ""
    if not ratio:
        return ""
    if value > usual:
        return tr("{ratio} times the suggested rate: learns faster, and may become unstable.").format(ratio=ratio)
    return tr("{ratio} times lower than suggested: steadier, and learns more slowly.").format(ratio=ratio)


def _rank(value: int, usual: int, _values: Values, _dataset: DatasetFacts | None) -> str:
    if value > usual:
        return tr("A larger adapter than suggested: room for more, takes more memory, overfits sooner.")
    return tr("A smaller adapter than suggested: takes less memory, and has less room to learn.")


def _quantize(value: str, _usual: str, _values: Values, _dataset: DatasetFacts | None) -> str:
    if value == "none":
        return tr("The weights take about four times as much memory as in 4 bits, and steps are a little faster.")
    if value == "nf4":
        return tr("The weights take about a quarter of the memory, for a few percent of the speed.")
    return ""


def _max_length(value: int, _usual: int, values: Values, dataset: DatasetFacts | None) -> str:
    lengths = dataset.lengths if dataset is not None else None
    if lengths is None:
        return ""
    if value >= lengths.longest:
        return tr("Covers the longest row ({longest:,} tokens).").format(longest=lengths.longest)
    longer = values["data"]["overlong"]
    fate = CHOICES["data.overlong"].get(longer, longer)
    share = share_above(lengths, value)
    return tr("{share} of the rows are longer: they {fate}.").format(
        share=percent(share, 0 if share >= 0.1 else 1), fate=fate
    )


def _micro_batch(value: int, usual: int, values: Values, _dataset: DatasetFacts | None) -> str:
    passes = values["train"]["accumulation"]
    if not isinstance(passes, int):
        return ""
    size = (
        tr("Larger passes take more memory.")
        if value > usual
        else tr("Smaller passes take less memory and are slower.")
    )
    step = tr("A step has {passes} × {tokens:,} = {step:,} tokens.").format(
        passes=passes, tokens=value, step=passes * value
    )
    return f"{size} {step}"


def _where(_value: str, _usual: str, _values: Values, _dataset: DatasetFacts | None) -> str:
    return tr("Planned and trained there, followed here; the result is brought back.")


_USUAL = {
    ("train.max_steps", "0"): tr("Trains all epochs. A number ends the run sooner."),
    ("model.quantize", "none"): tr("They fit without being rounded, which is a little faster."),
    ("devices.where", "here"): tr(
        "On this machine. Or on another (ssh:HOST), a cluster (slurm) or a rented GPU (sky, hf)."
    ),
}

_SENTENCES: dict[str, Callable[[Any, Any, Values, DatasetFacts | None], str]] = {
    "train.epochs": _epochs,
    "train.max_steps": _max_steps,
    "train.learning_rate": _learning_rate,
    "adapter.rank": _rank,
    "model.quantize": _quantize,
    "data.max_length": _max_length,
    "train.micro_batch_tokens": _micro_batch,
    "devices.where": _where,
}
