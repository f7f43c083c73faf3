"""The saved work: whatever its file names or holds, it is read, said and kept."""

import json
import os
import sys

import pytest

from burnish_app.state.saved import saved_work
from burnish_app.state.saved.saved_work import LastWork, put_aside, unopened
from burnish_app.state.workbench import Workbench
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import dump_recipe

LONG = "/" + "x" * 5000


@pytest.fixture
def file(tmp_path):
    return tmp_path / "studio" / "workbench.json"


def save(file, **fields):
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(fields), encoding="utf-8")


def pipe(path):
    if sys.platform == "win32":
        pytest.skip("there are no pipes in folders")
    os.mkfifo(path)
    return str(path)


@pytest.fixture
def odd(tmp_path):
    """Paths that cannot be opened as a run's folder."""
    (tmp_path / "file").write_text("x")
    return [str(tmp_path / "gone"), str(tmp_path / "file"), pipe(tmp_path / "pipe"), LONG, "/a\0b", "/dev/null"]


def test_a_run_that_cannot_be_opened_is_said_and_stays_in_the_file(qapp, file, odd):
    for run in odd:
        save(file, run=run)
        bench = Workbench(file)
        assert bench.run == ""
        assert bench.last.unopened[run]
        bench.set_model_path("/somewhere")
        bench.save()
        assert json.loads(file.read_text())["run"] == run


def test_another_run_takes_its_place_without_a_loss_until_it_is_forgotten(qapp, file, tmp_path):
    lost, other = tmp_path / "lost", tmp_path / "other"
    other.mkdir()
    save(file, run=str(lost))
    bench = Workbench(file)
    bench.set_run(str(other))
    bench.save()
    again = Workbench(file)
    assert (again.run, list(again.last.unopened)) == (str(other), [str(lost)])
    again.forget_lost_run()
    assert Workbench(file).last.unopened == {}


def test_a_run_is_shown_once_it_can_be_opened_again(qapp, file, tmp_path):
    lost = tmp_path / "lost"
    save(file, run=str(lost))
    bench = Workbench(file)
    bench.look_again()
    assert bench.run == ""
    lost.mkdir()
    bench.look_again()
    assert (bench.run, bench.last.unopened) == (str(lost), {})


def test_a_run_that_goes_away_while_it_is_shown_stays_in_the_file(qapp, file, tmp_path):
    bench = Workbench(file)
    bench.set_run(str(tmp_path / "gone"))
    assert bench.lose_run()
    assert bench.run == ""
    file.parent.mkdir()
    bench.save()
    assert json.loads(file.read_text())["run"] == str(tmp_path / "gone")


def test_data_that_cannot_be_opened_stays_chosen_and_names_are_left_alone(file, odd, tmp_path):
    (tmp_path / "there.jsonl").write_text("{}")
    files = [*odd[:1], *odd[2:], "hf://datasets/a/b", str(tmp_path / "there.jsonl")]
    recipe = Recipe.model_validate({"data": {"files": [one for one in files if "\0" not in one]}})
    save(file, recipe=dump_recipe(recipe))
    last = LastWork(file)
    assert last.recipe == recipe
    assert set(last.unopened) == {odd[0], odd[2], LONG, "/dev/null"}


def test_a_drive_that_does_not_answer_holds_nothing_up(monkeypatch):
    asked = []
    monkeypatch.setattr(saved_work, "Thread", lambda **fields: asked.append(fields) or Silent())
    assert list(unopened(Recipe(), ["/mnt/drive/run"], limit_s=0.01)) == ["/mnt/drive/run"]
    assert len(asked) == 1


class Silent:
    """A thread that never ends."""

    def start(self):
        """Begin nothing."""

    def join(self, timeout):
        assert timeout < 1


@pytest.mark.parametrize(
    "content", ["", "not json", '{"recipe": "version = 99"}', '{"recipe": 3}', "\x00", "[1]", "[" * 100_000]
)
def test_a_file_that_cannot_be_read_is_kept_beside(file, content):
    file.parent.mkdir()
    file.write_text(content, encoding="utf-8")
    last = LastWork(file)
    assert last.unread
    assert last.recipe == Recipe()
    assert not file.exists()
    assert (file.parent / last.kept_as).read_text(encoding="utf-8") == content


def test_a_pipe_in_the_place_of_the_file_is_put_aside(file):
    file.parent.mkdir()
    pipe(file)
    assert LastWork(file).unread
    assert not file.exists()


def test_what_was_chosen_outlives_facts_of_another_version(file):
    recipe = Recipe.model_validate({"adapter": {"rank": 12}})
    save(file, recipe=dump_recipe(recipe), model={"of": "another version"}, run="/gone")
    last = LastWork(file)
    assert (last.unread, last.recipe, last.run, last.saved.model) == ("", recipe, "/gone", None)


def test_files_that_are_put_aside_do_not_take_each_others_place(tmp_path):
    names = []
    for text in ("one", "two"):
        (tmp_path / "a.json").write_text(text)
        names.append(put_aside(tmp_path / "a.json"))
    assert [(tmp_path / name).read_text() for name in names] == ["one", "two"]
