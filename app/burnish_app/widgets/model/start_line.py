"""The line that says which adapter training begins with: a new one, or one that was trained before."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFileDialog, QMenu, QSizePolicy, QVBoxLayout, QWidget

from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.question import Question
from burnish_app.look.language import tr
from burnish_app.look.tokens import UNIT
from burnish_app.state.guide_pages import PLACE_PROPERTY
from burnish_app.state.workbench import Workbench
from burnish_app.widgets.basic.buttons import link, secondary
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.text import body, caption
from burnish_app.widgets.basic.wrapping import FlowLayout
from burnish_engine.contract.facts.advice import AdapterFacts
from burnish_engine.contract.files import is_file
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.serve.messages import Failure, Result
from burnish_engine.contract.serve.model_requests import AdapterRequest
from burnish_engine.contract.serve.replies import RunSummary

_METHODS = {"lora": "LoRA", "rslora": "rsLoRA", "dora": "DoRA"}
_WORDS_PX = 280  # at least, to have the buttons beside them
_HASH_LETTERS = 12
CONFIG_FILE = "adapter_config.json"
"""File of an adapter in PEFT's format that tells its folder from a model's."""


class StartLine(QWidget):
    """Chooses the adapter that training continues from, and says what comes from it.

    Args:
        client: connection to the engine.
        bench: workbench with the recipe.

    Attributes:
        failed: signal with a `Failure` of reading an adapter.
    """

    failed = Signal(object)

    def __init__(self, client: EngineClient, bench: Workbench) -> None:
        super().__init__()
        self.setProperty(PLACE_PROPERTY, "models.md#going-on-from-an-adapter")
        self._bench = bench
        self._tried = ""
        self._question = Question(client, self, self._found, self._not_found)
        self._facts: AdapterFacts | None = None
        self._runs: list[RunSummary] = []
        self._text = body("")
        self.detail = caption("")
        self.menu = QMenu(self)
        self.menu.aboutToShow.connect(self._fill_menu)
        self.choose_button = secondary(tr("Continue from an adapter"))
        self.choose_button.setMenu(self.menu)
        self.reset = link(tr("Begin with a new one"), self._begin_anew)
        words = QWidget()
        words.setMinimumWidth(_WORDS_PX)
        words.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        fill(QVBoxLayout(words), self._text, self.detail, spacing_px=2)
        actions = fill(FlowLayout(), self.reset, self.choose_button)
        line = fill(FlowLayout(2 * UNIT, UNIT), words, actions)
        self.setLayout(line)
        bench.changed.connect(lambda name: self.show_start() if name == "recipe" else None)
        self.show_start()

    @property
    def seeks_model(self) -> bool:
        """Whether the adapter's own model was not found, so that a person has to choose it."""
        return self._facts is not None and not self._facts.base_path

    def show_runs(self, runs: Sequence[RunSummary]) -> None:
        """Take the runs; the menu offers those that have an adapter."""
        self._runs = list(runs)

    def show_start(self) -> None:
        """Show the adapter that the recipe names, and read its facts if they are unknown."""
        start = self._bench.recipe.adapter.start
        self.reset.setVisible(bool(start))
        if not start:
            self._facts, self._tried = None, ""
            self._text.setText(tr("Training begins with a new adapter."))
            self.detail.setText(tr("Or continue from one that you trained before, with new data."))
        elif self._facts is not None and self._facts.path == start:
            self._show_facts(self._facts)
        elif self._tried != start:
            self._tried = start
            self._text.setText(tr("Continues from {name}").format(name=Path(start).name))
            self.detail.setText(tr("Reading the adapter ..."))
            self.choose(start)

    def choose(self, path: str) -> None:
        """Continue from an adapter.

        Args:
            path: folder of a run that has ended, or of an adapter in PEFT's format.
        """
        self._question.ask(AdapterRequest, path=path)

    def _found(self, result: Result) -> None:
        facts = result.adapter
        if facts is None:
            return
        chosen = self._bench.recipe.adapter.start != facts.path
        if chosen and facts.base_path:
            self._bench.set_model_path(facts.base_path)
        self._facts = facts  # another model has just dropped those before
        if chosen:
            self._bench.set_start(facts.path)
        self.show_start()

    def _not_found(self, failure: Failure) -> None:
        if self._bench.recipe.adapter.start:
            self.detail.setText(failure.what)
        self.failed.emit(failure)

    def _show_facts(self, facts: AdapterFacts) -> None:
        run = next((run.state.name for run in self._runs if run.folder == facts.path), "") or Path(facts.path).name
        base = facts.base or tr("a model that it does not name")
        self._text.setText(tr("Continues from {name}, trained on {base}.").format(name=run, base=base))
        targets = tr("all layers") if facts.targets in (["auto"], ["all-linear"]) else ", ".join(facts.targets)
        settings = tr("{method} of rank {rank} on {targets}, as it was trained.  SHA-256 {hash}").format(
            method=_METHODS[facts.method], rank=facts.rank, targets=targets, hash=facts.sha256[:_HASH_LETTERS]
        )
        missing = tr("That model was not found on this machine: fetch it, or choose a copy of it below.")
        self.detail.setText(settings if facts.base_path else f"{missing} {settings}")
        self.detail.setToolTip(facts.sha256)

    def _fill_menu(self) -> None:
        self.menu.clear()
        runs = [run for run in self._runs if is_file(RunPaths(Path(run.folder)).adapter / CONFIG_FILE)]
        for run in runs:
            title = f"{run.state.name or Path(run.folder).name}  ·  {run.model}"
            self.menu.addAction(title.replace("&", "&&")).triggered.connect(partial(self._choose_run, run.folder))
        if runs:
            self.menu.addSeparator()
        self.menu.addAction(tr("A folder in PEFT's format ..."), self._browse)

    def _begin_anew(self) -> None:
        """Begin with a new adapter; one that is still being read is not chosen any more."""
        self._question.drop()
        self._bench.set_start("")

    def _choose_run(self, folder: str, _checked: bool = False) -> None:
        self.choose(folder)

    def _browse(self) -> None:
        dialog = QFileDialog(self, tr("Choose an adapter's folder"))
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.fileSelected.connect(self.choose)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()
