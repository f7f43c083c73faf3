"""Patterns of recipes and files are refused or given up, never waited for."""

import pytest

from burnish_engine.contract.recipe.checks import patterns
from burnish_engine.contract.recipe.checks.patterns import NamePattern, SlowPatternError, check_pattern, find

SLOW = r"(?:.*?.*?)+?[!?]"
REFUSED = r"no regular expression|repeats so much"
NAME = "model.layers.11.self_attn.q_proj"


@pytest.mark.parametrize(
    "pattern",
    ["(", "a)b{2}", "a{2}{3}", "[", "(?P<x>", r"\1", "(" * 5000, "((a{1000}){1000}){1000}", "(?:a{65535}){65535}",
     "([a-z]{400}){400}", "(a{0}){99999999}", r"(?:\w{1,9999}x){1,9999}"],
)  # fmt: skip
def test_what_is_no_pattern_or_too_large_is_refused_at_once(pattern):
    with pytest.raises(ValueError, match=REFUSED):
        check_pattern(pattern)
    with pytest.raises(ValueError, match=REFUSED):
        NamePattern(pattern)


@pytest.mark.parametrize("pattern", ["", "^[A-Z]{3}-[0-9]+$", r"\{99999999}", r"(?:\d{1,3}\.){3}"])
def test_usual_repeats_are_none(pattern):
    check_pattern(pattern)


def test_memory_that_a_search_takes_is_its_own_fault(monkeypatch):
    class Greedy:
        def search(self, _text, timeout):
            raise MemoryError

    monkeypatch.setattr(patterns, "_compiled", lambda _pattern: Greedy())
    with pytest.raises(SlowPatternError):
        find("a", "a")

    def greedy(_pattern):
        raise MemoryError

    monkeypatch.setattr(patterns, "_compiled", greedy)
    with pytest.raises(ValueError, match="no regular expression"):
        check_pattern("a")


def test_a_pattern_of_names_matches_whole_ones():
    assert NamePattern(r"model\..*q_proj").matches(NAME)
    assert not NamePattern("q_proj").matches(NAME)
    assert NamePattern(r"x|.*q_proj").matches(NAME)
    assert not NamePattern("model|layers").matches(NAME)


def test_all_searches_of_a_pattern_of_names_share_one_limit(monkeypatch):
    monkeypatch.setattr(patterns, "SECONDS", 0.05)
    slow = NamePattern(SLOW)
    for _ in range(2):
        with pytest.raises(SlowPatternError):
            slow.matches(NAME)
    monkeypatch.setattr(patterns, "SECONDS", 1.0)
    with pytest.raises(SlowPatternError):
        slow.matches("short")
    assert not NamePattern(SLOW).matches("short")
