"""Knows the machine that the recipe names instead of this one: asks it, and says how that stands.

A machine that ssh reaches answers by its own engine. A cluster or a service is asked by this machine's engine for the
machines that it has, with their prices.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

from PySide6.QtCore import QObject, QTimer, Signal

from burnish_app.engine.client_there import ClientThere, serve_on
from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.question import Question
from burnish_app.look.language import tr
from burnish_app.state.known_places import REACHED
from burnish_app.state.preferences import Preferences
from burnish_engine.contract.facts.advice import PlaceOffers
from burnish_engine.contract.facts.machine import Checkup, MachineFacts
from burnish_engine.contract.recipe.place import HERE, parse_place
from burnish_engine.contract.serve.data_requests import OffersRequest
from burnish_engine.contract.serve.messages import Failure, Result
from burnish_engine.contract.serve.model_requests import DoctorRequest, MachineRequest

ThereState = Literal["offered", "connecting", "ready", "slow", "lost", "failed"]
_AFTER_MS = 800  # a name that is still typed is not asked for
_FRESH_S = 10.0
_SLOW_MS = 15_000
_OLD_S = 60.0  # age from which the machines of a cluster or a service, and their prices, are asked for again


class EngineThere(QObject):
    """The place where a recipe trains instead of here: what it has, and whether training works there.

    It is asked when the person wants it, and from then on whenever a recipe names it: on a machine that ssh reaches
    Burnish is installed the first time.

    Args:
        client: connection to this machine's engine, with which it ends.

    Attributes:
        offers: machines that a cluster or a service has for the recipe as it was when asked; None: not known.
        recipe_text: function that returns the recipe as it is now, as TOML.
        changed: signal without arguments, emitted whenever there is something else to show.
        found: signal without arguments, emitted when the machine's facts came and differ from those before, and when
            they are no longer known.
        progressed: signal with a machine and what is being done to make the connection to its engine.
    """

    changed = Signal()
    found = Signal()
    progressed = Signal(str, str)

    def __init__(self, client: EngineClient) -> None:
        super().__init__(client)
        self.where = ""
        self.state: ThereState = "offered"
        self.machine: MachineFacts | None = None
        self.checkup: Checkup | None = None
        self.doing = ""
        self.failure: Failure | None = None
        self.client: ClientThere | None = None
        self.offers: PlaceOffers | None = None
        self.recipe_text: Callable[[], str] = str
        self._offers_question = Question(client, self, self._offered, self._offers_failed)
        self._machine_question = Question(client, self, self._answered, self._refused)
        self._doctor_question = Question(client, self, self._checked, self._refused, changed=self.changed.emit)
        self._asked_text = ""
        self._others: dict[str, ClientThere] = {}
        self._lent: set[ClientThere] = set()  # replies may be streamed through them
        self._asked_at = 0.0
        self._soon = QTimer(self, singleShot=True, interval=_AFTER_MS)
        self._soon.timeout.connect(self.connect_now)
        self._slow = QTimer(self, singleShot=True, interval=_SLOW_MS)
        self._slow.timeout.connect(self._is_slow)
        client.closed.connect(self._close)

    @classmethod
    def beside(cls, client: EngineClient) -> EngineThere:
        """Return the one that all pages share, which is made on the first call."""
        return client.findChild(cls) or cls(client)

    @property
    def is_checking(self) -> bool:
        """Whether the check-up there is under way."""
        return self._doctor_question.is_waiting

    @property
    def is_machine(self) -> bool:
        """Whether it is one machine with an engine of its own, not a cluster or a service that has several."""
        return parse_place(self.where).kind == "ssh" if self.where else False

    @property
    def is_outdated(self) -> bool:
        """Whether the recipe changed since a cluster or a service was asked."""
        return self.offers is not None and self._asked_text != self.recipe_text()

    def choose(self, where: str) -> None:
        """Take the place that the recipe names.

        Args:
            where: place as the recipe names it.
        """
        where = "" if where == HERE else where
        if where == self.where:
            return
        self._let_go()
        self.where, self.state, self.failure = where, "offered", None
        self._know(None)
        if where and where in Preferences().recent(REACHED):
            self._soon.start()
        self.changed.emit()

    def connect_now(self) -> None:
        """Make the connection, anew where there is a former one, and ask for the machine's facts."""
        if not self.where:
            return
        if not self.is_machine:
            self._ask_offers()
            return
        spare = self._others.pop(self.where, None)
        self._let_go()
        self.client = client = spare or self._new_client(self.where)
        self._machine_question.use(client)
        self._doctor_question.use(client)
        client.progressed.connect(lambda what: self._connecting(client, what))
        client.state_changed.connect(lambda state: self._client_changed(client, state))
        self.state, self.failure, self.doing = "connecting", None, ""
        client.start()
        self._ask_machine()
        self.changed.emit()

    def disconnect_now(self) -> None:
        """End the connection; the machine is asked again when the person wants it."""
        self._let_go()
        self.state, self.failure = "offered", None
        self._know(None)
        self.changed.emit()

    def refresh(self) -> None:
        """Ask for the machine's facts again, where those that are known are old."""
        if self.is_machine and self.machine is not None and time.monotonic() - self._asked_at > _FRESH_S:
            self._ask_machine()

    def refresh_offers(self) -> None:
        """Ask a cluster or a service again that answered a while ago; until it answers, what it said stays."""
        is_old = self.offers is not None and time.monotonic() - self._asked_at > _OLD_S
        if is_old and not self._offers_question.is_waiting:
            self._send_offers()

    def check(self) -> None:
        """Check that training works there, as `burnish doctor` does."""
        if self.client is None or self.is_checking:
            return
        self.failure = None
        self._doctor_question.ask(DoctorRequest)

    def stop_check(self) -> None:
        """Stop the check-up."""
        self._doctor_question.drop()

    def client_to(self, where: str) -> ClientThere:
        """Return the connection to a machine's engine, which is made where there is none.

        Args:
            where: machine that ssh reaches, as the recipe names it.
        """
        if where == self.where:
            if self.client is None or self.client.state == "down":
                self.connect_now()
            if self.client is not None:
                self._lent.add(self.client)
                return self.client
        found = self._others.get(where)
        if found is None:
            self._others[where] = found = self._new_client(where)
        if found.pid is None and found.state in ("starting", "down"):
            found.start()
        return found

    @property
    def clients(self) -> list[ClientThere]:
        """All connections that there are."""
        return [*([self.client] if self.client is not None else []), *self._others.values()]

    def _new_client(self, where: str) -> ClientThere:
        client = ClientThere(where, serve_on(where), self)
        client.progressed.connect(lambda what: self.progressed.emit(where, what))
        return client

    def _ask_offers(self) -> None:
        self._let_go()
        self.state, self.failure, self.doing = "connecting", None, ""
        self._send_offers()
        self.changed.emit()

    def _send_offers(self) -> None:
        text = self.recipe_text()
        self._offers_question.ask(OffersRequest, about=text, recipe=text)

    def _offered(self, result: Result) -> None:
        if result.offers is None:
            return
        self.state, self.failure, self.offers = "ready", None, result.offers
        self._asked_text, self._asked_at = self._offers_question.about, time.monotonic()
        Preferences().add_recent(REACHED, self.where)
        self._know(result.offers.best.machine)
        self.changed.emit()

    def _offers_failed(self, failure: Failure) -> None:
        self.state, self.failure, self.offers = "failed", failure, None
        self._know(None)
        self.changed.emit()

    def _ask_machine(self) -> None:
        if self.client is None or self._machine_question.is_waiting:
            return
        self._machine_question.ask(MachineRequest)
        if self.client.state == "ready":
            self._slow.start()

    def _answered(self, result: Result) -> None:
        if result.machine is None:
            return
        self._slow.stop()
        self._asked_at = time.monotonic()
        self.state, self.failure = "ready", None
        Preferences().add_recent(REACHED, self.where)
        self._know(result.machine)
        self.changed.emit()

    def _checked(self, result: Result) -> None:
        self.checkup = result.checkup

    def _refused(self, failure: Failure) -> None:
        """Show why a request failed; where the connection is gone, that is told by its state."""
        if self.client is not None and self.client.state == "ready":
            self.failure = failure
            self.changed.emit()

    def _connecting(self, client: ClientThere, what: str) -> None:
        if client is self.client:
            self.doing = what
            self.changed.emit()

    def _client_changed(self, client: ClientThere, state: str) -> None:
        if client is not self.client:
            return
        if state == "ready":
            self.doing = ""
            self._slow.start()
            self._ask_machine()
        elif state in ("restarting", "down"):
            self._slow.stop()
            self.failure = client.reason
            self.state = "lost" if state == "restarting" else "failed"
            if state == "down":
                self._know(None)
        self.changed.emit()

    def _is_slow(self) -> None:
        if self.client is not None and self._machine_question.is_waiting:
            self.state = "slow"
            self.failure = Failure(
                id="",
                what=tr("{where} has not answered for {seconds} seconds.").format(
                    where=self.where.removeprefix("ssh:"), seconds=_SLOW_MS // 1000
                ),
                remedy=tr("It may still answer. Or connect again."),
                exit_code=0,
            )
            self.changed.emit()

    def _know(self, machine: MachineFacts | None) -> None:
        before, self.machine = self.machine, machine
        if machine is None:
            self.checkup = None
        if machine != before:
            self.found.emit()

    def _let_go(self) -> None:
        self._soon.stop()
        self._slow.stop()
        self.offers = None
        client, self.client = self.client, None
        for question in (self._offers_question, self._machine_question, self._doctor_question):
            question.drop()
        if client in self._lent and client.state == "ready":
            self._others[client.where] = client
        elif client is not None:
            client.let_go()

    def _close(self) -> None:
        self._soon.stop()
        self._slow.stop()
        for client in self.clients:
            client.close()
