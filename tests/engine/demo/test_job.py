"""The demo shows the product at its best."""

from burnish_engine.demo import job
from burnish_engine.export.run_rows import ExportRows
from burnish_engine.runs.store import create_run

from support.tiny import make_llama


def test_its_files_are_quantized_with_the_importance_of_its_rows(tmp_path, monkeypatch):
    from burnish_engine.models.checkpoint.source import open_model

    asked = {}
    rows = ExportRows([[1, 2]], [[{"role": "user", "content": "a"}]], [[False, True]], [[3, 4, 5]])
    monkeypatch.setattr("burnish_engine.export.run_rows.export_rows", lambda *_: rows)
    monkeypatch.setattr("burnish_engine.export.job.export_gguf", lambda *_, **options: asked.update(options))
    paths = create_run(job.demo_recipe(), tmp_path / "run")
    job._export(open_model(str(make_llama(tmp_path / "base"))), paths, tmp_path / "gguf", lambda *_: None)
    assert asked["options"].training == [[3, 4, 5]]
    assert asked["options"].supervised == [[False, True]]
    assert asked["held_out"] == [[1, 2]]
