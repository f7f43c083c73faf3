"""Row lengths and amounts, from what was found in a dataset."""

import pytest

from burnish_engine.advise.facts.workload import hold_out, planned_facts, wanted_length, workload

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


@pytest.mark.parametrize(("rows", "held"), [(2, 1), (100, 10), (2_000, 100), (50_000, 500), (1_000_000, 1_000)])
def test_enough_rows_are_held_out_to_judge_by_and_not_many_more(rows, held):
    facts = hold_out(dataset(rows, [(256, rows)]))
    assert facts.validation_rows == pytest.approx(held, abs=1)
    assert facts.train_rows + facts.validation_rows == rows


@pytest.mark.parametrize(("share", "held"), [(0.0, 0), (0.001, 1), (0.25, 25), (0.999, 99)])
def test_the_share_of_a_recipe_is_held_out(share, held):
    facts = hold_out(dataset(100, [(256, 100)]), share)
    assert (facts.train_rows, facts.validation_rows) == (100 - held, held)
