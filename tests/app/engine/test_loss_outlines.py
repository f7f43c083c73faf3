"""Outlines of loss curves: short files whole, long ones by samples, nothing that is not finite."""

import math
import random

from app.facts.reward_facts import given, rewarded
from app.facts.run_events import a_step, events, numbered

from burnish_app.engine.loss_outlines import loss_outline


def write(file, lines):
    file.write_text("".join(event.model_dump_json() + "\n" for event in lines), encoding="utf-8")
    return file


def test_a_short_run_is_read_whole_and_falls(tmp_path):
    outline = loss_outline(write(tmp_path / "events.jsonl", events(240)))
    assert 50 <= len(outline) <= 120
    assert outline[0] > outline[-1]


def test_a_long_run_is_sampled_from_its_beginning_to_its_end(tmp_path):
    chance = random.Random(1)
    steps = [a_step(n, 9000, chance).model_copy(update={"loss": 9.0 - n / 1000}) for n in range(1, 6001)]
    file = write(tmp_path / "events.jsonl", numbered(steps))
    assert file.stat().st_size > 1_000_000
    outline = loss_outline(file)
    assert len(outline) == 60
    assert outline[0] > 8.9
    assert outline[-1] < 3.1


def test_a_run_that_learns_from_rewards_has_the_outline_of_its_reward(tmp_path):
    outline = loss_outline(write(tmp_path / "events.jsonl", rewarded(240)))
    assert 50 <= len(outline) <= 120
    assert outline[0] < 0.4 < 0.9 < outline[-1]
    long = numbered([given(step, random.Random(step)) for step in range(1, 1201)])
    file = write(tmp_path / "long.jsonl", long)
    assert file.stat().st_size > 512 * 1024
    outline = loss_outline(file)
    assert len(outline) > 30
    assert outline[0] < 0.5 < 0.9 < outline[-1]


def test_what_is_no_number_or_half_a_line_is_left_out(tmp_path):
    bad = [event.model_copy(update={"loss": math.nan}) for event in [a_step(1, 9, random.Random(1))]]
    file = write(tmp_path / "events.jsonl", [*numbered(bad), *events(5)])
    with file.open("a", encoding="utf-8") as more:
        more.write('{"type":"step","loss":1.')
    assert len(loss_outline(file)) == 5
