"""`burnish recipe check` looks for the files that a recipe names, and says which are not there."""

import shutil

import pytest

from burnish_engine.cli.main import main
from burnish_engine.contract.errors import ExitCode

from support.models.tiny import conversations, make_llama, write_jsonl


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_llama(tmp_path_factory.mktemp("model") / "base")


@pytest.fixture
def checked(tmp_path, capsys, burnish_home):
    """Check a recipe in a folder of its own; return the exit code, and all that was printed in one line."""
    write_jsonl(tmp_path / "rows.jsonl", conversations(4))

    def check(text):
        (tmp_path / "recipe.toml").write_text(text, encoding="utf-8")
        code = main(["recipe", "check", str(tmp_path / "recipe.toml")])
        shown = capsys.readouterr()
        return code, " ".join((shown.out + shown.err).split())

    return check


def test_a_recipe_whose_files_are_there_is_valid(checked, model, tmp_path):
    shutil.copytree(model, tmp_path / "base")
    text = "[model]\npath = './base'\n[data]\nfiles = ['rows.jsonl']\nvalidation_files = ['rows.jsonl']\n"
    assert checked(text) == (ExitCode.DONE, f"{tmp_path / 'recipe.toml'} is a valid recipe.")


@pytest.mark.parametrize("key", ["files", "validation_files"])
@pytest.mark.parametrize("name", ["missing.jsonl", "missing", "nowhere/rows.jsonl"])
def test_a_data_file_that_does_not_exist_is_said_with_its_path(checked, tmp_path, key, name):
    files = "files = ['rows.jsonl']\n" if key == "validation_files" else ""
    code, said = checked(f"[data]\n{files}{key} = ['{name}']\n")
    assert code == ExitCode.DATA
    assert str(tmp_path / name) in said.replace(" ", "")
    assert "valid recipe" not in said


def test_a_file_among_others_that_does_not_exist_is_found(checked):
    code, said = checked("[data]\nfiles = ['rows.jsonl', 'rows2.jsonl']\n")
    assert code == ExitCode.DATA
    assert "rows2.jsonl" in said


def test_a_folder_in_the_place_of_a_file_is_said_with_its_path(checked, tmp_path):
    (tmp_path / "folder.jsonl").mkdir()
    code, said = checked("[data]\nfiles = ['folder.jsonl']\n")
    assert code == ExitCode.DATA
    assert "folder.jsonl" in said
    (tmp_path / "folder.jsonl" / "rows.jsonl").write_text((tmp_path / "rows.jsonl").read_text())
    assert checked("[data]\nfiles = ['folder.jsonl']\n")[0] == ExitCode.DONE  # a folder of files may be called so
    (tmp_path / "own.jinja").mkdir()
    assert checked("[data]\nfiles = ['rows.jsonl']\ntemplate = 'own.jinja'\n")[0] == ExitCode.DATA


def test_a_folder_in_the_place_of_the_recipe_is_said(tmp_path, capsys):
    assert main(["recipe", "check", str(tmp_path)]) == ExitCode.USAGE
    assert str(tmp_path) in capsys.readouterr().err.replace("\n", "")


@pytest.mark.parametrize(("name", "words"), [("./missing", "does not exist"), ("./rows.jsonl", "is a file")])
def test_a_model_folder_that_is_none_is_said(checked, name, words):
    code, said = checked(f"[model]\npath = '{name}'\n[data]\nfiles = ['rows.jsonl']\n")
    assert code == ExitCode.USAGE
    assert name.removeprefix("./") in said
    assert words in said


def test_a_model_folder_that_lacks_its_weights_is_said(checked, model, tmp_path):
    folder = shutil.copytree(model, tmp_path / "base")
    (folder / "model.safetensors").unlink()
    assert checked("[model]\npath = './base'\n[data]\nfiles = ['rows.jsonl']\n")[0] == ExitCode.ENVIRONMENT


def test_what_is_still_to_be_downloaded_is_noted_and_nothing_is_downloaded(checked):
    data = "[data]\nfiles = ['hf://datasets/example/rows']\n"
    code, said = checked(f"[model]\npath = 'example/model'\n{data}")
    assert code == ExitCode.DONE
    assert "burnish models fetch example/model" in said
    assert "hf://datasets/example/rows" in said
    code, said = checked(f"[model]\npath = 'example/model'\n{data}[devices]\nwhere = 'ssh:office'\n")
    assert code == ExitCode.DONE
    assert "fetch" not in said  # the other machine does that


def test_a_recipe_without_data_is_right_so_far(checked):
    code, said = checked("[train]\nmax_steps = 3\n")
    assert code == ExitCode.DONE
    assert "data.files" in said
