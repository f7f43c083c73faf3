"""The page Start: the run to go on with, three ways to begin, and the runs that were worked on last."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout

from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.loss_outlines import LossOutlines
from burnish_app.look.fonts import scaled, scaled_width
from burnish_app.look.language import tr
from burnish_app.look.tokens import GAP_PX
from burnish_app.page_states.start import page_state
from burnish_app.state.example_run import open_example
from burnish_app.state.workbench import Workbench
from burnish_app.widgets.basic.buttons import ActionButton, link, primary, secondary
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import clear
from burnish_app.widgets.basic.text import body
from burnish_app.widgets.basic.wrapping import columns_layout
from burnish_app.widgets.hardware.machine_card import MachineCard
from burnish_app.widgets.page.page import Page
from burnish_app.widgets.runs.recent_run import RecentRun, line_up
from burnish_app.widgets.runs.run_to_continue import RunToContinue
from burnish_engine.contract.files import is_file
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.serve.replies import RunSummary

_CARD_PX = 220
_WIDE_PX = 480
"""Least width of the newest run and of the list of runs where they stand side by side, at 100 % text size."""
_RECENT = 5


class StartPage(Page):
    """Offers an example, training, and earlier runs."""

    key, title, question = "start", tr("Start"), tr("What do you want to do?")
    wants_runs = True

    def __init__(self, client: EngineClient, bench: Workbench) -> None:
        super().__init__(client, bench)
        self.watch = secondary(tr("Open the example"), self._open_example, "play")
        self.train = primary(tr("Add my data"), self._train, "next")
        self.open = secondary(
            tr("Choose a folder ..."), lambda: self.ask_folder(tr("Open a run's folder"), self.open_folder), "folder"
        )
        cards = (
            _card(
                "play",
                tr("Watch a finished example"),
                tr(
                    "A real run of the model that comes with Burnish: its curves, its checks, and what it said "
                    "before and after. Talk to it, compare it, export it: no GPU needed."
                ),
                self.watch,
            ),
            _card(
                "rocket",
                tr("Train on my data"),
                tr(
                    "Drop a file anywhere on the window, or take the sample. Model and settings are suggested with "
                    "their reasons; you see what it takes before it starts."
                ),
                self.train,
            ),
            _card(
                "folder",
                tr("Open a run"),
                tr("From this machine or a drive: look at it, talk to it, make files of it."),
                self.open,
            ),
        )
        self.recent = Card(tr("Recent runs"), icon_name="clock")
        self.to_continue = RunToContinue()
        self.to_continue.opened.connect(self._open)
        pair = (self.to_continue, self.recent)
        self.column.addLayout(
            columns_layout(pair, GAP_PX, line_px=GAP_PX, even=True, fill=True, least_px=scaled(_WIDE_PX))
        )
        self.column.addLayout(columns_layout(cards, GAP_PX, line_px=GAP_PX, even=True, fill=True))
        self.parts |= {"goes_on": self.to_continue, "recent": self.recent}
        self.machine = MachineCard(client, bench)
        self.machine.opened.connect(lambda: self.go_to.emit("hardware"))
        self.add_parts(steps=_steps_card(self))
        self.column.addWidget(self.machine)
        self._outlines = LossOutlines(self)
        self._outlines.changed.connect(self._show_newest)
        self._shown: list[RunSummary] = []
        self.apply(page_state(0))

    def shown(self) -> None:
        """Request the runs and the facts about the machine."""
        self.refresh_runs.emit()
        self.machine.ask()

    def runs_changed(self, runs: list[RunSummary]) -> None:
        """Show the newest runs."""
        if runs[: _RECENT + 1] != self._shown:
            self._shown = runs[: _RECENT + 1]
            clear(self.recent.body)
            lines = [RecentRun(run) for run in self._shown[1:]]
            for line in lines:
                line.opened.connect(self._open)
                self.recent.body.addWidget(line)
            self.recent.body.addStretch(1)
            line_up(lines)
            self._show_newest()
            self._outlines.read(run.folder for run in self._shown[:1])
            self.train.set_look("secondary" if self._shown else "primary")
            self.apply(page_state(len(self._shown)))

    def _show_newest(self) -> None:
        if self._shown:
            newest = self._shown[0]
            self.to_continue.show_run(newest, self._outlines.of(newest.folder))

    def _open(self, folder: str, page: str = "train") -> None:
        self.bench.set_run(folder)
        self.go_to.emit(page)

    def _open_example(self) -> None:
        try:
            folder = open_example()
        except OSError as error:
            self.banner(
                "error",
                tr("The example could not be written: {value}.").format(value=error.strerror or error),
                tr("Free some space in the data folder."),
            )
            return
        self._open(str(folder))

    def _train(self) -> None:
        self.go_to.emit("data")

    def open_folder(self, path: str) -> None:
        """Open a run by its folder, or say what a run's folder holds."""
        paths = RunPaths(Path(path))
        if is_file(paths.events) or is_file(paths.state):
            self._open(path)
        else:
            self.banner(
                "warning",
                tr("{name} is not a run's folder: it has no {name_2}.").format(
                    name=Path(path).name, name_2=paths.events.name
                ),
                tr("Choose the folder that holds {name} and {name_2}.").format(
                    name=paths.recipe.name, name_2=paths.events.name
                ),
            )


def _card(icon_name: str, name: str, text: str, button: ActionButton) -> Card:
    card = Card(name, icon_name=icon_name)
    card.setMinimumWidth(scaled_width(_CARD_PX))
    card.body.addWidget(body(text, "muted"))
    card.body.addStretch(1)
    card.body.addWidget(button, alignment=Qt.AlignmentFlag.AlignLeft)
    return card


_STEPS = (
    ("model", tr("Model"), tr("What to start from; one is chosen already.")),
    ("data", tr("Data"), tr("What it shall learn, and what is odd about it.")),
    ("recipe", tr("Recipe"), tr("Every setting with its reason, and whether it fits.")),
    ("train", tr("Train"), tr("Loss, checks and replies as it learns. It continues when the window closes.")),
    ("try_out", tr("Try it"), tr("Before and after training, side by side.")),
    ("export", tr("Export"), tr("One file for a laptop or a phone, proven against the model.")),
)


def _steps_card(page: StartPage) -> Card:
    card = Card(
        tr("How it goes"), tr("The steps stand in the sidebar; each can be visited at any time."), icon_name="recipe"
    )
    grid = QGridLayout()
    grid.setHorizontalSpacing(GAP_PX)
    grid.setVerticalSpacing(0)
    grid.setColumnStretch(1, 1)
    for number, (key, name, text) in enumerate(_STEPS):
        grid.addWidget(link(name, partial(page.go_to.emit, key)), number, 0, Qt.AlignmentFlag.AlignLeft)
        grid.addWidget(body(text, "muted"), number, 1)
    card.body.addLayout(grid)
    return card
