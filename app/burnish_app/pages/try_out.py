"""The page Try it: the model before and after training answers the same question, side by side."""

from __future__ import annotations

from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QDoubleSpinBox, QGridLayout, QLabel, QPlainTextEdit, QSpinBox

from burnish_app.engine.engine_client import EngineClient
from burnish_app.look.language import tr
from burnish_app.look.theme import UNIT
from burnish_app.state.run_folder import RunFolder, read_run_folder
from burnish_app.state.workbench import Workbench
from burnish_app.widgets.basic.buttons import quiet, row
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.page import Page
from burnish_app.widgets.basic.text import body, caption
from burnish_app.widgets.basic.wrapping import FlowLayout
from burnish_app.widgets.try_out.chat_pane import ChatPane, PromptBox
from burnish_engine.contract.serve.messages import Failure, Progress, Result
from burnish_engine.contract.serve.model_requests import ChatMessage, ChatOptions, ChatRequest, FreeRequest
from burnish_engine.contract.serve.replies import RunSummary

_ANSWERERS = (
    (tr("Before training (base)"), "base"),
    (tr("Before this run (start)"), "start"),
    (tr("After training (tuned)"), "tuned"),
    (tr("Exported file"), "exported"),
)
_DEFAULTS = ChatOptions()
_THREE_PX = 700  # width of the page from which three panes stand side by side


class TryOutPage(Page):
    """Sends one message to two models, one after the other, and streams both replies.

    If the run went on from an adapter, a third model answers too: the one that the run began with.
    """

    key, title, question = "try_out", tr("Try it"), tr("Is it good?")
    fills = True

    def __init__(self, client: EngineClient, bench: Workbench) -> None:
        super().__init__(client, bench)
        self._open: dict[str, ChatPane] = {}
        self._folder = RunFolder()
        self.left = ChatPane(tr("First model"), _ANSWERERS, "base")
        self.middle = ChatPane(tr("Model between"), _ANSWERERS, "start")
        self.right = ChatPane(tr("Last model"), _ANSWERERS, "tuned")
        self.middle.hide()
        self._sides = QGridLayout()
        self._sides.setSpacing(2 * UNIT)
        self._sides.addWidget(self.left, 0, 0)
        self._sides.addWidget(self.middle, 0, 1)
        for number in (0, 1):
            self._sides.setColumnStretch(number, 1)
        self._place_last()
        self.column.addLayout(self._sides, 1)
        self.prompt = PromptBox()
        self.column.addWidget(self.prompt)
        self._how = self._make_options()
        self._how_button = quiet(tr("▸  Sampling (how they answer)"), self._toggle_options)
        self.column.addWidget(row(self._how_button, None, quiet(tr("New conversation"), self._begin_anew, "add")))
        self.column.addWidget(self._how)
        self.add_secondary(tr("Unload the models"), self._free, "unload")
        self.set_primary(tr("Send"), self.send, "send")
        bench.changed.connect(self._bench_changed)
        self._show_run()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Place the panes for the new width."""
        super().resizeEvent(event)
        self._place_last()

    def shown(self) -> None:
        """Read the run's folder again, because it may have changed."""
        self._show_run()
        self.prompt.setFocus()

    def runs_changed(self, runs: list[RunSummary]) -> None:
        """Read the run's folder again, because the run may have been saved or exported since."""
        if self.isVisible() and not self._open and read_run_folder(self.bench.run) != self._folder:
            self._show_run()

    def send(self) -> None:
        """Send the message to both models, or cancel the replies while they are streamed."""
        if self._open:
            for request in list(self._open):
                self.client.cancel(request)
            return
        text = self.prompt.toPlainText().strip()
        if not text:
            return
        self.clear_banner()
        able = [pane for pane in self._panes() if self._can_answer(pane.variant)]
        if not able:
            self.banner("info", tr("None of these can answer yet."), tr("Let one be the model before training."))
            return
        self.prompt.clear()
        for pane in able:
            self._ask(pane, text)
        self._show_state()

    def _place_last(self) -> None:
        """Put the last pane beside the others; below them where three would be too narrow to read."""
        three = not self.middle.isHidden()
        wide = three and self.width() >= _THREE_PX
        self._sides.removeWidget(self.right)
        if three and not wide:
            self._sides.addWidget(self.right, 1, 0, 1, 2)
        else:
            self._sides.addWidget(self.right, 0, 2 if three else 1)
        self._sides.setColumnStretch(2, 1 if wide else 0)

    def _panes(self) -> list[ChatPane]:
        """The panes that are shown, from left to right."""
        return [pane for pane in (self.left, self.middle, self.right) if not pane.isHidden()]

    def _ask(self, pane: ChatPane, text: str) -> None:
        pane.say(text)
        system = self.system.toPlainText().strip()
        before = [ChatMessage(role="system", content=system)] if system else []
        target = self.bench.run or self.bench.model_path
        name = self.client.send(
            ChatRequest,
            target=target,
            variant=pane.variant if self.bench.run else "base",
            messages=[*before, *pane.messages],
            options=ChatOptions(max_tokens=self.longest.value(), temperature=self.temperature.value()),
            owner=self,
            on_piece=lambda piece: self._came(name, pane, piece),
            on_result=lambda result: self._answered(name, pane, result),
            on_failure=lambda failure: self._failed(name, pane, failure),
            on_progress=lambda progress: self._progressed(name, pane, progress),
            on_canceled=lambda: self._stopped(name, pane),
        )
        self._open[name] = pane

    # An answer whose request is not open any more belongs to a conversation that was given up.

    def _came(self, name: str, pane: ChatPane, piece: str) -> None:
        if name in self._open:
            pane.stream(piece)

    def _progressed(self, name: str, pane: ChatPane, progress: Progress) -> None:
        if name in self._open:
            pane.state.setText(progress.what)

    def _answered(self, name: str, pane: ChatPane, result: Result) -> None:
        if self._open.pop(name, None) is not None:
            if result.reply is not None:
                pane.finish(result.reply)
            self._show_state()

    def _failed(self, name: str, pane: ChatPane, failure: Failure) -> None:
        if self._open.pop(name, None) is not None:
            pane.stop(f"{failure.what} {failure.remedy}".strip(), "error")
            self._show_state()

    def _stopped(self, name: str, pane: ChatPane) -> None:
        if self._open.pop(name, None) is not None:
            pane.stop("stopped")
            self._show_state()

    def _can_answer(self, variant: str) -> bool:
        if variant == "base":
            return True
        if variant == "start":
            return self._folder.starts_from_adapter
        return self._folder.trained if variant == "tuned" else bool(self._folder.exported)

    def _make_options(self) -> Card:
        card = Card()
        self.system = QPlainTextEdit()
        self.system.setFixedHeight(8 * UNIT)
        self.system.setTabChangesFocus(True)
        self.system.setPlaceholderText(tr("System prompt: who the model is and how it shall answer. May stay empty."))
        self.system.setAccessibleName(tr("System prompt"))
        self.temperature = QDoubleSpinBox()
        self.temperature.setRange(0.0, 2.0)
        self.temperature.setSingleStep(0.1)
        self.temperature.setValue(_DEFAULTS.temperature)
        self.temperature.setAccessibleName(tr("Temperature"))
        self.temperature.setToolTip(tr("0 always takes the most likely word; higher values vary more."))
        self.longest = QSpinBox()
        self.longest.setRange(1, 32768)
        self.longest.setValue(_DEFAULTS.max_tokens)
        self.longest.setAccessibleName(tr("Longest reply, tokens"))
        card.body.addWidget(self.system)
        for box in (self.temperature, self.longest):
            box.lineEdit().setTextMargins(UNIT, 0, UNIT, 0)  # the style sheet's padding does not reach it
        choices = FlowLayout(3 * UNIT)
        choices.addWidget(row(_word(tr("Temperature (variety)")), self.temperature))
        choices.addWidget(row(_word(tr("Longest reply")), self.longest, caption("tokens")))
        card.body.addLayout(choices)
        card.hide()
        return card

    def _toggle_options(self) -> None:
        show = self._how.isHidden()
        self._how.setVisible(show)
        self._how_button.setText(tr("{value}  Sampling (how they answer)").format(value="▾" if show else "▸"))

    def _begin_anew(self) -> None:
        for request in list(self._open):
            self.client.cancel(request)
        self._open.clear()
        for pane in (self.left, self.middle, self.right):
            pane.clear()
        self._show_state()

    def _free(self) -> None:
        self.client.send(
            FreeRequest,
            owner=self,
            on_result=lambda _result: self.set_foot_note(tr("The models' memory is free.")),
            on_failure=self.failed,
        )

    def _bench_changed(self, name: str) -> None:
        if name in ("run", "model_path"):
            self._begin_anew()
            self._show_run()

    def _show_run(self) -> None:
        self._folder = read_run_folder(self.bench.run)
        if not self.bench.run:
            words = tr("There is no run yet, so only the model before training answers.")
        elif not self._folder.trained:
            words = tr("This run has nothing trained to talk to yet: that is there once it is saved.")
        else:
            words = tr("The same question to each, answered one after the other.")
        self.set_name(self._folder.title if self._folder.trained else "")
        self.set_subtitle(words)
        begins = self.middle.isHidden() and self._folder.starts_from_adapter
        self.middle.setVisible(self._folder.starts_from_adapter)
        self._place_last()
        for pane in (self.left, self.middle, self.right):
            pane.show_choice("start", self._folder.starts_from_adapter)
            pane.offer(self._can_answer)
        if begins:
            self.middle.choose("start")
        self._show_state()

    def _show_state(self) -> None:
        busy = bool(self._open)
        if self.primary is not None:
            self.primary.setText(tr("Stop") if busy else tr("Send"))
            self.primary.set_icon("stop" if busy else "send")
        self.set_status("busy" if busy else "ready" if self._folder.trained else "empty")
        if busy:
            self.set_foot_note("")


def _word(text: str) -> QLabel:
    label = body(text)
    label.setWordWrap(False)
    return label
