"""The card of the place elsewhere that is to train: how it is reached, its machines, and what the run takes there."""

from __future__ import annotations

from PySide6.QtWidgets import QLabel

from burnish_app.engine.engine_there import EngineThere
from burnish_app.look.language import tr
from burnish_app.look.tokens import UNIT
from burnish_app.recipe.place_text import offers_text, plan_there_text
from burnish_app.widgets.basic.buttons import quiet, row, secondary
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.text import Look, body, caption, headline, set_tone
from burnish_app.widgets.page.banner import BusyLine
from burnish_app.wording.machine_text import gpu_memory_text, place_text, training_device_text
from burnish_app.wording.plain_words import plain_words
from burnish_engine.contract.facts.advice import RunPlan
from burnish_engine.contract.facts.machine import Checkup, MachineFacts
from burnish_engine.contract.units import file_size, memory_size

_MOST_PROBLEMS = 3


class PlaceCard(Card):
    """Shows the place that the recipe names instead of this machine; hidden where none is named.

    Args:
        engine: what is known of that place.
    """

    def __init__(self, engine: EngineThere) -> None:
        super().__init__(tr("Where it trains"), icon_name="hardware")
        self._there = engine
        self.body.setSpacing(UNIT // 2)
        self.name, self.words = headline(""), body("")
        self.takes, self.facts, self.verdict = body(""), caption(""), body("")
        self._plan: RunPlan | None = None
        self.busy = BusyLine("", can_cancel=True)
        self.busy.cancel.connect(self._cancel)
        self.ask = secondary("", engine.connect_now, "hardware")
        self.check = quiet(tr("Check that training works there"), engine.check, "pulse")
        texts = (self.name, self.words, self.takes, self.facts, self.verdict)
        for widget in (*texts, self.busy, row(self.ask, self.check, None)):
            self.body.addWidget(widget)
        engine.changed.connect(self.show_there)
        self.show_there()

    def show_plan(self, plan: RunPlan | None) -> None:
        """Show what the run takes there.

        Args:
            plan: plan of the recipe on the machine there; None: not known.
        """
        self._plan = plan
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
        offers, plan = there.offers, self._plan if there.machine else None
        hourly = offers.best.usd_per_hour if offers and there.is_outdated else None  # else the list below has its price
        self._say(self.takes, plan_there_text(plan, hourly) if plan else "", "")
        facts = offers_text(offers) if offers else _facts(there.machine) if there.machine else ""
        self._say(self.facts, facts, "muted")
        self._say(self.verdict, *_verdict(there.checkup))
        is_connecting = there.state in ("connecting", "lost")
        doing = plain_words(there.doing) or tr("Connecting to {where}").format(where=place_text(there.where))
        self.busy.set_progress(tr("Checking that training works there ...") if there.is_checking else f"{doing} ...")
        self.busy.setVisible(is_connecting or there.is_checking)
        self.ask.setVisible(not is_connecting and (there.state != "ready" or there.is_outdated))
        self.ask.setText(_ASK[there.state].format(where=place_text(there.where)) if there.state in _ASK else "")
        can_check = there.is_machine and there.state == "ready"
        self.check.setVisible(can_check and not there.is_checking and there.checkup is None)

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


_ASK = {"offered": tr("Ask {where}"), "ready": tr("Ask again"), "slow": tr("Connect again"), "failed": tr("Try again")}


def _status_text(engine: EngineThere) -> tuple[str, Look]:
    if engine.state == "offered" and not engine.is_machine:
        text = tr("It can say which machines it has, whether the run fits, and what they cost. Nothing is sent.")
        return text, "muted"
    if engine.is_outdated:
        return tr("The recipe changed since it was asked; another machine may suit it now."), "muted"
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
