"""The form of an export: kind of files, GGUF types, importance matrix, and the predicted cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import (
    QButtonGroup,
    QDoubleSpinBox,
    QLabel,
    QLineEdit,
    QRadioButton,
    QWidget,
)

from burnish_app.look.language import tr
from burnish_app.look.theme import UNIT
from burnish_app.widgets.basic.buttons import row
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.choice_card import ChoiceCard
from burnish_app.widgets.basic.text import ShorteningBox, body, caption, pad_spin, set_tone
from burnish_app.widgets.basic.tick_boxes import WrappingCheckBox
from burnish_app.widgets.basic.wrapping import ColumnsLayout, columns_layout
from burnish_app.widgets.export.type_choices import TypeChoices
from burnish_app.wording.export_stages import forecast_problem, forecast_text
from burnish_app.wording.recipe_text import choice_texts
from burnish_engine.contract.facts.export_forecast import ExportForecast
from burnish_engine.contract.facts.exports import GGUF_KINDS, ExportChoice, ExportKind
from burnish_engine.contract.recipe.recipe_export import COARSE_TYPES, ExportSection

KINDS: tuple[tuple[ExportKind, str, str], ...] = (
    ("gguf", "GGUF", tr("One file for llama.cpp and phone apps. Verified.")),
    ("ollama", "Ollama", tr("A GGUF with the Modelfile that Ollama needs. Verified.")),
    ("lmstudio", "LM Studio", tr("A GGUF in the folders that LM Studio looks into. Verified.")),
    ("safetensors", "Safetensors", tr("The whole model in 16 bits, for transformers and vLLM.")),
    ("adapter", tr("Adapter"), tr("Only what was trained, a few MB, for PEFT. The base model is needed beside it.")),
    ("lora-gguf", tr("Adapter as GGUF"), tr("The same for llama.cpp, beside a GGUF of the base model.")),
)
_ADAPTER_KINDS: tuple[ExportKind, ...] = ("adapter", "lora-gguf")
_MAX_MB = 1e6
_LIMIT_PX = 136


class ExportChoices(Card):
    """Lets the person choose what to export.

    Attributes:
        changed: signal without arguments, emitted when a choice changes.
    """

    changed = Signal()

    def __init__(self) -> None:
        super().__init__(tr("Make files"), tr("What it is for decides the kind."), icon_name="box")
        self.kinds = QButtonGroup(self)
        self._kind_rows: dict[ExportKind, tuple[QRadioButton, QLabel]] = {}
        self._kind_cards: dict[ExportKind, ChoiceCard] = {}
        self.body.addLayout(self._make_kinds())
        self.no_adapter_hint = caption(
            tr("This run trained every weight, so there is no adapter: Safetensors is all of it.")
        )
        self.body.addWidget(self.no_adapter_hint)
        self.types = TypeChoices()
        self.types.changed.connect(self._changed)
        self._hint = caption(tr("Several files may be made at once; each is checked before it is called done."))
        self._coarse = caption(tr("Below four bits much is lost, most of all in small models."), "warning")
        self.importance = WrappingCheckBox(tr("Importance matrix (round with care for your data)"))
        self.importance.setToolTip(
            tr(
                "An importance matrix is computed on your training rows, and what they use most is rounded least. It "
                "helps every type but F16, BF16 and Q8_0, and takes one more pass over some rows."
            )
        )
        self.importance.toggled.connect(self._changed)
        self.limit = QDoubleSpinBox()
        self.limit.setRange(0.0, _MAX_MB)
        self.limit.setDecimals(0)
        self.limit.setSuffix(" MB")
        self.limit.setSpecialValueText(tr("as the target allows"))
        self.limit.setMinimumWidth(_LIMIT_PX)
        pad_spin(self.limit)
        self.limit.setAccessibleName(tr("Largest file wanted"))
        self.limit.setToolTip(tr("Of several files, the best one below it is suggested."))
        self.merge = ShorteningBox(by_content=True)
        self.merge.setAccessibleName(tr("What the adapter is added to"))
        self.merge.setToolTip(
            tr(
                "The run trained on 4-bit weights. The 16-bit base is nearer to the original model, the 4-bit weights "
                "are nearer to the trained one. Both are measured and told."
            )
        )
        for value, text in choice_texts("export.merge_onto").items():
            self.merge.addItem(text, value)
        self._merge_row = row(_word(tr("Add the adapter to")), self.merge, None)
        self._forecast = caption("")
        self.name = QLineEdit()
        self.name.setPlaceholderText(tr("Name of the files; empty: as the run"))
        self.name.setAccessibleName(tr("Name of the files"))
        self._typed: list[QWidget] = [
            self._hint, self.types, self.importance, row(_word(tr("Largest file wanted")), self.limit, None),
        ]  # fmt: skip
        self.body.addSpacing(UNIT)
        for widget in (*self._typed[:2], self._coarse, *self._typed[2:], self._merge_row, self.name, self._forecast):
            self.body.addWidget(widget)
        self._quantized = False
        self._show_state()

    @property
    def kind(self) -> ExportKind:
        """The chosen kind of export."""
        return KINDS[max(self.kinds.checkedId(), 0)][0]

    @property
    def is_typed(self) -> bool:
        """Whether the chosen kind comes in GGUF types."""
        return self.kind in GGUF_KINDS

    @property
    def is_complete(self) -> bool:
        """Whether the choices are complete, so that the export can start."""
        return bool(self.types.chosen()) or not self.is_typed

    def fields(self) -> dict[str, Any]:
        """Return the fields of an `ExportRequest`."""
        typed = self.is_typed
        return {
            "to": self.kind,
            "quants": self.types.chosen() if typed else [],
            "name": self.name.text().strip(),
            "importance": self.importance.isChecked() if typed else None,
            "merge_onto": self.merge.currentData() if self._quantized else None,
            "size_limit_mb": self.limit.value() if typed else None,
        }

    def show_run(self, recipe: ExportSection, *, quantized: bool) -> None:
        """Fill the form from the run's recipe.

        Args:
            recipe: export section of the run's recipe.
            quantized: whether the run trained on 4-bit weights.
        """
        self._quantized = quantized
        self.types.choose(list(recipe.quants))
        self.importance.setChecked(recipe.importance)
        self.limit.setValue(recipe.size_limit_mb)
        self.merge.setCurrentIndex(self.merge.findData(recipe.merge_onto))
        self._show_state()

    def offer(self, *, full_fine_tuning: bool, exports: Sequence[ExportChoice] = ()) -> None:
        """Offer the kinds of export that the run allows: full fine-tuning leaves no adapter.

        Args:
            full_fine_tuning: whether every weight was trained.
            exports: kinds of export, each with whether it works or why not; empty: unknown, so all are offered.
        """
        reasons = {one.kind: one.reason for one in exports if not one.works}
        for kind, _name, usual in KINDS:
            button, label = self._kind_rows[kind]
            button.setEnabled(kind not in reasons)
            button.setAccessibleDescription(reasons.get(kind, usual))
            label.setText(reasons.get(kind, usual))
        if self.kind in reasons and (first := next((kind for kind, *_ in KINDS if kind not in reasons), None)):
            self._kind_rows[first][0].setChecked(True)
        for kind in _ADAPTER_KINDS:
            self._kind_cards[kind].setVisible(not full_fine_tuning)
        self.no_adapter_hint.setVisible(full_fine_tuning)
        if full_fine_tuning and self.kind in _ADAPTER_KINDS:
            self._kind_rows["safetensors"][0].setChecked(True)

    def show_forecast(self, forecast: ExportForecast | None, text: str = "") -> None:
        """Show what the export will take.

        Args:
            forecast: predicted disk, memory and time; None: unknown.
            text: text to show in place of a forecast.
        """
        if forecast is not None:
            self.types.show_exact_sizes(forecast.sizes)
            problem = forecast_problem(forecast)
            text = f"{forecast_text(forecast)} {problem}".strip()
            set_tone(self._forecast, "error" if problem else "muted")
        else:
            set_tone(self._forecast, "muted")
        self._forecast.setText(text)
        self._forecast.setVisible(bool(text) and self.is_typed)

    def _make_kinds(self) -> ColumnsLayout:
        cards = []
        for number, (kind, name, text) in enumerate(KINDS):
            card = ChoiceCard(name, text)
            card.button.setChecked(number == 0)
            self.kinds.addButton(card.button, number)
            self._kind_rows[kind] = (card.button, card.label)
            self._kind_cards[kind] = card
            cards.append(card)
        self.kinds.idToggled.connect(lambda _number, on: self._changed() if on else None)
        return columns_layout(cards, UNIT + 4, even=True, line_px=UNIT + 4)

    def _changed(self) -> None:
        self._show_state()
        self.changed.emit()

    def _show_state(self) -> None:
        typed = self.is_typed
        for kind, card in self._kind_cards.items():
            card.show_chosen(chosen=kind == self.kind)
        for widget in self._typed:
            widget.setVisible(typed)
        self._merge_row.setVisible(self._quantized and self.kind not in _ADAPTER_KINDS)
        self._coarse.setVisible(typed and bool(set(self.types.chosen()) & set(COARSE_TYPES)))
        self._forecast.setVisible(typed and bool(self._forecast.text()))


def _word(text: str) -> QLabel:
    label = body(text, "muted")
    label.setWordWrap(False)
    return label
