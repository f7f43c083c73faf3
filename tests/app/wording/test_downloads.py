from app import model_facts

from burnish_app.wording.downloads import detail_text, progress_text

RUNNING, QUEUED, PAUSED, FAILED, FINISHED = model_facts.downloads()


def test_a_running_one_says_how_fast_and_how_long():
    assert "34.2 MB/s" in detail_text(RUNNING)
    assert "28 s" in detail_text(RUNNING)
    assert "36 %" in progress_text(RUNNING)


def test_without_a_speed_it_says_what_it_waits_for():
    waiting = RUNNING.model_copy(update={"bytes_per_s": 0.0, "what": "waiting: hub.example is busy; trying again"})
    assert "hub.example is busy" in detail_text(waiting)
    assert "left" not in detail_text(waiting)


def test_before_the_size_is_known_no_share_is_claimed():
    assert "%" not in progress_text(RUNNING.model_copy(update={"total": 0, "done": 0}))


def test_what_stopped_says_why():
    assert "token" in detail_text(PAUSED)
    assert "could not be reached" in detail_text(FAILED)
    assert "4.06 GB" in detail_text(FINISHED)
    assert progress_text(QUEUED) == detail_text(QUEUED)
