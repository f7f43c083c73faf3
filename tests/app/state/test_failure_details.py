"""The text about a failure that people copy: all that is needed."""

from burnish_app.state.failure_details import FailureDetails, details_text
from burnish_engine.contract.version import burnish_version


def test_everything_is_there(tmp_path):
    log = tmp_path / "stderr.log"
    log.write_text("\n".join(f"line {n}" for n in range(100)) + "\n\n", encoding="utf-8")
    text = details_text(
        FailureDetails(
            what="Run first", title="Disk full", message="No space.", exit_code=15, process_end="SIGKILL, killed",
            step="3 of 9", device="H100, fast, bf16", versions={"torch": "2.9.1"}, recipe="/x/recipe.toml", log=log,
        )
    )  # fmt: skip
    for part in (
        "Run first",
        "Disk full: No space.",
        "15 (",
        "SIGKILL",
        "3 of 9",
        "H100",
        "torch 2.9.1",
        "recipe.toml",
    ):
        assert part in text
    assert burnish_version() in text
    assert "line 99" in text
    assert "line 1\n" not in text


def test_what_is_not_known_takes_no_line(tmp_path):
    text = details_text(FailureDetails(what="Export", log=tmp_path / "not there"))
    assert "Exit code" not in text
    assert "Cause" not in text
    assert "Last lines" not in text
    assert "99" in details_text(FailureDetails(what="x", exit_code=99))
