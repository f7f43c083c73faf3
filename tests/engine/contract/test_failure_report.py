"""A report about a bug has what explains it, and nothing of the person's own."""

import os

from burnish_engine.contract.failure_report import failure_report, save_report, versions
from burnish_engine.contract.version import burnish_version

RECIPE = """
name = "Acme's secret project"
[model]
path = "clients/acme"
[data]
files = ["acme.jsonl"]
system_prompt = "You are Acme's bot."
[train]
optimizer = "adamw"
learning_rate = 2e-4
"""


def test_a_report_has_versions_settings_and_the_end_of_the_log(tmp_path):
    recipe, log = tmp_path / "acme.toml", tmp_path / "serve.log"
    recipe.write_text(RECIPE, encoding="utf-8")
    log.write_text("".join(f"line {n} of {tmp_path}/acme.jsonl\n" for n in range(500)), encoding="utf-8")
    details = f"ValueError: {tmp_path}/acme.jsonl, token=letmein99"
    text = failure_report("burnish train", details, logs=[log, tmp_path / "none"], recipe=recipe, more={"GPU": "Lamp"})
    for part in (
        "What: burnish train", f"Burnish: {burnish_version()}", "GPU: Lamp", "ValueError: <path>.jsonl",
        "train.optimizer = adamw", "train.learning_rate = 0.0002", "line 499 of", "line 300 of",
    ):  # fmt: skip
        assert part in text
    assert "line 299 of" not in text
    for part in ("acme", "Acme", "letmein99", str(tmp_path), "none"):
        assert part not in text


def test_a_recipe_that_cannot_be_read_is_no_reason_to_fail(tmp_path):
    assert "cannot be read" in failure_report("x", "y", recipe=tmp_path / "none.toml")


def test_odd_recipes_end_no_report_and_tell_nothing(tmp_path):
    recipe = tmp_path / "odd.toml"
    recipe.write_text('"Acme secret" = 1\n[train]\n"Acme bot" = {"Acme\\n== Facts" = 2}\n', encoding="utf-8")
    assert "Acme" not in failure_report("burnish plan", "", recipe=recipe)
    odd = [b"\xff\xfe", b"a = " + b"[" * 5000, b"a = " + b"9" * 5000]
    for number, text in enumerate(odd):
        (tmp_path / f"{number}.toml").write_bytes(text)
        assert "It cannot be read" in failure_report("burnish plan", "", recipe=tmp_path / f"{number}.toml")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        assert "It cannot be read" in failure_report("burnish plan", "", recipe=tmp_path / "pipe")


def test_only_the_newest_reports_are_kept(burnish_home):
    for old in range(30):
        (burnish_home / "reports").mkdir(exist_ok=True)
        (burnish_home / "reports" / f"report-2020{old:04}.txt").write_text("old")
    path = save_report("text \udcff")
    assert path.read_text(encoding="utf-8").startswith("text ")
    kept = sorted(one.name for one in path.parent.glob("report-*"))
    assert len(kept) == 20
    assert kept[-1] == path.name


def test_versions_name_what_is_installed():
    assert {"Burnish", "Python", "torch"} <= versions().keys()
