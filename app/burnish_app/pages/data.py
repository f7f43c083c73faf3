"""The page Data: files, rows with the roles of their columns, findings, figures, and the chat template."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import QFileDialog

from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.inspection import DatasetInspection
from burnish_app.look.language import tr
from burnish_app.look.tokens import GAP_PX
from burnish_app.page_states.data import bad_files, page_state
from burnish_app.state.objectives import is_open, known_objective, offered_objectives
from burnish_app.state.workbench import Workbench
from burnish_app.widgets.basic.buttons import FoldedContent
from burnish_app.widgets.basic.card import Card, EmptyState
from burnish_app.widgets.basic.drop import DATA_FILTER, DATA_FORMATS_TEXT, HUB_PREFIX, classify_drop, typed_path
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.to_come import CardsToCome
from burnish_app.widgets.basic.wrapping import columns_layout
from burnish_app.widgets.data.dataset_cards import FactsCard, LengthsCard
from burnish_app.widgets.data.files_card import FilesCard
from burnish_app.widgets.data.findings_card import FindingsCard
from burnish_app.widgets.data.held_out_card import HeldOutCard
from burnish_app.widgets.data.objective_card import ObjectiveCard
from burnish_app.widgets.data.rows_card import RowsCard
from burnish_app.widgets.data.template_card import TemplateCard
from burnish_app.widgets.page.banner import BannerAction
from burnish_app.widgets.page.page import Page
from burnish_app.wording.data_text import action_text, details_title, named_settings
from burnish_app.wording.numbers import plural
from burnish_engine.contract.facts.data_report import RowPlace
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.paths import assets_dir
from burnish_engine.contract.recipe.recipe_preference import Objective
from burnish_engine.contract.serve.messages import Failure

_SAMPLE = ("bench-notes.train.jsonl", "bench-notes.heldout.jsonl")


class DataPage(Page):
    """Lets the person choose data files and shows what the model will learn from them."""

    key, title, question = "data", tr("Data"), tr("What is in it?")

    def __init__(self, client: EngineClient, bench: Workbench) -> None:
        super().__init__(client, bench)
        self._inspection = DatasetInspection(client, bench, self)
        self.files = self._make_files()
        self.held_out = HeldOutCard()
        self.held_out.files_wanted.connect(lambda: self._ask_files(tr("Held-out data"), self._use_validation))
        self.held_out.share_wanted.connect(lambda: self._use_validation([]))
        self.rows = RowsCard(client, bench)
        self.rows.columns_chosen.connect(self._choose_columns)
        self.rows.found.connect(self._columns_found)
        self.template = TemplateCard()
        self.objective = ObjectiveCard()
        self.objective.chosen.connect(self._choose_objective)
        self.template.chosen.connect(lambda name: self._change(template=name))
        self.template.file_wanted.connect(self._browse_template)
        self.template.message_chosen.connect(lambda text: self._change(system_prompt=text))
        self.facts, self.lengths, self.findings = FactsCard(), LengthsCard(), FindingsCard()
        self.lengths.cut_chosen.connect(lambda tokens: self._change(max_length=tokens))
        self.findings.changed.connect(lambda field, value: self._change(**{field: value}))
        self.findings.preference_changed.connect(self._change_preference)
        self.findings.rows_wanted.connect(self._open_rows)
        self.findings.message_wanted.connect(self._write_message)
        empty = Card()
        empty.body.addWidget(
            EmptyState(
                "drop",
                tr("Drop your dataset anywhere on this window."),
                tr("Try it with the sample"),
                self._take_sample,
                detail=tr(
                    "{data_formats_text}: conversations, instructions, prompt and completion, or plain text."
                ).format(data_formats_text=DATA_FORMATS_TEXT),
            )
        )
        self.add_parts(empty=empty)
        self.column.addLayout(columns_layout((self.files, self.held_out), GAP_PX, even=True, fill=True))
        self.column.addWidget(self.rows)
        self.column.addWidget(self.objective)
        self.add_parts(1, to_come=CardsToCome(tr("What is in it appears when the rows are read")))
        self.parts |= {"busy": self.files.busy, "held_out": self.held_out}
        self.column.addWidget(self.lengths)
        self.details = FoldedContent()
        self.details.set_title(details_title(0))
        fill(self.details.lines, self.findings, self.facts, self.template, spacing_px=GAP_PX)
        self.column.addWidget(self.details)
        self.set_primary(tr("Next: the recipe"), self._go_on, "next")
        bench.changed.connect(self._bench_changed)
        self._inspection.changed.connect(self._show)
        self._inspection.progressed.connect(self.files.busy.set_progress)
        self._inspection.failed.connect(self._inspect_failed)
        self._failed = False
        self._left: list[Callable[[DatasetFacts], None]] = []
        self._turn = QTimer(self, singleShot=True, interval=0)
        self._turn.timeout.connect(self._show_more)
        self._show()

    def shown(self) -> None:
        """Inspect the data, unless the facts about the present choices are known."""
        self._inspection.inspect_dataset()
        self._show()

    def take_drop(self, paths: list[str], *, instead: bool = False) -> None:
        """Add data files to the chosen ones, or take them in place of those.

        Args:
            paths: absolute paths.
            instead: whether they take the place of the others. Else a banner offers that too.
        """
        known = self.bench.data_files
        new = [path for path in paths if path not in known]
        self._use(paths if instead else [*known, *new])
        if known and new and not instead:
            self.banner(
                "info",
                tr("{new} was added to {known}.").format(new=self._named(new), known=self._named(known)),
                "",
                [
                    (tr("Use only {new}").format(new=self._named(new)), lambda: self._use(new)),
                    (tr("Take it back"), lambda: self._use(known)),
                ],
                close_text=tr("Keep all"),
            )

    @staticmethod
    def _named(files: list[str]) -> str:
        return Path(files[0]).name if len(files) == 1 else plural(len(files), "file")

    def _make_files(self) -> FilesCard:
        card = FilesCard()
        card.entered.connect(self._take_path)
        card.browse.connect(lambda: self._ask_files(tr("Add data"), self.take_drop))
        card.removed.connect(lambda path: self._use([known for known in self.bench.data_files if known != path]))
        card.changed.connect(lambda field, value: self._change(**{field: value}))
        card.opened.connect(self._open_file)
        card.weighed.connect(lambda weights: self._change(weights=weights))
        card.busy.cancel.connect(self._inspection.cancel)
        return card

    def _use(self, files: list[str]) -> None:
        self.clear_banner()
        self._failed = False
        self.bench.set_data_files(files)
        self._inspection.inspect_dataset()

    def _change(self, **update: object) -> None:
        """Change fields of the recipe's data section and inspect the data again."""
        self.clear_banner()
        self._failed = False
        self.bench.change_data(**update)
        self.rows.refresh()
        self._inspection.inspect_dataset()
        self._show()

    def _choose_columns(self, pairs: list[str]) -> None:
        """Read the columns otherwise; what is learned from preferences stays as it was chosen."""
        shape = self.bench.recipe.data.shape
        is_same = shape in ("preference", "kto") and any(pair.startswith(("rejected=", "label=")) for pair in pairs)
        self._change(shape=shape if is_same else "auto", columns=pairs)

    def _choose_objective(self, objective: Objective) -> None:
        """Learn something else from preferences, and inspect the data again."""
        dataset = self._shown_dataset()
        if dataset is not None and objective != self.bench.recipe.preference.objective:
            self.clear_banner()
            self.bench.set_objective(objective, dataset)
            self._inspection.inspect_dataset()
            self._show()

    def _change_preference(self, field: str, value: object) -> None:
        """Change a field of the recipe's preference section, as a finding advises."""
        if field == "objective":
            self._choose_objective(known_objective(str(value)))
            return
        self.clear_banner()
        self.bench.change_preference(field, float(str(value)))
        self._inspection.inspect_dataset()
        self._show()

    def _offer_objective(self) -> None:
        """Choose the usual objective for preferences that were recognized, as long as the recipe does not say one."""
        dataset = self.bench.dataset
        offered = offered_objectives(dataset)
        if dataset is not None and offered and offered[0] != "sft" and is_open(self.bench.recipe):
            self.bench.set_objective(offered[0], dataset)

    def _take_path(self) -> None:
        path = typed_path(self.files.path.text())
        if not path:
            return
        drop = classify_drop([path])
        if path.startswith(HUB_PREFIX) or drop.page == "data":
            self.files.path.clear()
            self.take_drop([path])
        elif not os.path.exists(path):  # noqa: PTH110  Path.exists raises errors of the system
            self.banner("error", tr("There is no file {path}.").format(path=path), tr("Check the path, or use Browse."))
        else:
            self.banner(
                "warning",
                drop.what or tr("{path} is no data file.").format(path=path),
                drop.remedy or tr("Use {data_formats_text}.").format(data_formats_text=DATA_FORMATS_TEXT),
            )

    def _take_sample(self) -> None:
        folder = assets_dir() / "samples"
        self.bench.set_validation_files([str(folder / _SAMPLE[1])])
        self._use([str(folder / _SAMPLE[0])])

    def _use_validation(self, files: list[str]) -> None:
        self.bench.set_validation_files(files)
        self._inspection.inspect_dataset()

    def _browse_template(self) -> None:
        self._ask_files(
            tr("Chat template"),
            lambda files: self._change(template=files[0]),
            tr("Chat templates (*.jinja)"),
            several=False,
        )

    def _ask_files(
        self, title: str, use: Callable[[list[str]], object], kinds: str = DATA_FILTER, *, several: bool = True
    ) -> None:
        dialog = QFileDialog(self, title, "", kinds)
        dialog.setFileMode(QFileDialog.FileMode.ExistingFiles if several else QFileDialog.FileMode.ExistingFile)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.filesSelected.connect(use)
        dialog.open()

    def _columns_found(self) -> None:
        """Ask in words where the inspection failed because nobody knows what the columns mean."""
        if self._failed and self.rows.is_open:
            self.banner(
                "warning",
                tr("It is not clear what the columns of {name} mean.").format(name=Path(self.rows.pages.file).name),
                tr("Please say it below."),
            )
            self._apply()
            self._see(self.rows)

    def _open_file(self, file: str) -> None:
        self.rows.open_file(file)
        self._see(self.rows)

    def _open_rows(self, places: list[RowPlace], count: int, says: str) -> None:
        self.rows.show_places(places, count, says)
        self._see(self.rows)
        self.rows.table.setFocus()

    def _write_message(self) -> None:
        self.details.open()
        self._see(self.template)
        self.template.message.setFocus()

    def _inspect_failed(self, failure: Failure) -> None:
        self._failed = True
        actions: list[BannerAction] = [
            (action_text(one), partial(self._change, **{one.key.rpartition(".")[2]: one.value}))
            for one in named_settings(failure.remedy)
        ]
        self.banner("error", failure.what, failure.remedy, actions)
        self._columns_found()

    def _go_on(self) -> None:
        """Leave out the files that cannot be trained on, and continue to the recipe."""
        if self.does == "leave_out":
            bad = {file.entry for file in bad_files(self.bench.dataset)}
            self._use([file for entry, file in enumerate(self.bench.data_files) if entry not in bad])
        self.go_to.emit("recipe")

    def _bench_changed(self, name: str) -> None:
        if name in ("data_files", "validation_files", "dataset"):
            self._failed = False
            self._offer_objective()
            if self.isVisible():
                self._inspection.inspect_dataset()
            self._show()

    def _shown_dataset(self) -> DatasetFacts | None:
        """Return the facts to show: the old ones while the same files are inspected again, so that nothing jumps."""
        return self.bench.last_dataset if self.bench.dataset is not None or self._inspection.busy else None

    def _show(self) -> None:
        dataset, data = self._shown_dataset(), self.bench.recipe.data
        status = dataset.report.files if dataset is not None and dataset.report is not None else []
        self.files.show_files(data.files, data.weights, status)
        self.held_out.show_held_out(self.bench.validation_files, data.validation_share)
        if data.files:
            good_first = sorted(status, key=lambda one: bool(one.problem))
            names = list(dict.fromkeys(one.file for one in good_first)) or [data.files[0]]
            self.rows.show_files(names, (self.bench.dataset_inputs().stamps, data.encoding))
        else:
            self.rows.forget()
        if dataset is not None:
            self._left = [self._show_objectives, self._show_findings, self._show_facts, self._show_template]
            self._turn.start()  # each in a turn of its own, so that none takes long
        else:
            self._left = []
            for card in (self.lengths, self.details, self.objective):
                card.hide()
        self._apply()

    def _apply(self) -> None:
        """Show what stands around the cards."""
        self.apply(
            page_state(
                self.bench.dataset,
                self._shown_dataset(),
                has_files=bool(self.bench.data_files),
                is_busy=self._inspection.busy,
                is_filling=bool(self._left),
                has_failed=self._failed,
                asks_columns=self.rows.is_open,
            )
        )

    def _show_more(self) -> None:
        """Fill the next card while it is hidden, then show it: a visible card is laid out anew with every line."""
        dataset = self._shown_dataset()
        if self._left and dataset is not None:
            self._left.pop(0)(dataset)
            self._turn.start()
        else:
            self._left = []
            self._apply()

    def _show_objectives(self, dataset: DatasetFacts) -> None:
        objective = self.bench.recipe.preference.objective
        self.objective.show_objectives(offered_objectives(dataset), objective, dataset)

    def _show_findings(self, dataset: DatasetFacts) -> None:
        self.findings.show_facts(dataset, self.bench.recipe.data)
        self.details.set_title(details_title(self.findings.count))
        if not dataset.train_rows:
            self.details.open()  # what is odd about the rows says why none is left
        self.details.show()

    def _show_facts(self, dataset: DatasetFacts) -> None:
        self.facts.show_facts(dataset)
        self.lengths.show_facts(dataset, self.bench.recipe.data)

    def _show_template(self, dataset: DatasetFacts) -> None:
        data = self.bench.recipe.data
        self.template.show_template(
            data.template, data.system_prompt, dataset.report.template if dataset.report else None
        )
