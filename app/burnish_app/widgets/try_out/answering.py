"""The replies that are being streamed into the panes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import QObject, Signal

from burnish_app.engine.client_there import ClientThere
from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.engine_there import EngineThere
from burnish_app.look.language import tr
from burnish_app.state.answerers import Answerer
from burnish_app.widgets.try_out.chat_pane import ChatPane
from burnish_app.wording.machine_text import place_text
from burnish_app.wording.plain_words import plain_words
from burnish_engine.contract.serve.messages import Failure, Progress, Result
from burnish_engine.contract.serve.model_requests import ChatMessage, ChatOptions, ChatRequest, FreeRequest


class Answering(QObject):
    """Asks models and streams their replies.

    A reply whose request is not open any more belongs to a conversation that was given up.

    Args:
        client: connection to the engine.
        parent: parent in Qt's object tree.

    Attributes:
        changed: signal without arguments, emitted when a reply ended.
        open: pane of each reply that is being streamed, by the request's id.
        secret: whether who answers is hidden.
        answered: panes whose replies are complete, since the last question.
    """

    changed = Signal()

    def __init__(self, client: EngineClient, parent: QObject) -> None:
        super().__init__(parent)
        self._client, self._there = client, EngineThere.beside(client)
        self._there.progressed.connect(self._connecting)
        self._clients: dict[str, EngineClient] = {}
        self.open: dict[str, ChatPane] = {}
        self.secret = False
        self.answered: list[ChatPane] = []

    def ask(
        self,
        pane: ChatPane,
        answerer: Answerer,
        messages: Sequence[ChatMessage] | None,
        *,
        system: str,
        options: ChatOptions,
        lane: int,
    ) -> None:
        """Ask a model to continue with a pane's conversation.

        Args:
            pane: pane that gets the reply.
            answerer: model that answers.
            messages: new messages; None: the last question is asked again.
            system: system prompt; empty: none.
            options: how tokens are chosen.
            lane: lane of the request; those of different lanes are answered at once where memory allows.
        """
        if messages is None:
            pane.say_again()
        else:
            pane.say(messages)
        before = [ChatMessage(role="system", content=system)] if system else []
        client = self._client if not answerer.where else self._there.client_to(answerer.where)
        name = client.send(
            ChatRequest,
            target=answerer.target,
            variant=answerer.variant,
            messages=[*before, *pane.messages],
            options=options,
            lane=lane,
            owner=self,
            on_piece=lambda piece: self._came(name, piece),
            on_result=lambda result: self._answered(name, result),
            on_failure=lambda failure: self.fail(name, failure),
            on_progress=lambda progress: self._progressed(name, progress),
            on_canceled=lambda: self._stopped(name),
        )
        self.open[name], self._clients[name] = pane, client
        if answerer.where and client.state != "ready":
            pane.state.setText(tr("Connecting to {where} ...").format(where=place_text(answerer.where)))

    def cancel(self) -> None:
        """Cancel all replies; what came of them stays."""
        for request in list(self.open):
            self._clients[request].cancel(request)

    def free(self, **callbacks: Any) -> None:
        """Let every engine that was asked end its chat processes.

        Args:
            callbacks: callbacks of the request to this machine's engine.
        """
        self._client.send(FreeRequest, **callbacks)
        for client in self._there.clients:
            if client.state == "ready":
                client.send(FreeRequest)

    def give_up(self) -> None:
        """Cancel all replies; what came of them stays, and nothing more is taken."""
        self.cancel()
        left = list(self.open.values())
        self.open.clear()
        self._clients.clear()
        for pane in left:
            pane.stop(tr("stopped"))
        self.answered.clear()

    def _connecting(self, where: str, what: str) -> None:
        """Show what is done to reach another machine's engine."""
        for request, pane in self.open.items():
            client = self._clients[request]
            if isinstance(client, ClientThere) and client.where == where:
                pane.state.setText(plain_words(what))

    def _over(self, name: str) -> ChatPane | None:
        self._clients.pop(name, None)
        return self.open.pop(name, None)

    def _came(self, name: str, piece: str) -> None:
        if name in self.open:
            self.open[name].stream(piece)

    def _progressed(self, name: str, progress: Progress) -> None:
        if name in self.open:
            self.open[name].state.setText(plain_words(progress.what))

    def _answered(self, name: str, result: Result) -> None:
        pane = self._over(name)
        if pane is not None:
            if result.reply is not None:
                pane.finish(result.reply, secret=self.secret)
                self.answered.append(pane)
            self.changed.emit()

    def fail(self, name: str, failure: Failure) -> None:
        """Show why a reply did not come."""
        pane = self._over(name)
        if pane is not None:
            pane.stop(f"{failure.what} {failure.remedy}".strip(), "error")
            self.changed.emit()

    def _stopped(self, name: str) -> None:
        pane = self._over(name)
        if pane is not None:
            pane.stop(tr("stopped"))
            self.changed.emit()
