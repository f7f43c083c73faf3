"""The demo shows the product at its best."""

import shutil
from pathlib import Path
from types import SimpleNamespace

from burnish_engine.contract.facts.facts import FidelityReport, QuantFidelity
from burnish_engine.demo import job
from burnish_engine.demo.tasks import BENCH_NOTES
from burnish_engine.export.run_rows import ExportRows
from burnish_engine.models.generation.sampling import GeneratedReply
from burnish_engine.runs.events_file import read_run
from burnish_engine.runs.store import create_run

from support.models.tiny import make_llama

EVENTS = Path(__file__).resolve().parents[2] / "golden" / "runs" / "fast-whole" / "events.jsonl"


def test_its_files_are_quantized_with_the_importance_of_its_rows(tmp_path, monkeypatch):
    from burnish_engine.models.checkpoint.source import open_model

    asked = []
    rows = ExportRows([[1, 2]], [[{"role": "user", "content": "a"}]], [[False, True]], [[3, 4, 5]])
    monkeypatch.setattr("burnish_engine.export.run_rows.export_rows", lambda *_: rows)
    monkeypatch.setattr("burnish_engine.export.job.export_gguf", lambda model, *_, **__: asked.append(model))
    paths = create_run(BENCH_NOTES.recipe(), tmp_path / "run")
    shutil.copy(EVENTS, paths.events)
    job._export(
        open_model(str(make_llama(tmp_path / "base"))), paths, tmp_path / "gguf", "m-bench-notes", lambda *_: None
    )
    assert asked[0].options.training == [[3, 4, 5]]
    assert asked[0].options.supervised == [[False, True]]
    assert asked[0].options.reported == (5.758926356092412, 188), "so that a second loss says why it is another"
    assert asked[0].held_out == [[1, 2]]


def test_its_report_holds_the_figures_of_the_run(tmp_path):
    run = read_run(EVENTS)
    file = QuantFidelity(
        file="a.gguf", quant="Q8_0", bytes=1, sha256="0" * 64, tensor_types={}, fallbacks=[], positions=1, mean_kl=0.0,
        p99_kl=0.0, top1_agreement=1.0, reply="", reply_stopped=True, passed=True,
    )  # fmt: skip
    fidelity = FidelityReport(
        model="m", architecture="llama", token_strings=1, token_mismatches=0, mismatch_examples=[], files=[file],
        passed=True, conversion_kl=0.0, notes=[],
    )  # fmt: skip
    report = job._report(
        SimpleNamespace(name="m", note=""),
        BENCH_NOTES,
        run,
        replies={model: [GeneratedReply("Hello.", stopped=True, tokens=2)] * 4 for model in ("base", "tuned", "Q8_0")},
        problems=["?"] * 4,
        fidelity=fidelity,
        seconds={},
        out=tmp_path,
    )
    assert (report.steps, report.trained_tokens, report.train_rows, report.held_out_rows) == (10, 2144, 24, 8)
    assert report.losses[-1] == (10, run.last_step.loss)
    assert (report.held_out_loss_base, report.held_out_loss_tuned) == (5.87965714931488, 5.758926356092412)
    assert report.peak_memory_bytes == run.highest_bytes
