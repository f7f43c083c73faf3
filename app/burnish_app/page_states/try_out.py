"""Computes the state of the page Try it: who can be asked, and which actions are possible. No Qt."""

from __future__ import annotations

from burnish_app.look.language import tr
from burnish_app.page_states.page_state import ButtonState, PageState, seen
from burnish_app.state.run_folder import RunFolder


def page_state(
    folder: RunFolder,
    *,
    is_answering: bool = False,
    is_secret: bool = False,
    is_written: bool = False,
    has_former: bool = False,
    has_loaded: bool = False,
    are_different: bool = False,
) -> PageState:
    """Return the state of the page for a run and the conversations with its models.

    Args:
        folder: what the run's folder holds.
        is_answering: whether replies are being streamed.
        is_secret: whether it is hidden who answers.
        is_written: whether something stands in the message box.
        has_former: whether there is a conversation to bring back.
        has_loaded: whether models may be loaded.
        are_different: whether at least two models answer, and no two of them are the same.
    """
    busy, trained = is_answering, folder.trained
    text, icon, does = (tr("Stop"), "stop", "stop") if busy else (tr("Send"), "send", "send")
    return PageState(
        status="busy" if busy else "ready" if trained else "empty",
        name=folder.title if trained else "",
        subtitle=_subtitle(folder),
        note="" if busy else None,
        primary=ButtonState(text=text, icon=icon, does=does, is_enabled=is_written or busy),
        buttons={"unload": ButtonState(is_enabled=has_loaded)} | ({"former": ButtonState()} if has_former else {}),
        enabled=seen(save=is_written, again=not (busy or is_secret), blind=folder.name and are_different),
    )


def _subtitle(folder: RunFolder) -> str:
    if not folder.name:
        return tr("There is no run yet, so only the model before training answers.")
    if not folder.trained:
        return tr("This run has nothing trained to talk to yet: that is there once it is saved.")
    return tr("The same question and the same seed for each.")
