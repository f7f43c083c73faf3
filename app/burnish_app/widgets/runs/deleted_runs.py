"""Deletes runs with a way back: they go to the trash, and a banner offers to restore them or to free their space."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import QObject, Signal

from burnish_app.engine.engine_client import EngineClient
from burnish_app.look.language import tr
from burnish_app.widgets.page.page import Page
from burnish_app.wording.activity import run_title
from burnish_app.wording.numbers import plural
from burnish_engine.contract.serve.messages import Failure, Result
from burnish_engine.contract.serve.replies import RunSummary
from burnish_engine.contract.serve.run_requests import DeleteRequest, PurgeRequest, RestoreRequest


class DeletedRuns(QObject):
    """Deletes and restores runs, and says so on a page.

    Args:
        page: page that shows what happened.
        client: connection to the engine.

    Attributes:
        changed: signal without arguments, emitted when runs were deleted or restored.
    """

    changed = Signal()

    def __init__(self, page: Page, client: EngineClient) -> None:
        super().__init__(page)
        self._page, self._client = page, client
        self._open = 0
        self._titles: list[str] = []
        self._folders: list[str] = []
        self._failure: Failure | None = None

    def delete(self, runs: Sequence[RunSummary]) -> None:
        """Move runs to the trash."""
        if not runs or self._open:
            return
        self._page.clear_banner()
        self._open, self._titles, self._folders, self._failure = len(runs), [], [], None
        for run in runs:
            self._client.send(
                DeleteRequest,
                run=run.folder,
                on_result=partial(self._deleted, run_title(run)),
                on_failure=self._failed,
                owner=self,
            )

    def restore(self) -> None:
        """Bring back what was deleted last."""
        self._act(RestoreRequest)

    def purge(self) -> None:
        """Delete for good what was deleted last."""
        self._act(PurgeRequest)

    def _deleted(self, title: str, result: Result) -> None:
        self._titles.append(title)
        self._folders.append(result.run or "")
        self._ended()

    def _failed(self, failure: Failure) -> None:
        self._failure = failure
        self._ended()

    def _ended(self) -> None:
        self._open -= 1
        if self._open:
            return
        self.changed.emit()
        if self._failure is not None:
            self._page.failed(self._failure)
        elif self._folders:
            many = tr("{runs} were deleted.").format(runs=plural(len(self._titles), "run"))
            one = tr("{title} was deleted.").format(title=self._titles[0])
            self._page.banner(
                "info",
                one if len(self._titles) == 1 else many,
                tr("It can be undone for 7 days; until then the disk space is taken."),
                [(tr("Undo"), self.restore), (tr("Free the space now"), self.purge)],
            )

    def _act(self, request: type[RestoreRequest] | type[PurgeRequest]) -> None:
        folders, self._folders = self._folders, []
        self._page.clear_banner()
        for folder in folders:
            self._page.command(request, run=folder)
