"""The card of models that other programs keep on this machine: what trains here, and what cannot and why."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QSizePolicy, QVBoxLayout, QWidget

from burnish_app.engine.engine_client import EngineClient
from burnish_app.look.language import tr
from burnish_app.look.tokens import UNIT
from burnish_app.state.guide_pages import PLACE_PROPERTY
from burnish_app.widgets.basic.buttons import FoldedContent, row, secondary
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import clear
from burnish_app.widgets.basic.text import ElidedLabel, caption
from burnish_engine.contract.facts.advice import LocalModel
from burnish_engine.contract.recipe.recipe_export import TargetSection
from burnish_engine.contract.serve.messages import Failure, Result
from burnish_engine.contract.serve.model_requests import LocalModelsRequest
from burnish_engine.contract.units import file_size

_PLACES = {"hub_cache": tr("the hub's cache"), "lm_studio": tr("LM Studio"), "ollama": tr("Ollama")}
_MOST = 4  # models that are shown before the rest is unfolded


class LocalModelsCard(Card):
    """Lists models of the hub's cache, LM Studio and Ollama. Hidden while there are none.

    Args:
        client: connection to the engine.

    Attributes:
        chosen: signal with the folder of the model that shall be used.
    """

    chosen = Signal(str)

    def __init__(self, client: EngineClient) -> None:
        super().__init__(
            tr("Already on this machine"),
            tr("What other programs keep, used in its folder. Files are checked for being whole."),
            icon_name="hardware",
        )
        self.setProperty(PLACE_PROPERTY, "models.md#already-on-this-machine")
        self._client = client
        self._asked: object = None
        self._request = ""
        self._first = QVBoxLayout()
        self._first.setSpacing(UNIT)
        self.rest = FoldedContent()
        self.body.addLayout(self._first)
        self.body.addWidget(self.rest)
        self.hide()

    def show_for(self, target: TargetSection) -> None:
        """Look for models, unless that was done for this target and engine.

        Args:
            target: device that the result shall run on.
        """
        now = (self._client.generation, target)
        if now == self._asked:
            return
        self._asked = now
        self._client.cancel(self._request)
        self._request = name = self._client.send(
            LocalModelsRequest,
            target=target,
            owner=self,
            on_result=lambda result: self._found(name, result),
            on_failure=self._failed,
        )

    def _found(self, name: str, result: Result) -> None:
        if name == self._request:
            self.show_models(result.local_models or [])

    def _failed(self, _failure: Failure) -> None:
        """Ask again when the page is next shown; without this list there are other ways to a model."""
        self._asked = None

    def show_models(self, models: list[LocalModel]) -> None:
        """Show models: the first that can be trained at once, the others folded.

        Args:
            models: models, those that train best first.
        """
        usable = [model for model in models if model.verdict != "unusable"]
        first = usable[:_MOST]
        rest = [*usable[_MOST:], *(model for model in models if model.verdict == "unusable")]
        for layout, shown in ((self._first, first), (self.rest.lines, rest)):
            clear(layout)
            for model in shown:
                layout.addWidget(self._line(model))
        others = tr("Others, and what cannot be trained ({count})")
        title = others if first else tr("What cannot be trained here, and why ({count})")
        self.rest.set_title(title.format(count=len(rest)))
        self.rest.setVisible(bool(rest))
        self.setVisible(bool(models))

    def _line(self, model: LocalModel) -> QWidget:
        name = ElidedLabel(model.name, bold=True)
        name.setToolTip(model.folder)
        words = QWidget()
        column = QVBoxLayout(words)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(2)
        column.addWidget(name)
        size = [file_size(model.bytes)] if model.bytes else []
        about = "  ·  ".join((_PLACES[model.place], *size, model.reason))
        column.addWidget(caption(about, "warning" if model.verdict in ("tight", "too_big") else "muted"))
        if model.verdict == "unusable":
            return words
        use = secondary(tr("Use it"), lambda: self.chosen.emit(model.folder))
        use.setAccessibleName(tr("Use {name}").format(name=model.name))
        words.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        return row(words, use)
