"""A run's report is written by the engine beside the run, and the page of a demo is taken as it is."""

import sys

import pytest

from burnish_app.engine_setup.run_report import RunReport

WRITER = "import sys; open(sys.argv[sys.argv.index('--out') + 1], 'w').write(' '.join(sys.argv[1:4]))"
FAILING = "import sys; sys.exit('The run has no step yet.')"


@pytest.fixture
def report(qapp):
    """Makes reports with Python programs in place of the engine."""

    def make(program):
        return RunReport(qapp, lambda *words: (sys.executable, "-c", program, *words))

    return make


def test_the_page_is_written_beside_the_run(qtbot, report, tmp_path):
    made = report(WRITER)
    with qtbot.waitSignal(made.written) as written:
        made.write(tmp_path)
        assert made.is_busy
    assert written.args == [str(tmp_path / "report.html")]
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == f"runs report {tmp_path}"
    assert not made.is_busy


def test_what_the_engine_says_of_a_failure_is_handed_on(qtbot, report, tmp_path):
    made = report(FAILING)
    with qtbot.waitSignal(made.failed) as failed:
        made.write(tmp_path)
    assert failed.args == ["The run has no step yet."]


def test_the_page_of_a_demo_is_opened_as_it_is(qtbot, report, tmp_path):
    (tmp_path / "report.html").write_text("demo", encoding="utf-8")
    made = report(FAILING)
    with qtbot.waitSignal(made.written) as written:
        made.write(tmp_path / "run")
    assert written.args == [str(tmp_path / "report.html")]
