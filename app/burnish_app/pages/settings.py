"""The page Settings: appearance, keys, price of electricity, the engine, data folder, logs, and version."""

from __future__ import annotations

from functools import partial
from typing import Any, get_args

from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QDoubleSpinBox, QGridLayout, QWidget

from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine_setup.engine_command import sets_engine_up
from burnish_app.engine_setup.engine_work import EngineWork
from burnish_app.look.fonts import scaled
from burnish_app.look.language import tr
from burnish_app.look.motion import MotionMode, set_motion
from burnish_app.look.theme import Theme, ThemeMode
from burnish_app.look.tokens import GAP_PX, MAX_TEXT_SHARE, MIN_TEXT_SHARE, UNIT
from burnish_app.page_states.settings import page_state
from burnish_app.state.preferences import Preferences
from burnish_app.state.workbench import Workbench
from burnish_app.widgets.basic.buttons import row, secondary
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.pill import Segmented
from burnish_app.widgets.basic.text import PathLabel, ShorteningBox, body, caption, mono, pad_spin
from burnish_app.widgets.basic.wrapping import FlowLayout, columns_layout
from burnish_app.widgets.engine.engine_card import EngineCard
from burnish_app.widgets.engine.log_card import LogCard
from burnish_app.widgets.page.page import Page
from burnish_engine.contract.failure_report import versions
from burnish_engine.contract.files import make_private
from burnish_engine.contract.paths import HOME_VARIABLE, user_data_dir
from burnish_engine.contract.version import burnish_version

_PRICE_PX = 96
_CARD_PX = 300  # with less room for each, cards stand one below the other
_MODE_TEXT: dict[ThemeMode, str] = {"system": tr("As the system"), "light": tr("Light"), "dark": tr("Dark")}
_MOTION_TEXT: dict[MotionMode, str] = {"system": tr("As the system"), "full": tr("Full"), "reduced": tr("Reduced")}
_TEXT_PERCENTS = tuple(range(round(MIN_TEXT_SHARE * 100), round(MAX_TEXT_SHARE * 100) + 1, 10))
_KEYS = (
    (tr("Ctrl+0 to Ctrl+9"), tr("Go to a page")),
    ("Ctrl+,", tr("Go to these settings")),
    ("Return", tr("Send your message on Try it; Shift+Return begins a new line")),
    ("Ctrl+Return", tr("Press the main button of the page")),
    ("Ctrl+O", tr("Add data files")),
    ("Ctrl+F", tr("On Runs and Recipe: filter, search")),
    (tr("Delete"), tr("On Runs: delete the selected runs")),
    (tr("Ctrl+Z, Ctrl+Y"), tr("On Recipe: undo and redo changes")),
    (tr("Tab, Shift+Tab"), tr("Go to the next or previous control")),
    (tr("Arrow keys"), tr("Move among steps, rows and choices")),
    ("F1, ?", tr("Open the guide at this page")),
    (tr("Page Up, Page Down"), tr("Scroll the page")),
)


class SettingsPage(Page):
    """Lets the person choose theme, text size and motion, set the price of electricity, and open the logs."""

    key, title, question = "settings", tr("Settings"), tr("How shall the window look?")

    def __init__(self, client: EngineClient, bench: Workbench) -> None:
        super().__init__(client, bench)
        yes_no = [("yes", tr("Yes")), ("no", tr("No"))]
        self.mode = Segmented(tr("Light or dark"), [(mode, _MODE_TEXT[mode]) for mode in get_args(ThemeMode)])
        self.text = ShorteningBox(by_content=True)
        self.text.setAccessibleName(tr("Text size"))
        for percent in _TEXT_PERCENTS:
            self.text.addItem(f"{percent} %", percent)
        self.motion = Segmented(tr("Motion"), [(mode, _MOTION_TEXT[mode]) for mode in get_args(MotionMode)])
        self.asking = Segmented(tr("Ask before closing"), yes_no)
        self.notifying = Segmented(tr("Notifications"), yes_no)
        appearance = Card(tr("Appearance"), tr("Changes show at once."), icon_name="settings")
        for name, hint, control in (
            (tr("Light or dark"), "", self.mode),
            (tr("Text size"), tr("Of the size that the system asks for."), self.text),
            (tr("Motion"), tr("Moving bars, parts that unfold."), self.motion),
            (tr("Ask before closing"), tr("While a run, an export or a duel is running."), self.asking),
            (tr("Notifications"), tr("When one ends or needs you while you look elsewhere."), self.notifying),
        ):
            appearance.body.addLayout(_line(name, hint, control))
        appearance.body.addStretch(1)
        folder = Card(tr("Data folder"), tr("Runs, fetched models and the studio's own files."), icon_name="folder")
        folder.body.addWidget(row(PathLabel(str(user_data_dir())), secondary(tr("Open"), self._open_folder, "open")))
        folder.body.addWidget(
            caption(
                tr("The environment variable {home_variable} moves it, for all of Burnish.").format(
                    home_variable=HOME_VARIABLE
                )
            )
        )
        folder.body.addStretch(1)
        about = Card(tr("About"), icon_name="info")
        about.body.addWidget(
            body(tr("Burnish {burnish_version}. Licensed under Apache-2.0.").format(burnish_version=burnish_version()))
        )
        about.body.addWidget(caption(", ".join(f"{name} {number}" for name, number in versions().items())))
        about.body.addWidget(
            caption(
                tr("Set in Inter and JetBrains Mono, under the SIL Open Font License. Drawn with Qt, under LGPL-3.0.")
            )
        )
        about.body.addStretch(1)
        self.price = QDoubleSpinBox()
        self.price.setAccessibleName(tr("Price of a kilowatt hour"))
        self.price.setRange(0.0, 1000.0)
        self.price.setDecimals(4)
        self.price.setSpecialValueText(tr("not set"))
        self.price.setMinimumWidth(_PRICE_PX)
        pad_spin(self.price)
        energy = Card(
            tr("Energy"),
            tr("Runs on a GPU then also say what they cost, in the same currency."),
            icon_name="energy",
        )
        energy.body.addLayout(_line(tr("Price of a kilowatt hour"), "", self.price))
        energy.body.addStretch(1)
        engine = [EngineCard(EngineWork.beside(client))] if sets_engine_up() else []
        for pair in ((appearance, _keys_card()), engine, (folder, energy), (LogCard(client.log_file()),), (about,)):
            self.column.addLayout(columns_layout(pair, GAP_PX, even=True, fill=True, least_px=scaled(_CARD_PX)))

    def take_preferences(self, preferences: Preferences, theme: Theme) -> None:
        """Show the preferences and write changes to them."""
        state = page_state(
            mode=theme.mode,
            motion=preferences.motion,
            asks_on_close=preferences.asks_on_close,
            notifies=preferences.notifies,
        )
        self.apply(state)
        choices = {"mode": self.mode, "motion": self.motion, "asking": self.asking, "notifying": self.notifying}
        for name, choice in choices.items():
            choice.choose(state.chosen[name])
            choice.chosen.connect(partial(self._choose, preferences, theme, name))
        self.text.setCurrentIndex(max(self.text.findData(theme.text_percent), 0))
        self.text.activated.connect(lambda _index: self._choose(preferences, theme, "text", self.text.currentData()))
        self.price.setValue(preferences.price_per_kwh)
        self.price.valueChanged.connect(partial(self._choose, preferences, theme, "price"))

    @staticmethod
    def _choose(preferences: Preferences, theme: Theme, name: str, value: Any) -> None:
        """Keep a choice, and let it take effect."""
        match name:
            case "mode":
                preferences.theme = value
                theme.set_mode(value)
            case "text":
                preferences.text_percent = value
                theme.set_text_percent(value)
            case "motion":
                preferences.motion = value
                set_motion(value)
            case "asking":
                preferences.asks_on_close = value == "yes"
            case "notifying":
                preferences.notifies = value == "yes"
            case "price":
                preferences.price_per_kwh = value

    @staticmethod
    def _open_folder() -> None:
        make_private(user_data_dir())
        QDesktopServices.openUrl(QUrl.fromLocalFile(str(user_data_dir())))


def _line(name: str, hint: str, control: QWidget) -> FlowLayout:
    words = QWidget()
    inner = QGridLayout(words)
    inner.setContentsMargins(0, 0, 0, 0)
    inner.setVerticalSpacing(0)
    inner.addWidget(body(name), 0, 0)
    if hint:
        inner.addWidget(caption(hint), 1, 0)
    inner.setColumnStretch(0, 1)
    words.setMinimumWidth(18 * UNIT)
    policy = words.sizePolicy()
    policy.setHorizontalPolicy(policy.Policy.Expanding)
    words.setSizePolicy(policy)
    line = FlowLayout(2 * UNIT, UNIT // 2)
    line.addWidget(words)
    line.addWidget(control)
    return line


def _keys_card() -> Card:
    card = Card(tr("Keys"), tr("All of the window can be used without a mouse."), icon_name="text")
    grid = QGridLayout()
    grid.setHorizontalSpacing(3 * UNIT)
    grid.setVerticalSpacing(UNIT // 2)
    grid.setColumnStretch(1, 1)
    for number, (keys, does) in enumerate(_KEYS):
        label = mono(keys)
        label.setWordWrap(False)
        grid.addWidget(label, number, 0, Qt.AlignmentFlag.AlignTop)
        grid.addWidget(body(does, "muted"), number, 1)
    card.body.addLayout(grid)
    card.body.addStretch(1)
    return card
