"""Losses of preference pairs against their direct formulas under autograd, and against TRL where it is installed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from burnish_engine.contract.recipe.recipe_preference import PreferenceSection
from burnish_engine.train.base.preference import PairLogProbs, evaluate_pairs, figures_of, label_losses, pair_losses

SECTIONS = [
    PreferenceSection(objective="dpo"),
    PreferenceSection(objective="dpo", beta=0.3, label_smoothing=0.2),
    PreferenceSection(objective="dpo", beta=0.05, loss_type="hinge"),
    PreferenceSection(objective="dpo", beta=0.7, loss_type="ipo"),
    PreferenceSection(objective="dpo", loss_type="robust", label_smoothing=0.3),
    PreferenceSection(objective="orpo", beta=0.4),
    PreferenceSection(objective="simpo", beta=2.0, simpo_gamma=0.6),
    PreferenceSection(objective="simpo", beta=2.5, label_smoothing=0.1),
]
NAMES = ["-".join(f"{value}" for value in section.model_dump(exclude_defaults=True).values()) for section in SECTIONS]
LENGTHS_C, LENGTHS_D = (1, 4, 7, 3, 12), (2, 4, 1, 9, 5)


class _Pair:
    """A preference pair as far as `evaluate_pairs` reads it."""

    def __init__(self, chosen: int, both: int) -> None:
        self.supervised_tokens, self._chosen = both, chosen

    def first_sequence(self) -> SimpleNamespace:
        return SimpleNamespace(supervised_tokens=self._chosen)


def _token_log_probs(lengths: tuple[int, ...], seed: int) -> torch.Tensor:
    """Draw log-probabilities of tokens `[pairs, longest]`, 0 behind the end of each reply."""
    drawn = -torch.rand(len(lengths), max(lengths), generator=torch.Generator().manual_seed(seed)) * 3 - 0.01
    return drawn * (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None])


def _pairs(chosen: torch.Tensor, rejected: torch.Tensor) -> PairLogProbs:
    counts = (torch.tensor(lengths, dtype=chosen.dtype) for lengths in (LENGTHS_C, LENGTHS_D))
    reference = torch.randn(2, len(LENGTHS_C), generator=torch.Generator().manual_seed(5)).to(chosen.dtype)
    return PairLogProbs(chosen, rejected, *counts, chosen.detach() + reference[0], rejected.detach() + reference[1])


def _direct(section: PreferenceSection, pairs: PairLogProbs) -> torch.Tensor:
    """Compute each pair's loss as the papers write it, through probabilities."""
    ratio = (pairs.chosen_P - pairs.reference_chosen_P, pairs.rejected_P - pairs.reference_rejected_P)
    mean = (pairs.chosen_P / pairs.chosen_tokens_P, pairs.rejected_P / pairs.rejected_tokens_P)
    if section.objective == "orpo":
        odds = [value.exp() / (1 - value.exp()) for value in mean]
        return -section.beta * torch.sigmoid((odds[0] / odds[1]).log()).log()
    if section.loss_type == "ipo":
        off = ratio[0] / pairs.chosen_tokens_P - ratio[1] / pairs.rejected_tokens_P
        return (off - 1 / (2 * section.beta)) ** 2
    if section.objective == "simpo":
        right = torch.sigmoid(section.beta * mean[0] - section.beta * mean[1] - section.simpo_gamma)
    else:
        right = torch.sigmoid(section.beta * (ratio[0] - ratio[1]))
    if section.loss_type == "hinge":
        return (1 - (right / (1 - right)).log()).clamp(min=0)
    swapped = section.label_smoothing
    if section.loss_type == "robust":
        return (-(1 - swapped) * right.log() + swapped * (1 - right).log()) / (1 - 2 * swapped)
    return -(1 - swapped) * right.log() - swapped * (1 - right).log()


@pytest.mark.parametrize("section", SECTIONS, ids=NAMES)
def test_losses_and_slopes_are_those_of_the_formulas_under_autograd(section: PreferenceSection) -> None:
    chosen, rejected = (
        _token_log_probs(lengths, seed).double().sum(1).requires_grad_()
        for seed, lengths in enumerate((LENGTHS_C, LENGTHS_D))
    )
    expected = _direct(section, _pairs(chosen, rejected))
    slopes = torch.autograd.grad(expected.sum(), (chosen, rejected))
    found = pair_losses(section, _pairs(chosen.detach(), rejected.detach()))
    torch.testing.assert_close(found.loss_P, expected.detach(), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.chosen_slope_P, slopes[0], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.rejected_slope_P, slopes[1], rtol=1e-9, atol=1e-9)


def test_replies_by_turns_are_taken_apart_chosen_first_and_held_out_pairs_have_the_loss_of_the_same_formulas() -> None:
    """Chosen replies are odd numbers here, rejected ones even; their cross entropy is that of the chosen alone."""
    log_probs = np.array([[-1.0, -2.0], [-3.0, -4.0]], np.float32)
    pairs = PairLogProbs.by_turns(torch.from_numpy(log_probs).flatten(), torch.ones(4), torch.zeros(4))
    assert pairs.chosen_P.tolist() == [-1.0, -3.0]
    assert pairs.rejected_P.tolist() == [-2.0, -4.0]
    section = PreferenceSection(objective="simpo", beta=2.0, rpo_alpha=0.5)
    documents = [_Pair(2, 5), _Pair(4, 6)]
    loss, means = evaluate_pairs(section, log_probs, documents, None)
    chosen, rejected = np.array([-1 / 2, -3 / 4]), np.array([-2 / 3, -4 / 2])
    z = section.beta * (chosen - rejected) - section.simpo_gamma
    assert loss == pytest.approx(np.log1p(np.exp(-z)).mean() + 0.5 * 4.0 / 6.0, rel=1e-6)
    assert means.margin == pytest.approx((section.beta * (chosen - rejected)).mean(), rel=1e-6)
    assert means.chosen_log_prob == pytest.approx(chosen.mean(), rel=1e-6)


def test_a_pair_of_equal_rewards_is_not_counted_as_right() -> None:
    same = torch.tensor([-2.0, -3.0])
    pairs = PairLogProbs(same, same, torch.ones(2), torch.ones(2), same, same)
    assert pair_losses(PreferenceSection(objective="dpo"), pairs).figures_5P[1].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("section", SECTIONS, ids=NAMES)
def test_extreme_log_probabilities_give_finite_losses_and_slopes(section: PreferenceSection) -> None:
    far = torch.tensor([-1e-9, -5000.0, -1.0, -5000.0, -1e-9])
    found = pair_losses(section, _pairs(far, far.flip(0) - 1e-9))
    for values in vars(found).values():
        assert values.isfinite().all()


def test_a_certain_pair_is_left_alone_by_hinge_and_pushed_by_the_others() -> None:
    won, lost = torch.zeros(5) - 1.0, torch.zeros(5) - 31.0
    base = _pairs(won, won)
    pairs = PairLogProbs(won, lost, base.chosen_tokens_P, base.rejected_tokens_P, won, won)
    hinge, plain = (
        pair_losses(PreferenceSection(objective="dpo", loss_type=kind), pairs) for kind in ("hinge", "sigmoid")
    )
    assert not hinge.chosen_slope_P.any()
    assert (plain.chosen_slope_P < 0).all()


def test_smoothing_is_refused_where_it_would_do_nothing() -> None:
    with pytest.raises(ValueError, match="label_smoothing"):
        PreferenceSection(objective="dpo", loss_type="ipo", label_smoothing=0.1)


KTO_SECTIONS = [
    PreferenceSection(objective="kto"),
    PreferenceSection(objective="kto", beta=0.3, loss_type="kto", desirable_weight=1.2, undesirable_weight=0.6),
    PreferenceSection(objective="kto", beta=0.05, loss_type="apo_zero_unpaired", undesirable_weight=2.0),
]
GOOD = torch.tensor([True, False, True, True, False])


def _ratios() -> torch.Tensor:
    return 4 * torch.randn(len(GOOD), generator=torch.Generator().manual_seed(7), dtype=torch.float64)


@pytest.mark.parametrize("section", KTO_SECTIONS, ids=str)
def test_losses_and_slopes_of_labeled_replies_are_those_of_autograd(section: PreferenceSection) -> None:
    log_prob, reference = (-30 + _ratios()).requires_grad_(), torch.full((len(GOOD),), -30.0, dtype=torch.float64)
    kl = torch.tensor(0.8 if section.estimates_kl else 0.0, dtype=torch.float64)
    ratio = log_prob - reference
    signed = torch.where(GOOD, ratio - kl, kl - ratio)
    weight = torch.where(GOOD, section.desirable_weight, section.undesirable_weight)
    expected = weight * (1 - torch.sigmoid(section.beta * signed))
    (slopes,) = torch.autograd.grad(expected.sum(), log_prob)
    found = label_losses(section, log_prob.detach(), reference, GOOD.double(), kl)
    torch.testing.assert_close(found.loss_S, expected.detach(), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.slope_S, slopes, rtol=1e-9, atol=1e-9)


def test_a_step_without_replies_of_a_label_has_no_figures_of_it() -> None:
    section, nan = KTO_SECTIONS[0], float("nan")
    figures = figures_of(section, [nan, 1.0, -20.0, nan, 0.5, 0.0, 0.2])
    assert (figures.margin, figures.chosen_log_prob, figures.rejected_log_prob) == (None, -20.0, None)
    assert (figures.accuracy, figures.sft_loss, figures.kl) == (1.0, None, 0.2)


def test_a_loss_type_of_another_objective_is_refused() -> None:
    with pytest.raises(ValueError, match="loss_type"):
        PreferenceSection(objective="kto", loss_type="hinge")
    with pytest.raises(ValueError, match="loss_type"):
        PreferenceSection(objective="dpo", loss_type="apo_zero_unpaired")


# Against TRL

_SAME_AS_TRL = [section for section in SECTIONS if not (section.loss_type == "sigmoid" and section.label_smoothing)]


class _Logged(dict[str, list[float]]):
    def __missing__(self, key: str) -> list[float]:
        self[key] = []
        return self[key]


def _trl_dpo(section: PreferenceSection, chosen: torch.Tensor, rejected: torch.Tensor) -> tuple[torch.Tensor, _Logged]:
    """Run TRL's own loss on log-probabilities of tokens `[pairs, longest]` instead of a model's."""
    trl = pytest.importorskip("trl")
    longest = max(chosen.shape[1], rejected.shape[1])
    padded = [functional.pad(value, (0, longest - value.shape[1])) for value in (chosen, rejected)]
    log_probs = torch.cat(padded)
    counted = torch.cat([torch.arange(longest) < torch.tensor(lengths)[:, None] for lengths in (LENGTHS_C, LENGTHS_D)])
    mask = functional.pad(counted, (1, 0)).long()  # the first token is the prompt

    class Model:
        training = True

        def __call__(self, **_inputs: Any) -> Any:
            nothing = torch.zeros_like(log_probs.detach())
            return SimpleNamespace(
                log_probs=log_probs, entropy=nothing, mean_logits=nothing, is_top1=nothing.bool()
            )  # fmt: skip

    logged = _Logged()
    accelerator = SimpleNamespace(
        device=torch.device("cpu"), gather_for_metrics=lambda value: value, gather=lambda value: value
    )
    with_sft = section.rpo_alpha > 0
    stub = SimpleNamespace(
        accelerator=accelerator, model=Model(), aux_loss_enabled=False, ld_alpha=None, precompute_ref_logps=True,
        f_divergence_type="reverse_kl", beta=section.beta, label_smoothing=section.label_smoothing,
        loss_types=[section.loss_type, *(["sft"] if with_sft else [])], use_weighting=False,
        loss_weights=[1.0, *([section.rpo_alpha] if with_sft else [])], _metrics={"train": logged},
        _total_train_tokens=0, _tp_size=1,
    )  # fmt: skip
    reference = _pairs(chosen.detach().sum(1), rejected.detach().sum(1))
    inputs = {
        "input_ids": torch.zeros_like(mask), "attention_mask": mask, "completion_mask": mask,
        "ref_chosen_logps": reference.reference_chosen_P, "ref_rejected_logps": reference.reference_rejected_P,
    }  # fmt: skip
    loss = trl.DPOTrainer._compute_loss(stub, stub.model, inputs, return_outputs=False)
    return loss, logged


@pytest.mark.full
@pytest.mark.parametrize("section", _SAME_AS_TRL, ids=str)
def test_losses_slopes_and_metrics_are_trls(section: PreferenceSection) -> None:
    pytest.importorskip("trl")
    chosen, rejected = (
        _token_log_probs(lengths, seed).requires_grad_() for seed, lengths in enumerate((LENGTHS_C, LENGTHS_D))
    )
    counts = [torch.tensor(lengths).float() for lengths in (LENGTHS_C, LENGTHS_D)]
    stub = SimpleNamespace(
        accelerator=SimpleNamespace(device=torch.device("cpu")), beta=section.beta, alpha=0.0, loss_type="simpo",
        simpo_gamma=section.simpo_gamma, label_smoothing=section.label_smoothing,
    )  # fmt: skip
    if section.objective == "dpo":
        loss, logged = _trl_dpo(section, chosen, rejected)
        expected = {name: logged[name][0] for name in logged if name.startswith(("rewards/", "logps/"))}
    else:
        means = [value.sum(1) / count for value, count in zip((chosen, rejected), counts, strict=True)]
        if section.objective == "orpo":
            from trl.experimental.orpo import ORPOTrainer

            losses, *rewards = ORPOTrainer.odds_ratio_loss(stub, *means)[:3]
            loss = -losses.mean()
        else:
            from trl.experimental.cpo import CPOTrainer

            losses, *rewards = CPOTrainer.cpo_loss(stub, *means)
            loss = losses.mean()
        expected = {"rewards/chosen": float(rewards[0].mean()), "rewards/rejected": float(rewards[1].mean())}
    gradients = torch.autograd.grad(loss, (chosen, rejected))
    found = pair_losses(section, _pairs(chosen.detach().sum(1), rejected.detach().sum(1)))
    assert float(found.loss_P.mean()) == pytest.approx(float(loss.detach()), rel=1e-5, abs=1e-5)
    for slope, gradient in zip((found.chosen_slope_P, found.rejected_slope_P), gradients, strict=True):
        torch.testing.assert_close(slope / len(LENGTHS_C), gradient[:, 0], rtol=1e-5, atol=1e-5)
    metrics = {
        "rewards/chosen": found.chosen_reward_P, "rewards/rejected": found.rejected_reward_P,
    } | dict(
        zip(("rewards/margins", "rewards/accuracies", "logps/chosen", "logps/rejected"), found.figures_5P, strict=False)
    )  # fmt: skip
    for name, value in expected.items():
        assert float(metrics[name].mean()) == pytest.approx(value, rel=1e-5, abs=1e-5), name


def _trl_kto(
    section: PreferenceSection, replies: torch.Tensor, others: torch.Tensor, references: tuple[torch.Tensor, ...]
) -> tuple[torch.Tensor, _Logged]:
    """Run TRL's own KTO loss on log-probabilities of tokens `[replies, longest]` instead of a model's."""
    trl = pytest.importorskip("trl")

    class Model:
        training = True

        def __call__(self, *, input_ids: torch.Tensor, **_inputs: Any) -> Any:
            log_probs = others if input_ids.any() else replies
            nothing = torch.zeros_like(log_probs.detach())
            return SimpleNamespace(log_probs=log_probs, entropy=nothing, mean_logits=nothing)

    logged = _Logged()
    stub = SimpleNamespace(
        accelerator=SimpleNamespace(device=torch.device("cpu"), gather_for_metrics=lambda value: value), model=Model(),
        aux_loss_enabled=False, precompute_ref_logps=True, calculate_KL=section.estimates_kl, beta=section.beta,
        loss_type="kto" if section.loss_type == "sigmoid" else section.loss_type, _total_train_tokens=0, _tp_size=1,
        desirable_weight=section.desirable_weight, undesirable_weight=section.undesirable_weight,
        _metrics={"train": logged}, args=SimpleNamespace(gradient_checkpointing_kwargs=None),
    )  # fmt: skip
    stub._compute_kl_logps = lambda model, batch: trl.KTOTrainer._compute_kl_logps(stub, model, batch)
    inputs: dict[str, Any] = {"label": GOOD, "ref_logps": references[0], "ref_KL_logps": references[1]}
    for prefix, rows, value in (("", replies, 0), ("KL_", others, 1)):
        mask = functional.pad((rows != 0).long(), (1, 0))  # the first token is the prompt
        inputs |= {f"{prefix}input_ids": torch.full_like(mask, value), f"{prefix}attention_mask": mask}
        inputs[f"{prefix}completion_mask"] = mask
    return trl.KTOTrainer._compute_loss(stub, stub.model, inputs, return_outputs=False), logged


@pytest.mark.parametrize("section", KTO_SECTIONS, ids=str)
@pytest.mark.parametrize("above", [2.0, -2.0])
def test_losses_slopes_and_metrics_of_labeled_replies_are_trls(section: PreferenceSection, above: float) -> None:
    pytest.importorskip("trl")
    replies = _token_log_probs(LENGTHS_C, 0).requires_grad_()
    others = _token_log_probs(LENGTHS_D, 1)
    references = (replies.detach().sum(1) - _ratios().float(), others.sum(1) - above)
    loss, logged = _trl_kto(section, replies, others, references)
    (gradient,) = torch.autograd.grad(loss, replies)
    kl = (others.sum(1) - references[1]).mean().clamp(min=0) if section.estimates_kl else torch.zeros(())
    good, count = GOOD.float(), len(GOOD)
    summed = replies.detach().sum(1)
    found = label_losses(section, summed, references[0], good, kl)
    assert float(found.loss_S.mean()) == pytest.approx(float(loss.detach()), rel=1e-5, abs=1e-6)
    torch.testing.assert_close(found.slope_S / count, gradient[:, 0], rtol=1e-5, atol=1e-6)
    scaled = (good * count / good.sum(), (1 - good) * count / (1 - good).sum())
    figures = found.figures_5S(summed, *scaled).mean(1)
    for name, value in (("rewards/margins", figures[0]), ("logps/chosen", figures[2]), ("logps/rejected", figures[3])):
        assert float(value) == pytest.approx(logged[name][0], rel=1e-5, abs=1e-5), name
    assert float(kl) == pytest.approx(logged["kl"][0], rel=1e-5)
