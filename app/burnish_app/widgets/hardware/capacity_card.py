"""The capacity card: the largest models that train here, then longest row and largest micro-batch of each model."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractItemView, QWidget

from burnish_app.item_models.capacity import CapacityTableModel, speed_number
from burnish_app.look.language import tr
from burnish_app.look.theme import UNIT
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import clear, fill
from burnish_app.widgets.basic.tables import FittingTable
from burnish_app.widgets.basic.text import Value, body, caption
from burnish_app.widgets.basic.wrapping import ColumnsLayout
from burnish_app.widgets.page.banner import BusyLine
from burnish_app.wording.numbers import sentence_list
from burnish_engine.contract.facts.capacity import METHOD_TEXT, DeviceCapacity, ModelCapacity
from burnish_engine.contract.units import memory_size

_ROW_PX = 28
_HEADER_PX = 52
_WIDTHS_PX = (200, 92, 108, 112, 80)
_MIN_NAME_PX = 96
_DROP_COLUMNS = ((4,), (3,))  # columns that a narrow window does without, first these
_NARROW = (1, 2, 3, 4)
_GROUP_ENDS = (0, 1)  # columns after which room that is left over does no harm: the numbers stay together


class CapacityCard(Card):
    """Shows what fits on this machine (`DeviceCapacity`), or that it is being predicted."""

    def __init__(self) -> None:
        super().__init__(tr("What fits here"))
        self._shown: DeviceCapacity | None = None
        self.corner.addWidget(caption("predicted"))
        self._busy = BusyLine(tr("Working out what fits ..."))
        self._failure = body("", "error")
        self._where = caption("")
        self._figures = QWidget()
        self._values = fill(ColumnsLayout(), margins_px=(0, UNIT, 0, UNIT))
        self._figures.setLayout(self._values)
        self.models = CapacityTableModel()
        self.table = self._make_table()
        self._rest = caption("")
        self._answered = (self._where, self._figures, self.table, self._rest)
        for widget in (self._busy, self._failure, *self._answered):
            self.body.addWidget(widget)
            widget.setVisible(widget is self._busy)

    def _make_table(self) -> FittingTable:
        """Make the table: as high as its rows, without selection."""
        table = FittingTable(
            self.models,
            tr("What fits, model by model"),
            _WIDTHS_PX,
            first_min_px=_MIN_NAME_PX,
            grow=_GROUP_ENDS,
            drop_columns=_DROP_COLUMNS,
            narrow=_NARROW,
            row_px=_ROW_PX,
            head_px=_HEADER_PX,
        )
        table.setSelectionMode(QAbstractItemView.SelectionMode.NoSelection)
        table.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        table.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        return table

    def show_busy(self) -> None:
        """Show that the answer is being predicted; an earlier answer stays until then."""
        self._failure.hide()
        self._busy.setVisible(self._shown is None)

    def set_progress(self, model: str, done: int, total: int) -> None:
        """Show the progress of the prediction.

        Args:
            model: name of the model that is being predicted.
            done: number of models done.
            total: number of all models.
        """
        self._busy.set_progress(tr("Working out what fits: {model}").format(model=model), done, total)

    def show_failure(self, text: str) -> None:
        """Show why the prediction failed."""
        self._shown = None
        self._busy.hide()
        for widget in self._answered:
            widget.hide()
        self._failure.setText(text)
        self._failure.show()

    def show_answer(self, answer: DeviceCapacity) -> None:
        """Show the answer. The same answer again changes nothing."""
        self._busy.hide()
        self._failure.hide()
        if answer == self._shown:
            return
        self._shown = answer
        fitting = [one for one in answer.models if one.longest]
        self._where.setText(_where(answer))
        clear(self._values)
        for value in _figures(fitting, answer):
            self._values.addWidget(value)
        self.models.show(fitting, answer.row_tokens)
        self.table.hold_rows(len(fitting), len(fitting))
        self._rest.setText(_rest(answer))
        for widget in (self._where, self._rest):
            widget.show()
        self._figures.setVisible(bool(fitting))
        self.table.setVisible(bool(fitting))


def _where(answer: DeviceCapacity) -> str:
    free = memory_size(answer.memory_free_bytes)
    where = tr("of system memory that are free now")
    if answer.device != "CPU":
        host = memory_size(answer.host_free_bytes)
        where = tr("free now on the {device} and {host} of free system memory").format(device=answer.device, host=host)
    if not any(one.longest for one in answer.models):
        none = tr("None of the usual models trains with the {free} {where}.").format(free=free, where=where)
        return f"{none} {tr('Close other programs, or see which smaller models fit on the page Model.')}"
    return tr("With the {free} {where}.").format(free=free, where=where)


def _figures(fitting: list[ModelCapacity], answer: DeviceCapacity) -> list[Value]:
    """Make the extreme figures: largest models, longest row and largest micro-batch, each with its speed."""
    values = []
    for one in fitting:
        reach = one.biggest or one.longest
        if one.largest and reach:
            bits = 4 if one.method == "qlora" else 32 if answer.precision == "fp32" else 16
            label = tr("Largest as {method_text}: {reach} tokens/s").format(
                method_text=METHOD_TEXT[one.method], reach=speed_number(reach)
            )
            hint = tr("The largest model that trains here with its own weights in {bits} bits").format(bits=bits)
            values.append(Value(label, "", hint, large=False))
            values[-1].set(one.title)
    for name, reached in (
        (tr("Longest row"), [(one, one.longest) for one in fitting if one.longest]),
        (tr("Largest micro-batch"), [(one, one.biggest) for one in fitting if one.biggest]),
    ):
        if reached:
            one, reach = max(reached, key=lambda pair: (pair[1].tokens, pair[1].tokens_per_s))
            values.append(Value(f"{name}: {one.title}", "", f"As {METHOD_TEXT[one.method]}", large=False))
            values[-1].set(f"{reach.tokens:,}", tr("tokens, {reach} tokens/s").format(reach=speed_number(reach)))
    return values


def _rest(answer: DeviceCapacity) -> str:
    """Return which models do not fit, further notes, and the assumptions of the predictions."""
    fitting = {one.name for one in answer.models if one.longest}
    none = list(dict.fromkeys(one.title for one in answer.models if one.name not in fitting))
    lines = (
        [(tr("{none} do not fit.") if len(none) > 1 else tr("{none} does not fit.")).format(none=sentence_list(none))]
        if none
        else []
    )
    lines += answer.notes
    how = tr("adapters of rank {rank}, {precision}, every token supervised (learned)").format(
        rank=answer.rank, precision=answer.precision
    )
    source = answer.speed_source if answer.speed_source != "estimated" else ""
    return "\n".join(
        [
            *lines,
            tr("Predicted, not measured: {how}.{value}").format(how=how, value=f" Speed: {source}." if source else ""),
        ]
    )
