"""Activities beside the page that is shown: runs, exports and duels, each with its share."""

import time

import pytest
from app.facts import model_facts
from app.facts.run_summaries import summary
from app.page_scenes.several_scenes import a_duel

from burnish_app.state.time_left import Remaining
from burnish_app.wording.activity import (
    Activity,
    activities_of,
    bench_activity,
    download_activity,
    download_detail,
    download_progress,
    short_text,
)
from burnish_engine.contract.facts.downloads import Download
from burnish_engine.contract.run.duels import DuelRun
from burnish_engine.contract.run.state import ObservedStatus
from burnish_engine.contract.serve.replies import Bench, ExportJob

RUNNING, QUEUED, PAUSED, FAILED, FINISHED = model_facts.downloads()


def a_run(step):
    return DuelRun(id="x", folder="/x", side=0, phase="grid", seed=1, rate=1e-4, step=step, total_steps=100)


@pytest.mark.parametrize("status", ["running", "paused", "queued"])
def test_a_run_that_goes_on_or_waits_is_listed_with_its_share(status):
    (one,) = activities_of([summary(status, 150)])
    assert (one.page, one.share) == ("train", 0.25)
    assert "25 % - support-desk" in one.title
    assert one.title.startswith("25 %") == (status == "running"), "what does not move says why"


def test_a_run_before_its_first_step_has_no_share_yet():
    (one,) = activities_of([summary("running", 0, total_steps=0)])
    assert one.title.startswith("0 %")


def test_a_run_has_the_time_left_that_it_predicts_itself():
    """The page Train shows the same, with evaluations and saves; the share of the steps would tell less."""
    ends = time.time() + 600
    (one,) = activities_of([summary("running", 150, ends=ends)])
    assert 590 < one.left.middle_s <= 600
    for other in (summary("running", 150, ends=time.time() - 5), summary("running", 150), summary("paused", ends=ends)):
        assert activities_of([other])[0].left is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"left": Remaining.about(600.0)}, "40 %  ·  10 min left"), ({"moves": False}, "Training  ·  40 %"),
        ({"share": None}, "Training"), ({"share": 0.0, "moves": False}, "Training"),
    ],
)  # fmt: skip
def test_what_moves_says_how_far_it_is_and_what_waits_says_what_it_is(changes, words):
    given = {"page": "train", "folder": "/x", "name": "desk", "what": "Training", "share": 0.4} | changes
    assert short_text(Activity(**given)) == words


@pytest.mark.parametrize(
    ("kind", "about", "name"),
    [("kernels", "rms_norm", "Kernels: rms_norm"), ("kernels", "", "All kernels"), ("gguf", "m.gguf", "m.gguf")],
)
def test_a_benchmark_is_named_by_what_it_measures(kind, about, name):
    one = bench_activity(Bench(kind=kind, about=about, started=0.0, share=0.5, pid=7, process_created=0.0))
    assert (one.page, one.folder, one.name, one.share) == ("", "7", name, 0.5)


def test_a_run_that_waits_says_so_in_the_title():
    (one,) = activities_of([summary("queued", 0)])
    assert one.title.endswith("support-desk")
    assert "%" not in one.title


def test_runs_that_rest_are_not_listed():
    from typing import get_args

    resting = set(get_args(ObservedStatus)) - {"running", "paused", "queued"}
    assert activities_of([summary(status) for status in sorted(resting)]) == []


def test_exports_and_duels_are_listed_too():
    job = ExportJob(status="running", share=0.5)
    exported = summary("finished").model_copy(update={"export": job})
    duel = a_duel("running", folder="/d", made=[a_run(100)] * 5, current=a_run(50))
    assert [(one.page, round(one.share, 3)) for one in activities_of([exported], [duel, a_duel("stopped")])] == [
        ("export", 0.5),
        ("duel", round(5.5 / 12, 3)),
    ]


def test_a_duel_that_takes_more_than_its_least_runs_counts_to_its_most():
    duel = a_duel("running", folder="/d", made=[a_run(100)] * 14, current=a_run(0))
    assert activities_of([], [duel])[0].share == 14 / 28


def test_a_running_one_says_how_fast_and_how_long():
    assert "34.2 MB/s" in download_detail(RUNNING)
    assert "28 s" in download_detail(RUNNING)
    assert "9 kB/s" in download_detail(RUNNING.model_copy(update={"bytes_per_s": 9_000.0}))
    assert "36 %" in download_progress(RUNNING)


def test_without_a_speed_it_says_what_it_waits_for():
    waiting = RUNNING.model_copy(update={"bytes_per_s": 0.0, "what": "Waiting: hub.example is busy; trying again"})
    assert "hub.example is busy" in download_detail(waiting)
    assert "left" not in download_detail(waiting)


def test_before_the_size_is_known_no_share_is_claimed():
    assert "%" not in download_progress(RUNNING.model_copy(update={"total": 0, "done": 0}))


def test_what_stopped_says_why():
    assert "token" in download_detail(PAUSED)
    assert "could not be reached" in download_detail(FAILED)
    assert "4.06 GB" in download_detail(FINISHED)
    assert download_progress(QUEUED) == download_detail(QUEUED)


def test_a_download_is_an_activity():
    running = Download(name="org/model", status="running", done=25, total=100, bytes_per_s=5.0)
    one = download_activity(running)
    assert (one.page, one.name, one.share, one.moves, one.left.low_s) == ("model", "org/model", 0.25, True, 15.0)
    waiting = download_activity(Download(name="org/model"))
    assert waiting.share is None
    assert not waiting.moves
    assert waiting.what != one.what


def test_a_queued_run_names_the_run_it_waits_for(tmp_path):
    holder = tmp_path / "20261121-0930-run"
    holder.mkdir()
    waiting = summary("queued", 0).model_copy(update={"waits_for": str(holder)})
    assert activities_of([waiting])[0].stage == "after 20261121-0930-run"
    (holder / "recipe.toml").write_text('name = "legal notes"\n', encoding="utf-8")
    assert activities_of([waiting])[0].stage == "after legal notes"
