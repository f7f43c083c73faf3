"""The card of the machine elsewhere that is to train: how its engine is reached, its cards, and whether they work."""

from __future__ import annotations

from PySide6.QtWidgets import QLabel

from burnish_app.engine.engine_there import EngineThere
from burnish_app.look.language import tr
from burnish_app.look.tokens import UNIT
from burnish_app.widgets.basic.banner import BusyLine
from burnish_app.widgets.basic.buttons import quiet, row, secondary
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.text import Look, body, caption, headline, set_tone
from burnish_app.wording.machine_text import gpu_memory_text, place_text, training_device_text
from burnish_app.wording.plain_words import plain_words
from burnish_engine.contract.facts.machine import Checkup, MachineFacts
from burnish_engine.contract.units import file_size, memory_size

_MOST_PROBLEMS = 3


class PlaceCard(Card):
    """Shows the machine that the recipe names instead of this one; hidden where none is named.

    Args:
        engine: engine of that machine.
    """

    def __init__(self, engine: EngineThere) -> None:
        super().__init__(tr("Where it trains"), icon_name="hardware")
        self._there = engine
        self.body.setSpacing(UNIT // 2)
        self.name, self.words = headline(""), body("")
        self.facts, self.verdict = caption(""), body("")
        self.busy = BusyLine("", can_cancel=True)
        self.busy.cancel.connect(self._cancel)
        self.ask = secondary("", engine.connect_now, "hardware")
        self.check = quiet(tr("Check that training works there"), engine.check, "pulse")
        for widget in (self.name, self.words, self.facts, self.verdict, self.busy, row(self.ask, self.check, None)):
            self.body.addWidget(widget)
        engine.changed.connect(self.show_there)
        self.show_there()

    def show_there(self) -> None:
        """Show how it stands."""
        there = self._there
        self.setVisible(bool(there.where))
        if not there.where:
            return
        self.name.setText(place_text(there.where))
        text, tone = _status_text(there)
        self._say(self.words, text, tone)
        self._say(self.facts, _facts(there.machine) if there.machine else "", "muted")
        self._say(self.verdict, *_verdict(there.checkup))
        is_connecting = there.state in ("connecting", "lost")
        doing = plain_words(there.doing) or tr("Connecting to {where}").format(where=place_text(there.where))
        self.busy.set_progress(tr("Checking that training works there ...") if there.is_checking else f"{doing} ...")
        self.busy.setVisible(is_connecting or there.is_checking)
        self.ask.setVisible(not is_connecting and there.state != "ready")
        self.ask.setText(_ASK[there.state].format(where=place_text(there.where)) if there.state in _ASK else "")
        self.check.setVisible(there.state == "ready" and not there.is_checking and there.checkup is None)

    def _cancel(self) -> None:
        if self._there.is_checking:
            self._there.stop_check()
        else:
            self._there.disconnect_now()

    @staticmethod
    def _say(label: QLabel, text: str, tone: Look) -> None:
        label.setText(text)
        label.setVisible(bool(text))
        set_tone(label, tone)


_ASK = {"offered": tr("Ask {where}"), "slow": tr("Connect again"), "failed": tr("Try again")}


def _status_text(engine: EngineThere) -> tuple[str, Look]:
    if engine.state == "offered":
        text = tr(
            "Its engine can say over ssh whether the run fits there. The first time Burnish is installed on it, which "
            "takes minutes. Nothing of your data is sent."
        )
        return text, "muted"
    if engine.failure is None:
        return "", ""
    words = plain_words(f"{engine.failure.what} {engine.failure.remedy}".strip())
    if engine.state == "lost":
        return tr("{words} It is being connected again.").format(words=engine.failure.what), "warning"
    return words, "warning" if engine.state == "slow" else "error"


def _facts(machine: MachineFacts) -> str:
    gpus = [f"{gpu.name}: {gpu_memory_text(gpu)}" for gpu in machine.gpus] or [training_device_text(machine)]
    rest = tr("{cores} cores, {ram} memory free, {disk} disk free").format(
        cores=machine.cpu_cores, ram=memory_size(machine.ram_free_bytes), disk=file_size(machine.disk_free_bytes)
    )
    return "\n".join([*gpus, rest])


def _verdict(checkup: Checkup | None) -> tuple[str, Look]:
    if checkup is None:
        return "", ""
    if checkup.ready:
        return tr("Ready to train: {summary}.").format(summary=checkup.summary.rstrip(".")), "success"
    problems = "\n".join(f"✕  {plain_words(problem)}" for problem in checkup.problems[:_MOST_PROBLEMS])
    return "\n".join([tr("Not ready to train."), problems]), "error"
