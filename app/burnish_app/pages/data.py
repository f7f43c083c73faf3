"""What is in it? Files, what is used and dropped, lengths, and one row colored by what is learned."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QLineEdit, QVBoxLayout

from burnish_app.drop import DATA_ENDINGS, DATA_WORDS, judge_drop
from burnish_app.engine_client import EngineClient
from burnish_app.inspection import Inspection
from burnish_app.pages.base import Page
from burnish_app.theme import UNIT
from burnish_app.widgets.banner import BusyLine
from burnish_app.widgets.buttons import quiet, row, secondary
from burnish_app.widgets.card import Card, EmptyState
from burnish_app.widgets.dataset_cards import FactsCard, LengthsCard
from burnish_app.widgets.layouts import clear
from burnish_app.widgets.row_browser import RowBrowser
from burnish_app.widgets.text import ElidedLabel, body
from burnish_app.words import percent
from burnish_app.workbench import Workbench
from burnish_engine.contract.paths import assets_dir
from burnish_engine.contract.protocol import Failure

_SAMPLE = ("bench-notes.train.jsonl", "bench-notes.heldout.jsonl")


class DataPage(Page):
    """Takes data files and shows what will be learned from them."""

    key, title, question = "data", "Data", "What is in it?"

    def __init__(self, client: EngineClient, bench: Workbench) -> None:
        super().__init__(client, bench)
        self._inspection = Inspection(client, bench, self)
        self._files = QVBoxLayout()
        self._files.setSpacing(UNIT // 2)
        self.path = QLineEdit()
        self.path.setPlaceholderText("Paste the path of a file")
        self.path.setAccessibleName("Path of a data file")
        self.path.returnPressed.connect(self._take_path)
        self._busy = BusyLine("Reading ...", can_cancel=True)
        self._busy.cancel.connect(self._inspection.cancel)
        self._busy.hide()
        self._files_card = Card("Files")
        self._files_card.body.addLayout(self._files)
        self._files_card.body.addWidget(row(self.path, secondary("Browse ...", self._browse)))
        self._files_card.body.addWidget(self._busy)
        self._files_card.body.addStretch(1)
        self._held_out = Card("Held out", "Rows the model never learns from, to see whether it really gets better.")
        self._held_out_words = body("")
        self._held_out_words.setToolTip("The recipe can change the share.")
        self._held_out.body.addWidget(self._held_out_words)
        self._own_file = secondary("Use a file of its own ...", self._browse_validation)
        self._share = quiet("Take a share of the rows instead", lambda: bench.set_validation_files([]))
        self._held_out.body.addWidget(row(self._own_file, self._share, None))
        self._held_out.body.addStretch(1)
        self.facts, self.lengths = FactsCard(), LengthsCard()
        self.rows = RowBrowser(client, bench)
        self._empty = EmptyState(
            "drop",
            "Drop your dataset anywhere on this window.",
            "Try it with the sample",
            self._take_sample,
            detail=f"{DATA_WORDS}: conversations, instructions, prompt and completion, or plain text.",
        )
        empty_card = Card()
        empty_card.body.addWidget(self._empty)
        self._empty_card = empty_card
        beside = QHBoxLayout()
        beside.setSpacing(2 * UNIT)
        beside.addWidget(self.facts, 1)
        beside.addWidget(self.lengths, 1)
        files = QHBoxLayout()
        files.setSpacing(2 * UNIT)
        files.addWidget(self._files_card, 1)
        files.addWidget(self._held_out, 1)
        self.column.addWidget(empty_card)
        self.column.addLayout(files)
        self.column.addLayout(beside)
        self.column.addWidget(self.rows, 1)
        self.set_primary("Next: the recipe", lambda: self.go_to.emit("recipe"))
        bench.changed.connect(self._bench_changed)
        self._inspection.started.connect(self._show)
        self._inspection.ended.connect(self._show)
        self._inspection.progressed.connect(self._busy.set_progress)
        self._inspection.failed.connect(self._inspect_failed)
        self._failed = False
        self._show()

    def shown(self) -> None:
        """Look at the data where that was not done with what is chosen now."""
        self._inspection.look()
        self._show()

    def take_drop(self, paths: list[str]) -> None:
        """Data files were dropped: they are added to those that are there."""
        known = self.bench.data_files
        self._use([*known, *(path for path in paths if path not in known)])

    def _use(self, files: list[str]) -> None:
        self.clear_banner()
        self._failed = False
        self.bench.set_data_files(files)
        self._inspection.look()

    def _take_path(self) -> None:
        text = self.path.text().strip().strip('"')
        if not text:
            return
        path = str(Path(text).expanduser().absolute())
        drop = judge_drop([path])
        if drop.page == "data":
            self.path.clear()
            self.take_drop(drop.paths)
        elif not Path(path).exists():
            self.banner("error", f"There is no file {path}.", "Check the path, or use Browse.")
        else:
            self.banner("warning", drop.what or f"{path} is no data file.", drop.remedy or f"Use {DATA_WORDS}.")

    def _take_sample(self) -> None:
        folder = assets_dir() / "samples"
        self.bench.set_validation_files([str(folder / _SAMPLE[1])])
        self._use([str(folder / _SAMPLE[0])])

    def _browse(self) -> None:
        self._ask_files("Add data", self.take_drop)

    def _browse_validation(self) -> None:
        self._ask_files("Held-out data", self._use_validation)

    def _use_validation(self, files: list[str]) -> None:
        self.bench.set_validation_files(files)
        self._inspection.look()

    def _ask_files(self, title: str, use: object) -> None:
        dialog = QFileDialog(self, title, "", f"Datasets ({' '.join('*' + ending for ending in DATA_ENDINGS)})")
        dialog.setFileMode(QFileDialog.FileMode.ExistingFiles)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.filesSelected.connect(use)
        dialog.open()

    def _remove(self, path: str) -> None:
        self._use([known for known in self.bench.data_files if known != path])

    def _inspect_failed(self, failure: Failure) -> None:
        self._failed = True
        self.failed(failure)
        self._show()

    def _bench_changed(self, name: str) -> None:
        if name in ("data_files", "validation_files", "dataset"):
            self._failed = False
            self._show()
            if self.isVisible():
                self._inspection.look()

    def _show(self) -> None:
        dataset = self.bench.dataset
        has_files, busy = bool(self.bench.data_files), self._inspection.busy
        self._show_files()
        self._show_held_out()
        self._empty_card.setVisible(not has_files)
        self._held_out.setVisible(has_files)
        self._busy.setVisible(busy)
        self.facts.setVisible(dataset is not None)
        self.lengths.setVisible(dataset is not None and dataset.lengths is not None)
        self.rows.setVisible(dataset is not None)
        if dataset is not None:
            self.facts.show_facts(dataset)
            self.lengths.show_facts(dataset, self.bench.recipe.data.max_length)
            self.rows.show_first(dataset)
            self.set_subtitle(f"{dataset.train_rows:,} rows to learn from, {dataset.validation_rows:,} held out.")
        else:
            self.set_subtitle("" if has_files else "The conversations or texts your model shall learn from.")
        if self.primary is not None:
            self.primary.setEnabled(has_files and not self._failed)
        if busy:
            self.set_status("busy")
        elif self._failed:
            self.set_status("attention")
        elif dataset is not None:
            self.set_status("done" if dataset.train_rows else "attention")
        else:
            self.set_status("ready" if has_files else "empty")

    def _show_files(self) -> None:
        clear(self._files)
        for path in self.bench.data_files:
            remove = quiet("Remove", partial(self._remove, path))
            remove.setAccessibleName(f"Remove {Path(path).name}")
            self._files.addWidget(row(ElidedLabel(path), remove))

    def _show_held_out(self) -> None:
        files = self.bench.validation_files
        self._share.setVisible(bool(files))
        if files:
            self._held_out_words.setText("\n".join(files))
        else:
            share = percent(self.bench.recipe.data.validation_share)
            self._held_out_words.setText(f"{share} of the rows, chosen at random.")
