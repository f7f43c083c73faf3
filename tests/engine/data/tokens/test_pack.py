import hashlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from burnish_engine.contract.best_fit import best_fit_decreasing
from burnish_engine.data.tokens import pack as packing
from burnish_engine.data.tokens.documents import DocumentSelection
from burnish_engine.data.tokens.pack import IGNORED, epoch_batches, held_out_batches
from burnish_engine.data.tokens.tokenize import Document


def document(length, row=1, seed=0):
    random = np.random.default_rng([seed, row, length])
    ids = random.integers(0, 50, length).astype(np.int32)
    return Document(ids, random.random(length) < 0.5, row, "file")


class Lengths(DocumentSelection):
    """Documents of which only the lengths are known."""

    def __init__(self, lengths):
        self.found = np.asarray(lengths, dtype=np.int64)

    def __len__(self):
        return len(self.found)

    @property
    def lengths(self):
        return self.found


lengths_and_budget = st.integers(16, 200).flatmap(
    lambda budget: st.tuples(st.lists(st.integers(1, budget), max_size=60), st.just(budget))
)


@pytest.mark.full
@settings(max_examples=100, deadline=None)
@given(
    case=lengths_and_budget,
    pack=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
    epoch=st.integers(0, 5),
)
def test_labels_never_cross_a_boundary_and_every_document_comes_once(case, pack, seed, epoch):
    lengths, budget = case
    documents = [document(length, row) for row, length in enumerate(lengths)]
    plan = epoch_batches(documents, budget, pack, seed, epoch)
    seen = []
    for batch in plan:
        size = batch.tokens
        assert size <= budget
        assert len(batch.positions) == len(batch.labels) == size
        assert batch.boundaries[0] == 0
        assert batch.boundaries[-1] == size
        assert batch.boundaries.dtype == np.int32
        assert {batch.input_ids.dtype, batch.positions.dtype, batch.labels.dtype} == {np.dtype(np.int64)}
        assert pack or len(batch.rows) == 1
        for row, start, end in zip(batch.rows, batch.boundaries, batch.boundaries[1:], strict=False):
            own = documents[row]
            assert batch.input_ids[start:end].tolist() == own.input_ids.tolist()
            assert batch.positions[start:end].tolist() == list(range(len(own)))
            assert batch.labels[end - 1] == IGNORED
            for place in range(len(own) - 1):
                expected = own.input_ids[place + 1] if own.supervised[place + 1] else IGNORED
                assert batch.labels[start + place] == expected
        assert batch.supervised_tokens == sum(int(documents[row].supervised[1:].sum()) for row in batch.rows)
        seen.extend(batch.rows)
    assert sorted(seen) == list(range(len(documents)))
    assert plan.tokens == sum(lengths)


def groups(documents, seed, epoch, **options):
    return epoch_batches(documents, options.get("budget", 256), options.get("pack", True), seed, epoch).groups


def test_order_depends_on_seed_and_epoch_alone():
    documents = [document(5 + row * 7 % 120, row) for row in range(300)]
    first = groups(documents, 1, 0)
    np.random.seed(123)  # the global state must not matter
    assert groups(documents, 1, 0) == first
    assert groups(documents, 1, 1) != first
    assert groups(documents, 2, 0) != first
    other = [document(len(own), own.row, seed=9) for own in documents]
    assert groups(other, 1, 0) == first


def test_the_order_never_changes():
    documents = [document(length) for length in (3, 9, 4, 8, 2, 7, 5, 6)]
    assert epoch_batches(documents, 12, True, 7, 3).groups == [(3, 2), (1, 0), (7, 4), (5, 6)]


def test_the_order_of_several_windows_never_changes():
    lengths = np.random.RandomState(0).randint(100, 900, 5000)
    plan = epoch_batches(Lengths(lengths), 2048, True, 7, 3)
    assert hashlib.sha256(repr(list(plan.groups)).encode()).hexdigest()[:16] == "cd0f928352168f8e"


def test_evaluations_of_every_run_are_packed_alike():
    documents = [document(5 + row * 7 % 50, row) for row in range(90)]
    assert held_out_batches(documents, 64).groups == epoch_batches(documents, 64, True, 0, 0).groups


def test_without_packing_the_order_is_shuffled_too():
    documents = [document(4, row) for row in range(50)]
    order = [group[0] for group in groups(documents, 0, 0, pack=False)]
    assert sorted(order) == list(range(50))
    assert order != list(range(50))


@pytest.fixture
def small_windows(monkeypatch):
    """Windows of as many passes as ever, and of fewer documents, so that few rows make many windows."""
    monkeypatch.setattr(packing, "WINDOW_DOCUMENTS", 16)


spread = st.sampled_from([(1, 2), (3, 3), (1, 12), (2, 48), (20, 30), (24, 24), (30, 34), (1, 48), (40, 48)])


@pytest.mark.full
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(spread, min_size=1, max_size=3), seed=st.integers(0, 2**32 - 1), passes=st.integers(2, 700))
def test_passes_of_many_windows_are_as_full_as_of_one(small_windows, parts, seed, passes):
    budget, random = 48, np.random.RandomState(seed)
    each = passes * budget // len(parts)
    lengths = np.concatenate([random.randint(low, high + 1, each // ((low + high) // 2) + 1) for low, high in parts])
    first, second = (epoch_batches(Lengths(lengths), budget, True, seed, epoch) for epoch in (0, 1))
    whole = packing.EpochPlan(
        Lengths(lengths), best_fit_decreasing(range(len(lengths)), lengths.tolist(), budget), budget
    )
    for plan in (first, second):
        assert sorted(row for group in plan.groups for row in group) == list(range(len(lengths)))
        assert lengths.sum() / budget <= len(plan) <= len(whole) / (1 - 0.01 / whole.fill) + 1e-6
        assert max(lengths[list(group)].sum() for group in plan.groups) <= budget
    if len(first) > 20:
        assert first.groups != second.groups


@pytest.mark.full
@pytest.mark.parametrize(
    ("low", "high", "budget", "count"), [(25, 25, 16_384, 90_000), (16, 512, 2048, 40_000), (5, 250, 1000, 20_000)]
)
def test_short_documents_fill_97_percent(low, high, budget, count):
    lengths = np.random.RandomState(0).randint(low, high + 1, count)
    assert epoch_batches(Lengths(lengths), budget, True, 0, 0).fill >= 0.97


def test_the_company_of_a_document_changes_from_epoch_to_epoch(small_windows):
    lengths = np.random.RandomState(0).randint(1, 40, 4000)
    first, second = (
        {frozenset(group) for group in epoch_batches(Lengths(lengths), 48, True, 0, e).groups} for e in (0, 1)
    )
    assert len(first & second) < 0.02 * len(first)


def test_a_plan_is_a_sequence():
    documents = [document(100, row) for row in range(10)]
    plan = epoch_batches(documents, 256, True, 0, 0)
    assert len(plan) == 5
    assert plan[-1].rows == plan.groups[4]
    assert [batch.rows for batch in plan[1:3]] == plan.groups[1:3]
    with pytest.raises(IndexError):
        plan[5]


def test_no_documents_make_no_passes():
    plan = epoch_batches([], 256, True, 0, 0)
    assert (len(plan), plan.tokens, plan.fill) == (0, 0, 0.0)


def test_a_document_beyond_the_budget_is_a_mistake_of_the_caller():
    with pytest.raises(ValueError, match="17 tokens"):
        epoch_batches([document(17)], 16, True, 0, 0)
