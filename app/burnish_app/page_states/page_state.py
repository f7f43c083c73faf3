"""Defines the state of a page as one value: status, name, buttons, and the parts that are seen. No Qt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from burnish_app.state.step_status import StepStatus
from burnish_app.wording.run_text import Tone


@dataclass(frozen=True, kw_only=True)
class ButtonState:
    """A button at the foot of a page, as it is shown. What is empty stays as the button was made.

    Attributes:
        text: text of the button.
        icon: file name in `assets/icons` without its ending.
        hint: text on hover; None: it stays.
        does: name of what a press does, where one button does several things.
        is_enabled: whether it can be pressed.
    """

    text: str = ""
    icon: str = ""
    hint: str | None = None
    does: str = ""
    is_enabled: bool = True


@dataclass(frozen=True, kw_only=True)
class PageState:
    """The state of a page, as it is shown. Pages add what their own parts show.

    Attributes:
        status: status of the step in the sidebar; None: it stays as it is.
        name: what the page is about; empty: the page's own name.
        pill: text and tone of the state beside the name; an empty text: none.
        subtitle: line behind the page's question.
        note: sentence at the left of the foot; None: it stays as it is.
        fills: whether the content reaches to the foot of the page.
        parts: names of the page's parts that are seen; those that a page does not list see to themselves.
        enabled: names of the controls that can be used, of those that a state switches.
        chosen: value of each choice that a state makes, by the choice's name.
        primary: primary button; None: it is hidden.
        buttons: secondary buttons that are seen, by name.
    """

    status: StepStatus | None = "empty"
    name: str = ""
    pill: tuple[str, Tone] = ("", "plain")
    subtitle: str = ""
    note: str | None = None
    fills: bool = False
    parts: frozenset[str] = frozenset()
    enabled: frozenset[str] = frozenset()
    chosen: Mapping[str, str] = field(default_factory=dict)
    primary: ButtonState | None = None
    buttons: Mapping[str, ButtonState] = field(default_factory=dict)


def seen(**parts: object) -> frozenset[str]:
    """Return the names of the parts whose value is true."""
    return frozenset(name for name, is_seen in parts.items() if is_seen)
