"""Choose the llama.cpp contexts in which the rows of a comparison are computed.

A longrope model (Phi-3) has short and long factors for its rope. transformers applies the long ones to rows longer than
the original context; llama.cpp applies them to every row if its context is larger than that (llama-model.cpp,
`get_rope_factors`). So rows up to the original context need a context no larger, and longer rows need another one.
"""

from __future__ import annotations

from dataclasses import dataclass

from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.export.verify.reference import REPLY_TOKENS, Reference


@dataclass(frozen=True)
class Contexts:
    """Sizes of contexts, tokens, and the rows computed in each."""

    usual: int  # context of the usual rows and of the replies
    usual_rows: list[int]  # indices of these rows among the reference's documents
    long: int  # context of rows beyond the original context; 0: there are none
    long_rows: list[int]  # indices of these rows
    asked: list[int]  # indices of the probes whose replies fit the usual context


def factor_switch(spec: DecoderSpec | None) -> int | None:
    """Longest row, tokens, that takes the short factors of a longrope; None for models without them."""
    return spec.rope.original_context if spec is not None and spec.rope.scaling == "longrope" else None


def plan_contexts(spec: DecoderSpec | None, reference: Reference) -> Contexts:
    """Choose the contexts.

    Args:
        spec: shape of the model; None where it is not known in detail.
        reference: rows and conversations to compare.
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
