"""The page Hardware: live figures, the machine's devices, the check-up, and what fits. A panel shows it."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from pydantic import ValidationError
from PySide6.QtWidgets import QVBoxLayout, QWidget

from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.question import Question
from burnish_app.look.fonts import scaled_width
from burnish_app.look.language import tr
from burnish_app.look.tokens import GAP_PX, UNIT
from burnish_app.state.preferences import studio_dir
from burnish_app.state.saved.checked_hardware import is_checked
from burnish_app.state.workbench import Workbench
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import clear
from burnish_app.widgets.basic.text import Value, body, caption, fact_line, headline, set_tone
from burnish_app.widgets.basic.to_come import CardsToCome
from burnish_app.widgets.basic.wrapping import columns_layout
from burnish_app.widgets.hardware.capacity_card import CapacityCard
from burnish_app.widgets.hardware.gpu_card import GpuCard
from burnish_app.widgets.hardware.interconnect_card import InterconnectCard
from burnish_app.widgets.hardware.live_view import LiveView
from burnish_app.widgets.page.banner import BusyLine
from burnish_app.widgets.page.page import Page
from burnish_app.wording.activity import Activity
from burnish_app.wording.machine_text import sleep_text
from burnish_app.wording.numbers import as_sentence, plural
from burnish_app.wording.plain_words import plain_words
from burnish_engine.contract.errors import BurnishError
from burnish_engine.contract.facts.machine import Checkup, MachineFacts
from burnish_engine.contract.files import make_private, read_with_retry, write_atomic
from burnish_engine.contract.serve.messages import Failure, Result
from burnish_engine.contract.serve.model_requests import DoctorRequest, MachineRequest, WhatFitsRequest
from burnish_engine.contract.units import file_size, memory_size

_LOG = logging.getLogger(__name__)
_GPU_CARD_PX = 320  # with less room for each, cards of two GPUs stand one below the other
_ON_THE_CPU = tr(
    "Training works here, slowly: a small model such as the one that comes with Burnish takes minutes, a model of a "
    "billion weights days. An NVIDIA GPU with 6 GiB or more makes it 20 to 100 times faster."
)


class HardwarePage(Page):
    """Shows GPUs, links, processor, memory and disk, the result of the check-up, and what fits."""

    key, title, question = "hardware", tr("Hardware"), tr("What have I got?")

    def __init__(self, client: EngineClient, bench: Workbench) -> None:
        super().__init__(client, bench)
        self._machine: MachineFacts | None = None
        self._checkup: Checkup | None = None
        self._checked_at = 0.0
        self._busy = BusyLine(tr("Inspecting this machine ..."), can_cancel=False)
        self._checking = BusyLine(tr("Checking that training works here ..."), can_cancel=True)
        self._content, self._rest = QVBoxLayout(), QVBoxLayout()
        self.live = LiveView()
        self.live.began.connect(self._show)
        self.fits = CapacityCard()  # stays while what is around it is shown anew
        self.fits.hide()
        self._machines = Question(client, self, self._found, self._machine_failed)
        self._doctor = Question(
            client,
            self,
            self._checked,
            self._check_failed,
            progressed=self._check_advanced,
            changed=self._check_changed,
        )
        self._capacity = Question(
            client,
            self,
            self._fits_found,
            lambda failure: self.fits.show_failure(f"{failure.what} {failure.remedy}".strip()),
            progressed=self.fits.set_progress,
        )
        self._checking.cancel.connect(self._doctor.drop)
        for layout in (self._content, self._rest):
            layout.setSpacing(GAP_PX)
        self._to_come = CardsToCome(tr("What this machine has appears in a moment"), (2, 2, 1))
        self.column.addWidget(self.live)
        self.column.addWidget(self._busy)
        self.column.addWidget(self._checking)
        self.column.addWidget(self._to_come)
        self._to_come.hide()
        self.column.addLayout(self._content)
        self.column.addWidget(self.fits)
        self.column.addLayout(self._rest)
        self._busy.hide()
        self._checking.hide()
        again = self.add_secondary(tr("Refresh"), self._inspect_machine, "refresh")
        again.setToolTip(tr("Reads free memory, temperatures and what fits anew."))
        self.check_button = self.add_secondary(tr("Check again"), self.check, "pulse")
        self.check_button.setToolTip(tr("Runs the check-up anew: real kernels, on this machine."))
        self._restore()
        bench.changed.connect(self._follow_bench)

    @property
    def checkup_file(self) -> Path:
        """The file that keeps the last check-up."""
        return studio_dir() / "checkup.json"

    def shown(self) -> None:
        """Inspect the machine, and run the check-up if it never ran."""
        self._inspect_machine()
        if self._checkup is None:
            self.check()

    def check(self) -> None:
        """Run the check-up."""
        if not self._doctor.is_waiting:
            self.clear_banner()
            several = self._machine is not None and len(self._machine.gpus) > 1
            self._doctor.ask(DoctorRequest, bandwidth=several)

    def _check_advanced(self, what: str, done: int, total: int) -> None:
        self._checking.set_progress(what, done, total)
        self._report(done / total if total else None)

    def _report(self, share: float | None = None) -> None:
        """Report the check-up that is running, and how far it is."""
        going = Activity(
            self.key,
            "check-up",
            tr("Check-up"),
            tr("Running"),
            share,
            stop=self._doctor.drop,
            outlives=False,
        )
        self.activities_changed.emit([going] if self._doctor.is_waiting else [])

    def _inspect_machine(self) -> None:
        if not self._machines.is_waiting:
            self._await(awaits=self._machine is None)
            self._machines.ask(MachineRequest)

    def _await(self, *, awaits: bool) -> None:
        """Show that the machine is being inspected, and pale cards in place of what is not known yet."""
        self._busy.setVisible(awaits)
        self._to_come.setVisible(awaits)
        self.set_filling(fills=awaits)

    def _found(self, result: Result) -> None:
        self._await(awaits=False)
        was_checked, self._machine = self._checkup is not None, result.machine
        self._show()
        if was_checked and self._checkup is None:
            self.check()
        self._ask_what_fits()

    def _ask_what_fits(self) -> None:
        if self._machine is None or self._capacity.is_waiting:
            return
        self.fits.show_busy()
        self.fits.show()
        self._capacity.ask(WhatFitsRequest)

    def _fits_found(self, result: Result) -> None:
        self.fits.setVisible(result.what_fits is not None)
        if result.what_fits is not None:
            self.fits.show_answer(result.what_fits)

    def _machine_failed(self, failure: Failure) -> None:
        self._await(awaits=False)
        self.failed(failure)
        self.set_status("attention")

    def _checked(self, result: Result) -> None:
        self._checkup = result.checkup
        self._checked_at = time.time()
        if result.checkup is not None:
            self._machine = result.checkup.machine
            self._save(result.checkup)
        self._show()

    def _check_failed(self, failure: Failure) -> None:
        """Show why the newest check-up failed; that a former one passed says nothing any more."""
        self._checkup = None
        self._show()
        self.failed(failure)

    def _check_changed(self) -> None:
        self._report()
        self._checking.setVisible(self._doctor.is_waiting)
        self.check_button.setEnabled(not self._doctor.is_waiting)
        self._show_status()

    def _follow_bench(self, name: str) -> None:
        """Show the machine as Start found it."""
        if name == "machine" and self.bench.machine is not None and self.bench.machine is not self._machine:
            self._machine, self._checkup = self.bench.machine, self.bench.checkup
            self._show()

    def _show_status(self) -> None:
        if self._checkup is not None:
            self.set_state(*((tr("Ready"), "success") if self._checkup.ready else (tr("Not ready"), "error")))
        else:
            self.set_state("")
        if self._doctor.is_waiting:
            self.set_status("busy")
        elif self._doctor.failure is not None:
            self.set_status("attention")
        elif self._checkup is not None:
            self.set_status("done" if self._checkup.ready else "attention")
        else:
            self.set_status("ready" if self._machine else "empty")

    def _show(self) -> None:
        machine = self._machine
        if not is_checked(self._checkup, machine):
            self._checkup = None  # it was of other hardware, or of another driver
        self.bench.set_machine(machine, self._checkup)
        clear(self._content)
        clear(self._rest)
        self._show_status()
        if machine is None:
            return
        self._await(awaits=False)
        first: list[QWidget] = []
        if self._checkup is not None:
            first.append(_verdict_card(self._checkup, self._checked_at))
        first += [_problem_card(machine.gpu_problem)] if machine.gpu_problem else []
        is_live = len(machine.gpus) == 1 and not self.live.isHidden()
        gpus: list[QWidget] = [GpuCard(gpu, machine, is_live=is_live) for gpu in machine.gpus]
        if not machine.gpus and not machine.gpu_problem:
            first.append(_no_gpu_card())
        for cards in (first, gpus) if len(gpus) > 1 else (first + gpus,):  # several GPUs stand beside each other
            for start in range(0, len(cards), 2):
                pair = cards[start : start + 2]
                for card in pair:
                    card.setMinimumWidth(scaled_width(_GPU_CARD_PX))
                self._content.addLayout(columns_layout(pair, GAP_PX, even=True, fill=True, line_px=GAP_PX))
        self._rest.addWidget(_host_card(machine))
        settings = self._checkup.settings if self._checkup else None
        measured = self._checkup.machine if self._checkup and self._checkup.machine.edges else machine
        if len(measured.gpus) > 1 and measured.edges:
            self._rest.addWidget(InterconnectCard(measured, settings))
        elif settings is not None and machine.gpus:
            card = Card(tr("How a run would use it"))
            for reason in settings.reasons:
                card.body.addWidget(body(reason))
            self._rest.addWidget(card)

    def _save(self, checkup: Checkup) -> None:
        try:
            make_private(self.checkup_file.parent)
            write_atomic(self.checkup_file, checkup.model_dump_json(), durable=False)
        except (OSError, BurnishError) as error:  # it is only shown earlier next time
            _LOG.warning("The check-up could not be kept: %s", error)

    def _restore(self) -> None:
        try:
            self._checkup = Checkup.model_validate_json(read_with_retry(self.checkup_file))
            self._checked_at = self.checkup_file.stat().st_mtime
        except (OSError, ValidationError):
            return  # never checked, or by another version: it is checked again
        self._machine = self.bench.machine or self._checkup.machine
        self._show()


def _problem_card(problem: str) -> QWidget:
    card = Card(tr("The GPU does not answer"), icon_name="warning")
    card.body.addWidget(body(problem, "error"))
    card.body.addStretch(1)
    return card


def _no_gpu_card() -> QWidget:
    card = Card(tr("No NVIDIA GPU was found"), icon_name="hardware")
    card.body.addWidget(body(_ON_THE_CPU))
    card.body.addStretch(1)
    return card


def _verdict_card(checkup: Checkup, checked_at: float) -> QWidget:
    """Make the card of the check-up: whether training is ready, problems, kernels that passed, and notes."""
    failed = [check for check in checkup.kernels if not check.passed]
    card = Card(tr("Check-up"), icon_name="pulse")
    when = caption(tr("checked {strftime}").format(strftime=time.strftime("%d %b, %H:%M", time.localtime(checked_at))))
    when.setWordWrap(False)
    card.corner.addWidget(when)
    verdict = headline(tr("Ready to train.") if checkup.ready else tr("Not ready to train."))
    set_tone(verdict, "" if checkup.ready else "error")
    card.body.addWidget(verdict)
    if checkup.summary and checkup.ready:  # else it points to the problems, which stand below
        card.body.addWidget(body(as_sentence(checkup.summary), "success"))
    for problem in checkup.problems:
        card.body.addWidget(body(f"✕  {plain_words(problem)}", "error"))
    for check in failed:
        card.body.addWidget(
            body(
                tr("✕  A computation that training needs failed: {name}. {detail}").format(
                    name=check.name.replace("_", " "), detail=check.detail
                ),
                "error",
            )
        )
    passed = [check.name for check in checkup.kernels if check.passed]
    if passed:
        label = caption(tr("{plural} ran and gave the right numbers").format(plural=plural(len(passed), "kernel")))
        label.setToolTip("\n".join(passed))
        card.body.addWidget(label)
    for note in [*checkup.notes, sleep_text(checkup.machine)]:
        if note and note not in checkup.problems:
            card.body.addWidget(body(f"!  {plain_words(note)}", "warning"))
    card.body.addStretch(1)
    return card


def _host_card(machine: MachineFacts) -> QWidget:
    card = Card(tr("The rest of the machine"), icon_name="memory")
    figures = []
    for label, amount, hint in (
        (
            tr("Memory free"),
            memory_size(machine.ram_free_bytes),
            tr("of {ram_total_bytes}").format(ram_total_bytes=memory_size(machine.ram_total_bytes)),
        ),
        (tr("Disk free"), file_size(machine.disk_free_bytes), tr("where runs and models are kept")),
    ):
        value = Value(label, hint, large=False)
        value.set(amount)
        figures.append(value)
    cores = Value(tr("Processor cores"), "physical", large=False)
    cores.set(str(machine.cpu_cores))
    figures.append(cores)
    card.body.addLayout(columns_layout(figures, 5 * UNIT))
    bf16 = tr(", bf16") if machine.bf16_cpu else ""
    card.body.addWidget(fact_line(tr("Processor"), f"{machine.cpu} ({machine.architecture}{bf16})"))
    card.body.addWidget(
        fact_line(tr("System"), f"{machine.os}{tr(', in a container or WSL') if machine.container else ''}")
    )
    if machine.driver:
        cuda = tr(", CUDA up to {driver_cuda}").format(driver_cuda=machine.driver_cuda) if machine.driver_cuda else ""
        card.body.addWidget(fact_line(tr("NVIDIA driver"), f"{machine.driver}{cuda}"))
    return card
