"""`burnish models` and `burnish suggest` as a person types them."""

import json

import pytest
from pydantic import TypeAdapter

from burnish_engine.advise.facts.catalog import EMBEDDED, catalog
from burnish_engine.cli.main import main
from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.facts.advice import RankedModel, Suggestion
from burnish_engine.contract.paths import fetched_model_dir
from burnish_engine.contract.recipe.recipe_file import load_recipe

from support.machines.advice import CPU_16, H100, TINY, machine, remembered_fits
from support.models.tiny import conversations, make_llama, write_jsonl


@pytest.fixture(autouse=True)
def an_h100(monkeypatch):
    """The commands see this machine."""
    monkeypatch.setattr("burnish_engine.hardware.probe.probe", lambda: H100)


@pytest.fixture(scope="module", autouse=True)
def fits():
    with remembered_fits():
        yield


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Folder of a tiny model."""
    return make_llama(tmp_path_factory.mktemp("models") / "tiny one")


@pytest.fixture
def chats(tmp_path):
    """A small dataset in a folder with a space."""
    folder = tmp_path / "my data"
    folder.mkdir()
    return write_jsonl(folder / "chats.jsonl", conversations(60))


def run(capsys, *arguments):
    """Exit code and what was printed."""
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def ranked_models(text):
    return TypeAdapter(list[RankedModel]).validate_json(text)


def test_models_as_json_are_the_whole_catalog_best_first(capsys):
    code, text, _ = run(capsys, "models", "--json")
    ranked = ranked_models(text)
    assert code == ExitCode.DONE
    assert len(ranked) == len(catalog())
    assert ranked[0].verdict == "good"
    assert ranked[0].model.name == "Qwen/Qwen3.5-9B"


def test_words_after_models_are_searched_for(capsys):
    for words in (("coder", "7b"), ("search", "coder", "7b"), ("search", "coder 7b")):
        _, text, _ = run(capsys, "models", *words, "--json")
        assert [one.model.name for one in ranked_models(text)] == ["Qwen/Qwen2.5-Coder-7B-Instruct"]


@pytest.mark.full
def test_the_target_changes_the_list(capsys):
    _, phone, _ = run(capsys, "models", "--target", "phone", "--ram-gib", "6", "--json")
    _, desktop, _ = run(capsys, "models", "--target", "desktop", "--ram-gib", "64", "--json")
    first, second = ranked_models(phone)[0], ranked_models(desktop)[0]
    assert first.model.parameters < second.model.parameters / 3


@pytest.mark.full
def test_what_was_fetched_is_marked(capsys):
    fetched_model_dir("Qwen/Qwen3-8B").mkdir(parents=True)
    _, text, _ = run(capsys, "models", "--json")
    assert {one.model.name for one in ranked_models(text) if one.here} == {"Qwen/Qwen3-8B", EMBEDDED}
    _, shown, _ = run(capsys, "models")
    assert "on this machine" in shown


@pytest.mark.full
def test_the_list_shows_license_gate_sizes_and_how_to_get_the_first(capsys):
    code, text, _ = run(capsys, "models", "--all")
    assert code == ExitCode.DONE
    assert "llama3.1, gated" in text
    assert "Apache-2.0" in text
    assert ("no GGUF export yet" in text) == any(not model.exports for model in catalog())
    assert "download 16.38 GB" in text
    assert "burnish models fetch Qwen/Qwen3.5-9B" in text
    _, short, _ = run(capsys, "models")
    assert len(short) < len(text) / 3


@pytest.mark.full
def test_the_short_list_names_the_command_that_shows_all_of_the_same(capsys):
    _, short, _ = run(capsys, "models", "instruct", "apache-2.0", "--target", "phone", "--ram-gib", "8")
    (line,) = [line for line in short.splitlines() if " more: " in line]
    count, _, command = line.partition(" more: ")
    assert command == "burnish models search instruct apache-2.0 --target phone --ram-gib 8 --all"
    options = ("--target", "phone", "--ram-gib", "8", "--json")
    _, text, _ = run(capsys, "models", "search", "instruct", "apache-2.0", *options)
    assert len(ranked_models(text)) == int(count) + 10
    _, whole, _ = run(capsys, *command.split()[1:])
    assert " more: " not in whole


def test_facts_that_no_source_confirmed_are_told_until_the_model_is_here(capsys, tmp_path):
    name = "LiquidAI/LFM2.5-2.6B"
    unsure = next(model.unchecked for model in catalog() if model.name == name)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(f"[model]\npath = '{name}'\n[data]\nfiles = ['rows.jsonl']\n", encoding="utf-8")

    def told(*command):
        return unsure in " ".join(run(capsys, *command)[1].split())

    commands = [("models", "lfm2.5-2.6b"), ("plan", recipe), ("suggest", "--model", name)]
    assert [told(*command) for command in commands] == [True, True, True]
    assert not told("models", "lfm2.5-1.2b")
    fetched_model_dir(name).mkdir(parents=True)
    assert not told("models", "lfm2.5-2.6b")


def test_a_search_without_a_hit_says_what_to_do(capsys):
    code, text, _ = run(capsys, "models", "zebra")
    assert code == ExitCode.DONE
    assert "burnish models fetch OWNER/NAME" in text


@pytest.mark.parametrize(
    "options",
    [("--target", "fridge"), ("--ram-gib", "-3"), ("--context", "7")],
)
def test_impossible_targets_are_refused(capsys, options):
    for command in ("models", "suggest"):
        code, _, error = run(capsys, command, *options)
        assert code == ExitCode.USAGE
        assert options[1].lstrip("-") in error


def test_an_impossible_file_type_is_refused(capsys):
    code, _, error = run(capsys, "suggest", "--quant", "Q9")
    assert code == ExitCode.USAGE
    assert "Q4_K_M" in error


def test_suggest_writes_a_recipe_that_loads(capsys, tmp_path, tiny, chats):
    file = tmp_path / "recipe.toml"
    code, text, _ = run(capsys, "suggest", "--model", tiny, "--data", chats, "--target", "phone", "--out", file)
    recipe = load_recipe(file)
    assert code == ExitCode.DONE
    assert recipe.model.path == str(tiny)
    assert recipe.data.files == [str(chats)]
    assert recipe.target.kind == "phone"
    assert recipe.target.ram_gib == 6
    assert recipe.train.epochs > 1
    assert recipe.data.max_length < 256  # the rows are short, and no default of 1,024
    assert "adapter.rank" in text
    assert "It fits" in text
    assert "burnish train" in text


@pytest.mark.full
def test_long_values_are_folded_not_cut(capsys, tmp_path):
    folder = make_llama(tmp_path / ("a-rather-long-name-" * 4) / "base")
    _, text, _ = run(capsys, "suggest", "--model", folder)
    assert "…" not in text
    # Folded within its column: the pieces of a line's path stand in the second column of lines that follow.
    assert "".join(text.split()).count("long-name-") >= 1
    pieces = "".join(line[text.index(text.split()[1]) :].split(" ")[0] for line in text.splitlines()[:12])
    assert str(folder).replace(" ", "")[-20:] in "".join(pieces.split())


def test_a_recipe_is_never_overwritten(capsys, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text("mine", encoding="utf-8")
    code, _, error = run(capsys, "suggest", "--out", file)
    assert code == ExitCode.USAGE
    assert "already exists" in error
    assert file.read_text(encoding="utf-8") == "mine"


@pytest.mark.full
def test_suggest_as_json_is_a_suggestion(capsys):
    code, text, _ = run(capsys, "suggest", "--json")
    suggestion = Suggestion.model_validate_json(text)
    assert code == ExitCode.DONE
    assert suggestion.model == "Qwen/Qwen3.5-9B"
    assert json.loads(text)["choices"][0]["key"] == "model.path"


def test_a_file_type_that_was_asked_for_is_in_the_recipe(capsys):
    _, text, _ = run(capsys, "suggest", "--quant", "Q8_0", "--json")
    suggestion = Suggestion.model_validate_json(text)
    assert 'quants = ["Q8_0"]' in suggestion.recipe
    assert next(choice for choice in suggestion.choices if choice.key == "export.quants").reason.startswith("You chose")


def test_rows_are_measured_with_the_model_where_it_is_here_and_else_with_the_embedded_one(
    capsys, monkeypatch, tiny, chats
):
    used = []

    def profile_dataset(_files, _validation, model, **_options):
        used.append(model)
        return TINY

    monkeypatch.setattr("burnish_engine.data.profile.profile_dataset", profile_dataset)
    _, text, _ = run(capsys, "suggest", "--data", chats, "--json")
    assert any("embedded model's tokenizer" in warning for warning in Suggestion.model_validate_json(text).warnings)
    _, text, _ = run(capsys, "suggest", "--data", chats, "--model", tiny, "--json")
    assert not any("tokenizer" in warning for warning in Suggestion.model_validate_json(text).warnings)
    assert used == ["embedded", str(tiny)]


def test_what_does_not_fit_ends_with_its_exit_code_and_what_would(capsys, monkeypatch):
    monkeypatch.setattr("burnish_engine.hardware.probe.probe", lambda: CPU_16)
    code, text, _ = run(capsys, "suggest", "--model", "Qwen/Qwen3-14B")
    assert code == ExitCode.DOES_NOT_FIT
    assert "does not fit" in text
    assert "burnish suggest --model" in text
    monkeypatch.setattr("burnish_engine.hardware.probe.probe", lambda: machine(ram_gib=1, cores=1))
    code, text, _ = run(capsys, "suggest")
    assert code == ExitCode.DOES_NOT_FIT
    assert "larger machine" in text


def test_missing_data_and_unknown_models_are_refused(capsys, tmp_path):
    code, _, error = run(capsys, "suggest", "--data", tmp_path / "none.jsonl")
    assert code == ExitCode.USAGE
    assert "none.jsonl" in error
    code, _, error = run(capsys, "suggest", "--model", "Nobody/Nothing")
    assert code == ExitCode.USAGE
    assert "Nobody/Nothing" in error
    for name, near in (("qwn3-14b", "Qwen/Qwen3-14B"), ("nothing-like-it", "burnish models search --all")):
        code, _, error = run(capsys, "suggest", "--model", name)
        assert code == ExitCode.USAGE
        assert near in error


@pytest.mark.full
def test_a_model_that_is_not_here_is_fetched_before_training(capsys, tmp_path):
    for model, fetches in (("Qwen3 0.6B", True), ("embedded", False)):
        out = tmp_path / f"{fetches}.toml"
        _, text, _ = run(capsys, "suggest", "--model", model, "--out", out)
        last = text.partition("Wrote")[2]
        assert "burnish train" in last
        assert ("burnish models fetch Qwen/Qwen3-0.6B" in last) is fetches


@pytest.mark.parametrize(("objective", "column"), [("dpo", "chosen"), ("kto", "label")])
def test_columns_that_an_objective_needs_are_named_where_they_are_not_found(capsys, tmp_path, tiny, objective, column):
    rows = [{"question": f"Lamp {n}?", "good_answer": f"Lit, {n}.", "bad_answer": "No."} for n in range(20)]
    odd = write_jsonl(tmp_path / "odd.jsonl", rows)
    code, _, wrong = run(capsys, "inspect", odd, "--model", tiny, "--objective", objective)
    assert code == ExitCode.DATA
    assert f'"{column}=..."' in wrong
    assert f'"{column}=..."' not in run(capsys, "inspect", odd, "--model", tiny)[2]


def test_replies_that_are_compared_are_not_called_learned(capsys, pairs, tiny):
    for objective, said in (("dpo", "rejected"), ("sft", "learned text")):
        code, text, _ = run(capsys, "inspect", pairs, "--model", tiny, "--objective", objective)
        assert code == ExitCode.DONE
        assert said in text.rpartition("First ")[2].partition("\n")[0]


@pytest.fixture
def pairs(tmp_path):
    """A dataset of preferences."""
    rows = [{"prompt": f"Lamp {n}?", "chosen": f"It is lit, {n}.", "rejected": "No."} for n in range(20)]
    return write_jsonl(tmp_path / "pairs.jsonl", rows)


@pytest.mark.full
def test_a_recipe_for_mixed_rows_says_what_it_lacks_and_its_plan_is_refused_like_its_run(
    capsys, tmp_path, pairs, chats
):
    out = tmp_path / "my.toml"
    data = ("--data", pairs, "--data", chats)
    _, text, _ = run(capsys, "suggest", "--model", "embedded", *data, "--out", out)
    assert 'data.shape = "preference"' in text.replace("\n", " ")
    assert "a data.max_length that holds the rejected" in text.replace("\n", " "), "only chosen replies were measured"
    assert "learn" in text.partition("Wrote")[2].partition("burnish train")[0], "what comes before training"
    code, _, wrong = run(capsys, "plan", out)
    assert code == ExitCode.DATA
    assert 'data.shape = "preference"' in wrong


@pytest.mark.full
def test_unclear_columns_name_the_way_that_the_command_has(capsys, tmp_path, tiny):
    unclear = write_jsonl(tmp_path / "rows.jsonl", [{"foo": f"Lamp {n}?", "bar": f"Lit, {n}."} for n in range(20)])
    code, _, wrong = run(capsys, "inspect", unclear, "--model", tiny)
    assert code == ExitCode.DATA
    assert "--column" in wrong
    assert "--broken-rows" not in wrong
    answers = ["--column", "prompt=foo", "--column", "completion=bar"]
    assert run(capsys, "inspect", unclear, "--model", tiny, *answers)[0] == ExitCode.DONE
    code, _, wrong = run(capsys, "suggest", "--model", tiny, "--data", unclear)
    assert code == ExitCode.DATA
    assert "burnish recipe new" in wrong
    broken = tmp_path / "broken.jsonl"
    broken.write_text(unclear.read_text(encoding="utf-8") + "{", encoding="utf-8")
    assert "--broken-rows" in run(capsys, "inspect", broken, "--model", tiny, *answers)[2]
