"""Models of other programs: where they are found, what is left out, and what is said of them."""

import json
import os
import shutil

import pytest

from burnish_engine.cli.main import main
from burnish_engine.contract.model_places import hub_cache, model_dir
from burnish_engine.contract.paths import cached_model_name, fetched_model_dir, models_dir
from burnish_engine.hub import local_models
from burnish_engine.hub.judge_local import SEVERAL_FILES, judge_local
from burnish_engine.hub.local_models import find_local_models, ollama_folder
from burnish_engine.models.checkpoint.source import open_model

from support.machines.advice import CPU_16, LAPTOP, dataset
from support.models.export import make_model, write_16_bit
from support.models.tiny import make_llama


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home folder in which other programs may keep models."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "OLLAMA_MODELS"):
        monkeypatch.delenv(variable, raising=False)
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(tmp_path))
    return tmp_path


def cached(home, name, revision="a1", *, main=True):
    """A folder of the hub's cache for a model."""
    repository = home / ".cache" / "huggingface" / "hub" / f"models--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True, exist_ok=True)
    if main:
        (repository / "refs" / "main").write_text(revision, encoding="utf-8")
    snapshot = repository / "snapshots" / revision
    snapshot.mkdir(parents=True)
    return snapshot


def pulled(home, *path, size=5, digest="sha256:none"):
    """A manifest of Ollama."""
    file = ollama_folder().joinpath("manifests", *path)
    file.parent.mkdir(parents=True, exist_ok=True)
    layers = [{"mediaType": "application/vnd.ollama.image.model", "size": size, "digest": digest},
              {"mediaType": "application/vnd.ollama.image.license", "size": 99}]  # fmt: skip
    file.write_text(json.dumps({"layers": layers}), encoding="utf-8")
    return file


def test_nothing_is_found_where_nothing_is(home):
    assert find_local_models() == []


def test_the_snapshot_of_the_main_branch_is_found_by_its_name(home):
    for revision, is_main in (("b2", True), ("a1", False)):
        snapshot = cached(home, "Acme/Tiny-1", revision, main=is_main)
        (snapshot / "config.json").write_text("{}", encoding="utf-8")
        (snapshot / "model.safetensors").write_bytes(b"12345")
    (cached(home, "Acme/Only-Tokenizer") / "config.json").write_text("{}", encoding="utf-8")
    (hub_cache() / "datasets--acme--rows" / "snapshots" / "a").mkdir(parents=True)
    (found,) = find_local_models()
    assert (found.name, found.place, found.folder.name, found.bytes) == ("Acme/Tiny-1", "hub_cache", "b2", 5)
    assert not found.gguf_only
    assert cached_model_name(found.folder) == "Acme/Tiny-1"
    assert cached_model_name(home) == ""


@pytest.mark.parametrize("name", ["Acme/Tiny-1", "gpt2"])
def test_a_listed_model_is_opened_by_its_name(home, name):
    snapshot = cached(home, name)
    make_llama(snapshot)
    (found,) = find_local_models()
    assert found.name == name
    assert open_model(name).folder == snapshot
    assert model_dir(name) == snapshot
    for odd in ("../../etc", "Acme/..", "Acme/Tiny-1/x", "Acme/Other", ""):
        assert model_dir(odd).parent == models_dir()


def test_a_model_that_was_fetched_comes_before_one_of_another_program(home):
    (cached(home, "Acme/Tiny-1") / "config.json").write_text("{}", encoding="utf-8")
    studio = home / ".lmstudio" / "models" / "Acme" / "Tiny-1"
    studio.mkdir(parents=True)
    (studio / "config.json").write_text("{}", encoding="utf-8")
    (studio / "model.safetensors").write_bytes(b"12345")
    assert model_dir("Acme/Tiny-1") == studio  # the cache holds no weights
    fetched_model_dir("Acme/Tiny-1").mkdir(parents=True)
    assert model_dir("Acme/Tiny-1") == fetched_model_dir("Acme/Tiny-1")


def test_a_manifest_that_is_no_size_is_left_out(home):
    for number, size in enumerate(("1e999", "-5", "9" * 4000, "NaN", '"x"')):
        file = pulled(home, "registry.ollama.ai", "library", "odd", str(number))
        file.write_text(f'{{"layers": [{{"mediaType": "x.image.model", "size": {size}}}]}}', encoding="utf-8")
    assert find_local_models() == []


def test_names_of_another_encoding_are_left_out(home, monkeypatch):
    pulled(home, "registry.ollama.ai", "library", "tiny", "1b")
    pulled(home, "registry.ollama.ai", "library", "odd", "1b")
    made = local_models.FoundModel
    monkeypatch.setattr(local_models, "FoundModel", lambda name, *rest, **more: made(
        name.replace("odd", "\udcff"), *rest, **more
    ))  # fmt: skip
    assert [one.name for one in find_local_models()] == ["tiny:1b"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
@pytest.mark.timeout(60)
def test_a_pipe_in_place_of_a_file_is_not_waited_for(home):
    snapshot = cached(home, "Acme/Tiny", main=False)
    os.mkfifo(snapshot.parent.parent / "refs" / "main")
    (snapshot / "config.json").write_text("{}", encoding="utf-8")
    os.mkfifo(snapshot / "model.safetensors")
    folder = ollama_folder() / "manifests" / "r" / "library" / "m"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "1b")
    assert find_local_models() == []


def test_no_program_has_more_models_than_are_listed(home, monkeypatch):
    monkeypatch.setattr(local_models, "_MOST", 3)
    for number in range(9):
        folder = home / ".lmstudio" / "models" / f"p{number % 3}" / f"m{number}"
        folder.mkdir(parents=True)
        (folder / "a.gguf").write_bytes(b"GGUF")
    assert len(find_local_models()) == 3


def test_files_of_lm_studio_and_ollama_are_found_and_damaged_ones_left_out(home):
    folder = home / ".lmstudio" / "models" / "acme" / "Tiny-GGUF"
    folder.mkdir(parents=True)
    (folder / "tiny-Q4.gguf").write_bytes(b"GGUF...")
    pulled(home, "registry.ollama.ai", "library", "tiny", "1b")
    pulled(home, "registry.ollama.ai", "acme", "tuned", "latest")
    pulled(home, "registry.ollama.ai", "library", "broken", "x").write_text("{", encoding="utf-8")
    pulled(home, "registry.ollama.ai", "library", "odd", "x").write_text('{"layers": [1]}', encoding="utf-8")
    found = find_local_models()
    assert [(one.name, one.place) for one in found] == [
        ("acme/Tiny-GGUF", "lm_studio"), ("acme/tuned:latest", "ollama"), ("tiny:1b", "ollama"),
    ]  # fmt: skip
    assert all(one.gguf_only for one in found)
    assert {one.verdict for one in judge_local(found, CPU_16, LAPTOP)} == {"unusable"}


def test_a_gguf_of_lm_studio_or_ollama_is_named_by_its_file_and_judged(home):
    source = make_model(home / "base", "llama")
    file = write_16_bit(source, None, home)
    folder = home / ".lmstudio" / "models" / "acme" / "Tiny-GGUF"
    folder.mkdir(parents=True)
    shutil.copy(file, folder / "tiny.gguf")
    (folder / "mmproj-tiny.gguf").write_bytes(b"GGUF")
    digest = "sha256:" + "a" * 64
    pulled(home, "registry.ollama.ai", "library", "tiny", "1b", digest=digest)
    blob = ollama_folder() / "blobs" / digest.replace(":", "-")
    blob.parent.mkdir()
    shutil.copy(file, blob)
    found = find_local_models()
    assert [one.path for one in found] == [str(folder / "tiny.gguf"), str(blob)]
    assert {one.verdict for one in judge_local(found, CPU_16, LAPTOP)} <= {"good", "tight"}
    assert open_model(str(blob)).spec == source.spec
    shutil.copy(file, folder / "other.gguf")
    several = find_local_models()[0]
    assert judge_local([several], CPU_16, LAPTOP)[0].reason == SEVERAL_FILES


def test_burnish_s_own_folder_and_named_ones_are_listed(home, burnish_home):
    make_llama(models_dir() / "Acme--Fetched")
    (models_dir() / ".partial" / "Acme--Half").mkdir(parents=True)
    named = make_llama(home / "elsewhere" / "mine")
    found = find_local_models([str(named), str(home / "gone")])
    assert [(one.name, one.place) for one in found] == [("Acme/Fetched", "burnish"), ("mine", "folder")]
    own, mine = judge_local(found, CPU_16, LAPTOP)
    assert (own.folder, mine.folder) == ("Acme/Fetched", str(named))
    assert own.verdict == mine.verdict == "good"
    assert own.parameters > 0


def test_the_rows_are_what_it_is_judged_for(home):
    make_llama(cached(home, "Acme/Tiny"), max_position_embeddings=8192)
    found = find_local_models()
    short, long = (
        judge_local(found, CPU_16, LAPTOP, dataset=dataset(1000, [(length, 1000)]))[0] for length in (64, 4096)
    )
    assert long.train_bytes > short.train_bytes


def test_a_named_cache_is_looked_in(home, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(home / "other"))
    assert hub_cache() == home / "other" / "hub"
    monkeypatch.setenv("HF_HUB_CACHE", str(home / "third"))
    assert hub_cache() == home / "third"


def test_a_cache_of_an_unknown_user_is_no_error(home, monkeypatch):
    for variable in ("HF_HOME", "OLLAMA_MODELS"):
        monkeypatch.setenv(variable, "~nobody-of-this-name/models")
    assert find_local_models() == []


def test_a_model_with_too_short_a_context_is_told(home):
    make_llama(cached(home, "Acme/Short"), max_position_embeddings=8)
    (short,) = judge_local(find_local_models(), CPU_16, LAPTOP)
    assert short.verdict == "unusable"
    assert "max_position_embeddings" in short.reason


def test_a_whole_model_is_judged_and_a_cut_one_refused(home, capsys):
    make_llama(cached(home, "Acme/Whole"))
    weights = make_llama(cached(home, "Acme/Cut")) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    whole, cut = judge_local(find_local_models(), CPU_16, LAPTOP)
    assert (whole.name, whole.verdict) == ("Acme/Whole", "good")
    assert whole.tokens_per_s > 0
    assert whole.train_bytes > whole.bytes
    assert (cut.name, cut.verdict) == ("Acme/Cut", "unusable")
    assert "model.safetensors" in cut.reason
    assert open_model(whole.folder).name == "Whole"
    assert main(["models", "local", "--json"]) == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)] == ["Acme/Whole", "Acme/Cut"]
    assert main(["models", "local"]) == 0
    assert "Acme/Cut" in capsys.readouterr().out
