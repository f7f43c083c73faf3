"""The card that says which rows are held out, and chooses others."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QVBoxLayout

from burnish_app.look.language import tr
from burnish_app.look.tokens import UNIT
from burnish_app.widgets.basic.buttons import quiet, row, secondary
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import clear, fill
from burnish_app.widgets.basic.text import PathLabel, body
from burnish_app.wording.numbers import percent


class HeldOutCard(Card):
    """Shows what is held out: a share of the rows, or files.

    Attributes:
        files_wanted: signal without arguments, emitted when files shall be held out.
        share_wanted: signal without arguments, emitted when a share of the rows shall be held out.
        share: button that asks for a share.
        files: lines with the files.
    """

    files_wanted = Signal()
    share_wanted = Signal()

    def __init__(self) -> None:
        super().__init__(
            tr("Held out"), tr("Rows it never learns from, to see whether it really gets better."), icon_name="scale"
        )
        self._text = body("")
        self._text.setToolTip(tr("The recipe can change the share."))
        self.files = fill(QVBoxLayout(), spacing_px=UNIT // 2)
        fill(self.body, self._text, self.files)
        own_file = secondary(tr("Use a file of its own ..."), self.files_wanted.emit)
        self.share = quiet(tr("Take a share of the rows instead"), self.share_wanted.emit)
        fill(self.body, row(own_file, self.share, None), None)

    def show_held_out(self, files: Sequence[str], share: float) -> None:
        """Show what is held out.

        Args:
            files: paths of the files; empty: a share of the rows is.
            share: that share, 0 to 1.
        """
        self.share.setVisible(bool(files))
        self._text.setText(tr("{share} of the rows, chosen at random.").format(share=percent(share)))
        self._text.setVisible(not files)
        clear(self.files)
        for path in files:
            self.files.addWidget(PathLabel(path))
