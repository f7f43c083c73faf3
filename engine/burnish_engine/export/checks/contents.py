"""Everything that a file says and holds, compared with the model it is said to be: one list of findings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from burnish_engine.export.aside import Cancelled, never
from burnish_engine.export.checks.settings import check_settings
from burnish_engine.export.checks.tensors import check_tensors
from burnish_engine.export.checks.trained_weights import Origin
from burnish_engine.export.checks.vocabulary import VOCABULARY_ARRAYS, check_vocabulary, wrong_pre_tokenizer
from burnish_engine.export.gguf.header import read_header
from burnish_engine.export.gguf.vocabulary import read_vocabulary
from burnish_engine.export.gguf.write import declared_stops
from burnish_engine.export.merge import MergedWeights


def check_contents(
    path: Path,
    origin: Origin,
    tokenizer: Any,
    misread: Sequence[tuple[str, list[int]]] = (),
    cancelled: Cancelled = never,
) -> list[str]:
    """Compare settings, vocabulary and every tensor of a file.

    Args:
        path: The file, of any type.
        origin: base and adapter that the file is said to be made of.
        tokenizer: The trained model's tokenizer.
        misread: Texts with their token ids, some of which the file splits differently; empty where it splits all alike.
        cancelled: Polled between tensors.

    Returns:
        What is wrong, in sentences; empty where nothing is.

    Raises:
        UsageError: The model's family is not exported, or its weights are quantized.
        SetupError: A file is missing or damaged.
        StoppedError: Cancelled.
    """
    header = read_header(path, VOCABULARY_ARRAYS)
    spec = origin.source.spec
    if spec is None:
        return [f"The architecture of {origin.source.name} is not known in detail, so its tensors cannot be compared."]
    rows = MergedWeights(origin.source, None).shape("model.embed_tokens.weight")[0]
    wanted = read_vocabulary(tokenizer, rows, declared_stops(origin.source))
    vocabulary = check_vocabulary(header, wanted)
    if misread and not vocabulary:
        vocabulary = wrong_pre_tokenizer(path, misread)
    return [
        *check_settings(header, spec),
        *vocabulary,
        *check_tensors(path, header, origin, spec, cancelled),
    ]
