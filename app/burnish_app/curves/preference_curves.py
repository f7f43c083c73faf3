"""The curves of a run that learns from preferences, from the state that its events add up to."""

from __future__ import annotations

from dataclasses import dataclass

from burnish_app.curves.curve import NO_CURVE, Curve
from burnish_engine.contract.run.fold import RunState


@dataclass(frozen=True)
class PreferenceCurves:
    """The curves of what a run learns from preferences. In a run that does not, all are empty.

    Attributes:
        margin: mean reward of chosen replies less that of rejected ones, of each step.
        held_out_margin: the same on held-out rows.
        accuracy: share of pairs whose chosen reply is preferred, of each step, percent.
        held_out_accuracy: the same on held-out rows.
        chosen: mean log-probability of chosen replies of each step, nats.
        rejected: the same of rejected replies.
        kl: divergence from the reference as each step estimates it, nats a reply.
        kl_to_base: divergence of the next token from the base model on held-out rows, nats a token.
    """

    margin: Curve = NO_CURVE
    held_out_margin: Curve = NO_CURVE
    accuracy: Curve = NO_CURVE
    held_out_accuracy: Curve = NO_CURVE
    chosen: Curve = NO_CURVE
    rejected: Curve = NO_CURVE
    kl: Curve = NO_CURVE
    kl_to_base: Curve = NO_CURVE


def preference_curves(state: RunState) -> PreferenceCurves:
    """Make the curves of a run.

    Args:
        state: state folded from the run's events so far.
    """
    steps, evaluations = state.steps, state.evaluations
    at, held_at = steps.step.values(), evaluations.step.values()
    return PreferenceCurves(
        margin=Curve.known(at, steps.margin.values()),
        held_out_margin=Curve.known(held_at, evaluations.margin.values()),
        accuracy=_percent(Curve.known(at, steps.accuracy.values())),
        held_out_accuracy=_percent(Curve.known(held_at, evaluations.accuracy.values())),
        chosen=Curve.known(at, steps.chosen_log_prob.values()),
        rejected=Curve.known(at, steps.rejected_log_prob.values()),
        kl=Curve.known(at, steps.kl.values()),
        kl_to_base=Curve.known(held_at, evaluations.kl_to_base.values()),
    )


def _percent(curve: Curve) -> Curve:
    return Curve(curve.steps, 100 * curve.values)
