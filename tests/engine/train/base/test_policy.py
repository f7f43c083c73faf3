"""The loss of own replies: its derivative is autograd's, and advantages and weights are those of the papers."""

import numpy as np
import pytest
import torch

from burnish_engine.contract.recipe.recipe_reinforce import ReinforceSection
from burnish_engine.train.base.policy import TokenTerms, advantages, token_losses, token_shares

TOKENS = (3, 5, 2, 4)


def terms(log_probs, *, old=0.3, reference=0.2, seed=0):
    """Terms of four replies whose old and reference log-probabilities lie about as far from the present ones."""
    random = torch.Generator().manual_seed(seed)

    def near(scale):
        return log_probs.detach() + scale * torch.randn(sum(TOKENS), generator=random, dtype=torch.float64)

    return TokenTerms(
        log_prob_R=log_probs.detach(),
        sequence_R=torch.repeat_interleave(torch.arange(4), torch.tensor(TOKENS)),
        tokens_S=torch.tensor(TOKENS, dtype=torch.float64),
        advantage_S=torch.tensor([1.5, -0.5, -1.0, 0.25], dtype=torch.float64),
        share_S=torch.tensor([0.1, 0.2, 0.05, 0.3], dtype=torch.float64),
        old_R=near(old),
        reference_R=near(reference),
    )


def by_autograd(section, given, log_probs):
    """The loss as the papers write it, reply by reply, and its gradient."""
    total, start = torch.zeros((), dtype=torch.float64), 0
    for number, count in enumerate(TOKENS):
        own = slice(start, start + count)
        start += count
        moved = log_probs[own] - given.old_R[own]
        ratio = moved.exp() if section.ratio == "token" else moved.mean().exp().expand(count)
        advantage, share = given.advantage_S[number], given.share_S[number]
        kept = ratio.clamp(1 - section.clip_low, 1 + section.clip_high)
        loss = -torch.minimum(ratio * advantage, kept * advantage)
        apart = given.reference_R[own] - log_probs[own]
        total = total + share * (loss + section.kl_weight * (apart.exp() - apart - 1)).sum()
    return total, torch.autograd.grad(total, log_probs)[0]


@pytest.mark.parametrize("ratio", ["token", "sequence"])
@pytest.mark.parametrize("kl_weight", [0.0, 0.3])
def test_the_slope_of_each_token_is_the_derivative_of_the_papers_loss(ratio, kl_weight):
    section = ReinforceSection(ratio=ratio, kl_weight=kl_weight, updates=2, clip_low=0.1, clip_high=0.15)
    draws = torch.rand(sum(TOKENS), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    log_probs = (-2 * draws).requires_grad_()
    given = terms(log_probs, old=0.3 if ratio == "token" else 1.0)
    found = token_losses(section, given)
    loss, slope_R = by_autograd(section, given, log_probs)
    assert float(found.loss_R.sum()) == pytest.approx(float(loss.detach()), rel=1e-9)
    assert torch.allclose(found.slope_R, slope_R, rtol=1e-8, atol=1e-12)
    clipped = int(found.clipped_R.sum())
    assert 0 < clipped < sum(TOKENS)  # both branches were there to compare
    if not kl_weight:
        assert (found.slope_R[found.clipped_R > 0] == 0).all()


def test_in_the_first_step_a_token_counts_by_its_advantage_alone():
    section = ReinforceSection()
    log_probs = -torch.rand(sum(TOKENS), dtype=torch.float64)
    given = terms(log_probs, old=0.0)
    found = token_losses(section, given)
    wanted_R = -(given.advantage_S * given.share_S).index_select(0, given.sequence_R)
    assert torch.equal(found.slope_R, wanted_R)
    assert not found.clipped_R.any()


def test_a_pass_split_in_two_has_the_same_slopes():
    section = ReinforceSection(ratio="sequence", updates=2)
    log_probs = -torch.rand(sum(TOKENS), dtype=torch.float64)
    given = terms(log_probs)
    whole, half = token_losses(section, given), sum(TOKENS[:2])
    first = TokenTerms(
        given.log_prob_R[:half], given.sequence_R[:half], given.tokens_S, given.advantage_S, given.share_S,
        given.old_R[:half], given.reference_R[:half],
    )  # fmt: skip
    assert torch.equal(token_losses(section, first).slope_R, whole.slope_R[:half])


def test_advantages_compare_replies_with_their_group_and_are_nothing_where_all_are_alike():
    rewards = np.array([[0.0, 1.0, 1.0, 0.0], [0.7, 0.7, 0.7, 0.7], [1.0, 2.0, 3.0, 6.0]])
    plain = advantages(ReinforceSection(), rewards)
    assert plain.tolist() == [[-0.5, 0.5, 0.5, -0.5], [0.0] * 4, [-2.0, -1.0, 0.0, 3.0]]
    scaled = advantages(ReinforceSection(spread="group"), rewards)
    assert scaled[0] == pytest.approx([-1, 1, 1, -1])
    assert not scaled[1].any()
    assert scaled[2].std() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("average", "shares"),
    [("tokens", [0.1, 0.1]), ("replies", [1 / 4, 1 / 16]), ("constant", [1 / 40, 1 / 40])],
)
def test_tokens_share_the_loss_as_the_recipe_says(average, shares):
    section = ReinforceSection(average=average, max_tokens=20)
    assert token_shares(section, np.array([2, 8])) == pytest.approx(shares)
