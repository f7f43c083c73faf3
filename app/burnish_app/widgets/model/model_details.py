"""The details of the model that is selected in the list, and what can be done with it: use it, or fetch it."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QLineEdit, QVBoxLayout, QWidget

from burnish_app.item_models.listed_models import ListedModel
from burnish_app.look.language import tr
from burnish_app.look.tokens import UNIT
from burnish_app.widgets.basic.buttons import secondary
from burnish_app.widgets.basic.layouts import clear, fill
from burnish_app.widgets.basic.text import ElidedLabel, body, fact_line
from burnish_app.wording.activity import download_progress
from burnish_app.wording.numbers import count_text, speed_figure
from burnish_engine.contract.facts.advice import RankedModel
from burnish_engine.contract.facts.downloads import Download
from burnish_engine.contract.units import file_size, memory_size

_FACT_PX = 96


class ModelDetails(QWidget):
    """Shows one model.

    Attributes:
        used: signal with what to write into the recipe for a model of this machine.
        wanted: signal with the name of a model to fetch, and an access token for it, which may be empty.
    """

    used = Signal(str)
    wanted = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self._model: ListedModel | None = None
        self._download: Download | None = None
        self._title = ElidedLabel("", bold=True)
        self.token = QLineEdit()
        self.token.setEchoMode(QLineEdit.EchoMode.Password)
        self.token.setPlaceholderText(tr("Access token: handed on, never stored"))
        self.token.setAccessibleName(tr("Access token"))
        self.token.returnPressed.connect(self.act)
        self.action = secondary(tr("Use this model"), self.act)
        self._lines = fill(QVBoxLayout(), spacing_px=UNIT // 2)
        fill(QVBoxLayout(self), self._title, self.token, self.action, self._lines, None, spacing_px=UNIT)
        self.show_model(None, None)

    def show_model(self, model: ListedModel | None, download: Download | None) -> None:
        """Show a model.

        Args:
            model: model to show; None: nothing is selected.
            download: its place in the queue of downloads; None: it is not in there.
        """
        if (model, download) == (self._model, self._download) and model is not None:
            return
        if self._model is None or model is None or self._model.name != model.name:
            self.token.clear()
        self._model, self._download = model, download
        self._title.setText(model.title if model else "")
        self._show_action(model, download)
        clear(self._lines)
        if model is None:
            self._lines.addWidget(body(tr("Select a model to see what it takes."), "muted"))
            return
        self._lines.addWidget(body(model.reason, "error" if model.verdict == "unusable" else ""))
        if model.catalog:
            self._lines.addWidget(body(model.catalog.good_for, "muted"))
        for name, text in _facts(model):
            self._lines.addWidget(fact_line(name, text, name_px=_FACT_PX))
        if model.catalog and model.catalog.unchecked and not model.is_here:
            self._lines.addWidget(body(tr("Not confirmed: {what}").format(what=model.catalog.unchecked), "warning"))
        if model.catalog and not model.catalog.exports:
            self._lines.addWidget(body(tr("This version cannot export it to GGUF."), "warning"))

    def _show_action(self, model: ListedModel | None, download: Download | None) -> None:
        to_fetch = model is not None and model.can_be_fetched
        waits = download is not None and download.status in ("queued", "running")
        self.token.setVisible(bool(to_fetch and model and model.gated and not waits))
        self.action.setVisible(bool(model and (model.path or to_fetch)))
        self.action.setEnabled(not (to_fetch and waits))
        if model is None:
            return
        if not to_fetch:
            self.action.setText(tr("Use this model"))
        elif download is not None and download.is_open:
            self.action.setText(download_progress(download) if waits else tr("Continue fetching it"))
        elif model.is_here:
            self.action.setText(tr("Fetch it again"))
        elif model.bytes:
            self.action.setText(tr("Fetch ({size})").format(size=file_size(model.bytes)))
        else:
            self.action.setText(tr("Fetch"))
        self.action.setAccessibleName(f"{self.action.text()}: {model.name}")

    def act(self) -> None:
        """Use the model, or fetch it."""
        model = self._model
        if model is None or self.action.isHidden() or not self.action.isEnabled():
            return
        if model.path:
            self.used.emit(model.path)
        else:
            self.wanted.emit(model.name, self.token.text().strip())
            self.token.clear()


def _facts(model: ListedModel) -> list[tuple[str, str]]:
    facts = []
    if model.train_bytes:
        facts.append((tr("To train here"), _training(model)))
    if model.ranked:
        facts.append((tr("To run there"), _running(model.ranked)))
    if model.bytes:
        facts.append((tr("On disk") if model.is_here else tr("Download"), file_size(model.bytes)))
    if model.downloads:
        facts.append((tr("Popularity"), tr("{count} downloads a month").format(count=count_text(model.downloads))))
    note = model.catalog.license_note if model.catalog else ""
    terms = ". ".join(part for part in (model.license or tr("Not stated"), note) if part)
    if model.gated and not model.is_here:
        asks = tr("Its page asks you to sign in and accept its terms first.")
        terms = f"{terms.rstrip('.')}. {asks}"
    facts.append((tr("License"), terms))
    if model.is_here and model.path not in ("", "embedded", model.name):
        facts.append((tr("Folder"), model.path))
    return facts


def _training(model: ListedModel) -> str:
    """Return what training takes; of a model that is not the catalog's its reason says with which method."""
    method = f" ({'QLoRA' if model.ranked.method == 'qlora' else 'LoRA'})" if model.ranked else ""
    memory = f"{memory_size(model.train_bytes)}{method}"
    if not model.tokens_per_s:
        return memory
    speed = speed_figure(model.tokens_per_s)
    return tr("{memory}, about {speed} tokens/s").format(memory=memory, speed=speed)


def _running(ranked: RankedModel) -> str:
    return tr("{run_bytes} with a {file_bytes} {quant} file").format(
        run_bytes=memory_size(ranked.run_bytes), file_bytes=file_size(ranked.file_bytes), quant=ranked.quant
    )
