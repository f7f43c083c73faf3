"""Figures by which a change altered a plan, each with its sign and whether it became better."""

import pytest
from app.facts import page_facts as facts

from burnish_app.recipe.plan_text import effects, effects_text

GIB = 2**30


def found(**changes):
    return effects(facts.plan(steps=248, seconds=100.0), facts.plan(**{"steps": 248, "seconds": 100.0, **changes}))


@pytest.mark.parametrize(
    ("changes", "text", "better"),
    [
        ({"memory_bytes": facts.plan().memory_bytes + GIB * 2 // 5}, "+0.40 GiB", False),
        ({"memory_bytes": facts.plan().memory_bytes - GIB}, "\N{MINUS SIGN}1.0 GiB", True),
        ({"host_bytes": 5 * GIB}, "+2.0 GiB system", False),
        ({"tokens_per_s": 18_400 * 0.88}, "\N{MINUS SIGN}12 % speed", False),
        ({"tokens_per_s": 18_400 * 1.08}, "+8 % speed", True),
        ({"tokens_per_s": 18_400 * 2.5}, "2.5 times", True),
        ({"seconds": 160.0}, "+60 s", False),
        ({"steps": 200}, "\N{MINUS SIGN}48 steps", None),
        ({"disk_bytes": facts.plan().disk_bytes + 10**9}, "+1.00 GB on disk", False),
    ],
)
def test_each_figure_that_moved_is_named_with_its_sign(changes, text, better):
    assert len(found(**changes)) == 1
    effect = found(**changes)[0]
    assert text in effect.text
    assert effect.better is better


def test_what_is_within_the_error_of_a_prediction_is_left_out():
    small = {"memory_bytes": facts.plan().memory_bytes + 2**20, "tokens_per_s": 18_401.0, "seconds": 100.2}
    assert found(**small) == []
    assert "No difference" in effects_text([])


def test_what_is_not_known_is_not_compared():
    unknown = facts.plan(steps=None, seconds=None)
    assert effects(unknown, facts.plan()) == effects(facts.plan(), unknown) == []
