"""Titles of runs that share a name."""

from app.facts.run_summaries import summary

from burnish_app.comparison.titles import distinct_titles


def test_runs_of_one_name_are_told_apart_by_their_folders():
    runs = [summary("finished", folder=f"/runs/{n}", name=name) for n, name in (("1", "a"), ("2", "a"), ("3", "b"))]
    titles = distinct_titles(runs)
    assert titles[2] == "b"
    assert len(set(titles)) == 3
