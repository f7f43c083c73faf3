"""Words facts of plans, runs and exports by the forms of `tables`, for terminal and window."""

from __future__ import annotations

from collections.abc import Callable

from burnish_engine.contract.facts.advice import RunPlan, TimePart
from burnish_engine.contract.facts.facts import QuantFidelity
from burnish_engine.contract.run.events import BestKept, ExchangeMeasured, PhaseProgress, RolledBack
from burnish_engine.contract.run.fold import RunState
from burnish_engine.contract.units import file_size, memory_size, short_time
from burnish_engine.contract.wording.tables import FITS, OUTCOMES, PROGRESS, TIME_PARTS, Fit, Sentence

_TIGHT = 0.9
"""Share of the free memory above which a plan that fits is called tight: predictions are right to a few percent. A plan
with a memory budget of its own is compared with that budget instead."""


def progress_sentence(progress: PhaseProgress) -> Sentence:
    """Word how far a phase is, such as "12 of 40 rows"; of checks, the number of the one that is made."""
    done, total = progress.done, max(progress.done, progress.total)
    return Sentence(PROGRESS[progress.unit], {"done": done, "total": total, "number": min(done + 1, total)})


def fit_of(plan: RunPlan) -> Fit:
    """Judge whether a plan fits, and where it does not, whether a lower rank would make it fit."""
    if plan.fits:
        room = plan.memory_budget_bytes or _TIGHT * plan.memory_free_bytes
        return "barely" if plan.memory_bytes > room else "fits"
    if plan.fitting_rank is None:
        return "misfit"
    return "misfit_expert_rank" if plan.fitting_rank.key == "adapter.expert_rank" else "misfit_rank"


def fit_sentence(plan: RunPlan) -> Sentence:
    """Word whether a plan fits, and where it does not, the rank with which it would."""
    return Sentence(FITS[fit_of(plan)], {"rank": plan.fitting_rank.rank} if plan.fitting_rank else {})


def time_sentence(part: TimePart, duration: Callable[[float], str]) -> Sentence:
    """Word a part of a plan's time.

    Args:
        part: part of the time.
        duration: function that formats seconds.
    """
    values = {"count": part.count, "time": duration(part.seconds), "share": part.share, "tokens": part.tokens}
    return Sentence(TIME_PARTS[part.name], values)


def memory_sentence(run: RunState) -> Sentence | None:
    """Word the predicted peak of a run's memory, and beside it the measured one once it is known; None: no plan."""
    if run.plan is None:
        return None
    values = {"predicted": memory_size(run.plan.memory_bytes), "measured": memory_size(run.peak_bytes)}
    return Sentence(OUTCOMES["memory_measured" if run.peak_bytes else "memory"], values)


def exchange_sentence(exchange: ExchangeMeasured) -> Sentence:
    """Word what an exchange of gradients takes, beside its prediction where there is one."""
    values = {"n": exchange.gpus, "took": short_time(exchange.measured_ms / 1000)}
    if exchange.expected_ms is None:
        return Sentence(OUTCOMES["exchange"], values)
    return Sentence(OUTCOMES["exchange_predicted"], {**values, "expected": short_time(exchange.expected_ms / 1000)})


def rollback_sentence(back: RolledBack) -> Sentence:
    """Word where a run went back to, and why."""
    form = OUTCOMES["rolled_back" if back.to_step else "rolled_back_to_start"]
    return Sentence(form, back.model_dump(include={"step", "to_step", "factor", "reason"}))


def best_sentence(best: BestKept) -> Sentence:
    """Word which step the result of a run is from."""
    return Sentence(OUTCOMES["best"], {"step": best.step, "loss": best.loss})


def gain_sentence(file: QuantFidelity, share: Callable[[float], str]) -> Sentence | None:
    """Word how much of the training gain a file keeps; None where that is not known or the file was refused.

    Args:
        file: figures of the file.
        share: function that formats a share of 0 to 1.
    """
    if not file.passed or file.gain_kept is None:
        return None
    kept = "gain_whole" if file.gain_kept >= 1.0 else "gain" if file.gain_kept > 0.0 else "no_gain"
    values = {"quant": file.quant, "gain": share(file.gain_kept), "size": file_size(file.bytes)}
    return Sentence(OUTCOMES[kept], values)
