"""Scenes of Data."""

from app.facts import data_facts as facts
from app.page_scenes.screenshots import scene, settle
from PySide6.QtCore import QPointF
from PySide6.QtWidgets import QScrollArea

from burnish_engine.contract.facts.data_report import ColumnReading, FileStatus


@scene("data-empty")
def data_empty(window):
    window.bench.set_data_files([])


@scene("data-busy")
def data_busy(window):
    window.bench.set_data_files(["/home/ada/data/support.jsonl"])
    window.client.advance("inspect", "Reading rows", 41_200)


def _inspected(window, dataset, *files, row=0):
    """Show data with its rows, one of them rendered."""
    bench, page = window.bench, window.page("data")
    bench.set_data_files(list(files) or [facts.DATA_FILE])
    window.client.answer("inspect", dataset=dataset)
    _table(page, facts.chat_columns())
    page.rows.table.setCurrentIndex(page.rows.rows.index(row, 0))
    _rendered(page)
    return page


def _table(page, columns, **rows):
    page.client.answer("columns", columns=columns)
    page.client.answer("rows", rows=facts.row_page(**rows))


def _rendered(page):
    page.rows.preview._soon.stop()
    page.rows.preview._show(facts.preview())


@scene("data-done")
def data_done(window):
    _inspected(window, facts.dataset(), row=2)


@scene("data-lower")
def data_lower(window):
    """Further down the page: row lengths, and the findings."""
    page = _inspected(window, facts.dataset())
    page.details.open()
    settle()
    page.findChild(QScrollArea).ensureWidgetVisible(page.findings)


@scene("data-end")
def data_end(window):
    """The end of the page: a template that slips a message in."""
    adds = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    report = facts.dataset_report()
    template = report.template.model_copy(update={"adds": adds})
    page = _inspected(window, facts.dataset(report=report.model_copy(update={"template": template})))
    page.details.open()
    settle()
    page.findChild(QScrollArea).ensureWidgetVisible(page.template)


@scene("data-finding")
def data_finding(window):
    """The rows of a finding, by themselves."""
    page = _inspected(window, facts.dataset())
    settle()
    finding = facts.dataset_report().findings[0]
    page._open_rows(finding.first, finding.rows, finding.says)
    rows = facts.row_page(43, 9).model_copy(update={"total": 9})
    window.client.answer("rows", rows=rows)
    _rendered(page)


@scene("data-bad")
def data_bad(window):
    """One of three files cannot be read; the others are shown."""
    bad, faq = "/home/ada/data/old.jsonl", "/home/ada/data/faq.csv"
    problem = "old.jsonl is not valid JSON at line 3, column 41: Expecting value."
    remedy = 'Correct that line, or remove it. Or set data.broken_rows = "drop" to continue without such rows.'
    status = [
        FileStatus(file=facts.DATA_FILE, entry=0, rows=1204),
        FileStatus(file=bad, entry=1, problem=problem, remedy=remedy),
        FileStatus(file=faq, entry=2, rows=310),
    ]
    _inspected(window, facts.dataset(report=facts.dataset_report(files=status)), facts.DATA_FILE, bad, faq)


@scene("data-preferences")
def data_preferences(window):
    """Preference pairs that were recognized, with what is odd about them."""
    bench, page = window.bench, window.page("data")
    bench.set_data_files(["/home/ada/data/preferred.jsonl"])
    for _inspection in range(2):  # the first one recognizes pairs, and the page chooses their usual objective
        window.client.answer("inspect", dataset=facts.pairs())
        settle()
    cells = {
        "prompt": "My parcel has not moved for six days. What can I do?", "rejected": "No idea, sorry.",
        "chosen": "Cause: It waits at the depot for a customs paper. Fix: Send the invoice to the carrier.",
    }  # fmt: skip
    says = {"columns": {name: name for name in cells}, "confidence": 0.99, "says": "preference pairs"}
    reading = ColumnReading(shape="preference", **says)
    _table(page, facts.file_columns(columns=cells, readings=[reading], question=""), cells=cells)
    _rendered(page)


@scene("data-mixed")
def data_mixed(window):
    """Two files with weights, changes in force, all choices open; further down the page."""
    bench, page = window.bench, window.page("data")
    bench.set_data_files([facts.DATA_FILE, "/home/ada/data/faq.jsonl"])
    bench.change_data(weights=[1.0, 0.5], duplicates="drop", overlong="split")
    window.client.answer("inspect", dataset=facts.dataset())
    _table(page, facts.chat_columns())
    page.rows.preview.tokens.setChecked(True)
    _rendered(page)
    page.details.open()
    page.findings._toggle()
    settle()
    page.findChild(QScrollArea).ensureWidgetVisible(page.findings)


@scene("data-question")
def data_question(window):
    window.bench.set_data_files(["/home/ada/data/faq.csv"])
    page = window.page("data")
    window.client.fail("inspect", "It can be read in 2 ways.", "", 11)
    columns = facts.file_columns()
    _table(page, columns, total=310, cells=columns.columns)


@scene("data-drop")
def data_drop(window):
    """Files are dragged over the window, and there are others already."""
    _inspected(window, facts.dataset())
    window._drop_overlay.cover(choice=True)
    window._drop_overlay.point_at(QPointF(window.width() * 0.75, 200))


@scene("data-failed")
def data_failed(window):
    window.bench.set_data_files(["/home/ada/data/notes.csv"])
    what = "The data file notes.csv is empty (0 bytes)."
    window.client.fail("inspect", what, "Check that it was saved or copied completely.")
