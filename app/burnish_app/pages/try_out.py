"""The page Try it: up to three models answer the same question side by side, with a blind vote on the best reply."""

from __future__ import annotations

import random
from collections.abc import Sequence

from PySide6.QtWidgets import QCheckBox

from burnish_app.comparison.replies import different_words
from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.question import Question
from burnish_app.look.language import tr
from burnish_app.page_states.try_out import page_state
from burnish_app.state.answerers import Answerer, answerers
from burnish_app.state.questions import ChatQuestion, WrittenTexts, held_out_questions
from burnish_app.state.run_folder import RunFolder, read_run_folder
from burnish_app.state.workbench import Workbench
from burnish_app.widgets.basic.buttons import row
from burnish_app.widgets.basic.pill import Segmented
from burnish_app.widgets.basic.text import body
from burnish_app.widgets.page.page import Page
from burnish_app.widgets.try_out.answering import Answering
from burnish_app.widgets.try_out.chat_pane import ChatPane
from burnish_app.widgets.try_out.kept_conversations import KeptConversations
from burnish_app.widgets.try_out.pane_grid import PaneGrid
from burnish_app.widgets.try_out.questions_bar import QuestionsBar
from burnish_app.widgets.try_out.sampling_card import SamplingCard
from burnish_app.widgets.try_out.text_boxes import PromptBox
from burnish_app.widgets.try_out.vote_bar import VoteBar
from burnish_app.wording.activity import Activity
from burnish_engine.contract.serve.messages import Failure, Result
from burnish_engine.contract.serve.model_requests import ChatMessage
from burnish_engine.contract.serve.replies import RunSummary
from burnish_engine.contract.serve.run_requests import HeldOutRequest, VoteRequest

_MESSAGE, _SYSTEM = "try_out.message", "try_out.system"
_SEEDS = 2**31  # the box of the sampling card takes so many


class TryOutPage(Page):
    """Sends one message to up to three models and streams their replies, at once where memory allows."""

    key, title, question = "try_out", tr("Try it"), tr("Is it good?")
    fills = True

    def __init__(self, client: EngineClient, bench: Workbench) -> None:
        super().__init__(client, bench)
        self._folder = RunFolder()
        self._runs: list[RunSummary] = []
        self._asked, self._shuffled = "", list[Answerer]()
        self._rows = Question(client, self, self._rows_found, self._rows_refused)
        self._has_loaded = False  # models, as far as this page asked them
        self.left = ChatPane(tr("First model"), "base")
        self.middle = ChatPane(tr("Model between"), "start")
        self.right = ChatPane(tr("Last model"), "tuned")
        self.middle.hide()
        self.grid = PaneGrid([self.left, self.middle, self.right])
        self.answering = Answering(client, self)
        self.answering.changed.connect(self._reply_ended)
        self.prompt, self.sampling, self.vote = PromptBox(), SamplingCard(), VoteBar()
        self.questions = QuestionsBar()
        self.questions.chosen.connect(self._show_question)
        self.questions.save_wanted.connect(self._save_prompt)
        self._question: ChatQuestion | None = None  # whose text the message box shows
        self._written, self._is_written = WrittenTexts(), False  # the latter: whether the person wrote what was asked
        self._kept, self._talked_to = KeptConversations(self.grid.panes), (bench.run, bench.model_path)
        self.vote.voted.connect(self._vote)
        self.count = Segmented(tr("How many answer"), [(str(n), str(n)) for n in (1, 2, 3)])
        self.count.choose("2")
        self.count.chosen.connect(self._show_count)
        self.blind = QCheckBox(tr("Blind"))
        self.blind.setToolTip(
            tr(
                "Hides and shuffles who answers the next message until you have voted for the best reply. Each vote is "
                "a conversation of its own."
            )
        )
        self.prompt.setPlainText(bench.text(_MESSAGE))
        self.sampling.system.setPlainText(bench.text(_SYSTEM))
        self.prompt.textChanged.connect(self._written_on)
        self.sampling.system.textChanged.connect(lambda: bench.keep_text(_SYSTEM, self.sampling.system.toPlainText()))
        number = body(tr("Models"), "muted")
        number.setWordWrap(False)
        for widget in (row(number, self.count), self.blind, self.sampling.fold):
            self.questions.add_tool(widget)
        self.column.addWidget(self.questions)
        self.column.addWidget(self.sampling)
        self.column.addWidget(self.grid, 1)
        self.column.addWidget(self.vote)
        self.dock(self.prompt)
        self.add_secondary(tr("New conversation"), self._begin_anew, "add")
        self.former = self.add_secondary(tr("Former conversation"), self._bring_back, "undo", "former")
        self.former.setToolTip(tr("Brings back what stood here before; what stands here now is kept in its place."))
        self.unload = self.add_secondary(tr("Unload models"), self._free, "unload", "unload")
        self.unload.setToolTip(tr("Frees the memory that the models take. They are loaded again when you ask."))
        self.set_primary(tr("Send"), self.send, "send")
        self.prompt.sent.connect(self._send_unless_busy)
        bench.changed.connect(self._bench_changed)
        self._show_run()
        for pane in self.grid.panes:
            pane.choice_changed.connect(self._show)
            pane.again_wanted.connect(lambda pane=pane: self._ask_again(pane))

    def shown(self) -> None:
        """Read the run's folder again, because it may have changed."""
        self.activities_changed.emit([])
        self._forget_no_rows()
        self._show_run()
        self.prompt.setFocus()
        self.refresh_runs.emit()

    def hidden(self) -> None:
        """Report replies that are being made as an activity, while they are not seen here."""
        self._report()

    def runs_changed(self, runs: list[RunSummary]) -> None:
        """Read the run's folder again, because the run may have been saved or exported since."""
        self._runs = runs
        if self.isVisible() and not self.answering.open:
            self._show_run()

    def _written_on(self) -> None:
        """Keep the person's own words, which outlive this page and the studio; a held-out row is in its file."""
        if self._question is None:
            self.bench.keep_text(_MESSAGE, self.prompt.toPlainText())
        self._show()

    def send(self) -> None:
        """Send the message to all models, or cancel the replies while they are streamed."""
        if self.does == "stop":
            self.answering.cancel()
            return
        text = self.prompt.toPlainText().strip()
        if not text:
            return
        self.clear_banner()
        able = [pane for pane in self.grid.shown if pane.answerer.able]
        if not able:
            self.banner("info", tr("None of these can answer yet."), tr("Let one be the model before training."))
            return
        question = self._question
        if question is not None and question.text.strip() == text:
            self._clear()
            self._ask(able, question.messages, text)
            self._is_written = False
            return
        self.prompt.clear()
        if question is not None:
            self.questions.own_words()
            self._show_question(None)
        if self._is_blind() or self.answering.secret:
            self._clear()
        self._ask(able, [ChatMessage(role="user", content=text)], text)

    def _send_unless_busy(self) -> None:
        """Send by Return, which does not stop replies that are being written."""
        if self.does == "send":
            self.send()

    def _ask(self, panes: Sequence[ChatPane], messages: Sequence[ChatMessage], text: str) -> None:
        """Ask the models of panes; in a blind vote each pane gets the model of any of them."""
        order = [pane.answerer for pane in panes]
        self.answering.secret, self._asked, self._is_written = self._is_blind(), text, True
        if self.answering.secret:
            random.shuffle(order)
            for pane, letter in zip(panes, "ABC", strict=False):
                pane.hide_who(letter)
        self._shuffled = order
        self._has_loaded = True
        self.answering.answered.clear()
        for lane, (pane, answerer) in enumerate(zip(panes, order, strict=True)):
            self.answering.ask(
                pane,
                answerer,
                messages,
                system=self._system(messages),
                options=self.sampling.options,
                lane=0 if self.sampling.in_turn.isChecked() else lane,
            )
        self._show()

    def _ask_again(self, pane: ChatPane) -> None:
        """Ask the model of one pane its last question again, with the next seed."""
        options = self.sampling.options
        seed = (options.seed + pane.repeats + 1) % _SEEDS
        again = options.model_copy(update={"seed": seed})
        self.answering.ask(pane, pane.answerer, None, system=self._system(pane.question), options=again, lane=0)
        self._show()

    def _system(self, messages: Sequence[ChatMessage]) -> str:
        """Return the system prompt that goes before messages; empty where they have one of their own."""
        return "" if messages[0].role == "system" else self.sampling.system.toPlainText().strip()

    def _reply_ended(self) -> None:
        self._show()
        if self.isHidden():
            self._report()
        panes = self.grid.shown
        if not self.answering.open and len(self.answering.answered) == len(panes):
            for pane, spans in zip(panes, different_words([pane.reply for pane in panes]), strict=True):
                pane.mark(spans)
        got = self.answering.answered or any(pane.has_written for pane in panes)
        if not (self.answering.open or got or self.prompt.toPlainText()):
            self.prompt.setPlainText(self._asked)  # it can be asked again as it is
        if not self.answering.secret or self.answering.open:
            return
        if len(self.answering.answered) == len(panes):
            self.vote.ask("ABC"[: len(panes)])
        else:
            self._reveal()
            self.vote.show_result(tr("Not every reply came, so there is nothing to vote on."))
        self._see(self.vote)  # in a low window it is below the wanted reply

    def _report(self) -> None:
        """Report the replies that are being streamed."""
        going = Activity(
            self.key,
            self.bench.run,
            self._folder.title or tr("Try it"),
            tr("Answering"),
            None,
            stop=self.answering.cancel,
            outlives=False,
        )
        self.activities_changed.emit([going] if self.answering.open else [])

    def _is_blind(self) -> bool:
        return self.blind.isChecked() and self.blind.isEnabled()

    def _vote(self, best: int) -> None:
        """Reveal who answered, and keep the vote with the run."""
        shuffled = self._shuffled
        self._reveal()
        self.vote.show_result(tr("Your vote is being kept ..."))
        self.client.send(
            VoteRequest,
            run=self.bench.run,
            prompt=self._asked,
            shown=[one.key for one in shuffled],
            best=shuffled[best].key if best >= 0 else "",
            owner=self,
            on_result=self._voted,
            on_failure=lambda failure: self.vote.show_result(f"{failure.what} {failure.remedy}".strip()),
        )

    def _reveal(self) -> None:
        """Show who answered, and how fast."""
        for pane, answerer in zip(self.grid.shown, self._shuffled, strict=True):
            pane.choose(answerer.key)
            pane.hide_who("")
            if pane in self.answering.answered:
                pane.reveal()
        self.answering.secret = False
        self._show()

    def _voted(self, result: Result) -> None:
        if result.votes is not None:
            self.vote.show_result(tr("Your votes so far: {votes}.").format(votes=result.votes.text))
            self._see(self.vote)
        self.refresh_runs.emit()

    def _show_question(self, question: ChatQuestion | None) -> None:
        """Show a question, or the person's own words; what was written before comes back with its place."""
        self._written.leave(self._question, self.prompt.toPlainText())
        self._question = question
        self.grid.show_wanted(question.wanted if question is not None else "")
        self.prompt.setPlainText(self._written.text_of(question))

    def _save_prompt(self) -> None:
        changed = self._question
        self.questions.keep(self.prompt.toPlainText())
        if changed is not None:
            self._written.forget(changed)  # it is a prompt of its own now

    def _show_count(self, count: str) -> None:
        if self.answering.secret:  # the vote was about the models as they were
            self._begin_anew()
        if count == "3" and self.middle.isHidden():
            self.middle.choose_other([self.left.answerer, self.right.answerer])
        self.middle.setVisible(count == "3")
        self.right.setVisible(count != "1")
        self.grid.arrange()
        self._show()

    def _begin_anew(self) -> None:
        self._clear()
        self._show()

    def _bring_back(self) -> None:
        self._end_replies()
        self._kept.bring_back(self._talked_to)
        self._is_written = True
        self._leave_vote()
        self._show()

    def _clear(self) -> None:
        """Make room for a new conversation; the one before can be brought back."""
        self._end_replies()
        if self._is_written:  # a row that was asked as it is can be asked again
            self._kept.keep(self._talked_to)
        for pane in self.grid.panes:
            pane.clear()
        self._leave_vote()

    def _end_replies(self) -> None:
        """End the replies that are being streamed, of which what came stays, and a vote that waits."""
        self.answering.give_up()
        if self.answering.secret:
            self._reveal()

    def _leave_vote(self) -> None:
        self.vote.hide()
        for pane in self.grid.panes:
            pane.forget_letter()
        self._show()

    def _free(self) -> None:
        self.answering.free(
            owner=self,
            on_result=lambda _result: self._freed(),
            on_failure=self.failed,
        )

    def _freed(self) -> None:
        self._has_loaded = bool(self.answering.open)
        self._show()
        self.set_foot_note(tr("The models' memory is free."))

    def _bench_changed(self, name: str) -> None:
        if name in ("run", "model_path"):
            self.questions.show_rows("", [])
            self._rows.drop()
            self._begin_anew()
            self._talked_to = self.bench.run, self.bench.model_path
            self._show_run()

    def _rows_found(self, result: Result) -> None:
        self.questions.show_rows(self.bench.run, held_out_questions(result.conversations or []))

    def _rows_refused(self, _failure: Failure) -> None:
        """Take a run as one without held-out rows, unless the engine ended: then it is asked again."""
        if self.client.state == "ready":
            self.questions.show_rows(self.bench.run, [])

    def _forget_no_rows(self) -> None:
        """Ask for held-out rows again where there were none: a run keeps them once it has read its data."""
        if not self.questions.has_rows:
            self.questions.show_rows("", [])

    def _show_run(self) -> None:
        run, before = self.bench.run, self._folder
        self._folder = read_run_folder(run)
        if self._folder.trained and not before.trained:
            self._forget_no_rows()
        found = answerers(run, self.bench.model_path, self._folder, self._runs)
        for pane in self.grid.panes:
            pane.offer(found)
        if self._folder.starts_from_adapter != before.starts_from_adapter:
            self.count.choose("3" if self._folder.starts_from_adapter else "2")
            self._show_count(self.count.value)
            if self._folder.starts_from_adapter:
                self.middle.choose("start")
        if run and self.isVisible() and not (self.questions.has_rows_of(run) or self._rows.is_waiting):
            self._rows.ask(HeldOutRequest, run=run)
        self._show()

    def _show(self) -> None:
        """Show what can be done now."""
        keys = [pane.answerer.key for pane in self.grid.shown if pane.answerer.able]
        state = page_state(
            self._folder,
            is_answering=bool(self.answering.open),
            is_secret=self.answering.secret,
            is_written=bool(self.prompt.toPlainText().strip()),
            has_former=self._kept.has_any(self._talked_to),
            has_loaded=self._has_loaded,
            are_different=len(set(keys)) == len(self.grid.shown) > 1,
        )
        self.apply(state)
        self.questions.save.setEnabled("save" in state.enabled)
        if not self.answering.secret:
            self.blind.setEnabled("blind" in state.enabled)
        for pane in self.grid.panes:
            pane.again.setEnabled("again" in state.enabled and bool(pane.question) and pane.answerer.able)
