"""The strip, the live view, its traces, the graph and the card of a run, driven by recordings."""

import numpy as np
import pytest
from app.facts.machine_facts import gpu, machine
from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QPushButton

from burnish_app.look.theme import LIGHT, colors_of
from burnish_app.state.hardware_alarms import find_alarms
from burnish_app.widgets.hardware.interconnect_card import InterconnectCard
from burnish_app.widgets.hardware.link_graph import LinkGraph, slowest_pair
from burnish_app.widgets.hardware.live_view import LiveView
from burnish_app.widgets.hardware.run_hardware import RunHardware
from burnish_app.widgets.hardware.strip import HardwareStrip, fullness_ink
from burnish_app.widgets.hardware.trace import Layer, Trace, _parts, rounded_up
from burnish_engine.contract.facts.machine import HOST, EdgeFacts, LinkFacts, ParallelSettings
from burnish_engine.contract.run.events import EvaluationDone
from burnish_engine.contract.run.fold import EvaluationHistory
from burnish_engine.contract.run.hardware_log import HardwareHistory

from support.machines.hardware import T, history_of, made_up, recorded


def history(lines):
    return history_of(lines)


@pytest.fixture
def strip(qtbot):
    made = HardwareStrip()
    qtbot.addWidget(made)
    made.resize(184, 200)
    return made


def pixels(widget, color):
    image, wanted = widget.grab().toImage(), QColor(color)
    return sum(
        image.pixelColor(x, y).rgb() == wanted.rgb() for x in range(image.width()) for y in range(image.height())
    )


def test_the_strip_shows_the_recording(strip, theme):
    strip.show_history(history([]))
    assert strip.isHidden()
    shown = history(recorded())
    strip.show_history(shown)
    assert not strip.isHidden()
    last = shown.gpus[0].last
    assert f"{last.temperature_c:.0f} °C" in strip.accessibleDescription()
    assert f"{last.power_w:.0f} W" in strip.accessibleDescription()


@pytest.mark.full
def test_its_bar_tells_ours_from_others(strip, theme):
    def bar(others):
        strip.show_history(history(made_up(seconds=200, others=others)))
        strip.resize(184, strip.sizeHint().height())
        colors = colors_of(strip)
        return pixels(strip, colors.accent), pixels(strip, colors.faint)

    few, many = bar(1.0), bar(5.0)
    assert few[0] > 300
    assert abs(few[0] - many[0]) < 20
    assert many[1] > 2 * few[1] > 0


@pytest.mark.parametrize(("share", "tone"), [(0.5, "text"), (0.92, "warning"), (0.98, "error")])
def test_the_figure_of_a_card_that_fills_up_is_a_warning(share, tone):
    assert fullness_ink(LIGHT, int(share * 1000), 1000) == getattr(LIGHT, tone)
    assert fullness_ink(LIGHT, None, 0) == LIGHT.text


def test_it_stays_low_with_many_gpus(strip):
    heights = {}
    for gpus in (0, 1, 2, 4, 8):
        strip.show_history(history(made_up(gpus, seconds=3)))
        heights[gpus] = strip.sizeHint().height()
        strip.grab()
    assert heights[0] == heights[1] < heights[2]
    assert heights[4] == heights[8] < heights[2]  # which a window of 700 pixels has room for


def test_without_a_gpu_it_shows_processor_and_memory(strip):
    strip.show_history(history(made_up(0, seconds=3)))
    assert "processor" in strip.accessibleDescription()


@pytest.fixture
def live(qtbot, theme):
    view = LiveView()
    qtbot.addWidget(view)
    view.resize(1000, 600)
    return view


def show(live, lines, *, helps=True):
    shown = history(lines)
    live.show_history(shown, find_alarms(shown), lambda _: helps)
    live.show()
    return shown


@pytest.mark.full
def test_the_live_view_shows_the_recording(live):
    shown = show(live, recorded())
    gpu = shown.gpus[0]
    assert gpu.facts.name in live.shown_text
    assert "under load" in live.shown_text
    for key, trace in live.traces.items():
        assert trace.isVisible(), key
        assert trace.accessibleDescription() not in ("", "–"), key
        assert len(np.unique(np.asarray(trace.grab().toImage().bits()))) > 2
    assert live._holders.count() == 2 * len(gpu.holders)
    assert live.alarm_banners == []


def test_the_live_view_chooses_among_gpus(qtbot, live):
    show(live, made_up(8, seconds=5))
    buttons = [button for button in live.findChildren(QPushButton) if button.isCheckable()]
    assert len(buttons) == 8
    qtbot.mouseClick(buttons[5], Qt.MouseButton.LeftButton)
    assert "GPU 5" in live.shown_text
    live.show_history(history(made_up(8, seconds=6)), [], lambda _: False)
    assert "GPU 5" in live.shown_text


def test_one_cursor_for_all_traces(live):
    shown = show(live, made_up())
    warm, cool = live.traces["temperature"], live.traces["load"]
    newest = warm.shown_text()
    live.traces["memory"].pointed.emit(T + 360)
    assert warm.shown_text() != newest
    assert warm.shown_text() == f"{shown.gpus[0].temperature_c.values()[359]:.0f} °C"
    live.traces["memory"].pointed.emit(T + 10)
    assert cool.shown_text() in ("1 %", "2 %", "3 %", "4 %")
    live.traces["memory"].pointed.emit(None)
    assert warm.shown_text() == newest


def test_an_alarm_has_its_remedy_at_a_click_and_keeps_its_button_from_second_to_second(qtbot, live):
    asked = []
    live.remedy.connect(asked.append)
    show(live, made_up(seconds=200, filled=3))
    (banner,) = live.alarm_banners
    show(live, made_up(seconds=201, filled=4))
    assert live.alarm_banners == [banner]
    button = banner.findChildren(QPushButton)[0]
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
    assert [alarm.kind for alarm in asked] == ["filled"]
    show(live, made_up(seconds=200))
    qtbot.waitUntil(lambda: live.alarm_banners == [])


def test_where_no_click_helps_none_is_offered(live):
    show(live, made_up(seconds=200, filled=3), helps=False)
    (banner,) = live.alarm_banners
    assert len(banner.findChildren(QPushButton)) == 1  # to dismiss it


def test_without_a_gpu_the_live_view_shows_the_processor(live):
    show(live, made_up(0, seconds=5))
    assert [key for key, trace in live.traces.items() if trace.isVisible()] == ["memory", "load"]


def test_a_trace_breaks_where_nothing_is_known():
    x = np.array([0.0, 1, 2, 3, 4, 20, 21, 22])
    y = np.array([1.0, 1, np.nan, 1, 1, 1, 1, 1])
    assert [(part.start, part.stop) for part in _parts(x, y, 5.0)] == [(0, 2), (3, 5), (5, 8)]
    assert _parts(np.empty(0), np.empty(0), 1.0) == []


@pytest.mark.parametrize(("value", "up"), [(0.3, 0.5), (2.1, 5.0), (12, 20), (100, 100), (0, 1), (float("nan"), 1)])
def test_rounding_up(value, up):
    assert rounded_up(value) == pytest.approx(up)


def test_a_trace_without_values_is_empty(qtbot, theme):
    trace = Trace("Power", lambda values: f"{values[0]:.0f}")
    qtbot.addWidget(trace)
    trace.resize(200, 84)
    trace.grab()
    t = np.array([1.0, 2, 3])
    trace.set_values(t, [Layer(np.full(3, np.nan))], high=450)
    trace.grab()
    assert trace.accessibleDescription() == "nan"


# The graph


def edges_of(count, *, measured=True):
    pairs = [
        EdgeFacts(
            first=a, second=b, kind="nvlink", gb_s=366.0 - a - b, table_gb_s=360, measured=measured, spec_gb_s=450
        )
        for a in range(count)
        for b in range(a + 1, count)
    ]
    return pairs + [
        EdgeFacts(first=a, second=HOST, kind="pcie", gb_s=54, table_gb_s=48, measured=True, spec_gb_s=63)
        for a in range(count)
    ]


def graph_of(qtbot, count):
    graph = LinkGraph([gpu(index) for index in range(count)], edges_of(count))
    qtbot.addWidget(graph)
    graph.resize(900, graph.sizeHint().height())
    graph.show()
    return graph


def test_the_slowest_connection_is_shown_first_and_keys_go_through_all(qtbot, theme):
    graph = graph_of(qtbot, 4)
    assert graph.chosen_edge == slowest_pair(edges_of(4))
    seen = {(graph.chosen_edge.first, graph.chosen_edge.second)}
    for _ in range(len(edges_of(4)) - 1):
        with qtbot.waitSignal(graph.chosen):
            qtbot.keyClick(graph, Qt.Key.Key_Right)
        seen.add((graph.chosen_edge.first, graph.chosen_edge.second))
    assert len(seen) == 10


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("count", [2, 3, 8])
def test_the_pointer_chooses_what_it_touches(qtbot, theme, count):
    graph = graph_of(qtbot, count)
    for number, edge in enumerate(graph._edges):
        at = graph._path(edge).pointAtPercent(0.5)
        assert graph.rect().contains(at.toPoint()), "it is within the widget"
        assert graph._distance(edge, at) < 1
        if edge.second == HOST:
            qtbot.mouseMove(graph, at.toPoint())
            assert graph._at == number
    assert all(graph.rect().contains(graph._place(number).toRect()) for number in range(count))
    assert graph._distance(graph._edges[0], QPointF(5000, 5000)) > 1000


def test_each_connection_is_told_to_a_screen_reader(qtbot, theme):
    text = graph_of(qtbot, 3).accessibleDescription()
    assert text.count("450 GB/s") == 3
    assert text.count(": PCIe, 63 GB/s") == 3


def test_the_card_shows_rates_and_settings(qtbot, theme):
    settings = ParallelSettings(
        strategy="data_parallel", gpus=[0, 1], accumulation=2, exchange_ms=3.7,
        environment={"NCCL_P2P_DISABLE": "1"}, torchrun="python -m torch.distributed.run", reasons=["Because of this."],
    )  # fmt: skip
    links = [LinkFacts(first=0, second=1, nvlinks=4, nvlink_gb_s=450)]
    facts = machine(gpu(0), gpu(1), links=links, edges=edges_of(2), all_reduce_gb_s=210)
    card = InterconnectCard(facts, settings)
    qtbot.addWidget(card)
    assert "450 GB/s specified" in card.detail.text()
    assert "365 GB/s measured" in card.detail.text()
    shown = " ".join(label.text() for label in card.findChildren(type(card.detail)))
    for part in ("2 or more", "NCCL_P2P_DISABLE=1", "torch.distributed.run", "Because of this.", "210 GB/s"):
        assert part in shown
    qtbot.keyClick(card.graph, Qt.Key.Key_Right)
    assert "63 GB/s specified" in card.detail.text()
    assert card.path.isHidden()


# What a run took


@pytest.fixture
def taken(qtbot):
    made = RunHardware()
    qtbot.addWidget(made)
    return made


def falling(*losses):
    found = EvaluationHistory()
    for step, loss in enumerate(losses):
        found = found.add(EvaluationDone(step=step, loss=loss, tokens=1, seconds=1))
    return found


def test_a_run_says_what_it_took(taken):
    shown = history(recorded())
    taken.show_run(shown, falling(4.0, 3.5))
    assert not taken.isHidden()
    watt_hours = shown.energy_j / 3600
    assert float(taken.energy.text) == pytest.approx(watt_hours, rel=0.05)
    assert float(taken.per_point.text) == pytest.approx(2 * watt_hours, rel=0.05)
    seconds = sum(shown.gpus[0].seconds.values())
    assert float(taken.power.text) == pytest.approx(shown.energy_j / seconds, abs=1)
    assert float(taken.heat.text) == max(shown.gpus[0].temperature_c.values())
    assert taken.price.isHidden()
    taken.set_price(0.3)
    assert not taken.price.isHidden()
    assert float(taken.price.text) == pytest.approx(watt_hours / 1000 * 0.3, abs=1e-4)


def test_a_run_that_gained_nothing_has_no_energy_for_each_point(taken):
    taken.show_run(history(recorded()), falling(4.0, 4.5))
    assert taken.per_point.text == "–"


def test_a_run_without_a_gpu_shows_no_such_card(taken):
    taken.show_run(history(made_up(0, seconds=5)), falling())
    assert taken.isHidden()
    taken.show_run(HardwareHistory(), falling())
    assert taken.isHidden()
