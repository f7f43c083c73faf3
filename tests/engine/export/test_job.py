"""The whole export: finished files or none, with proof, whatever goes wrong on the way."""

import errno
import gc
import json
import shutil
from collections import namedtuple

import pytest
from safetensors.torch import load_file, save_file

from burnish_engine.contract.errors import FidelityError, NoSpaceError, SetupError, StoppedError, UsageError
from burnish_engine.contract.facts.facts import FidelityReport
from burnish_engine.contract.garbage import collect_seldom
from burnish_engine.export import job
from burnish_engine.export.base.staging import staging_folder
from burnish_engine.export.job import export_gguf
from burnish_engine.export.quantize import quantize
from burnish_engine.export.verify import report as report_module
from burnish_engine.export.verify.reference import ExportedModel
from burnish_engine.export.verify.verify import verify_file
from burnish_engine.models.checkpoint.gguf_file.header import read_header
from burnish_engine.models.gguf.gguf_runtime import GgufModel
from burnish_engine.runs.file_hashes import sha256_file

from support.models.export import make_adapter, make_model, rows, tuned_model

pytestmark = pytest.mark.usefixtures("short_replies")

MOMENTS = ("Writing the 16-bit file", "Running the trained model", "Checking F16", "Making Q8_0")
Usage = namedtuple("Usage", "total used free")


def visible(folder):
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def hidden(folder):
    return [path.name for path in folder.glob(".partial-*")]


@pytest.fixture(scope="module")
def exported(wide, wide_adapter, tmp_path_factory):
    out = tmp_path_factory.mktemp("exported") / "export"
    seen = []
    report = export_gguf(
        ExportedModel(
            wide,
            wide_adapter,
            held_out=rows(wide),
            probe_chats=[[{"role": "user", "content": "My lamp is broken?"}]],
            threads=1,
        ),
        out,
        "my model",
        ["Q8_0", "F16", "Q4_K_M"],
        progress=lambda what, share: seen.append((what, share)),
    )
    return out, report, seen


@pytest.mark.full
def test_files_have_their_names_and_their_proof(exported, wide):
    out, report, _ = exported
    assert visible(out) == ["fidelity.json", "my model-F16.gguf", "my model-Q4_K_M.gguf", "my model-Q8_0.gguf"]
    assert hidden(out) == []
    assert report.passed
    assert [file.quant for file in report.files] == ["Q8_0", "F16", "Q4_K_M"]
    for file in report.files:
        assert (out / file.file).stat().st_size == file.bytes
        assert sha256_file(out / file.file) == file.sha256
        assert file.tokens_per_s > 0
    assert report.token_mismatches == 0
    assert report.conversion_kl == report.files[1].mean_kl < 1e-6 < report.files[0].mean_kl
    assert FidelityReport.model_validate_json((out / "fidelity.json").read_text()) == report
    assert any("did not end" in note for note in report.notes)  # a random model never stops


def test_progress_only_grows_and_names_what_is_done(exported):
    _, _, seen = exported
    shares = [share for _, share in seen]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert set(MOMENTS) <= {what for what, _ in seen}


@pytest.mark.full
@pytest.mark.parametrize("same", [True, False])
def test_a_proven_file_that_is_gone_is_written_again_without_a_new_proof_if_it_has_the_same_bits(
    exported, wide, wide_adapter, tmp_path, same
):
    out, name = tmp_path / "export", "my model-Q8_0.gguf"
    shutil.copytree(exported[0], out)
    bits = sha256_file(out / name)
    (out / name).unlink()
    if not same:
        (out / "fidelity.json").write_text((out / "fidelity.json").read_text().replace(bits, "0" * 64))
    seen = []
    report = export_gguf(
        ExportedModel(wide, wide_adapter, held_out=rows(wide), threads=1), out, "my model", ["Q8_0"],
        progress=lambda what, _share: seen.append(what),
    )  # fmt: skip
    assert report.passed
    assert [file.file for file in report.files if file.quant == "Q8_0"] == [name]
    assert sha256_file(out / name) == bits == next(file.sha256 for file in report.files if file.quant == "Q8_0")
    assert ("Running the trained model" in seen) is not same
    assert {file.quant for file in FidelityReport.model_validate_json((out / "fidelity.json").read_text()).files} == {
        "Q8_0", "F16", "Q4_K_M",
    }  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("wanted", [["F16"], ["F16", "Q8_0"]])
def test_a_16_bit_file_that_is_gone_is_proven_again(exported, wide, wide_adapter, tmp_path, wanted):
    out = tmp_path / "export"
    shutil.copytree(exported[0], out)
    for quant in wanted:
        (out / f"my model-{quant}.gguf").unlink()
    seen = []
    report = export_gguf(
        ExportedModel(wide, wide_adapter, held_out=rows(wide), threads=1), out, "my model", wanted,
        progress=lambda what, _share: seen.append(what),
    )  # fmt: skip
    assert "Running the trained model" in seen
    assert [sha256_file(out / file.file) for file in report.files] == [file.sha256 for file in report.files]


@pytest.mark.full
def test_a_stop_after_files_were_written_again_leaves_none(exported, wide, wide_adapter, tmp_path, monkeypatch):
    out, real, made = tmp_path / "export", job.write_again, []
    shutil.copytree(exported[0], out)
    (out / "my model-Q8_0.gguf").unlink()
    monkeypatch.setattr(job, "write_again", lambda *given, **options: made.append(1) or real(*given, **options))
    with pytest.raises(StoppedError):
        export_gguf(
            ExportedModel(wide, wide_adapter, held_out=rows(wide), threads=1), out, "my model", ["Q8_0"],
            canceled=lambda: bool(made),
        )  # fmt: skip
    assert not (out / "my model-Q8_0.gguf").exists()


@pytest.mark.full
def test_a_second_export_adds_to_the_report(exported, wide, wide_adapter, tmp_path):
    out = tmp_path / "export"
    shutil.copytree(exported[0], out)
    export_gguf(ExportedModel(wide, wide_adapter, held_out=rows(wide), threads=1), out, "my model", ["Q4_0"])
    report = FidelityReport.model_validate_json((out / "fidelity.json").read_text())
    assert [file.quant for file in report.files] == ["Q8_0", "F16", "Q4_K_M", "Q4_0"]
    (out / "my model-Q8_0.gguf").unlink()
    other = make_adapter(wide, tmp_path / "other", seed=9)
    export_gguf(ExportedModel(wide, other, held_out=rows(wide), threads=1), out, "my model", ["Q4_0"])
    report = FidelityReport.model_validate_json((out / "fidelity.json").read_text())
    assert [file.quant for file in report.files] == ["Q4_0"]  # the others were made of another adapter


@pytest.mark.full
def test_the_16_bit_file_stays_only_where_asked_for(wide, tmp_path):
    usual = gc.get_threshold()
    collect_seldom()
    report = export_gguf(ExportedModel(wide, None, held_out=rows(wide), threads=1), tmp_path, "base", ["BF16"])
    assert gc.get_threshold() == usual, "garbage is collected at Python's own pace"
    assert visible(tmp_path) == ["base-BF16.gguf", "fidelity.json"]
    assert report.adapter_sha256 == ""
    export_gguf(ExportedModel(wide, None, held_out=rows(wide), threads=1), tmp_path / "b", "base", ["BF16", "Q8_0"])
    assert visible(tmp_path / "b") == ["base-BF16.gguf", "base-Q8_0.gguf", "fidelity.json"]


@pytest.mark.full
def test_weights_beyond_f16_go_through_bf16(tmp_path):
    import torch

    source = make_model(tmp_path / "base", "llama")
    model = tuned_model(source, None)
    with torch.no_grad():
        model.model.layers[0].input_layernorm.weight.mul_(1e-3)
        model.model.layers[0].self_attn.v_proj.weight.mul_(1e3)
        model.model.layers[0].self_attn.v_proj.weight[0, 0] = 70000.0
    model.save_pretrained(source.folder)
    with pytest.raises(FidelityError, match="F16 cannot hold"):
        export_gguf(ExportedModel(source, None, held_out=rows(source), threads=1), tmp_path / "a", "x", ["F16"])
    try:
        export_gguf(ExportedModel(source, None, held_out=rows(source), threads=1), tmp_path / "b", "x", ["Q8_0"])
    except FidelityError as error:
        assert "cannot hold" not in str(error)  # whether so coarse a file passes is another matter


@pytest.mark.full
@pytest.mark.parametrize("name", ["../../evil", "con", "a\nb", "", "ünï cödé", "x" * 300, "..", "C:\\x"])
def test_hostile_names_stay_in_the_folder(wide, tmp_path, name):
    out = tmp_path / "export"
    report = export_gguf(ExportedModel(wide, None, held_out=rows(wide, 1), threads=1), out, name, ["F16"])
    assert visible(tmp_path) == ["export"]
    assert visible(out) == sorted(["fidelity.json", report.files[0].file])
    with GgufModel(out / report.files[0].file, vocab_only=True) as model:
        assert "\n" not in model.metadata["general.name"]


@pytest.mark.full
@pytest.mark.parametrize("moment", MOMENTS)
def test_cancelling_at_any_moment_leaves_nothing(wide, wide_adapter, tmp_path, moment):
    now = []
    with pytest.raises(StoppedError):
        export_gguf(
            ExportedModel(wide, wide_adapter, held_out=rows(wide), threads=1),
            tmp_path,
            "x",
            ["Q8_0", "Q4_0"],
            progress=lambda what, _share: now.append(what),
            canceled=lambda: moment in now,
        )
    assert visible(tmp_path) == hidden(tmp_path) == []


def test_a_crash_leaves_nothing_and_old_leftovers_go(wide, tmp_path, monkeypatch):
    leftover = tmp_path / ".partial-abc"
    leftover.mkdir()
    (leftover / "F16.gguf").write_bytes(b"half")
    monkeypatch.setattr(job, "check_file", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        export_gguf(ExportedModel(wide, None, held_out=rows(wide, 1), threads=1), tmp_path, "x", ["Q8_0"])
    assert visible(tmp_path) == hidden(tmp_path) == []


def test_a_worker_that_dies_leaves_nothing(wide, tmp_path, monkeypatch):
    monkeypatch.setattr(quantize, "worker_command", lambda arguments: ["false"])
    with pytest.raises(SetupError, match="ended with status 1"):
        export_gguf(ExportedModel(wide, None, held_out=rows(wide, 1), threads=1), tmp_path, "x", ["Q8_0"])
    assert visible(tmp_path) == hidden(tmp_path) == []


@pytest.mark.full
def test_too_little_space_is_told_before_anything_is_written(wide, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage(10**9, 10**9, 1000))
    monkeypatch.setattr(job, "write_gguf", lambda *_, **__: pytest.fail("it began"))
    with pytest.raises(NoSpaceError, match=r"The export \(Q8_0, Q4_0, F16\) needs \d+ bytes.*1000 bytes"):
        export_gguf(ExportedModel(wide, None, held_out=rows(wide, 1)), tmp_path, "x", ["Q8_0", "Q4_0"])
    assert visible(tmp_path) == hidden(tmp_path) == []


@pytest.mark.full
def test_a_disk_that_fills_while_writing_is_no_space(wide, tmp_path, monkeypatch):
    from gguf import GGUFWriter

    def full(self, *_given):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(GGUFWriter, "write_padding", full)
    with pytest.raises(NoSpaceError, match="disk is full"):
        export_gguf(ExportedModel(wide, None, held_out=rows(wide, 1), threads=1), tmp_path, "x", ["Q8_0"])
    assert visible(tmp_path) == hidden(tmp_path) == []


@pytest.mark.full
def test_a_faulty_conversion_is_deleted_and_told(wide, wide_adapter, tmp_path, monkeypatch):
    monkeypatch.setattr("burnish_engine.models.checkpoint.gguf_file.changes.permute_rows", lambda weight, heads: weight)
    with pytest.raises(FidelityError, match=r"x-F16\.gguf: .*mean KL divergence") as caught:
        export_gguf(ExportedModel(wide, wide_adapter, held_out=rows(wide), threads=1), tmp_path, "x", ["Q8_0", "Q4_0"])
    assert caught.value.exit_code == 14
    assert visible(tmp_path) == ["fidelity.json"]
    report = json.loads((tmp_path / "fidelity.json").read_text())
    assert report["passed"] is False
    assert report["files"][0]["problems"]


@pytest.mark.full
def test_one_bad_type_does_not_take_the_good_ones_with_it(wide, tmp_path, monkeypatch):
    refusing(monkeypatch, "Q4_0")
    with pytest.raises(FidelityError, match=r"1 of 2 files.*x-Q4_0\.gguf: Too coarse\..*x-Q8_0\.gguf passed"):
        export_gguf(ExportedModel(wide, None, held_out=rows(wide, 1), threads=1), tmp_path, "x", ["Q4_0", "Q8_0"])
    assert visible(tmp_path) == ["fidelity.json", "x-Q8_0.gguf"]


def refusing(monkeypatch, quant):
    """Make the check refuse a type."""
    real = job.check_file

    def strict(made, *rest, **options):
        result, tokens = real(made, *rest, **options)
        if made.quant == quant:
            result = result.model_copy(update={"passed": False, "problems": ["Too coarse."]})
        return result, tokens

    monkeypatch.setattr(job, "check_file", strict)


@pytest.mark.full
@pytest.mark.parametrize("refused", ["Q4_K_M", "F16"])
def test_an_earlier_file_is_not_left_in_place_of_a_refused_one(exported, wide, tmp_path, monkeypatch, refused):
    out = tmp_path / "export"
    shutil.copytree(exported[0], out)
    refusing(monkeypatch, refused)
    with pytest.raises(FidelityError, match=rf"the earlier my model-{refused}\.gguf"):
        export_gguf(ExportedModel(wide, None, held_out=rows(wide, 1), threads=1), out, "my model", [refused])
    left = {"my model-F16.gguf", "my model-Q4_K_M.gguf", "my model-Q8_0.gguf"} - {f"my model-{refused}.gguf"}
    assert set(visible(out)) == {"fidelity.json", *left}
    report = FidelityReport.model_validate_json((out / "fidelity.json").read_text())
    assert [(file.file, file.passed) for file in report.files] == [(f"my model-{refused}.gguf", False)]


def test_types_that_were_never_made_leave_no_earlier_file_either(exported, wide, wide_adapter, tmp_path, monkeypatch):
    out = tmp_path / "export"
    shutil.copytree(exported[0], out)
    refusing(monkeypatch, "F16")
    with pytest.raises(FidelityError, match=r"earlier my model-F16\.gguf, my model-Q8_0\.gguf"):
        export_gguf(ExportedModel(wide, wide_adapter, held_out=rows(wide, 1), threads=1), out, "my model", ["Q8_0"])
    assert visible(out) == ["fidelity.json", "my model-Q4_K_M.gguf"]
    report = FidelityReport.model_validate_json((out / "fidelity.json").read_text())
    assert [(file.quant, file.passed) for file in report.files] == [("Q4_K_M", True), ("F16", False)]


@pytest.mark.full
def test_files_get_their_names_after_their_proof(wide, tmp_path, monkeypatch):
    real, seen = report_module.publish, []

    def watching(finished, target):
        listed = FidelityReport.model_validate_json((tmp_path / "fidelity.json").read_text()).files
        assert sha256_file(finished) == next(file.sha256 for file in listed if file.file == target.name)
        seen.append(target.name)
        real(finished, target)

    monkeypatch.setattr(report_module, "publish", watching)
    export_gguf(ExportedModel(wide, None, held_out=rows(wide, 1), threads=1), tmp_path, "x", ["F16", "Q8_0"])
    assert seen == ["x-F16.gguf", "x-Q8_0.gguf"]


@pytest.mark.full
def test_without_a_report_no_file_gets_its_name(wide, tmp_path, monkeypatch):
    def full(path, *_args, **_options):
        raise NoSpaceError(f"The disk is full: {path} could not be written.")

    monkeypatch.setattr(report_module, "write_atomic", full)
    with pytest.raises(NoSpaceError, match=r"fidelity\.json"):
        export_gguf(ExportedModel(wide, None, held_out=rows(wide, 1), threads=1), tmp_path, "x", ["Q8_0"])
    assert visible(tmp_path) == hidden(tmp_path) == []


@pytest.mark.full
def test_the_report_forgets_a_file_that_could_not_get_its_name(wide, tmp_path, monkeypatch):
    real = report_module.publish

    def held(finished, target):
        if "Q8_0" in target.name:
            raise NoSpaceError(f"{target} could not be written: held by another program.")
        real(finished, target)

    monkeypatch.setattr(report_module, "publish", held)
    with pytest.raises(NoSpaceError, match="held by another"):
        export_gguf(ExportedModel(wide, None, held_out=rows(wide, 1), threads=1), tmp_path, "x", ["F16", "Q8_0"])
    assert visible(tmp_path) == ["fidelity.json", "x-F16.gguf"]
    report = FidelityReport.model_validate_json((tmp_path / "fidelity.json").read_text())
    assert [file.file for file in report.files] == ["x-F16.gguf"]


def test_two_exports_do_not_share_a_folder(wide, tmp_path):
    with staging_folder(tmp_path), pytest.raises(UsageError, match="Another export"):
        export_gguf(ExportedModel(wide, None), tmp_path, "x", ["Q8_0"])


@pytest.mark.parametrize("quants", [["Q9_9"], []])
def test_unknown_types_are_refused(wide, tmp_path, quants):
    with pytest.raises(UsageError, match="Choose from F16"):
        export_gguf(ExportedModel(wide, None), tmp_path, "x", quants)


def test_a_folder_that_cannot_be_written_is_told(wide, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="is a file"):
        export_gguf(ExportedModel(wide, None), tmp_path / "file" / "out", "x", ["Q8_0"])


@pytest.mark.full
def test_verify_says_yes_and_no(exported, wide, wide_adapter, tmp_path):
    out, _, _ = exported
    for quant in ("F16", "Q4_K_M"):
        report = verify_file(
            out / f"my model-{quant}.gguf", ExportedModel(wide, wide_adapter, held_out=rows(wide), threads=1)
        )
        assert report.passed
        assert report.files[0].quant == quant
    other = make_adapter(wide, tmp_path / "other", seed=9)
    report = verify_file(out / "my model-F16.gguf", ExportedModel(wide, other, held_out=rows(wide), threads=1))
    assert not report.passed
    assert report.files[0].problems
    assert (out / "my model-F16.gguf").exists()


def test_verify_notices_one_bit_that_rounding_hides(exported, wide, wide_adapter, tmp_path):
    out, _, _ = exported
    moved = shutil.copyfile(out / "my model-Q4_K_M.gguf", tmp_path / "moved.gguf")
    name = "blk.1.ffn_up.weight"
    with moved.open("r+b") as file:
        header = read_header(moved)
        file.seek(header.data_start + header.offsets[name] + 100)  # codes of the first block
        code = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([code ^ 1]))
    for exports, state in (((), "unknown"), ((out,), "changed")):
        report = verify_file(moved, ExportedModel(wide, wide_adapter, held_out=rows(wide), threads=1), exports=exports)
        (file,) = report.files
        assert (file.provenance, file.passed) == (state, state == "unknown")
        assert [name in problem for problem in file.problems] == [True] * len(exports)


@pytest.mark.full
def test_verify_refuses_the_file_of_a_nearly_equal_adapter(exported, wide, wide_adapter, tmp_path):
    """An adapter whose difference four bits hide is told apart by the file's own record."""
    out, _, _ = exported
    near = shutil.copytree(wide_adapter, tmp_path / "near")
    weights = load_file(near / "adapter_model.safetensors")
    save_file({name: tensor * 1.0001 for name, tensor in weights.items()}, near / "adapter_model.safetensors")
    report = verify_file(out / "my model-Q4_K_M.gguf", ExportedModel(wide, near, held_out=rows(wide), threads=1))
    assert not report.passed
    (problem,) = report.files[0].problems
    assert sha256_file(wide_adapter / "adapter_model.safetensors") in problem
    assert sha256_file(near / "adapter_model.safetensors") in problem


def test_verify_refuses_what_is_no_gguf(wide, tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        verify_file(tmp_path / "missing.gguf", ExportedModel(wide, None))
    (tmp_path / "x.gguf").write_bytes(b"GGUF" + b"\0" * 10)
    with pytest.raises(SetupError, match="is damaged"):
        verify_file(tmp_path / "x.gguf", ExportedModel(wide, None))
