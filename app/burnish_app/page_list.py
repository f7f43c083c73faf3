"""The list of the window's pages, and the status of each before it is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from burnish_app.look.language import tr
from burnish_app.state.step_status import StepStatus

if TYPE_CHECKING:  # the window is shown before it, and pydantic with it, is loaded
    from burnish_app.state.workbench import Workbench


class PageEntry(NamedTuple):
    """The module and class of a page. The module is imported on the first visit, which keeps the start fast."""

    key: str
    title: str
    module: str
    class_name: str


PAGES = (
    PageEntry("start", tr("Start"), "burnish_app.pages.start", "StartPage"),
    PageEntry("hardware", tr("Hardware"), "burnish_app.pages.hardware", "HardwarePage"),
    PageEntry("model", tr("Model"), "burnish_app.pages.model", "ModelPage"),
    PageEntry("data", tr("Data"), "burnish_app.pages.data", "DataPage"),
    PageEntry("recipe", tr("Recipe"), "burnish_app.pages.recipe", "RecipePage"),
    PageEntry("train", tr("Train"), "burnish_app.pages.train", "TrainPage"),
    PageEntry("try_out", tr("Try it"), "burnish_app.pages.try_out", "TryOutPage"),
    PageEntry("export", tr("Export"), "burnish_app.pages.export", "ExportPage"),
    PageEntry("runs", tr("Runs"), "burnish_app.pages.runs", "RunsPage"),
    PageEntry("compare", tr("Compare"), "burnish_app.pages.compare", "ComparePage"),
    PageEntry("sweep", tr("Sweep"), "burnish_app.pages.sweep", "SweepPage"),
    PageEntry("duel", tr("Duel"), "burnish_app.pages.duel", "DuelPage"),
    PageEntry("settings", tr("Settings"), "burnish_app.pages.settings", "SettingsPage"),
)
"""All pages, in the order of the sidebar."""


def first_status(key: str, bench: Workbench) -> StepStatus:
    """Return the status of a step before its page was ever made, from the saved workbench."""
    done = {
        "model": bench.model is not None,
        "data": bench.dataset is not None,
        "recipe": bench.suggestion is not None,
    }
    if key in done:
        return "done" if done[key] else "empty"
    return "ready" if key in ("train", "try_out", "export") and bench.run else "empty"
