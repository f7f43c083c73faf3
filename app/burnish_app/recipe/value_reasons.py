"""Says what the value of a main setting means, given what was suggested and the data. Pure functions, no Qt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from burnish_app.look.language import tr
from burnish_app.wording.numbers import percent
from burnish_app.wording.recipe_text import choice_texts
from burnish_engine.contract.facts.facts import DatasetFacts, LengthStats
from burnish_engine.contract.recipe.recipe import setting_of

Values = dict[str, Any]


def value_reason(key: str, values: Values, suggested: Values, dataset: DatasetFacts | None) -> str:
    """Return a sentence on a value, given the suggested one; empty: nothing is known to say.

    Args:
        key: dotted key of the field.
        values: edited recipe as nested tables; not necessarily valid.
        suggested: suggested recipe as nested tables.
        dataset: facts about the data; None: not known.
    """
    section, _, name = key.rpartition(".")
    if not section:
        return ""
    value, usual = values[section][name], suggested[section][name]
    if isinstance(value, str) != isinstance(usual, str):
        return ""
    if value == usual:
        fits = (key, value) == ("model.quantize", "none")
        return tr("They fit without being rounded, which is a little faster.") if fits else ""
    own = _SENTENCES[key](value, usual, values, dataset) if key in _SENTENCES else ""
    return " ".join(filter(None, (_compared(key, value, usual), own)))


def _compared(key: str, value: Any, usual: Any) -> str:
    """Return what the setting's declaration says of a value above or below the suggested one."""
    info = setting_of(key)
    if not info.more or min(value, usual) <= 0:
        return ""
    ratio = f"{max(value, usual) / min(value, usual):.2g}"
    return tr(info.more if value > usual else info.less).format(ratio=ratio)


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


def _max_steps(value: int, _usual: int, values: Values, _dataset: DatasetFacts | None) -> str:
    if not value:
        return ""
    return tr("Ends there if {epochs:g} epochs have more steps.").format(epochs=values["train"]["epochs"])


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
    fate = choice_texts("data.overlong").get(longer, longer)
    share = share_above(lengths, value)
    return tr("{share} of the rows are longer: they {fate}.").format(
        share=percent(share, 0 if share >= 0.1 else 1), fate=fate
    )


def _micro_batch(value: int, _usual: int, values: Values, _dataset: DatasetFacts | None) -> str:
    passes = values["train"]["accumulation"]
    if not isinstance(passes, int):
        return ""
    return tr("A step has {passes} × {tokens:,} = {step:,} tokens.").format(
        passes=passes, tokens=value, step=passes * value
    )


def _where(_value: str, _usual: str, _values: Values, _dataset: DatasetFacts | None) -> str:
    return tr("Planned and trained there, followed here; the result is brought back.")


_SENTENCES: dict[str, Callable[[Any, Any, Values, DatasetFacts | None], str]] = {
    "train.max_steps": _max_steps,
    "model.quantize": _quantize,
    "data.max_length": _max_length,
    "train.micro_batch_tokens": _micro_batch,
    "devices.where": _where,
}
