"""Row lengths and amounts, from what was found in a dataset."""

import numpy as np
import pytest

from burnish_engine.advise.facts.workload import buckets, hold_out, planned_facts, wanted_length, workload
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.data.report.describe import length_stats
from burnish_engine.data.tokens.pack import epoch_batches

from support.machines.advice import CHATS, DOCUMENTS, TINY, dataset


def test_short_rows_are_all_covered():
    assert wanted_length(TINY, 8192) == 512


def test_a_few_very_long_rows_do_not_set_the_length():
    assert wanted_length(CHATS, 8192) == 768
    assert workload(CHATS, 768).cut_share == pytest.approx(0.05, abs=0.01)


def test_a_model_reads_no_more_than_its_context():
    assert wanted_length(DOCUMENTS, 4096) == 4096
    assert wanted_length(DOCUMENTS, None) > 4096


def test_without_data_a_usual_length():
    assert wanted_length(None, 8192) == 1024
    assert wanted_length(None, 512) == 512


def test_cutting_loses_tokens_and_keeps_rows():
    whole, cut = workload(DOCUMENTS, 32_768), workload(DOCUMENTS, 2_048)
    assert whole.rows == cut.rows == DOCUMENTS.train_rows
    assert whole.cut_share == 0
    assert cut.cut_share == pytest.approx(0.9, abs=0.01)
    # 1,800 rows cut to 2,048 tokens, 200 of on average half of it; 95 % of them to train on
    assert cut.tokens == pytest.approx(0.95 * (1_800 * 2_048 + 200 * 1_024), rel=0.01)
    assert cut.supervised_tokens / cut.tokens == pytest.approx(0.6, abs=0.01)


@pytest.mark.parametrize("shape", ["text", "segments", "text, segments"])
def test_texts_go_on_in_further_rows_where_they_are_not_cut(shape):
    texts = DOCUMENTS.model_copy(update={"shape": shape})
    whole, on, cut = (workload(texts, 32_768), workload(texts, 2_048), workload(texts, 2_048, "truncate"))
    assert (on.tokens, on.cut_share) == (whole.tokens, 0)
    assert on.rows == pytest.approx(on.tokens / 2_048, rel=0.01)
    assert cut == workload(DOCUMENTS, 2_048)


def test_the_length_it_was_inspected_with_does_not_matter():
    inspected_short = DOCUMENTS.model_copy(
        update={"tokens": 3_900_000, "supervised_tokens": 2_340_000, "truncated_rows": 1_800}
    )
    assert workload(inspected_short, 8_192).tokens == workload(DOCUMENTS, 8_192).tokens


def test_planned_facts_agree_with_the_budget():
    work = workload(CHATS, 1024)
    facts = planned_facts(CHATS, work, 4096)
    assert facts.micro_batches * facts.fill * 4096 == pytest.approx(work.tokens, rel=0.01)
    assert facts.micro_batches * 4096 * 0.95 >= work.tokens
    assert 0.6 * 4096 < facts.most_supervised <= 4096


def facts_of(lengths, *, shape="messages", held=0):
    """Facts as of an inspection that found rows of these lengths."""
    tokens, rows = int(sum(lengths)), len(lengths)
    return DatasetFacts(
        files=["a.jsonl"], format="jsonl", shape=shape, columns=["messages"], rows=rows, train_rows=rows - held,
        validation_rows=held, tokens=tokens, supervised_tokens=tokens // 2, lengths=length_stats(lengths),
    )  # fmt: skip


def lengths_of(kind, rows):
    random = np.random.RandomState(3)
    if kind == "halves":  # a little more than half a micro-batch: the rest stays empty
        return random.randint(1_030, 1_300, rows)
    return np.clip(random.lognormal(5, 0.8, rows), 8, 2_048).astype(int)


@pytest.mark.full
@pytest.mark.parametrize(("rows", "apart"), [(40, 0), (1_000, 0), (30_000, 0.01)])
@pytest.mark.parametrize("kind", ["halves", "usual"])
def test_as_many_micro_batches_are_planned_as_training_packs(kind, rows, apart):
    lengths = lengths_of(kind, rows)
    packed = epoch_batches([range(length) for length in lengths], 2_048, True, 0, 0)
    work = workload(facts_of(lengths), 2_048)
    assert work.passes(2_048) == pytest.approx(len(packed), rel=apart)
    facts = planned_facts(facts_of(lengths), work, 2_048)
    assert facts.fill == pytest.approx(packed.fill, rel=apart + 1e-3)


def test_held_out_rows_are_not_packed():
    lengths = lengths_of("halves", 200)
    assert workload(facts_of(lengths, held=20), 2_048).passes(2_048) == 180


def test_texts_that_go_on_are_packed_in_parts():
    work = workload(facts_of([3_000] * 100, shape="text"), 2_048)
    assert work.passes(2_048) == 100 + 50, "two rests of 952 tokens share a micro-batch"


def pairs_of(rejected, chosen=100):
    """Facts of pairs whose rejected replies with the prompt have these lengths, and chosen ones the same each."""
    whole = [chosen + one for one in rejected]
    return facts_of(whole, shape="preference").model_copy(update={"sequence_lengths": length_stats(rejected)})


def test_the_length_for_pairs_holds_the_longer_reply_and_a_pass_both():
    facts = pairs_of([600] * 90 + [700] * 10)
    assert wanted_length(facts, 8192) == 704
    whole = workload(facts, 704)
    assert (whole.rows, whole.cut_share, whole.tokens) == (100, 0, 100 * 100 + 90 * 600 + 10 * 700)
    assert whole.passes(2 * 704) == 45 + 10, "two pairs of 700 tokens share a pass, one of 800 is alone"


def test_pairs_with_a_longer_reply_than_fits_are_left_out_instead_of_cut():
    facts = pairs_of([200] * 75 + [2_000] * 25)
    work = workload(facts, 256)
    assert work.cut_share == pytest.approx(0.25, abs=0.02)
    assert work.tokens == pytest.approx(75 * 300, rel=0.05)
    planned = planned_facts(facts, work, 1024)
    assert planned.train_rows == work.rows == pytest.approx(75, abs=2)
    assert planned.tokens == pytest.approx(work.tokens, rel=0.01)


@pytest.mark.parametrize(("rows", "held"), [(2, 1), (100, 10), (2_000, 100), (50_000, 500), (1_000_000, 1_000)])
def test_enough_rows_are_held_out_to_judge_by_and_not_many_more(rows, held):
    facts = hold_out(dataset(rows, [(256, rows)]))
    assert facts.validation_rows == pytest.approx(held, abs=1)
    assert facts.train_rows + facts.validation_rows == rows


@pytest.mark.parametrize(("share", "held"), [(0.0, 0), (0.001, 1), (0.25, 25), (0.999, 99)])
def test_the_share_of_a_recipe_is_held_out(share, held):
    facts = hold_out(dataset(100, [(256, 100)]), share)
    assert (facts.train_rows, facts.validation_rows) == (100 - held, held)


@pytest.mark.parametrize(
    ("budget", "packed", "most", "sizes"),
    [
        (16384, True, None, (8192, 16384)),
        (4096, True, None, (2048, 4096)),
        (1000, True, None, (512, 1024)),
        (400, True, None, (256, 448)),
        (320, True, None, (320,)),
        (1, True, None, (64,)),
        (16384, True, 3000, (1536, 3008)),
        (4096, False, None, (256, 512, 1024, 2048, 4096)),
        (4096, False, 700, (384, 704)),
        (256, False, None, (256,)),
    ],
)
def test_buckets(budget, packed, most, sizes):
    assert buckets(budget, packed, most) == sizes
