"""What the page Try it shows around the conversations. No Qt."""

from __future__ import annotations

from dataclasses import dataclass

from burnish_app.look.language import tr
from burnish_app.page_states.page_state import Button, PageState
from burnish_app.state.run_folder import RunFolder


@dataclass(frozen=True, kw_only=True)
class TryOutFacts:
    """What is known of the conversations.

    Attributes:
        folder: what the run's folder holds.
        has_run: whether a run is chosen.
        is_answering: whether replies are being streamed.
        is_secret: whether it is hidden who answers.
        is_written: whether something stands in the message box.
        has_former: whether there is a conversation to bring back.
        has_loaded: whether models may be loaded.
        are_different: whether at least two models answer, and no two of them are the same.
    """

    folder: RunFolder
    has_run: bool
    is_answering: bool = False
    is_secret: bool = False
    is_written: bool = False
    has_former: bool = False
    has_loaded: bool = False
    are_different: bool = False


@dataclass(frozen=True, kw_only=True)
class TryOutState(PageState):
    """What the page Try it shows.

    Attributes:
        can_save: whether what is written can be saved as a prompt.
        can_ask_again: whether a model can be asked its last question again.
        can_be_blind: whether a blind vote is offered.
    """

    can_save: bool = False
    can_ask_again: bool = False
    can_be_blind: bool = False


def page_state(known: TryOutFacts) -> TryOutState:
    """Say what is shown of the conversations."""
    busy, trained = known.is_answering, known.folder.trained
    if not known.has_run:
        subtitle = tr("There is no run yet, so only the model before training answers.")
    elif not trained:
        subtitle = tr("This run has nothing trained to talk to yet: that is there once it is saved.")
    else:
        subtitle = tr("The same question and the same seed for each.")
    buttons = {"unload": Button(is_enabled=known.has_loaded)}
    if known.has_former:
        buttons["former"] = Button()
    return TryOutState(
        status="busy" if busy else "ready" if trained else "empty",
        name=known.folder.title if trained else "",
        subtitle=subtitle,
        note="" if busy else None,
        primary=Button(
            text=tr("Stop") if busy else tr("Send"),
            icon="stop" if busy else "send",
            does="stop" if busy else "send",
            is_enabled=known.is_written or busy,
        ),
        buttons=buttons,
        can_save=known.is_written,
        can_ask_again=not busy and not known.is_secret,
        can_be_blind=known.has_run and known.are_different,
    )
