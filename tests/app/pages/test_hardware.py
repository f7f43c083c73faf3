import pytest
from app.conftest import to_plain
from app.facts import machine_facts as machines
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel

pytestmark = pytest.mark.gui


@pytest.fixture
def window(window):
    window.go_to("hardware")
    return window


def words(page):
    return "\n".join(label.text() for label in page.findChildren(QLabel) if label.isVisibleTo(page))


def test_the_machine_is_shown_at_once_and_checked_in_the_background(qtbot, answers, window):
    answers.result("machine", machine=machines.machine(machines.gpu()))
    answers.set("doctor", {"type": "progress", "what": "Running rms_norm", "done": 1, "total": 4}, {"hold": True})
    page = window.page("hardware")
    qtbot.waitUntil(lambda: "21.9 GiB free of 24.0 GiB" in words(page))
    qtbot.waitUntil(lambda: "Running rms_norm  25 %" in words(page))
    assert page.status == "busy"
    page._checking.cancel.emit()
    qtbot.waitUntil(lambda: page.status == "ready")


@pytest.mark.full
def test_the_check_up_is_listed_on_every_page_and_stopped_from_there(qtbot, answers, window):
    answers.result("machine", machine=machines.machine(machines.gpu()))
    answers.set("doctor", {"type": "progress", "what": "Running rms_norm", "done": 1, "total": 4}, {"hold": True})
    window.go_to("settings")
    qtbot.waitUntil(lambda: [one.share for one in window.activity.board.activities] == [0.25])
    assert not window.activity.lasting, "it ends with the window"
    window.sidebar.activity.click()
    next(iter(window.activity.panel.rows.values())).stop_button.click()
    qtbot.waitUntil(lambda: not window.activity.board.activities)
    assert window.page("hardware").status == "ready"


def test_a_good_checkup_is_kept_for_the_next_start(qtbot, answers, window, client, bench):
    checkup = machines.checkup(machines.machine(machines.gpu()), notes=["It sleeps after 30 minutes."])
    answers.result("machine", machine=checkup.machine)
    answers.result("doctor", checkup=checkup)
    page = window.page("hardware")
    qtbot.waitUntil(lambda: page.status == "done")
    qtbot.waitUntil(lambda: "Ready to train" in words(page))
    assert "It sleeps after 30 minutes." in words(page)
    assert len(answers.asked("doctor")) == 1
    again = type(page)(client, bench)
    qtbot.addWidget(again)
    assert "Ready to train" in words(again)
    assert again.status == "done"
    again.shown()
    assert again.check_button.isEnabled(), "nothing is checked"


def test_problems_are_listed_with_what_failed(qtbot, answers, window):
    answers.result("machine", machine=machines.machine(machines.gpu()))
    bad = machines.checkup(
        machines.machine(machines.gpu()), ready=False, problems=["The driver is too old. Update it."]
    )
    answers.result("doctor", checkup=bad)
    page = window.page("hardware")
    qtbot.waitUntil(lambda: page.status == "attention")
    qtbot.waitUntil(lambda: "Not ready to train" in words(page))
    assert "The driver is too old. Update it." in words(page)
    assert "rms norm. The largest error was 0.31" in words(page)
    assert "above" not in words(page)  # where the command line has the problems


def test_without_a_gpu_it_says_what_that_means(qtbot, answers, window):
    answers.result("machine", machine=machines.machine())
    answers.result("doctor", checkup=machines.checkup(machines.machine()))
    page = window.page("hardware")
    qtbot.waitUntil(lambda: "Training works here, slowly" in words(page))


def test_links_between_gpus_are_named(qtbot, answers, window):
    answers.result("machine", machine=machines.pair())
    answers.result("doctor", checkup=machines.checkup(machines.pair()))
    page = window.page("hardware")
    qtbot.waitUntil(lambda: "no direct copies (chipset not supported)" in words(page))
    assert "GPU 1: NVIDIA GeForce RTX 4090" in words(page)


def test_a_failure_is_told_in_place(qtbot, answers, window):
    answers.failure("machine", "NVML broke.", "Restart.")
    answers.failure("doctor", "The check-up stopped.", "Try again.")
    page = window.page("hardware")
    qtbot.waitUntil(lambda: page.status == "attention")
    qtbot.waitUntil(lambda: page.shown_banner is not None)
    qtbot.waitUntil(page.check_button.isEnabled)  # once the second failure is there too


def cell(page, title, method, column):
    """A cell of the table of what fits, by its row."""
    models = page.fits.models
    role = Qt.ItemDataRole.AccessibleTextRole
    for row in range(models.rowCount()):
        if (models.index(row, 0).data(role), models.index(row, 1).data(role)) == (title, method):
            return models.index(row, column)
    raise AssertionError(f"{title} as {method} is not listed")


@pytest.mark.full
def test_what_fits_is_worked_out_in_the_background_and_shown(qtbot, answers, window, tmp_path):
    seen = tmp_path / "seen"
    answers.result("machine", machine=machines.machine(machines.gpu()))
    answers.set(
        "what_fits", {"type": "progress", "what": "Qwen3 8B", "done": 3, "total": 6}, {"until": str(seen)},
        {"type": "result", "what_fits": machines.what_fits().model_dump(mode="json")},
    )  # fmt: skip
    page = window.page("hardware")
    qtbot.waitUntil(lambda: "Working out what fits: Qwen3 8B  50 %" in words(page))
    seen.touch()
    qtbot.waitUntil(page.fits.table.isVisible)
    assert "Working out" not in words(page)
    assert "With the 21.9 GiB free now on the NVIDIA GeForce RTX 4090 and 48.0 GiB of free" in words(page)
    assert "Largest as LoRA: 2,222 tokens/s" in words(page)
    assert "Llama 3.3 70B does not fit." in words(page)
    assert "Predicted, not measured" in words(page)
    assert cell(page, "Qwen3 8B", "QLoRA", 2).data() == "40,960"
    assert "21.6 GiB" in cell(page, "Qwen3 32B", "QLoRA", 2).data(Qt.ItemDataRole.ToolTipRole)


def test_what_limits_a_row_is_said_in_full_on_hover(qtbot, answers, window):
    answers.result("machine", machine=machines.machine(machines.gpu()))
    answers.result("what_fits", what_fits=machines.what_fits())
    page = window.page("hardware")
    qtbot.waitUntil(page.fits.table.isVisible)
    hint = Qt.ItemDataRole.ToolTipRole
    assert cell(page, "Qwen3 0.6B", "LoRA", 2).data(hint).endswith("it was made for 40,960 tokens.")
    assert "78 rows of 2,048 tokens" in cell(page, "Qwen3 8B", "QLoRA", 3).data(hint)
    assert "Limited by system memory." in cell(page, "Qwen3 8B", "QLoRA", 3).data(hint)
    assert "were not tried" in cell(page, "Qwen3 0.6B", "QLoRA", 3).data(hint)
    assert "Limited by memory." in cell(page, "Qwen3 8B", "LoRA", 3).data(hint)
    assert cell(page, "Command R 35B", "QLoRA", 3).data() == "–"
    assert "Not even one row" in cell(page, "Command R 35B", "QLoRA", 3).data(hint)


@pytest.mark.full
def test_a_model_s_name_stands_once(qtbot, answers, window):
    answers.result("machine", machine=machines.machine(machines.gpu()))
    answers.result("what_fits", what_fits=machines.what_fits())
    page = window.page("hardware")
    qtbot.waitUntil(page.fits.table.isVisible)
    assert cell(page, "Qwen3 0.6B", "LoRA", 0).data() == "Qwen3 0.6B"
    assert cell(page, "Qwen3 0.6B", "QLoRA", 0).data() == ""


@pytest.mark.full
@pytest.mark.parametrize("width_px", [744, 1000, 1280, 1920])
def test_nothing_of_the_table_is_cut(qtbot, answers, window, width_px):
    answers.result("machine", machine=machines.machine(machines.gpu()))
    answers.result("what_fits", what_fits=machines.what_fits())
    window.resize(width_px, 800)
    page = window.page("hardware")
    qtbot.waitUntil(page.fits.table.isVisible)
    table = page.fits.table
    header, metrics = table.horizontalHeader(), table.fontMetrics()
    assert header.length() <= table.viewport().width()
    for column in range(1, header.count()):
        if table.isColumnHidden(column):  # where there is no room for it
            continue
        heading = table.model().headerData(column, Qt.Orientation.Horizontal)
        texts = [*heading.split("\n"), *(table.model().index(row, column).data() for row in range(11))]
        widest = max(metrics.horizontalAdvance(text) for text in texts)
        assert widest + 16 <= header.sectionSize(column), heading
    assert table.height() >= header.height() + table.verticalHeader().length()


def test_a_failure_to_work_it_out_is_told_in_its_card(qtbot, answers, window):
    answers.result("machine", machine=machines.machine(machines.gpu()))
    answers.failure("what_fits", "The catalog cannot be read.", "Reinstall Burnish.")
    page = window.page("hardware")
    qtbot.waitUntil(lambda: "The catalog cannot be read. Reinstall Burnish." in words(page))
    assert page.shown_banner is None
    answers.result("what_fits", what_fits=machines.what_fits())
    page._inspect_machine()
    qtbot.waitUntil(page.fits.table.isVisible)
    assert "cannot be read" not in words(page)


def test_where_nothing_fits_there_is_no_table(qtbot, answers, window):
    answers.result("machine", machine=machines.machine(machines.gpu()))
    answers.result("what_fits", what_fits=machines.what_fits_nowhere())
    page = window.page("hardware")
    qtbot.waitUntil(lambda: "None of the usual models trains with the 21.9 GiB" in words(page))
    assert not page.fits.table.isVisible()
    assert "Qwen3 8B, Qwen3 14B, Qwen3 32B, Command R 35B and Llama 3.3 70B do not fit." in words(page)


@pytest.mark.full
def test_looking_again_asks_again_and_keeps_what_is_shown_meanwhile(qtbot, answers, window):
    answers.result("machine", machine=machines.machine(machines.gpu()))
    answers.result("what_fits", what_fits=machines.what_fits())
    page = window.page("hardware")
    qtbot.waitUntil(page.fits.table.isVisible)
    answers.set(
        "what_fits",
        {"sleep": 0.3},
        {"type": "result", "what_fits": to_plain(machines.what_fits_on_a_processor())},
    )
    page._inspect_machine()
    qtbot.waitUntil(lambda: len(answers.asked("what_fits")) == 2)
    assert page.fits.table.isVisible()
    qtbot.waitUntil(lambda: "48.0 GiB of system memory" in words(page))
    assert page.fits.models.rowCount() == 2
    assert "Speed:" not in words(page)


def test_nothing_is_ready_once_its_newest_check_up_failed(held, held_window):
    held_window.go_to("hardware")
    page, machine = held_window.page("hardware"), machines.machine(machines.gpu())
    held.answer("doctor", checkup=machines.checkup(machine))
    assert page.state_pill.text() == "Ready"
    page.check()
    held.fail("doctor", "The driver hangs.")
    assert page.state_pill.isHidden()
    assert held_window.bench.checkup is None
    assert "Ready to train" not in words(page)
