import math

import pytest

from burnish_app.wording.numbers import (
    as_sentence,
    count_text,
    decimal_text,
    duration_text,
    facts_text,
    first_sentence,
    percent,
    plural,
    sentence_list,
    speed_figure,
    speed_text,
)


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0"), (999, "999"), (1000, "1.00 k"), (9_990, "9.99 k"), (9_996, "10.0 k"), (99_960, "100 k"),
        (999_950, "1.00 M"), (596_049_920, "596 M"), (1_720_000_000, "1.72 B"),
    ],
)  # fmt: skip
def test_counts(count, words):
    assert count_text(count) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (31, "31 s"), (89, "89 s"), (90, "2 min"), (3600, "60 min"), (5340, "89 min"), (5400, "1 h 30 min"),
        (7200, "2 h"), (172_740, "47 h 59 min"), (172_800, "2 days"), (198_000, "2 days 7 h"),
        (math.inf, "unknown"), (math.nan, "unknown"), (-1, "unknown"),
    ],
)  # fmt: skip
def test_times(seconds, words):
    assert duration_text(seconds) == words


def test_what_is_not_all_is_never_called_a_hundred_percent():
    assert percent(0.9999) == "99 %"
    assert percent(0.99996, 1) == "99.9 %"
    assert percent(1.0) == "100 %"


def test_rates_counts_and_lists_read_as_words():
    assert speed_text(18_400) == "18.4 k tokens/s"
    assert speed_text(3.2) == "3.2 tokens/s"
    assert speed_text(math.nan) == "unknown"
    assert [speed_figure(speed) for speed in (18_400, 10, 3.2)] == ["18,400", "10", "3.2"]
    assert [decimal_text(value) for value in (5e-5, 1e-8, 2.0)] == ["0.00005", "1e-08", "2"]
    assert (plural(1, "row"), plural(1200, "row"), plural(2, "row is", "rows are")) == (
        "1 row",
        "1,200 rows",
        "2 rows are",
    )
    assert (as_sentence("it runs"), as_sentence("Done!"), as_sentence("")) == ("It runs.", "Done!", "")
    assert first_sentence("It failed. Try again. Or not.") == ("It failed.", "Try again. Or not.")
    assert first_sentence("It failed.") == ("It failed.", "")
    assert (sentence_list([]), sentence_list(["a"]), sentence_list(["a", "b", "c"])) == ("", "a", "a, b and c")


def test_facts_stand_beside_each_other_and_keep_their_units():
    shown = facts_text("57.1 tokens/s", "", "after the others: they do not fit into memory together")
    assert shown.count("·") == 1
    assert "57.1 tokens/s" not in shown, "no line breaks between the number and its unit"
    assert "57.1\N{NO-BREAK SPACE}tokens/s" in shown
    assert "do not fit into" in shown, "a long one may be broken"
