"""Sums over ranks: in slices and rounded, on threads over gloo."""

import pytest
import torch

from burnish_engine.advise.facts.trained_bytes import exchange_bytes
from burnish_engine.contract.recipe.recipe import DevicesSection, Recipe
from burnish_engine.contract.recipe.recipe_train import TrainSection
from burnish_engine.train.base.exchange import GradientSlice
from burnish_engine.train.exchange.rank_exchange import RankExchange

from support.runs.ranks import together

SLICES = (GradientSlice(5, 700, 1000), GradientSlice(2, 130, 700), GradientSlice(0, 0, 130))
"""Three, none of which ranks divide evenly."""


def gradients(rank, step=0):
    """A rank's gradient and loss of a step."""
    random = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(1000, generator=random), torch.randn(1, generator=random)


def summed(size, *, slices=(), rounded=False, early=0, exact=False, steps=1, saved=None):
    """Sums that each of so many ranks holds after each step, and its errors.

    Args:
        early: number of slices that rank 0 exchanges within its last pass.
        saved: errors to begin with.
    """

    def run(rank, collectives):
        exchange = RankExchange(rank, size, collectives, exact=exact)
        found = []
        for step in range(steps):
            gradient, loss = gradients(rank, step)
            if step == 0:
                exchange.use(slices, gradient, rounded=rounded)
                exchange.restore_errors(saved or {})
            if exact:
                exchange.pass_done(rank, gradient, loss)
            if early and rank == 0:
                exchange.begin(size, gradient, loss)
                for number in range(early):
                    exchange.sum_slice(number, gradient)
            exchange.sum(size, gradient, loss)
            found.append((gradient, loss))
        return found, exchange.gather_errors()

    return together(size, run)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("size", [2, 3])
def test_slices_add_up_to_the_bits_of_the_whole(size, exact):
    """Of three ranks gloo may add up in another order where it is not asked for one."""
    ((whole, total),), _ = summed(size, exact=exact)[0]
    for early in (0,) if exact else (0, 1, 3):
        for ((gradient, loss),), _ in summed(size, slices=SLICES, early=early, exact=exact):
            if exact or size == 2:
                assert torch.equal(gradient, whole)
                assert torch.equal(loss, total)
            assert torch.allclose(gradient, whole, rtol=1e-6, atol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize("slices", [(), SLICES])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_rounded_sums_are_alike_on_all_ranks_and_lose_nothing_over_many_steps(size, slices):
    steps = 12
    wanted = [sum(gradients(rank, step)[0] for rank in range(size)) for step in range(steps)]
    found = summed(size, slices=slices, rounded=True, steps=steps)
    for one, _ in found[1:]:
        assert all(torch.equal(ours, theirs) for (ours, _), (theirs, _) in zip(one, found[0][0], strict=True))
    sums = [gradient for gradient, _ in found[0][0]]
    assert all(torch.equal(gradient, gradient.bfloat16().float()) for gradient in sums)
    single = (sums[0] - wanted[0]).abs().max()
    assert 0 < single < 0.1, "bf16 keeps 8 bits"
    together_off = (sum(sums) - sum(wanted)).abs()
    assert together_off.max() < 3 * single, "errors do not pile up"
    lost = sum(wanted) - sum(sums)
    own = sum(found[0][1][f"{rank}/own"] for rank in range(size))
    begin, parts = 0, torch.zeros(1000)
    for part in slices or (GradientSlice(0, 0, 1000),):
        width = -(-(part.end - part.start) // size)
        shares = torch.cat([found[0][1][f"{rank}/part"][begin : begin + width] for rank in range(size)])
        parts[part.start : part.end] = shares[: part.end - part.start]
        begin += width
    assert torch.allclose(own + parts, lost, atol=1e-4), "what is missing is what was kept"


def test_rounded_sums_go_on_exactly_from_saved_errors():
    whole = summed(2, slices=SLICES, rounded=True, steps=3)[0][0]
    (first, _, _), errors = summed(2, slices=SLICES, rounded=True, steps=3)[0]
    assert torch.equal(first[0], whole[0][0])

    def later(rank, collectives):
        exchange = RankExchange(rank, 2, collectives)
        gradient, loss = gradients(rank, 3)
        exchange.use(SLICES, gradient, rounded=True)
        exchange.restore_errors(errors)
        exchange.sum(2, gradient, loss)
        return gradient

    uninterrupted = summed(2, slices=SLICES, rounded=True, steps=4)[0][0][3][0]
    assert torch.equal(together(2, later)[0], uninterrupted)
    anew = summed(2, slices=SLICES, rounded=True, steps=1, saved=errors)[0][0][0][0]
    assert not torch.equal(anew, whole[0][0]), "errors count"


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("size", [3, 4])
def test_another_number_of_ranks_goes_on_with_all_that_was_left_out(size):
    errors = summed(2, slices=SLICES, rounded=True, steps=3)[0][1]
    left = sum(gradients(rank, step)[0] for rank in range(2) for step in range(3)) - sum(
        gradient for gradient, _ in summed(2, slices=SLICES, rounded=True, steps=3)[0][0]
    )

    def restored(rank, collectives):
        exchange = RankExchange(rank, size, collectives)
        exchange.use(SLICES, torch.zeros(1000), rounded=True)
        exchange.restore_errors(errors)
        return exchange.gather_errors()

    found = together(size, restored)[0]
    assert torch.allclose(found["0/own"], left, atol=1e-4)
    assert not any(value.any() for name, value in found.items() if name != "0/own")


def test_a_gradient_that_is_no_number_leaves_no_error_behind():
    def run(rank, collectives):
        exchange = RankExchange(rank, 2, collectives)
        gradient, loss = gradients(rank)
        gradient[7] = float("inf") if rank else float("nan")
        exchange.use((), gradient, rounded=True)
        exchange.sum(2, gradient, loss)
        return gradient, exchange.gather_errors()

    for gradient, errors in together(2, run):
        assert not gradient[7].isfinite()
        assert all(value.isfinite().all() for value in errors.values())


@pytest.mark.parametrize("form", ["exact", "bf16", "whole"])
@pytest.mark.parametrize("size", [2, 3])
def test_the_memory_of_an_exchange_is_predicted(size, form):
    accumulation, count, exact = 5, 1000, form == "exact"
    what = {"exact": True} if exact else {"exchange": form}
    devices = DevicesSection(strategy="data_parallel", gpus=list(range(size)), **what)
    recipe = Recipe(devices=devices, train=TrainSection(accumulation=accumulation))

    def run(rank, collectives):
        exchange, (gradient, loss) = RankExchange(rank, size, collectives, exact=exact), gradients(rank)
        exchange.use((), gradient, rounded=form == "bf16")
        for index in range(rank, accumulation, size):
            exchange.pass_done(index, gradient, loss)
        exchange.begin(accumulation, gradient, loss)
        held = [own for own, _ in exchange._apart.values()] + list((exchange._others or ())[:1])
        if rounded := exchange._rounded:
            held += [rounded._own, *rounded._parts, rounded._sent, rounded._received]
        exchange.sum(accumulation, gradient, loss)
        return sum(one.nbytes for one in held)

    assert exchange_bytes(recipe, count) == pytest.approx(max(together(size, run)), rel=0.01)
