"""The card about this machine on the page Start, which leads to all that is known of it."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout

from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.question import Question
from burnish_app.look.language import tr
from burnish_app.look.tokens import UNIT
from burnish_app.state.saved.checked_hardware import is_checked
from burnish_app.state.workbench import Workbench
from burnish_app.widgets.basic.buttons import secondary
from burnish_app.widgets.basic.card import Card, IconChip
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.pill import Pill
from burnish_app.widgets.basic.text import body, heading, set_tone
from burnish_app.widgets.basic.wrapping import FlowLayout
from burnish_app.wording.machine_text import machine_summary
from burnish_engine.contract.serve.messages import Result
from burnish_engine.contract.serve.model_requests import MachineRequest


class MachineCard(Card):
    """Says in a line what this machine trains on, and whether its check-up passed.

    Args:
        client: connection to the engine.
        bench: workbench, which knows the machine.

    Attributes:
        opened: signal without arguments, emitted when the person wants to see all of the hardware.
    """

    opened = Signal()

    def __init__(self, client: EngineClient, bench: Workbench) -> None:
        super().__init__()
        self.setAccessibleName(tr("Hardware"))
        self._bench = bench
        self._is_found = False
        self._machines = Question(client, self, self._found, lambda _failure: self._show())
        self.verdict = Pill()
        self.device = body("", "muted")
        self.open_button = secondary(tr("What fits here"), self.opened.emit, "open")
        name = heading(tr("Hardware"))
        name.setWordWrap(False)
        head = fill(FlowLayout(UNIT, 2), name, self.verdict)
        named = fill(QVBoxLayout(), head, self.device, spacing_px=2)
        fill(self.body, fill(QHBoxLayout(), IconChip("hardware"), (named, 1), self.open_button, spacing_px=UNIT + 4))
        bench.changed.connect(lambda name: self._show() if name == "machine" else None)
        self._show()

    def ask(self) -> None:
        """Ask what this machine is now, once: what is kept of it may be of before a card or a driver was changed."""
        if not (self._is_found or self._machines.is_waiting):
            self._machines.ask(MachineRequest)
            self._show()

    def _found(self, result: Result) -> None:
        self._is_found, checkup = True, self._bench.checkup
        self._bench.set_machine(result.machine, checkup if is_checked(checkup, result.machine) else None)

    def _show(self) -> None:
        machine, checkup, failure = self._bench.machine, self._bench.checkup, self._machines.failure
        self.device.setText(machine_summary(machine) if machine else tr("Inspecting this machine ..."))
        set_tone(self.device, "muted" if machine or failure is None else "error")
        if machine is None and failure is not None:
            self.device.setText(f"{failure.what} {failure.remedy}".strip())
        if checkup is not None:
            self.verdict.set(*((tr("Ready"), "success") if checkup.ready else (tr("Not ready"), "error")))
        else:
            self.verdict.set(tr("Not checked yet") if machine else "")
