"""The page Settings: theme, price of electricity, data folder and version."""

from __future__ import annotations

from typing import get_args

from PySide6.QtCore import QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QComboBox, QDoubleSpinBox

from burnish_app.engine.engine_client import EngineClient
from burnish_app.look.theme import Theme, ThemeMode
from burnish_app.pages.base import Page
from burnish_app.state.preferences import Preferences
from burnish_app.state.workbench import Workbench
from burnish_app.widgets.basic.buttons import row, secondary
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.text import ElidedLabel, body, caption, pad_spin
from burnish_engine.contract.files import make_private
from burnish_engine.contract.paths import HOME_VARIABLE, user_data_dir
from burnish_engine.contract.version import burnish_version

_PRICE_PX = 96
_MODE_TEXT: dict[ThemeMode, str] = {"system": "As the system", "light": "Light", "dark": "Dark"}


class SettingsPage(Page):
    """Lets the person choose the theme, set the price of electricity, and open the data folder."""

    key, title, question = "settings", "Settings", "Settings"

    def __init__(self, client: EngineClient, bench: Workbench) -> None:
        super().__init__(client, bench)
        self.mode = QComboBox()
        self.mode.setAccessibleName("Light or dark")
        for mode in get_args(ThemeMode):
            self.mode.addItem(_MODE_TEXT[mode], mode)
        appearance = Card("Appearance")
        appearance.body.addWidget(row(body("Light or dark"), None, self.mode))
        folder = Card("Data folder", "Runs, fetched models and the studio's own files.")
        folder.body.addWidget(row(ElidedLabel(str(user_data_dir())), secondary("Open", self._open_folder)))
        folder.body.addWidget(caption(f"The environment variable {HOME_VARIABLE} moves it, for all of Burnish."))
        about = Card("About")
        about.body.addWidget(body(f"Burnish {burnish_version()}. Licensed under Apache-2.0."))
        self.price = QDoubleSpinBox()
        self.price.setAccessibleName(self.tr("Price of a kilowatt hour"))
        self.price.setRange(0.0, 1000.0)
        self.price.setDecimals(4)
        self.price.setSpecialValueText(self.tr("not set"))
        self.price.setMinimumWidth(_PRICE_PX)
        pad_spin(self.price)
        energy = Card(self.tr("Energy"), self.tr("Runs on a GPU then also say what they cost, in the same currency."))
        energy.body.addWidget(row(body(self.tr("Price of a kilowatt hour")), None, self.price))
        for card in (appearance, energy, folder, about):
            self.column.addWidget(card)

    def take_preferences(self, preferences: Preferences, theme: Theme) -> None:
        """Show the preferences and write changes to them."""
        self.mode.setCurrentIndex(self.mode.findData(theme.mode))

        def choose() -> None:
            preferences.theme = self.mode.currentData()
            theme.set_mode(preferences.theme)

        self.mode.currentIndexChanged.connect(choose)
        self.price.setValue(preferences.price_per_kwh)

        def set_price(price: float) -> None:
            preferences.price_per_kwh = price

        self.price.valueChanged.connect(set_price)

    @staticmethod
    def _open_folder() -> None:
        make_private(user_data_dir())
        QDesktopServices.openUrl(QUrl.fromLocalFile(str(user_data_dir())))
