"""Computes the state of the page Model: how far the chosen model is known and checked. No Qt."""

from __future__ import annotations

from dataclasses import dataclass

from burnish_app.look.language import tr
from burnish_app.page_states.page_state import ButtonState, PageState, seen
from burnish_app.wording.run_text import Tone
from burnish_engine.contract.facts.advice import ModelIntegrity
from burnish_engine.contract.units import file_size


@dataclass(frozen=True, kw_only=True)
class ModelState(PageState):
    """The state of the page Model.

    Attributes:
        checked: what a check of the model's files said, its tone and what that means; empty: they are not checked.
    """

    checked: tuple[str, Tone, str] = ("", "plain", "")


def page_state(
    integrity: ModelIntegrity | None, *, is_known: bool, is_intact: bool, is_busy: bool, has_failed: bool
) -> ModelState:
    """Return the state of the page for the chosen model.

    Args:
        integrity: what the check of its files found; None: nothing.
        is_known: whether its facts are known.
        is_intact: whether its files were checked.
        is_busy: whether it is read, or its files are checked.
        has_failed: whether it cannot be read, or a file is damaged.
    """
    if has_failed:
        text = tr("Choose a model first")
    else:
        text = tr("Next: add data") if is_known else tr("Reading the model ...")
    return ModelState(
        status="attention" if has_failed else "busy" if is_busy else "done" if is_known else "empty",
        subtitle=tr("The model that will learn from your data. Smaller ones train faster and run anywhere."),
        parts=seen(busy=is_busy),
        primary=ButtonState(text=text, is_enabled=is_known and not has_failed),
        checked=_checked(integrity) if is_intact else ("", "plain", ""),
    )


def _checked(found: ModelIntegrity | None) -> tuple[str, Tone, str]:
    if found is not None and found.checked:
        published = tr("{files} files, {size}: their checksums are the published ones.")
        hint = published.format(files=found.checked, size=file_size(found.bytes))
        return tr("Files are as published"), "success", hint
    unknown = tr("Headers and sizes of the weights agree. No published checksum is known on this machine.")
    return tr("Files are whole"), "plain", unknown
