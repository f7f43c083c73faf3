"""Several runs are followed at once, in the order asked for, while they grow."""

from app.facts.run_events import events
from app.facts.run_summaries import summary, write_run

from burnish_app.engine.runs_follower import RunsFollower
from burnish_engine.contract.paths import RunPaths


def test_all_runs_come_in_their_order_and_again_when_one_grows(qtbot, tmp_path):
    folders = [str(tmp_path / name) for name in ("b", "a", "not yet")]
    for folder, steps in zip(folders[:2], (20, 10), strict=True):
        write_run(tmp_path / folder.rsplit("/", 1)[-1], summary("running"), events(steps))
    follower, seen = RunsFollower(), []
    follower.advanced.connect(seen.append)
    follower.follow(folders)
    qtbot.waitUntil(lambda: len(seen) > 0)
    assert list(seen[0]) == folders
    assert [state.step for state in seen[0].values()] == [20, 10, 0]
    more = "".join(f"{event.model_dump_json()}\n" for event in events(15)[len(events(10)) :])
    with RunPaths(tmp_path / "a").events.open("a", encoding="utf-8") as file:
        file.write(more)
    qtbot.waitUntil(lambda: [state.step for state in seen[-1].values()] == [20, 15, 0])
    follower.stop()


def test_following_others_ends_the_former(qtbot, tmp_path):
    write_run(tmp_path / "a", summary("running"), events(5))
    follower, seen = RunsFollower(), []
    follower.advanced.connect(seen.append)
    follower.follow([str(tmp_path / "a")])
    qtbot.waitUntil(lambda: len(seen) > 0)
    follower.follow([str(tmp_path / "b")])
    qtbot.waitUntil(lambda: list(seen[-1]) == [str(tmp_path / "b")])
    follower.stop()
    assert follower._thread is None
