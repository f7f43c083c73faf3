"""The tensors around the projections of a mixer, each declared once. Loads no torch. Shapes as in `layer_tensors`."""

from __future__ import annotations

from burnish_engine.models.decoder.layer_tensors import (
    ANY,
    EVERY,
    PHASES,
    RECOMPUTED,
    TOKENS,
    WITH_OUTPUT,
    WITH_PRODUCTS,
    Alive,
    LayerTensor,
    Phase,
    StackSizes,
    always,
    if_chunked,
    if_whole,
    levels,
    magnitude_products,
)


def projection_tensors(stacks: StackSizes) -> tuple[LayerTensor, ...]:
    """Declare the tensors around the projections that every mixer has.

    `mixed_TE` takes the mixer's output, `projected_TC` is its input; `x_mixer_TE` is the input of the projection before
    it, whose adapter columns `xa_mixer_TR` are kept apart where the wide tensor around them is not.
    """
    inner, outer = stacks["mixer_in"], stacks["mixer_out"]
    again: dict[Phase, Alive] = {
        "feed_forward_backward": if_whole(levels("input")), "input_gradient": if_whole(levels("input")),
    }  # fmt: skip
    without = always(levels("input"))
    found = (
        LayerTensor(
            "mixed_TE",
            (TOKENS, outer.inputs + outer.rank),
            kept=always(WITH_OUTPUT),
            host=levels("host"),
            placed=WITH_OUTPUT,
            extra={"mixer": always(ANY), **dict.fromkeys(PHASES[2:], without)},
            read="mixer_out",
            of_mixer=True,
        ),
        LayerTensor(
            "projected_TC",
            (TOKENS, inner.outputs),
            kept=always(WITH_PRODUCTS),
            placed=WITH_PRODUCTS,
            extra={"mixer": always(ANY), **again, "mixer_backward": always(RECOMPUTED)},
            read="mixer",
            of_mixer=True,
        ),
        LayerTensor(
            "xa_mixer_TR",
            (TOKENS, inner.rank),
            kept=always(WITH_PRODUCTS - levels("all")),
            placed=WITH_PRODUCTS - levels("all"),
            extra={"mixer": always(WITH_PRODUCTS - levels("all")), "mixer_backward": if_chunked(RECOMPUTED)},
            read="mixer",
            of_mixer=True,
            is_view=True,
        ),
        LayerTensor(
            "x_mixer_TE",
            (TOKENS, inner.inputs + inner.rank),
            kept=always(levels("all")),
            extra={"mixer": always(ANY), **again, "mixer_backward": if_whole(RECOMPUTED)},
            read="mixer",
            of_mixer=True,
        ),
        LayerTensor("mixed_gradient_TK", (TOKENS, outer.inputs), extra={"mixer_backward": always(EVERY)}),
        LayerTensor(
            "projected_gradient_TE", (TOKENS, inner.outputs + inner.rank), extra={"mixer_backward": always(EVERY)}
        ),
    )
    dora = inner.is_dora or outer.is_dora
    return (*found, magnitude_products("mixer_backward")) if dora else found
