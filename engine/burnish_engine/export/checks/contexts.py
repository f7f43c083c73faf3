"""In which contexts of llama.cpp the rows of a comparison are computed.

A longrope model (Phi-3) has short and long factors for its rope. transformers takes the long ones for rows longer than
the original context; llama.cpp takes them for every row where the context it was opened with is larger than that
(llama-model.cpp, `get_rope_factors`). So rows up to the original context need a context no larger, and longer rows one
of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

from burnish_engine.contract.facts import DecoderSpec
from burnish_engine.export.reference import REPLY_TOKENS, Reference


@dataclass(frozen=True)
class Contexts:
    """Sizes of contexts, tokens, and what is computed in each.

    Attributes:
        usual: Context of the usual rows and of the replies.
        usual_rows: Places of these rows among the reference's documents.
        long: Context of rows beyond the original context; 0: there are none.
        long_rows: Places of these rows.
        asked: Places of the probes whose replies fit the usual context.
    """

    usual: int
    usual_rows: list[int]
    long: int
    long_rows: list[int]
    asked: list[int]


def factor_switch(spec: DecoderSpec | None) -> int | None:
    """The longest row, tokens, that takes the short factors of a longrope; None for models without them."""
    return spec.rope.original_context if spec is not None and spec.rope.scaling == "longrope" else None


def plan_contexts(spec: DecoderSpec | None, reference: Reference) -> Contexts:
    """Choose the contexts.

    Args:
        spec: shape of the model; None where it is not known in detail.
        reference: The rows and conversations that are compared.
    """
    lengths, prompts = [len(row) for row in reference.documents], [len(probe.ids) for probe in reference.probes]
    room = max([*lengths, *prompts]) + 2 * REPLY_TOKENS
    switch = factor_switch(spec)
    if switch is None:
        return Contexts(room, list(range(len(lengths))), 0, [], list(range(len(prompts))))
    usual = [place for place, length in enumerate(lengths) if length <= switch]
    beyond = [place for place, length in enumerate(lengths) if length > switch]
    return Contexts(
        min(room, switch),
        usual,
        max((lengths[place] for place in beyond), default=0),
        beyond,
        [place for place, length in enumerate(prompts) if length + 2 * REPLY_TOKENS <= switch],
    )
