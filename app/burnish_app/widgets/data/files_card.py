"""The card of the training files, each with its weight: how often its rows are learned per epoch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QDoubleSpinBox, QLineEdit, QVBoxLayout, QWidget

from burnish_app.look.fonts import scaled, scaled_width
from burnish_app.look.language import tr
from burnish_app.look.theme import UNIT
from burnish_app.widgets.basic.buttons import quiet, row, secondary
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import clear, fill
from burnish_app.widgets.basic.status_dot import StatusDot
from burnish_app.widgets.basic.text import PathLabel, body, caption, pad_spin
from burnish_app.widgets.basic.wrapping import FlowLayout
from burnish_app.widgets.page.banner import BusyLine
from burnish_app.wording.data_text import action_text, file_text, named_settings
from burnish_app.wording.plain_words import plain_words
from burnish_engine.contract.facts.data_report import FileStatus

_FILES_PX, _MIXED_PX = 320, 400  # at least, to have another card beside it; the latter of files with weights
_WEIGHT_PX = 72
_INDENT_PX = 20  # below the name beside a status mark
_MOST_PROBLEMS = 3  # problems that are shown of a folder


class FilesCard(Card):
    """Shows the training files and lets the person add, remove and weigh them.

    Attributes:
        entered: signal without arguments, emitted when a path was typed into `path`.
        browse: signal without arguments, emitted when the person wants a file dialog.
        removed: signal with the path of a file to remove.
        changed: signal with (field of the data section, new value) that deals with a file's problem.
        opened: signal with the name of a file to look at.
        weighed: signal with a list of one weight per file: how often its rows are learned per epoch; empty: once each.
    """

    entered = Signal()
    browse = Signal()
    removed = Signal(str)
    changed = Signal(str, object)
    opened = Signal(str)
    weighed = Signal(list)

    def __init__(self) -> None:
        super().__init__(tr("Files"), icon_name="file")
        self.setMinimumWidth(scaled_width(_FILES_PX))
        self._shown: tuple[list[str], list[float]] | None = None
        self._status: dict[int, list[FileStatus]] = {}
        self.weights: list[QDoubleSpinBox] = []
        self._lines = fill(QVBoxLayout(), spacing_px=UNIT // 2)
        self._mixing = caption(
            tr("How often the rows of a file are learned in an epoch: 2 twice, 0.25 a quarter of them.")
        )
        self.path = QLineEdit()
        self.path.setPlaceholderText(tr("Path of a file or folder"))
        self.path.setAccessibleName(tr("Path of a data file"))
        self.path.returnPressed.connect(self.entered)
        self.busy = BusyLine(tr("Reading ..."), can_cancel=True)
        self.busy.hide()
        fill(
            self.body,
            self._lines,
            self._mixing,
            row(self.path, secondary(tr("Browse ..."), self.browse.emit, "folder")),
            self.busy,
            None,
        )

    def show_files(self, files: Sequence[str], weights: Sequence[float], status: Sequence[FileStatus] = ()) -> None:
        """Replace the files shown.

        Args:
            files: paths of the files.
            weights: weight of each file; empty: once each.
            status: what became of them in an inspection; empty: it is not known.
        """
        now = (list(files), list(weights) or [1.0] * len(files))
        by_entry: dict[int, list[FileStatus]] = {}
        for one in status:
            by_entry.setdefault(one.entry, []).append(one)
        if now == self._shown and by_entry == self._status:
            return  # a weight that is being typed stays as it is
        self._shown, self._status = now, by_entry
        several = len(files) > 1
        self.setMinimumWidth(scaled_width(_MIXED_PX if several else _FILES_PX))
        self._mixing.setVisible(several)
        clear(self._lines)
        self.weights = []
        for entry, (path, weight) in enumerate(zip(*now, strict=True)):
            found = by_entry.get(entry, [])
            remove = quiet("" if several else tr("Remove"), partial(self.removed.emit, path), "close")
            remove.setAccessibleName(tr("Remove {name}").format(name=Path(path).name))
            remove.setToolTip(remove.accessibleName())
            parts: list[QWidget] = [PathLabel(path)]
            if found:
                parts.insert(0, StatusDot("attention" if any(one.problem for one in found) else "done"))
            if any(not one.problem for one in found):
                rows = caption(file_text(found))
                rows.setWordWrap(False)
                parts.append(rows)
            if several:
                parts.append(self._weight(Path(path).name, weight))
            self._lines.addWidget(row(*parts, remove))
            for one in [one for one in found if one.problem][:_MOST_PROBLEMS]:
                self._lines.addWidget(self._problem(path, one))

    def _problem(self, path: str, status: FileStatus) -> QWidget:
        """Say what is wrong with a file, and offer what can be done."""
        holder = QWidget()
        lines = fill(
            QVBoxLayout(holder),
            body(plain_words(status.problem), "error"),
            spacing_px=0,
            margins_px=(_INDENT_PX, 0, 0, 0),
        )
        actions = FlowLayout(UNIT, 2)
        named = [
            (action_text(one), partial(self.changed.emit, one.key.rpartition(".")[2], one.value))
            for one in named_settings(status.remedy)
        ]
        if not named:
            lines.addWidget(caption(plain_words(status.remedy)))
        name = Path(path).name
        looks = [(tr("Look at it"), partial(self.opened.emit, status.file))] if os.path.exists(status.file) else []  # noqa: PTH110
        leave = (tr("Leave out {name}").format(name=name), partial(self.removed.emit, path))
        for text, slot in (*named, *looks, leave):
            actions.addWidget(quiet(text, slot))
        lines.addLayout(actions)
        return holder

    def _weight(self, name: str, weight: float) -> QDoubleSpinBox:
        box = QDoubleSpinBox()
        box.setRange(0.01, 100.0)
        box.setDecimals(2)
        box.setPrefix("× ")
        box.setFixedWidth(scaled(_WEIGHT_PX))
        pad_spin(box)
        box.setKeyboardTracking(False)  # what is being typed is not inspected digit by digit
        box.setValue(weight)
        box.setAccessibleName(tr("Weight of {name}").format(name=name))
        box.setToolTip(
            tr("How often its rows are learned in an epoch. Which part of them, below 1, is chosen by the seed.")
        )
        box.valueChanged.connect(self._notify_weights)
        self.weights.append(box)
        return box

    def _notify_weights(self) -> None:
        values = [box.value() for box in self.weights]
        if self._shown is not None:
            self._shown = (self._shown[0], values)
        self.weighed.emit(values if set(values) != {1.0} else [])
