"""From a trained run to files that are proven, talked to, and found out when they were changed."""

import json
import shutil
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader

from burnish_engine.cli.main import main
from burnish_engine.cli.results import export
from burnish_engine.cli.terminal import typed
from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.facts.facts import FidelityReport
from burnish_engine.contract.recipe.recipe_file import dump_recipe
from burnish_engine.contract.run.events import EvaluationDone
from burnish_engine.export.job import export_gguf
from burnish_engine.export.verify.made_from import MadeFrom
from burnish_engine.export.verify.reference import ExportedModel
from burnish_engine.models.checkpoint.gguf_file.header import read_header
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.runs.events_file import EventWriter
from burnish_engine.runs.jobs.export_job import read_export_job
from burnish_engine.runs.store import open_run

from support.hubs.upload_server import UploadHub
from support.models.export import break_epsilon
from support.models.tiny import make_llama
from support.runs.tiny_runs import tiny_recipe

pytestmark = pytest.mark.usefixtures("short_replies")

SAY = ["--prompt", "My lamp number 3 is broken?", "--max-tokens", "8"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run with an exported Q8_0, in a home of its own; each test works on a copy of it."""
    folder = tmp_path_factory.mktemp("trained")
    # 256 wide: rows fill the blocks of every quantization, as those of real models do.
    make_llama(folder / "base", hidden_size=256, intermediate_size=512)
    recipe = folder / "recipe.toml"
    recipe.write_text(dump_recipe(tiny_recipe(folder, max_steps=10, epochs=10.0)), encoding="utf-8")
    run = folder / "home" / "runs" / "tuned"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BURNISH_HOME", str(folder / "home"))
        patch.setenv("HF_HUB_OFFLINE", "1")
        assert main(["train", str(recipe), "--run-dir", str(run)]) == 0
        assert main(["export", str(run), "--to", "gguf", "--quant", "Q8_0"]) == 0
    return run


@pytest.fixture
def run(trained, burnish_home):
    """The run as `last` in this test's home."""
    shutil.copytree(trained, burnish_home / "runs" / "tuned")
    return open_run("last")


@pytest.fixture
def gguf(run):
    """Its exported file."""
    (file,) = run.export.glob("*.gguf")
    return file


def said(capsys, *arguments):
    """What a command that succeeds prints on stdout."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


def one_paragraph(error):
    """Whether an error is one paragraph, not a traceback; the terminal may have broken it into lines."""
    return error.strip() and "\n\n" not in error.strip() and "Traceback" not in error and "bug in Burnish" not in error


@pytest.mark.full
def test_the_export_left_a_file_and_its_proof(run, gguf):
    report = FidelityReport.model_validate_json((run.export / "fidelity.json").read_text(encoding="utf-8"))
    assert report.passed
    assert [(file.file, file.quant, file.bytes) for file in report.files] == [(gguf.name, "Q8_0", gguf.stat().st_size)]
    assert sorted(path.name for path in run.export.iterdir()) == sorted(
        ["README.md", "SHA256SUMS", "fidelity.json", "job.json", "report.html", gguf.name]
    )


@pytest.mark.full
def test_the_run_and_its_file_are_talked_to(gguf, capsys):
    by_run = said(capsys, "chat", "last", "--exported", *SAY)
    by_file = said(capsys, "chat", gguf, *SAY)
    assert by_run == by_file
    assert by_run.strip()


@pytest.mark.full
def test_an_export_in_a_log_tells_its_stages_its_files_and_how_to_try_them(run, capsys, tmp_path):
    text = said(capsys, "export", "last", "--quant", "Q8_0")
    (file,) = run.export.glob("*.gguf")
    assert str(file) in text.splitlines()
    assert text.splitlines()[-1] == "Try it: burnish chat tuned --exported"
    stages = ["Writing the 16-bit file...", "Running the trained model...", "Making Q8_0...", "Checking Q8_0..."]
    assert [text.splitlines().count(stage) for stage in stages] == [1, 1, 1, 1]

    elsewhere = tmp_path / "out"
    text = said(capsys, "export", "last", "--quant", "Q8_0", "--out", elsewhere)
    assert str(elsewhere / file.name) in text.splitlines()
    assert text.splitlines()[-1] == f"Try it: burnish chat {typed(elsewhere / file.name)}"
    text = said(capsys, "export", "last", "--to", "safetensors", "--out", elsewhere)
    assert text.splitlines()[-1] == f"Try it: burnish chat {typed(elsewhere / 'safetensors')}"


def test_where_the_files_would_go_is_looked_at_before_anything_else(run, capsys, tmp_path, monkeypatch):
    """By a plan and an export alike: no file in the place of a folder, and room for what the plan counts."""
    file = tmp_path / "file"
    file.touch()
    for place in (file, file / "below"):
        for options in (["--plan"], [], ["--to", "adapter"]):
            assert main(["export", "last", *options, "--out", str(place)]) == 2
            error = capsys.readouterr().err
            assert one_paragraph(error)
            assert f"{file} is a file" in error
    new = tmp_path / "new" / "below"
    said(capsys, "export", "last", "--plan", "--out", new)
    assert not new.parent.exists()
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: shutil._ntuple_diskusage(10**9, 10**9, 0))
    assert main(["export", "last", "--plan", "--out", str(new)]) == 15
    shown = capsys.readouterr()
    assert "In all" in shown.out
    assert str(tmp_path) in shown.err


def test_the_machine_is_kept_awake_while_files_are_made(run, monkeypatch):
    seen, made = [], run.export / "adapter" / "adapter_model.safetensors"

    @contextmanager
    def lock(why):
        seen.append((why, made.is_file()))
        yield
        seen.append((why, made.is_file()))

    monkeypatch.setattr(export, "kept_awake", lock)
    assert main(["export", "last", "--to", "adapter"]) == 0
    assert [there for _, there in seen] == [False, True]
    assert all("tuned" in why for why, _ in seen)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs a folder that nobody can write to")
def test_a_place_that_cannot_be_written_is_no_plan(run, capsys):
    assert main(["export", "last", "--plan", "--out", "/proc/burnish"]) == 15
    assert one_paragraph(capsys.readouterr().err)


@pytest.mark.full
def test_the_file_is_verified_again(run, gguf, capsys):
    shown = " ".join(said(capsys, "verify", gguf, "--against", "last").split())
    assert "verified" in shown
    assert "is the file that was proven" in shown
    report = FidelityReport.model_validate_json(said(capsys, "verify", gguf, "--against", "last", "--json"))
    written = FidelityReport.model_validate_json((run.export / "fidelity.json").read_text(encoding="utf-8"))
    assert report.passed
    assert report.adapter_sha256 == written.adapter_sha256
    assert report.files[0].sha256 == written.files[0].sha256
    assert report.notes == written.notes
    writer = EventWriter(run.events)
    writer.write(EvaluationDone(step=10, loss=9.5, tokens=188, seconds=1.0))
    writer.close()
    assert "training reported 9.500 nats" in " ".join(said(capsys, "verify", gguf, "--against", "last").split())


@pytest.mark.full
def test_ollama_gets_a_modelfile(run, capsys):
    said(capsys, "export", "last", "--to", "ollama", "--quant", "Q8_0")
    modelfile = run.export / "ollama-Q8_0" / "Modelfile"
    first, *_ = modelfile.read_text(encoding="utf-8").splitlines()
    assert (modelfile.parent / first.removeprefix("FROM ./")).is_file()
    assert 'PARAMETER stop """<|im_end|>"""' in modelfile.read_text(encoding="utf-8")


@pytest.mark.full
@pytest.mark.parametrize("to", ["gguf", "ollama"])
def test_json_is_one_document(run, capsys, tmp_path, to):
    """`json.loads` accepts nothing before or after it."""
    printed = said(capsys, "export", "last", "--to", to, "--quant", "Q8_0", "--out", tmp_path / "out", "--json")
    report = FidelityReport.model_validate(json.loads(printed))
    assert report.passed
    assert (tmp_path / "out" / report.files[0].file).is_file()


def test_a_plan_tells_exact_sizes_and_writes_nothing(run, gguf, capsys):
    before = sorted(run.export.iterdir())
    text = said(capsys, "export", "last", "--plan", "--quant", "Q8_0", "--quant", "Q4_K_M")
    assert f"Q8_0: {gguf.stat().st_size:,} bytes" in text
    for stage in ("Writing F16", "Running the trained model", "Making Q4_K_M", "Checking Q4_K_M"):
        assert stage in text
    assert "of memory" in text
    assert sorted(run.export.iterdir()) == before


@pytest.mark.full
def test_several_types_are_weighed_warned_of_and_one_is_suggested(run, capsys):
    text = " ".join(said(capsys, "export", "last", "--quant", "Q4_K_M", "--quant", "Q2_K").split())
    assert "Q2_K has less than four bits a weight" in text
    assert "Best for a laptop with 16 GiB: base-tuned-" in text
    assert (run.export / "base-tuned.imatrix").is_file()
    report = FidelityReport.model_validate_json((run.export / "fidelity.json").read_text(encoding="utf-8"))
    assert {file.quant: file.importance for file in report.files} == {"Q8_0": False, "Q4_K_M": True, "Q2_K": True}
    said(capsys, "export", "last", "--quant", "Q4_K_M", "--no-importance", "--out", run.export / "plain")
    assert not list((run.export / "plain").glob("*.imatrix"))


def test_lm_studio_and_the_adapter_alone(run, gguf, capsys):
    said(capsys, "export", "last", "--to", "lmstudio", "--quant", "Q8_0")
    (placed,) = (run.export / "lmstudio").rglob("*.gguf")
    assert placed.read_bytes() == gguf.read_bytes()
    assert len(placed.relative_to(run.export / "lmstudio").parts) == 3  # publisher, repository, file
    said(capsys, "export", "last", "--to", "lora-gguf")
    (adapter,) = run.export.glob("*-lora.gguf")
    assert read_header(adapter).metadata["general.type"] == "adapter"


def test_a_push_is_an_act_of_its_own(run, gguf, capsys, monkeypatch):
    hub = UploadHub()
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("HF_TOKEN", hub.token)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    try:
        for own in ("1", ""):
            monkeypatch.setenv("BURNISH_OFFLINE", own)
            assert main(["export", "last", "--push", "me/tune"]) == ExitCode.ENVIRONMENT
            text = " ".join(capsys.readouterr().err.split())
            assert "me/tune is not pushed: the environment asks for no network." in text
            assert "or set BURNISH_OFFLINE=0" in text
            assert hub.repositories == {}
        monkeypatch.setenv("BURNISH_OFFLINE", "0")
        assert "/me/tune/" in said(capsys, "export", "last", "--push", "me/tune")
        assert hub.repositories["me/tune"][gguf.name] == gguf.read_bytes()
    finally:
        hub.close()


def _move_rows(path):
    """Move rows of a tensor to where they do not belong, as a wrong permutation would."""
    reader = GGUFReader(path, "r+")
    for tensor in reader.tensors:
        if tensor.name.endswith(("attn_q.weight", "ffn_down.weight", "attn_output.weight")):
            tensor.data[:] = np.roll(tensor.data, len(tensor.data) // 3, axis=0)
    reader.data.flush()


def _swap_layers(path):
    reader = GGUFReader(path, "r+")
    tensors = {tensor.name: tensor.data for tensor in reader.tensors}
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        first, second = tensors[f"blk.0.{name}.weight"], tensors[f"blk.1.{name}.weight"]
        kept = first.copy()
        first[:] = second
        second[:] = kept
    reader.data.flush()


@pytest.mark.full
@pytest.mark.parametrize("sabotage", [_move_rows, _swap_layers], ids=["rows", "layers"])
def test_a_file_whose_tensors_were_moved_is_refused(run, gguf, capsys, sabotage):
    sabotage(gguf)
    assert main(["verify", str(gguf), "--against", "last"]) == 14
    error = capsys.readouterr().err
    assert one_paragraph(error)
    assert "is not the model that tuned trained" in " ".join(error.split())
    assert gguf.is_file()  # verify changes no file
    # With --json stdout is still one document, and it says the same.
    assert main(["verify", str(gguf), "--against", "last", "--json"]) == 14
    assert json.loads(capsys.readouterr().out)["passed"] is False


@pytest.mark.full
def test_another_models_file_is_refused(run, capsys, tmp_path):
    """Every name and size is the same: only the numbers tell."""
    base = make_llama(tmp_path / "other", seed=9, hidden_size=256, intermediate_size=512)
    report = export_gguf(
        ExportedModel(open_model(str(base)), None, held_out=[list(range(40))], threads=1),
        tmp_path / "out",
        "x",
        ["Q8_0"],
    )
    assert main(["verify", str(tmp_path / "out" / report.files[0].file), "--against", "last"]) == 14
    assert one_paragraph(capsys.readouterr().err)


def test_a_file_about_which_too_little_is_known_is_neither_verified_nor_refused(run, gguf, capsys, monkeypatch):
    monkeypatch.setattr(MadeFrom, "of", lambda *_arguments: MadeFrom(None, False, False))
    assert main(["verify", str(gguf), "--against", "last"]) == 14
    shown = capsys.readouterr()
    assert "not proven" in shown.out
    assert "verified" not in shown.out
    assert "refused" not in shown.out
    assert one_paragraph(shown.err)
    assert "could not be shown" in " ".join(shown.err.split())


def test_a_cut_file_is_damage_not_infidelity(run, gguf, capsys):
    gguf.write_bytes(gguf.read_bytes()[: gguf.stat().st_size // 2])
    assert main(["verify", str(gguf), "--against", "last"]) == 12
    assert one_paragraph(capsys.readouterr().err)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("command", ["chat", "verify"])
def test_a_file_that_crashes_llama_cpp_is_told(run, gguf, capsys, command):
    """A negative epsilon fails an assertion, which ends the process it happens in."""
    break_epsilon(gguf)
    arguments = ["chat", str(gguf), *SAY] if command == "chat" else ["verify", str(gguf), "--against", "last"]
    assert main(arguments) == 12
    error = capsys.readouterr().err
    assert one_paragraph(error)
    assert "crashes over" in error
    assert gguf.name in error


def test_an_export_leaves_word_of_how_it_ended(run, capsys):
    job = read_export_job(run)
    assert (job.status, job.quants, job.exit_code) == ("finished", ["Q8_0"], 0)
    assert job.report.passed
    run.held_out.unlink()
    assert main(["export", "last", "--quant", "Q8_0"]) == 2
    job = read_export_job(run)
    assert (job.status, job.exit_code) == ("failed", 2)
    assert "held_out.json" in job.message
    assert "held_out.json" in capsys.readouterr().err
