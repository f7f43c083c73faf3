"""The guard's rules on single numbers, its checksums, and its words."""

import math

import numpy as np
import pytest
import torch

from burnish_engine.cli.training.card import card_lines
from burnish_engine.cli.training.progress import _line
from burnish_engine.contract.recipe.recipe_evaluation import GuardSection
from burnish_engine.contract.run.card import CardGuard, CardRollback
from burnish_engine.contract.run.events import BestKept, GuardReported, RolledBack
from burnish_engine.contract.wording.tables import CHECKS
from burnish_engine.train.base.engine import StepResult
from burnish_engine.train.guard.checksums import changed, checksums
from burnish_engine.train.guard.findings import GuardFinding, foremost
from burnish_engine.train.guard.record import GuardRecord, read_record
from burnish_engine.train.guard.watch import Watch, WatchState

from support.runs.cards import make_card


def result(step, loss=3.0, norm=1.0, **changes):
    values = {
        "micro_batches": 1, "tokens": 200, "supervised": 100, "learning_rate": 1e-3, "taken": True,
        "loss_scale": 1.0, "seconds": 0.1,
    }  # fmt: skip
    return StepResult(step=step, loss=loss, grad_norm=norm, **{**values, **changes})


def skipped(step, **changes):
    return result(step, norm=math.nan, taken=False, **changes)


def troubles(results, precision="fp32", **settings):
    watch = Watch(GuardSection(**settings), precision)
    return [trouble.step for one in results if (trouble := watch.step(one))]


def test_three_within_twenty_are_trouble():
    assert troubles([skipped(1), skipped(5), result(6), skipped(20)]) == [20]
    assert troubles([skipped(1), skipped(5), skipped(21)]) == []
    assert troubles([skipped(1), skipped(5), skipped(21), skipped(24)]) == [24]
    assert troubles([skipped(3)], troubles=1) == [3]
    assert troubles([skipped(3), skipped(4), skipped(6)], troubles=2, window=2) == [4]


def test_fp16_may_look_for_its_loss_scale():
    looking = [skipped(step, loss_scale=2.0**14 / 2**step) for step in range(1, 14)]
    assert troubles(looking, "fp16") == []
    assert troubles(looking, "bf16") != []
    assert troubles([skipped(step) for step in (1, 2, 3)], "fp16") == [3]  # no scale is smaller than 1
    assert troubles([skipped(step, loss=math.inf, loss_scale=64.0) for step in (1, 2, 3)], "fp16") == [3]


def test_a_loss_that_is_no_number_is_bad_though_the_step_was_taken():
    assert troubles([result(step, loss=math.nan) for step in (1, 2, 3)]) == [3]


def noisy(count, first=1, level=3.0, spread=0.2):
    return [result(first + n, loss=level + spread * math.sin(7.0 * n)) for n in range(count)]


def test_spikes_stand_far_out():
    spikes = [result(step, loss=6.0) for step in (31, 32, 33)]
    assert troubles([*noisy(30), *spikes]) == [33]
    assert troubles([*noisy(30, spread=2.0), *spikes]) == []  # where losses go up and down by so much anyway
    assert troubles([*noisy(30), *(result(step, loss=3.9) for step in (31, 32, 33))]) == []  # less than a nat
    assert troubles([*noisy(5), *(result(step, loss=9.0) for step in (6, 7, 8))]) == []  # too early to say
    assert troubles([*noisy(30), *(result(step, loss=6.0, supervised=9) for step in (31, 32, 33))]) == []  # few tokens


@pytest.mark.parametrize(
    ("results", "counts", "check"),
    [
        ([result(1, norm=0.0), result(2, norm=0.0)], (200, 100), "zero_gradient"),
        ([result(1, norm=0.0), result(2)], (200, 100), None),
        ([result(n, loss=0.0) for n in (1, 2, 3)], (200, 100), "zero_loss"),
        ([result(n, learning_rate=0.0) for n in (1, 2)], (200, 100), None),
        ([result(n, learning_rate=0.0, loss=n) for n in (1, 2, 3)], (200, 100), "learning_rate"),
        ([result(1), *(result(n, learning_rate=0.0, loss=n) for n in (2, 3, 4, 5))], (200, 100), None),
        ([result(n) for n in range(1, 9)], (200, 100), "constant_loss"),
        ([result(n) for n in range(1, 8)], (200, 100), None),
        ([result(n, loss=3.0 - n * 1e-7) for n in range(1, 30)], (200, 100), None),  # it learns, if slowly
        ([skipped(n) for n in range(1, 12)], (200, 100), None),
        ([result(1)], (190, 100), "padding"),
        ([result(1)], (200, 99), "padding"),
        ([result(1)], (200, 101), "labels"),
        ([result(n, supervised=0, loss=0.0, norm=0.0) for n in (1, 2, 3)], (200, 100), "no_targets"),
        ([result(n, supervised=0, loss=0.0, norm=0.0) for n in (1, 2, 3, 4)], (200, 0), None),  # so are the rows
    ],
)
def test_what_steps_say(results, counts, check):
    watch = Watch(GuardSection(), "fp32")
    found = [finding for one in results for finding in watch.check(one, *counts)]
    assert {finding.check for finding in found} == ({check} if check else set())


def test_a_constant_loss_is_rounded_otherwise_over_other_numbers_of_tokens():
    def constant(supervised):
        return float(np.float32(3.3 * supervised) * np.float32(1 / supervised))

    counts = [100, 103, 97, 100, 111, 103, 90, 100]
    losses = [constant(count) for count in counts]
    assert len(set(losses)) > 1
    watch, found = Watch(GuardSection(), "fp32"), []
    for step, (count, loss) in enumerate(zip(counts, losses, strict=True), start=1):
        found += watch.check(result(step, loss=loss, supervised=count), 200, count)
    assert [finding.check for finding in found] == ["constant_loss"]


def evaluated(*pairs):
    watch = Watch(GuardSection(), "fp32")
    found = []
    for step, (held, loss) in enumerate(pairs, start=1):
        watch.step(result(step, loss=loss))
        found.append(watch.evaluated(held))
    return [finding and finding.check for finding in found]


def test_overfitting_is_two_rises_in_a_row_while_the_training_loss_falls():
    assert evaluated((3.0, 3.0), (3.1, 2.5), (3.2, 2.0), (3.3, 1.5)) == [None, None, "overfitting", None]
    assert evaluated((3.0, 3.0), (3.1, 2.5), (3.05, 2.0), (3.1, 1.5)) == [None] * 4
    assert evaluated((3.0, 3.0), (3.1, 2.5), (3.2, 2.6)) == [None] * 3  # training goes worse as well
    assert evaluated((3.0, 3.0), (3.001, 2.5), (3.002, 2.0)) == [None] * 3  # by next to nothing
    assert evaluated((3.0, 3.0), (math.nan, 2.5), (3.1, 2.0)) == [None] * 3


def test_what_is_known_survives_a_checkpoint():
    watch = Watch(GuardSection(), "fp32")
    for one in (*noisy(12), skipped(13)):
        watch.step(one)
        watch.check(one, 200, 100)
    watch.evaluated(2.5)
    text = GuardRecord(watch=watch.state).model_dump_json()
    assert GuardRecord.model_validate_json(text).watch == watch.state
    assert read_record(None).watch == WatchState()


def test_the_foremost_finding_explains_the_others():
    findings = [GuardFinding(check, "", "", "") for check in reversed(CHECKS)]
    assert foremost(findings).check == next(iter(CHECKS))
    mild = GuardFinding("not_finite", "", "", "", stops=False)
    assert foremost([mild, GuardFinding("same_output", "", "", "")]).check == "same_output"
    assert foremost([]) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.uint8, torch.int64])
def test_a_checksum_knows_every_bit(dtype):
    tensor = (torch.arange(6000) % 251).to(dtype).view(60, 100)
    whole, part = tensor.clone(), tensor[:, :37]
    before = checksums({"whole": whole, "part": part, "copy": part.contiguous(), "empty": tensor[:0]})
    assert checksums({"whole": tensor})["whole"] == before["whole"]
    whole[59, 99] = tensor[59, 99] + 1
    assert changed(before, checksums({"whole": whole, "part": part})) == ["whole"]
    whole.copy_(tensor)
    whole[3, 4], whole[5, 6] = tensor[5, 6], tensor[3, 4]  # exchanged
    assert changed(before, checksums({"whole": whole})) == ["whole"]


def test_a_checksum_knows_numbers_apart_whose_products_are_complements():
    one, other = (checksums({"a": torch.tensor([value])}) for value in (12345678901234567, -8272356301589446236))
    assert one != other


def test_zeros_of_other_signs_are_other_bits():
    assert checksums({"a": torch.tensor([0.0])}) != checksums({"a": torch.tensor([-0.0])})


def test_a_tensor_of_several_pieces():
    tensor = torch.zeros(5_000_000, dtype=torch.bfloat16)
    before = checksums({"a": tensor})
    for place in (0, 2_097_151, 2_097_152, 4_999_999):
        tensor[place] = 1.0
        now = checksums({"a": tensor})
        assert changed(before, now) == ["a"]
        before = now


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8])
def test_checksums_are_the_same_on_a_gpu(dtype):
    whole = torch.randint(0, 251, (300, 4104)).to(dtype)
    there = whole.cuda()
    pairs = [(one, one[:, :4096], one[:, :37], one[1:3, 0]) for one in (whole, there)]
    here, away = (checksums({str(n): tensor.contiguous() if tensor.ndim == 1 else tensor
                             for n, tensor in enumerate(pair)}) for pair in pairs)  # fmt: skip
    assert here == away


def test_people_are_told():
    told = GuardReported(
        step=3, when="end", verdict="not_training", check="zero_gradient", sentence="No [x] gradient.", cause="Why.",
        remedy="Do.",
    )  # fmt: skip
    assert str(_line(told)) == "note: No [x] gradient. Why. Do."
    well = GuardReported(step=3, when="end", verdict="training", sentence="It trained: 3 checks found nothing.")
    assert str(_line(well)) == "It trained: 3 checks found nothing."
    back = RolledBack(step=9, to_step=0, factor=0.5, reason="At step 9 it was nan.")
    told_back = str(_line(back))
    assert all(part in told_back for part in ("step 9", "the beginning", "0.5", "At step 9 it was nan."))
    kept = str(_line(BestKept(step=4, loss=1.25, at_step=8, stopped_early=True)))
    assert all(part in kept for part in ("step 4", "1.250"))
    card = make_card(
        guard=CardGuard(verdict="suspicious", sentence="A sign.", cause="A cause.", remedy="A remedy."),
        rollback=CardRollback(step=9, to_step=6, factor=0.5, reason="why"),
    )
    card = card.model_copy(update={"result": card.result.model_copy(update={"best_step": 4, "best_loss": 1.25})})
    lines = list(card_lines(card))
    assert "Is it training? A sign. A cause. A remedy." in lines
    assert "Went back from step 9 to step 6, and on at 0.5 times the learning rate" in lines
    assert lines[-1] == "What is saved is of step 4, the best held-out loss (1.2500 nats)"
