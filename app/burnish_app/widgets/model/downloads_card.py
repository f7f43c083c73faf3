"""The card of the downloads: what is fetched, how fast, and how long it takes; with pause, resume and cancel."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QSizePolicy, QVBoxLayout, QWidget

from burnish_app.engine.downloads_follower import DownloadsFollower
from burnish_app.look.language import tr
from burnish_app.look.tokens import UNIT
from burnish_app.state.guide_pages import PLACE_PROPERTY
from burnish_app.widgets.basic.buttons import ActionButton, quiet, secondary
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.text import ElidedLabel, caption, set_tone
from burnish_app.widgets.basic.wrapping import FlowLayout
from burnish_app.widgets.page.banner import ProgressBar
from burnish_app.wording.activity import download_detail
from burnish_engine.contract.facts.downloads import Download

_TOKEN_PX = 180
_WORDS_PX = 240  # at least, to have the actions beside them
_TONES = {"failed": "error", "finished": "success"}
_BARS = {"running": "accent", "finished": "success"}


class DownloadsCard(Card):
    """Lists the downloads. Hidden while there are none.

    Args:
        downloads: queue of downloads.

    Attributes:
        used: signal with the name of a fetched model that shall be used.
    """

    used = Signal(str)

    def __init__(self, downloads: DownloadsFollower) -> None:
        super().__init__(
            tr("Downloads"),
            tr("They continue with the window closed, and after a crash where they were. Each file's hash is checked."),
            icon_name="import",
        )
        self.setProperty(PLACE_PROPERTY, "models.md#downloads")
        self._downloads = downloads
        self.body.setSpacing(2 * UNIT)
        self.lines: dict[str, DownloadLine] = {}
        downloads.changed.connect(self.show_downloads)
        self.hide()

    def show_downloads(self, downloads: list[Download]) -> None:
        """Show downloads; the line of one that was shown before keeps the keyboard's focus."""
        for name in self.lines.keys() - {one.name for one in downloads}:
            gone = self.lines.pop(name)
            gone.hide()
            gone.deleteLater()
        for one in downloads:
            if one.name not in self.lines:
                self.lines[one.name] = line = DownloadLine(one.name, self._downloads)
                line.used.connect(self.used)
                self.body.addWidget(line)
            self.lines[one.name].show_download(one)
        self.setVisible(bool(downloads))


class DownloadLine(QWidget):
    """One download.

    Args:
        name: name of the model.
        downloads: queue of downloads.

    Attributes:
        used: signal with the name, where the fetched model shall be used.
    """

    used = Signal(str)

    def __init__(self, name: str, downloads: DownloadsFollower) -> None:
        super().__init__()
        self._name = name
        self._downloads = downloads
        self.detail = caption("")
        self._bar = ProgressBar()
        self._bar.setAccessibleName(tr("Progress of {name}").format(name=name))
        self.token = QLineEdit()
        self.token.setEchoMode(QLineEdit.EchoMode.Password)
        self.token.setPlaceholderText(tr("Access token"))
        self.token.setAccessibleName(tr("Access token for {name}").format(name=name))
        self.token.setFixedWidth(_TOKEN_PX)
        self.token.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)  # the words take what is left
        self.token.returnPressed.connect(self._go_on)
        self.use = self._button(secondary(tr("Use it"), lambda: self.used.emit(self._name)))
        self.go_on = self._button(secondary(tr("Resume"), self._go_on, "play"))
        self.pause = self._button(secondary(tr("Pause"), lambda: downloads.pause(self._name), "pause"))
        self.remove = self._button(quiet(tr("Cancel"), lambda: downloads.cancel(self._name)))
        words = QWidget()
        words.setMinimumWidth(_WORDS_PX)
        words.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        fill(QVBoxLayout(words), ElidedLabel(name, bold=True), self._bar, self.detail, spacing_px=6)
        actions = fill(FlowLayout(UNIT, UNIT // 2), self.token, self.use, self.go_on, self.pause, self.remove)
        parts = fill(FlowLayout(2 * UNIT, UNIT), words, actions)
        line = fill(QHBoxLayout(self), (parts, 1))
        line.setAlignment(parts, Qt.AlignmentFlag.AlignVCenter)

    def _button(self, button: ActionButton) -> ActionButton:
        button.setAccessibleName(f"{button.text()}: {self._name}")
        return button

    def show_download(self, one: Download) -> None:
        """Show how far the download is, and the buttons that its state allows."""
        self.detail.setText(download_detail(one))
        set_tone(self.detail, _TONES.get(one.status, "warning" if one.message else "muted"))
        known = one.total > 0 or one.status != "running"
        self._bar.set_share(one.done / one.total if one.total else 0.0 if known else None)
        self._bar.set_color(_BARS.get(one.status, "muted"))
        self._bar.setAccessibleDescription(self.detail.text())
        self._bar.setVisible(one.status != "finished")
        stopped = one.status in ("paused", "failed")
        self.use.setVisible(one.status == "finished")
        self.go_on.setVisible(stopped)
        self.token.setVisible(stopped and one.gated)
        self.pause.setVisible(one.status in ("queued", "running"))
        self.remove.setText(tr("Dismiss") if one.status == "finished" else tr("Cancel"))
        self._button(self.remove)

    def _go_on(self) -> None:
        self._downloads.start(self._name, self.token.text().strip())
        self.token.clear()
