"""What the page Settings shows of the preferences. No Qt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from burnish_app.page_states.page_state import PageState


@dataclass(frozen=True, kw_only=True)
class SettingsState(PageState):
    """What the page Settings shows.

    Attributes:
        chosen: value of each choice, by its name.
        text_percent: size of the text, percent of what the system asks for.
        price: price of a kilowatt hour; 0: not set.
    """

    chosen: Mapping[str, str] = field(default_factory=dict)
    text_percent: int = 100
    price: float = 0.0


def page_state(
    *, mode: str, motion: str, asks_on_close: bool, notifies: bool, text_percent: int, price: float
) -> SettingsState:
    """Say what is shown of the preferences, which are named as `Preferences` names them."""
    asking, notifying = ("yes" if is_on else "no" for is_on in (asks_on_close, notifies))
    chosen = {"mode": mode, "motion": motion, "asking": asking, "notifying": notifying}
    return SettingsState(chosen=chosen, text_percent=text_percent, price=price)
