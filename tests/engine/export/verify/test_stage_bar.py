"""An export's share grows evenly, by what its stages took the last time."""

import pytest

from burnish_engine.contract.paths import past_export_file
from burnish_engine.export.verify.stage_bar import StageBar, past_times

STAGES = ("write", "run", "answer", "check", "make", "check")
TOOK = {"write": 1.0, "run": 40.0, "answer": 100.0, "make": 4.0, "check": 20.0}


def export(times=TOOK, stages=STAGES):
    """Make an export on a clock of the test's own; return (share of its time, share that was shown) at each stage."""
    now, shown = [0.0], [0.0]
    bar = StageBar(lambda _what, share: shown.append(share), stages, clock=lambda: now[0])
    looks = []
    for name in stages:
        told = bar.begin(name)
        for part in (0.5, 1.0):
            now[0] += times[name] / 2
            told(name, part)
            looks.append((now[0], shown[-1]))
    bar.finish()
    return [(at / now[0], share) for at, share in looks]


def test_the_second_export_grows_as_its_time_passes():
    first, second = export(), export()
    assert max(abs(time - share) for time, share in first) > 0.2
    assert second == [(pytest.approx(time), pytest.approx(time)) for time, _ in second]
    assert second[-1] == (1.0, pytest.approx(1.0))


def test_a_busier_machine_changes_nothing_of_that():
    export()
    assert all(time == pytest.approx(share) for time, share in export({name: 8 * took for name, took in TOOK.items()}))


def test_stages_that_the_last_export_had_not_count_as_usual_beside_the_others():
    export()
    shares = [share for _, share in export({**TOOK, "weigh": 30.0}, ("write", "run", "weigh", "answer", "check"))]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)
    assert past_times()["make"] == pytest.approx(4.0), "what an export does not do stays known"


def test_a_stage_that_nobody_planned_is_known_by_what_it_took():
    now = [0.0]
    bar = StageBar(lambda _what, _share: None, ["write"], clock=lambda: now[0])
    for _ in range(2):
        bar.begin("make")
        now[0] += 3.0
    bar.finish()
    assert past_times()["make"] == pytest.approx(3.0)


@pytest.mark.parametrize("text", ["", "[]", '{"run": "long"}', '{"run": -1.0}', '{"run": NaN}', "[" * 5000])
def test_a_damaged_file_is_no_file(text):
    past_export_file().parent.mkdir(parents=True, exist_ok=True)
    past_export_file().write_text(text)
    assert past_times() == {}
    export()
    assert past_times() == pytest.approx(TOOK)
