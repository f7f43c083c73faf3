"""The card of the chat template, which writes rows for the model, with the results of its checks."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QLineEdit, QVBoxLayout

from burnish_app.look.language import tr
from burnish_app.look.theme import UNIT
from burnish_app.widgets.basic.buttons import row
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import clear, fill
from burnish_app.widgets.basic.text import ShorteningBox, body, caption
from burnish_app.wording.data_text import TEMPLATES, template_checks, template_extras, template_name
from burnish_engine.contract.facts.data_report import TemplateFacts

_FILE = ""  # no template is called so


class TemplateCard(Card):
    """Offers the chat templates and shows the checks of the chosen one.

    Attributes:
        chosen: signal with the value of the recipe's data.template.
        file_wanted: signal without arguments, emitted when the person wants a template from a file.
        message_chosen: signal with the value of the recipe's data.system_prompt.
        message: field of that text.
    """

    chosen = Signal(str)
    file_wanted = Signal()
    message_chosen = Signal(str)

    def __init__(self) -> None:
        super().__init__(
            tr("How it is written for the model"),
            tr("The chat template; found by rendering small conversations."),
            icon_name="text",
        )
        self.box = ShorteningBox(by_content=True)
        self.box.setAccessibleName(tr("Chat template"))
        self.box.activated.connect(self._picked)
        self._shown: tuple[str, TemplateFacts | None] = ("", None)
        self.message = QLineEdit()
        self.message.setAccessibleName(tr("System message for rows without one"))
        self.message.editingFinished.connect(self._write)
        self._written = ""
        self._checks = fill(QVBoxLayout(), spacing_px=UNIT // 2)
        self._extras = caption("")
        fill(self.body, row(body(tr("Template"), "muted"), self.box, None), self._checks, self._extras)
        self._message_name = caption(tr("System message for rows without one"))
        fill(self.body, self._message_name, self.message, None)

    def show_template(self, chosen: str, message: str, facts: TemplateFacts | None) -> None:
        """Show a template.

        Args:
            chosen: value of the recipe's data.template.
            message: value of the recipe's data.system_prompt.
            facts: facts about the template; None if they are unknown or no template is used.
        """
        self._show_message(message, facts)
        if (chosen, facts) == self._shown:
            return
        self._shown = chosen, facts
        self.box.clear()
        for name in TEMPLATES:
            self.box.addItem(tr("The model's own") if name == "auto" else name, name)
        if chosen not in TEMPLATES:
            self.box.addItem(template_name(chosen), chosen)
        self.box.addItem(tr("From a file ..."), _FILE)
        self.box.setCurrentIndex(self.box.findData(chosen))
        self.box.setToolTip(chosen if chosen not in TEMPLATES else "")
        clear(self._checks)
        self._extras.setVisible(facts is not None)
        if facts is None:
            self._checks.addWidget(body(tr("Plain texts are learned as they are, without a template."), "muted"))
            return
        if facts.name == "plain":
            self._checks.addWidget(body(tr("The model has none of its own, so a plain one is used."), "warning"))
        for check in template_checks(facts):
            label = body(f"{'✓' if check.good else '!'}  {check.text}", "" if check.good else "warning")
            label.setToolTip(check.hint)
            self._checks.addWidget(label)
        self._extras.setText(template_extras(facts))

    def _show_message(self, message: str, facts: TemplateFacts | None) -> None:
        takes = facts is not None and facts.takes_system
        adds = facts.adds if facts is not None else ""
        for widget in (self._message_name, self.message):
            widget.setVisible(takes)
        self.message.setPlaceholderText(" ".join(adds.split()) or tr("none"))
        if message != self._written:
            self._written = message
            self.message.setText(message)

    def _write(self) -> None:
        text = self.message.text().strip()
        if text != self._written:
            self._written = text
            self.message_chosen.emit(text)

    def _picked(self) -> None:
        name = self.box.currentData()
        if name == _FILE:
            self.box.setCurrentIndex(self.box.findData(self._shown[0]))
            self.file_wanted.emit()
        elif name != self._shown[0]:
            self.chosen.emit(name)
