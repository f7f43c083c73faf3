"""Who can answer: a run's models, its files, other runs."""

from app.facts.run_summaries import summary

from burnish_app.state.answerers import answerers
from burnish_app.state.run_folder import RunFolder


def keys(found):
    return [one.key for one in found]


def test_without_a_run_only_the_base_answers():
    found = answerers("", "embedded", RunFolder(), [])
    assert [one.key for one in found if one.able] == ["base"]
    assert found[0].target == "embedded"


def test_several_files_are_listed_by_their_types():
    folder = RunFolder(trained=True, exported=("a-b-Q4_K_M.gguf", "a-b-Q8_0.gguf"))
    files = [one for one in answerers("/runs/a", "", folder, []) if one.variant == "exported"]
    assert [one.label.split()[-1] for one in files] == ["Q4_K_M", "Q8_0"]
    assert all(one.target.endswith(one.key) for one in files)


def test_other_runs_answer_with_what_they_trained():
    runs = [summary("finished", folder="/runs/a"), summary("finished", folder="/runs/b", name="second")]
    runs.append(summary("queued", 0, folder="/runs/c"))
    found = answerers("/runs/a", "", RunFolder(trained=True), runs)
    (other,) = [one for one in found if one.key.startswith("run ")]
    assert (other.target, other.variant) == ("/runs/b", "tuned")
    assert "second" in other.label
    assert len(set(keys(found))) == len(found)
