"""Lists the problems of preferences: pairs that contradict each other, replies told apart by length, unequal labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from burnish_engine.contract.facts.data_report import Finding, RowPlace, Setting
from burnish_engine.contract.recipe.recipe_preference import LARGEST_WEIGHT, PreferenceSection
from burnish_engine.data.files.problems import EXAMPLES_PER_REASON, RowRef
from burnish_engine.data.report.describe import share_text
from burnish_engine.data.report.findings import row_places
from burnish_engine.data.tokens.documents import ShardedDocuments
from burnish_engine.data.tokens.shard import Ints

BIASED_SHARE = 0.75
"""Share of the pairs with the longer reply on the same side from which length is named: chance gives a half."""
BIASED_RATIO = 1.2
"""Median ratio of the lengths from which length is named."""
_ROUNDING = 0.01  # values are advised with three digits
_LEAST_PAIRS = 20  # fewer say nothing about a share
_BALANCED = (1.0, 4 / 3)  # ratio of weight times count, good to bad: Ethayarajh et al. 2024, section 4.2


def pair_findings(
    documents: ShardedDocuments, used: Ints, section: PreferenceSection, names: Sequence[str]
) -> Iterator[Finding]:
    """Yield what is odd about preference pairs that are learned from.

    Args:
        documents: all documents, each a pair.
        used: numbers of the documents that are used.
        section: the recipe's settings of the objective.
        names: name of each part.
    """
    lengths, hashes = documents.pair_keys()
    lengths, hashes = lengths[used], hashes[used]
    contradicting = used[_is_contradicted(hashes)]
    if len(contradicting):
        yield _contradictions(contradicting, len(used), documents, section, names)
    yield from _length_bias(lengths, used, documents, section, names)


def label_findings(good: int, bad: int, section: PreferenceSection) -> Iterator[Finding]:
    """Yield what is odd about the labels of replies that are learned from.

    Args:
        good: number of replies labeled good.
        bad: number of replies labeled bad.
        section: the recipe's settings of the objective.
    """
    count = f"{good} repl{'y is' if good == 1 else 'ies are'} labeled good and {bad} bad"
    if not good or not bad:
        says = f"{count}: without both there is nothing to tell apart."
        yield Finding(kind="labels", says=says, rows=good + bad)
        return
    weights = balanced_weights(good, bad, section)
    if not weights:
        return
    weighted = section.desirable_weight * good / (section.undesirable_weight * bad)
    says = f"{count}, which count {weighted:.2f} to 1 with their weights. Between 1 and 1.33 is advised for KTO."
    yield Finding(
        kind="labels",
        says=says,
        rows=good + bad,
        actions=[
            Setting(key=f"preference.{name}", value=value, says="evens their weight out")
            for name, value in weights.items()
            if value <= LARGEST_WEIGHT
        ],
    )


def balanced_weights(good: int, bad: int, section: PreferenceSection) -> dict[str, float]:
    """Return the setting that makes good and bad replies count about the same, with its value; empty: they do.

    Ethayarajh et al. 2024 advise that weight times count, good to bad, lies between 1 and 4/3, and that the weight of
    the smaller side is raised.

    Args:
        good: number of replies labeled good, at least one.
        bad: number of replies labeled bad, at least one.
        section: the recipe's settings of the objective.
    """
    low, high = _BALANCED
    ratio = section.desirable_weight * good / (section.undesirable_weight * bad)
    if ratio < low * (1 - _ROUNDING):
        return {"desirable_weight": float(f"{section.desirable_weight * low / ratio:.3g}")}
    if ratio > high * (1 + _ROUNDING):
        return {"undesirable_weight": float(f"{section.undesirable_weight * ratio / high:.3g}")}
    return {}


def _is_contradicted(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Tell which pairs stand the other way around elsewhere.

    Args:
        hashes: [pairs, 3] hashes of prompt, chosen and rejected reply.
    """
    whole = np.ascontiguousarray(hashes).view("V24").ravel()
    swapped = np.ascontiguousarray(hashes[:, [0, 2, 1]]).view("V24").ravel()
    other = set(swapped.tolist())
    return np.fromiter((one in other for one in whole.tolist()), dtype=np.bool_, count=len(whole))


def _contradictions(
    found: Ints,
    pairs: int,
    documents: ShardedDocuments,
    section: PreferenceSection,
    names: Sequence[str],
) -> Finding:
    says = (
        f"{len(found)} pairs contradict others: the same two replies to the same prompt, the other way around. "
        "Remove those that are wrong."
    )
    share = min(round(len(found) / 2 / pairs, 3), 0.49)
    smooths = section.objective == "simpo" or (
        section.objective == "dpo" and section.loss_type in ("sigmoid", "robust")
    )
    actions = [Setting(key="preference.label_smoothing", value=share, says="expects that share of swapped labels")]
    return Finding(
        kind="contradictions",
        says=says,
        rows=len(found),
        first=_places(documents, found, names),
        actions=actions if smooths and share and not section.label_smoothing else [],
    )


def _length_bias(
    lengths: npt.NDArray[np.int32],
    used: Ints,
    documents: ShardedDocuments,
    section: PreferenceSection,
    names: Sequence[str],
) -> Iterator[Finding]:
    """Yield a finding where nearly always the same side has the longer reply."""
    if len(lengths) < _LEAST_PAIRS:
        return
    for what, (one, other) in {"longer": (0, 1), "shorter": (1, 0)}.items():
        longer = lengths[:, one] > lengths[:, other]
        share = float(longer.mean())
        ratio = float(np.median(lengths[:, one] / np.maximum(lengths[:, other], 1)))
        if share >= BIASED_SHARE and ratio >= BIASED_RATIO:
            actions = [
                Setting(
                    key="preference.objective",
                    value="simpo",
                    says="compares replies by their means, with a beta of 2 or more",
                )
            ]
            yield Finding(
                kind="length_bias",
                says=f"The chosen reply is the {what} one in {share_text(share)} of the pairs, in the median by a "
                f"factor of {ratio:.1f}: the model will learn that length is good or bad.",
                rows=int(longer.sum()),
                first=_places(documents, used[longer], names),
                actions=actions if section.objective in ("dpo", "orpo") else [],
            )


def _places(documents: ShardedDocuments, numbers: Ints, names: Sequence[str]) -> list[RowPlace]:
    rows: list[RowRef] = documents.row_refs(numbers[:EXAMPLES_PER_REASON])
    return row_places(rows, names)
