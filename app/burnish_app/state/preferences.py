"""Remembers the window's settings: geometry, theme, last page and recent folders. The work itself is in `workbench`."""

from __future__ import annotations

import math
from pathlib import Path

from PySide6.QtCore import QByteArray, QSettings

from burnish_app.look.motion import MotionMode
from burnish_app.look.theme import ThemeMode
from burnish_engine.contract.paths import user_data_dir

_RECENT = 8


def studio_dir() -> Path:
    """Return the folder of the studio's own files."""
    return user_data_dir() / "studio"


class Preferences:
    """The window's settings, in a file under the user's data folder so that a portable install carries them."""

    def __init__(self, file: Path | None = None) -> None:
        self._settings = QSettings(str(file or studio_dir() / "window.ini"), QSettings.Format.IniFormat)

    @property
    def theme(self) -> ThemeMode:
        """The theme mode: light, dark, or the system's."""
        value = str(self._settings.value("theme", "system"))
        return value if value in ("light", "dark") else "system"  # type: ignore[return-value]

    @theme.setter
    def theme(self, mode: ThemeMode) -> None:
        self._settings.setValue("theme", mode)

    @property
    def text_percent(self) -> int:
        """The text size, percent of the system's."""
        try:
            return int(str(self._settings.value("text_percent", 100)))
        except ValueError:
            return 100

    @text_percent.setter
    def text_percent(self, percent: int) -> None:
        self._settings.setValue("text_percent", percent)

    @property
    def motion(self) -> MotionMode:
        """The motion mode: full, reduced, or the system's."""
        value = str(self._settings.value("motion", "system"))
        return value if value in ("full", "reduced") else "system"  # type: ignore[return-value]

    @motion.setter
    def motion(self, mode: MotionMode) -> None:
        self._settings.setValue("motion", mode)

    @property
    def page(self) -> str:
        """The key of the page shown last; empty at the first start."""
        return str(self._settings.value("page", ""))

    @page.setter
    def page(self, key: str) -> None:
        self._settings.setValue("page", key)

    @property
    def asks_on_close(self) -> bool:
        """Whether the window asks on closing while a run or an export is running."""
        return str(self._settings.value("asks_on_close", "yes")) != "no"

    @asks_on_close.setter
    def asks_on_close(self, asks: bool) -> None:
        self._settings.setValue("asks_on_close", "yes" if asks else "no")

    @property
    def notifies(self) -> bool:
        """Whether the system shows a notification when something ends while the window is not the active one."""
        return str(self._settings.value("notifies", "yes")) != "no"

    @notifies.setter
    def notifies(self, notifies: bool) -> None:
        self._settings.setValue("notifies", "yes" if notifies else "no")

    @property
    def price_per_kwh(self) -> float:
        """The price of a kilowatt hour of electricity, in the person's currency; 0 if it was never set."""
        try:
            price = float(str(self._settings.value("price_per_kwh", 0.0)))
        except ValueError:
            return 0.0
        return price if 0 <= price < math.inf else 0.0

    @price_per_kwh.setter
    def price_per_kwh(self, price: float) -> None:
        self._settings.setValue("price_per_kwh", price)

    @property
    def geometry(self) -> QByteArray | None:
        """The size and position of the window, as Qt saved them; None if they were never saved."""
        value = self._settings.value("geometry")
        return value if isinstance(value, QByteArray) else None

    @geometry.setter
    def geometry(self, geometry: QByteArray) -> None:
        self._settings.setValue("geometry", geometry)

    def recent(self, what: str) -> list[str]:
        """Return the recently used paths, newest first.

        Args:
            what: kind of path, such as "model".
        """
        value = self._settings.value(f"recent/{what}", [])
        found = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        return [str(path) for path in found]

    def add_recent(self, what: str, path: str) -> None:
        """Put a path at the front of the recent ones."""
        others = [known for known in self.recent(what) if known != path]
        self._settings.setValue(f"recent/{what}", [path, *others][:_RECENT])
