"""Cards, checksums, LM Studio's folders, the best file, and the forecast."""

import hashlib
import shutil

import pytest

from burnish_engine.contract.errors import NoSpaceError, UsageError
from burnish_engine.contract.facts.facts import FidelityReport, QuantFidelity
from burnish_engine.contract.recipe.recipe_export import TargetSection
from burnish_engine.export.destinations import lm_studio
from burnish_engine.export.destinations.lm_studio import export_lm_studio
from burnish_engine.export.job import export_gguf
from burnish_engine.export.model_card import write_card
from burnish_engine.export.preflight import forecast_gguf
from burnish_engine.export.verify.reference import ExportedModel, ReferenceOptions
from burnish_engine.export.verify.report import read_report
from burnish_engine.export.verify.verdict import suggest, verdict_text

from support.models.export import rows

pytestmark = pytest.mark.usefixtures("short_replies")


def file_of(quant, size, kl, *, kept=None, passed=True):
    return QuantFidelity(
        file=f"m-{quant}.gguf", quant=quant, bytes=size, sha256="0" * 64, tensor_types={}, positions=9, mean_kl=kl,
        p99_kl=kl, top1_agreement=0.9, gain_kept=kept, passed=passed,
    )  # fmt: skip


def report_of(*files):
    return FidelityReport(
        model="m", architecture="llama", token_strings=9, token_mismatches=0, files=files, passed=True
    )


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        (0.964, "keeps 96.4% of the gain"),
        (1.01, "keeps all of the gain"),
        (-0.2, "keeps nothing of the gain"),
        (None, "90.0% of the tokens"),
    ],
)
def test_a_file_in_plain_words(kept, words):
    text = verdict_text(file_of("Q4_K_M", 400_000_000, 0.05, kept=kept))
    assert text.startswith("Q4_K_M ")
    assert words in text
    assert "0.40 GB" in text


def test_the_best_file_for_a_size_is_the_nearest_that_fits():
    report = report_of(
        file_of("Q8_0", 800_000_000, 0.001), file_of("Q6_K", 600_000_000, 0.002), file_of("Q4_K_M", 400_000_000, 0.05),
        file_of("Q4_0", 390_000_000, 0.04, passed=False),
    )  # fmt: skip
    assert suggest(report, size_limit_bytes=500_000_000, target=None).file.quant == "Q4_K_M"
    assert suggest(report, size_limit_bytes=700_000_000, target=None).file.quant == "Q6_K"
    # Nobody notices the difference of 0.001 nats: the smaller one.
    assert suggest(report, target=None).file.quant == "Q6_K"
    assert suggest(report, size_limit_bytes=100, target=None) is None
    assert "0.50 GB" in suggest(report, size_limit_bytes=500_000_000, target=None).why


def test_the_best_file_for_a_target_fits_its_memory(wide):
    sizes = {"hidden_size": 2048, "intermediate_size": 8192, "layers": wide.spec.layers * 8}
    big = wide.spec.model_copy(update=sizes)
    report = report_of(file_of("F16", 3 * 10**9, 0.0), file_of("Q4_K_M", 10**9, 0.05))
    target = TargetSection(kind="phone", ram_gib=3.0)
    assert suggest(report, spec=big, target=target).file.quant == "Q4_K_M"


@pytest.fixture(scope="module")
def exported(wide, wide_adapter, tmp_path_factory):
    out = tmp_path_factory.mktemp("card") / "export"
    options = ReferenceOptions(training=rows(wide, 12), tokens=512)
    export_gguf(
        ExportedModel(wide, wide_adapter, held_out=rows(wide, 3), options=options, threads=1),
        out,
        "tune",
        ["Q4_0", "Q8_0"],
    )
    return out


@pytest.mark.full
def test_the_card_tells_origin_fidelity_and_how_to_run(exported):
    report = read_report(exported)
    card, sums = write_card(exported, report, run="tuned", data=["chats.jsonl"])
    text = card.read_text(encoding="utf-8")
    for part in (
        "base_model: base",
        "chats.jsonl",
        report.adapter_sha256,
        "tune-Q4_0.gguf",
        "gain kept",
        "llama-cli -m",
    ):
        assert part in text
    for line in sums.read_text().splitlines():
        digest, _, name = line.partition("  ")
        assert hashlib.sha256((exported / name).read_bytes()).hexdigest() == digest
    assert len(sums.read_text().splitlines()) == 2
    card.write_text("my own words", encoding="utf-8")
    assert write_card(exported, report, run="tuned", data=[]) == [sums]
    assert card.read_text(encoding="utf-8") == "my own words"


def test_the_card_names_no_file_that_was_refused(exported, tmp_path):
    shutil.copy(exported / "tune-Q8_0.gguf", tmp_path / "m-Q8_0.gguf")
    report = report_of(file_of("Q8_0", 9, 0.001), file_of("Q4_0", 5, 2.0, passed=False))
    card, sums = write_card(tmp_path, report, run="tuned", data=[])
    for text in (card.read_text(encoding="utf-8"), sums.read_text()):
        assert "m-Q8_0.gguf" in text
        assert "Q4_0" not in text
    assert write_card(tmp_path, report_of(file_of("Q4_0", 5, 2.0, passed=False)), run="tuned", data=[]) == []


def test_the_report_tells_gain_and_importance(exported):
    report = read_report(exported)
    four, eight = report.files
    assert report.importance_tokens >= 400
    assert (four.importance, eight.importance) == (True, False)
    assert report.base_loss is not None
    assert report.tuned_loss is not None
    assert four.held_out_loss == pytest.approx(report.tuned_loss, abs=0.2)
    assert (exported / "tune.imatrix").exists()


def test_lm_studio_finds_the_file(exported, tmp_path):
    target = export_lm_studio(exported / "tune-Q8_0.gguf", tmp_path / "models", "my tune", "me")
    assert target == tmp_path / "models" / "me" / "my tune" / "tune-Q8_0.gguf"
    assert target.read_bytes() == (exported / "tune-Q8_0.gguf").read_bytes()
    assert export_lm_studio(exported / "tune-Q8_0.gguf", tmp_path / "models", "my tune", "me") == target  # again
    with pytest.raises(UsageError, match="There is no file"):
        export_lm_studio(exported / "nothing.gguf", tmp_path, "x")


def test_a_full_disk_leaves_no_half_copy(exported, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(18, "another disk")

    def full(_source, target):
        target.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(lm_studio.os, "link", refuse)
    monkeypatch.setattr(lm_studio.shutil, "copyfile", full)
    with pytest.raises(NoSpaceError, match="disk is full"):
        export_lm_studio(exported / "tune-Q8_0.gguf", tmp_path, "x")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_the_forecast_is_exact_about_sizes(wide, wide_adapter, exported):
    forecast = forecast_gguf(wide, wide_adapter, "tune", ["Q8_0", "Q4_0"], importance_tokens=512)
    named = {path.name: path.stat().st_size for path in exported.glob("*.gguf")}
    assert forecast.sizes == {"Q8_0": named["tune-Q8_0.gguf"], "Q4_0": named["tune-Q4_0.gguf"]}
    assert [stage.what for stage in forecast.stages] == [
        "Writing F16", "Running the trained model", "Checking F16", "Making Q8_0", "Checking Q8_0", "Making Q4_0",
        "Checking Q4_0",
    ]  # fmt: skip
    assert forecast.disk_bytes > sum(forecast.sizes.values())
    assert forecast.seconds > 0
