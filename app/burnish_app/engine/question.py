"""One question to the engine at a time: the newest is answered, and what comes of a former one is dropped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QObject

from burnish_app.engine.engine_client import EngineClient
from burnish_engine.contract.serve.messages import Failure, Result


class Question(QObject):
    """Asks the engine, and knows whether an answer is awaited and how the newest question failed.

    Args:
        client: connection to the engine.
        parent: parent in Qt's object tree; nothing is heard once it is gone.
        answered: function that gets the `Result`.
        failed: function that gets the `Failure`.
        progressed: function that gets what is being done, how much of it is done, and of how much (0: unknown).
        changed: function called whenever a question begins or ends, after `answered` or `failed`.

    Attributes:
        about: what the newest question was asked about, as the asker said.
        failure: why the newest question failed; None: it did not.
    """

    def __init__(
        self,
        client: EngineClient,
        parent: QObject,
        answered: Callable[[Result], object] = lambda _result: None,
        failed: Callable[[Failure], object] = lambda _failure: None,
        *,
        progressed: Callable[[str, int, int], object] = lambda _what, _done, _total: None,
        changed: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(parent)
        self._client = client
        self._answered, self._failed, self._progressed, self._changed = answered, failed, progressed, changed
        self._name = ""
        self.about: Any = None
        self.failure: Failure | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether an answer is awaited."""
        return bool(self._name)

    def ask(self, request: type[Any], /, about: object = None, **fields: Any) -> None:
        """Ask. The former question is taken back if it is not answered yet.

        Args:
            request: request class of `contract.serve.protocol`.
            about: anything that tells what the question is about, kept as `about`.
            **fields: fields of the request, without its id.
        """
        former, self._name, self.about, self.failure = self._name, "", about, None
        self._client.cancel(former)
        self._name = name = self._client.send(
            request,
            owner=self,
            on_result=lambda result: self._end(name, self._answered, result),
            on_failure=lambda failure: self._end(name, self._fail, failure),
            on_canceled=lambda: self._end(name),
            on_progress=lambda step: self._progressed(step.what, step.done, step.total) if name == self._name else None,
            **fields,
        )
        self._changed()

    def drop(self) -> None:
        """Take the question back; nothing is heard of it any more."""
        name, self._name, self.about, self.failure = self._name, "", None, None
        if name:
            self._client.cancel(name)
            self._changed()

    def use(self, client: EngineClient) -> None:
        """Ask another engine from now on; the answer of the former is not awaited."""
        self.drop()
        self._client = client

    def _end(self, name: str, handle: Callable[..., object] = lambda: None, *answer: object) -> None:
        if name == self._name:
            self._name = ""
            handle(*answer)
            self._changed()

    def _fail(self, failure: Failure) -> None:
        self.failure = failure
        self._failed(failure)
