"""News between two lists of runs or duels: each end, and each need for a person, once."""

import pytest
from app.facts.run_summaries import summary
from app.page_scenes.several_scenes import a_duel

from burnish_app.news import duel_news, run_news
from burnish_engine.contract.serve.replies import ExportJob


def told(before, after):
    return [(news.kind, news.page) for news in run_news([before], [after])]


@pytest.mark.parametrize("before", ["queued", "running", "paused", "not responding"])
@pytest.mark.parametrize(("after", "kind"), [("finished", "done"), ("failed", "failed"), ("interrupted", "failed")])
def test_the_end_of_a_run_is_told(before, after, kind):
    assert told(summary(before), summary(after, exit_code=10)) == [(kind, "train")]


@pytest.mark.parametrize("after", ["paused", "stopped", "suspended", "running"])
def test_what_the_person_did_is_no_news(after):
    assert told(summary("running"), summary(after)) == []


def test_nothing_is_told_twice_nor_of_runs_that_were_not_there():
    assert told(summary("finished"), summary("finished")) == []
    assert told(summary("failed"), summary("failed")) == []
    assert run_news([], [summary("finished")]) == []


@pytest.mark.parametrize(("created", "kinds"), [(101.0, [("failed", "train")]), (99.0, [])])
def test_a_run_that_began_and_failed_between_two_looks_is_told(created, kinds):
    """One that is older was opened from elsewhere, or brought back after it was deleted."""
    found = run_news([], [summary("failed", exit_code=10, created=created)], since=100.0)
    assert [(news.kind, news.page) for news in found] == kinds


def test_a_failure_is_told_with_its_cause():
    (news,) = run_news([summary("running")], [summary("failed", exit_code=15, message="No space. Free some.")])
    assert "support-desk" in news.title
    assert "isk" in news.title
    assert news.text == "No space."


def test_a_run_that_goes_on_may_need_a_person_once():
    fine, odd = summary("running"), summary("running", suspicious=True, verdict="It rises. Why.")
    assert told(fine, odd) == [("attention", "train")]
    assert run_news([fine], [odd])[0].text == "It rises."
    assert told(odd, odd) == []
    assert told(fine, summary("not responding")) == [("attention", "train")]


def exporting(status, started=1.0, **more):
    job = ExportJob(status=status, started=started, **more)
    return summary("finished").model_copy(update={"export": job})


def test_the_end_of_an_export_is_told():
    assert told(exporting("running"), exporting("finished")) == [("done", "export")]
    assert told(exporting("running"), exporting("failed", message="Refused.")) == [("failed", "export")]
    assert told(exporting("running"), exporting("canceled")) == []
    assert told(exporting("running"), exporting("finished", started=2.0)) == [], "another one"
    assert told(exporting("finished"), exporting("finished")) == []


@pytest.mark.parametrize("before", [summary("finished"), exporting("finished", started=1.0)])
def test_an_export_that_began_and_ended_between_two_looks_is_told(before):
    def found(since):
        return [news.page for news in run_news([before], [exporting("finished", started=3.0)], since=since)]

    assert found(2.0) == ["export"]
    assert found(4.0) == []


def test_the_end_of_a_duel_is_told():
    going = a_duel("running", folder="/d")
    (won,) = duel_news([going], [a_duel("finished", folder="/d", headline="A is better.")])
    assert (won.kind, won.page, won.text) == ("done", "duel", "A is better.")
    (stopped,) = duel_news([going], [a_duel("stopped", folder="/d", message="No space.")])
    assert (stopped.kind, stopped.text) == ("failed", "No space.")
    assert duel_news([going], [going]) == duel_news([], [a_duel("finished", folder="/d")]) == []
