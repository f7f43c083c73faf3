"""Compare the complete content of a file with the model it claims to be, and list the findings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from burnish_engine.advise.facts.gguf_rules import gguf_rules
from burnish_engine.export.base.staging import Canceled, never
from burnish_engine.export.checks.settings import check_settings
from burnish_engine.export.checks.tensors import check_tensors, draft_layers
from burnish_engine.export.checks.trained_weights import Origin
from burnish_engine.export.checks.vocabulary import VOCABULARY_ARRAYS, check_vocabulary, wrong_pre_tokenizer
from burnish_engine.export.gguf.vocabulary import read_vocabulary
from burnish_engine.export.gguf.write import declared_stops
from burnish_engine.export.weights.merge import MergedWeights
from burnish_engine.models.checkpoint.gguf_file.header import read_header


def check_contents(
    path: Path,
    origin: Origin,
    tokenizer: Any,
    misread: Sequence[tuple[str, list[int]]] = (),
    canceled: Canceled = never,
) -> list[str]:
    """Compare settings, vocabulary and every tensor of a file.

    Args:
        path: The file, of any type.
        origin: base and adapter that the file claims to be made from.
        tokenizer: The trained model's tokenizer.
        misread: texts with their token ids, some of which the file splits differently; empty where it splits all
            equally.
        canceled: callback polled between tensors; True stops the work.

    Returns:
        Findings as sentences; empty where nothing is wrong.

    Raises:
        UsageError: The model's family cannot be exported, or its weights are quantized.
        SetupError: A file is missing or damaged.
        StoppedError: Canceled.
    """
    header = read_header(path, VOCABULARY_ARRAYS)
    spec = origin.source.spec
    if spec is None:
        return [f"The architecture of {origin.source.name} is not known in detail, so its tensors cannot be compared."]
    base = MergedWeights(origin.source, None)
    rows, merges_as = base.shape("model.embed_tokens.weight")[0], gguf_rules(spec.family).merges_as
    wanted = read_vocabulary(tokenizer, rows, declared_stops(origin.source), merges_as=merges_as)
    vocabulary = check_vocabulary(header, wanted)
    if misread and not vocabulary:
        vocabulary = wrong_pre_tokenizer(path, misread)
    return [
        *check_settings(header, spec, draft_layers(header.architecture, base.others)),
        *vocabulary,
        *check_tensors(path, header, origin, spec, canceled),
    ]
