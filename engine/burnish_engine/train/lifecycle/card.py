"""Keep a run's card: begun with training, filled with file hashes meanwhile, completed with the result."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, Self, TypeVar

from burnish_engine.contract.errors import NoSpaceError, UsageError
from burnish_engine.contract.facts.exports import ExportChoice, export_text
from burnish_engine.contract.facts.task_score import TaskChange
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.run.card import (
    CardData,
    CardGuard,
    CardModel,
    CardResult,
    CardRollback,
    DataFile,
    FactChange,
    HashedFile,
    Resume,
    RunCard,
)
from burnish_engine.contract.run.forgetting import Forgetting
from burnish_engine.runs.card import read_card, write_card
from burnish_engine.runs.file_hashes import CanceledError, known_sha256, sha256_file
from burnish_engine.runs.recorder import Recorder
from burnish_engine.train.base.engine import Engine
from burnish_engine.train.lifecycle.card_facts import base_files, data_files, new_card, plan_text
from burnish_engine.train.lifecycle.commands import Ending
from burnish_engine.train.lifecycle.early_stopping import EarlyStopping
from burnish_engine.train.lifecycle.run_setup import RunSetup

_JOIN_S = 0.5  # Windows does not interrupt a longer wait by Ctrl-C
_PATIENCE_S = 10.0

_ENDED: dict[Ending | None, Literal["finished", "stopped", "suspended"]] = {
    None: "finished", "stop": "stopped", "suspend": "suspended"
}  # fmt: skip
Warn = Callable[[str, str], None]
_Listed = TypeVar("_Listed", bound=HashedFile)


class CardKeeper:
    """Writes `card.json` of the run that this process carries out. A card that cannot be written ends no run.

    Base model and data may have many gigabytes: a thread hashes their files while training continues, and the card
    without their hashes exists from the start.

    Args:
        paths: run folder.
        card: card of this start of the run, without the hashes of data and base.
        data: paths of the files of `card.data`, in the same order.
        base: paths of the files of `card.base`, in the same order.
        step: optimizer steps done.
        warn: function that receives (code, message) on the caller's thread.
    """

    def __init__(
        self, paths: RunPaths, card: RunCard, *, data: list[Path], base: list[Path], step: int, warn: Warn
    ) -> None:
        self._paths, self._warn = paths, warn
        self._fresh, self._data, self._base = card, data, base
        self._lock = threading.Lock()
        self._cancel = threading.Event()
        self._unread: list[str] = []
        self._kept = self._first(card, step)
        self._write(aloud=True)
        self._thread = threading.Thread(target=self._hash, name="card", daemon=True)
        self._thread.start()

    @classmethod
    def begin(cls, setup: RunSetup, engine: Engine, recorder: Recorder, *, step: int) -> Self:
        """Begin the card of a run, or continue with it; warn about exports that will not work.

        Args:
            setup: settings and inputs of the run.
            engine: engine that trains.
            recorder: recorder of warnings.
            step: optimizer steps done.
        """
        card = new_card(setup, engine)
        if step == 0 and (text := export_text(card.exports)):
            recorder.warn("exports", text)
        data, base = data_files(setup.recipe), base_files(setup.inputs.source.folder)
        return cls(setup.paths, card, data=data, base=base, step=step, warn=recorder.warn)

    def guarded(self, verdict: CardGuard) -> None:
        """Write the guard's verdict into the card."""
        with self._lock:
            self._kept = self._kept.model_copy(update={"guard": verdict})
        self._write()

    def rolled_back(self, rollback: CardRollback) -> None:
        """Write into the card that the run rolled back."""
        with self._lock:
            self._kept = self._kept.model_copy(update={"rollback": rollback})
        self._write()

    def complete(
        self,
        engine: Engine,
        ending: Ending | None,
        step: int,
        tokens: int,
        best: EarlyStopping | None = None,
        exports: Sequence[ExportChoice] | None = None,
        forgetting: Forgetting | None = None,
        task: TaskChange | None = None,
    ) -> None:
        """Wait for the hashes, and add the result.

        Where the user stops or suspends a run, the wait is short: a resumed run hashes the remaining files.

        Args:
            engine: engine that trained; its folder in the run is already written.
            ending: how the user ended the run early; None when all steps were made.
            step: optimizer steps made.
            tokens: real tokens trained on.
            best: early stopping, where the result is its best evaluation's and not the last step's.
            exports: decision for each kind of export; None keeps the one made at the beginning.
            forgetting: loss on general text before and after; None where it was not measured.
            task: score of the task before and after; None where it was not measured.
        """
        patient_until = time.monotonic() + (_PATIENCE_S if ending else float("inf"))
        while self._thread.is_alive() and time.monotonic() < patient_until:
            self._thread.join(_JOIN_S)
        folder = self._paths.root / engine.facts.trains
        try:
            files = [
                HashedFile(name=path.name, bytes=path.stat().st_size, sha256=sha256_file(path))
                for path in sorted(folder.iterdir())
                if path.is_file()
            ]
        except OSError as error:
            files = []
            self._unread.append(f"{engine.facts.trains}: {error.strerror or error}")
        with self._lock:
            result = CardResult(
                t=time.time(),
                ended=_ENDED[ending],
                step=step,
                tokens=tokens,
                trained=engine.facts.trains,
                files=files,
                memory_plan=plan_text(engine.facts.memory_plan),
                best_step=best.best.step if best else None,
                best_loss=best.best.loss if best else None,
                forgetting=forgetting,
                task=task,
            )
            known = self._kept.exports if exports is None else list(exports)
            self._kept = self._kept.model_copy(update={"result": result, "exports": known})
        self._write(aloud=True)
        if self._unread:
            self._warn(
                "card",
                f"The run's card lacks hashes, since not every file could be read ({'; '.join(self._unread[:3])}). "
                "The run itself is whole.",
            )

    def close(self) -> None:
        """Stop the hashing thread, done or not."""
        self._cancel.set()
        self._thread.join(10 * _JOIN_S)

    def _first(self, card: RunCard, step: int) -> RunCard:
        """Return the card to continue: the run's own with this start added, or a new one.

        Before the first step nothing was trained, so that an older card, whose facts may have changed since, is
        dropped.
        """
        try:
            kept = read_card(self._paths) if step else None
        except UsageError as error:
            self._warn("card", f"{error} A new card is begun.")
            kept = None
        if kept is None:
            return card.model_copy(update={"begun_step": step})
        before, after = kept.now(), card.circumstances.flat()
        changed = [
            FactChange(what=name, before=before.get(name), after=after.get(name))
            for name in dict.fromkeys([*before, *after])
            if before.get(name) != after.get(name) and not _is_file(name)
        ]
        return kept.model_copy(update={"resumes": [*kept.resumes, Resume(t=card.t, step=step, changed=changed)]})

    def _hash(self) -> None:
        """Hash the files on the thread: data first, which is small, then the base model."""
        with suppress(CanceledError):
            card = self._fresh
            data = self._read(card.data.files, self._data, sha256_file)
            self._put("data", data)
            base = self._read(card.base.files, self._base, known_sha256)
            self._put("base", base)

    def _read(
        self, files: list[_Listed], paths: list[Path], hash_of: Callable[[Path, Callable[[], bool]], str]
    ) -> list[_Listed]:
        found = []
        for file, path in zip(files, paths, strict=True):
            try:
                found.append(file.model_copy(update={"sha256": hash_of(path, self._cancel.is_set)}))
            except OSError as error:
                self._unread.append(f"{file.name}: {error.strerror or error}")
                found.append(file)
        return found

    def _put(self, part: Literal["data", "base"], files: list[DataFile] | list[HashedFile]) -> None:
        """Write hashes into the card; where the card is older than this process, differences become changes."""
        with self._lock:
            kept = self._kept
            section: CardData | CardModel = getattr(kept, part)
            if kept.resumes and any(file.sha256 for file in section.files):
                *earlier, last = kept.resumes
                changed = [*last.changed, *_file_changes(part, section.files, files, kept.now())]
                update: dict[str, object] = {"resumes": [*earlier, last.model_copy(update={"changed": changed})]}
            else:
                update = {part: section.model_copy(update={"files": files})}
            self._kept = kept.model_copy(update=update)
        self._write()

    def _write(self, *, aloud: bool = False) -> None:
        with self._lock:
            try:
                write_card(self._paths, self._kept)
            except NoSpaceError as error:
                if aloud:
                    self._warn("card", f"{error} The run continues without its card.")


def _file_changes(
    part: str, first: Iterable[HashedFile], found: Iterable[HashedFile], now: dict[str, str | None]
) -> list[FactChange]:
    """List the files that changed since the process before; an unreadable file does not count as changed."""
    before, after = _by_name(part, first), _by_name(part, found)
    before |= {name: sha256 for name, sha256 in now.items() if name.startswith(f"{part}: ")}
    gone = {name for name, sha256 in now.items() if sha256 is None}
    there = before.keys() & after.keys() - gone
    unread = {name for name in there if before[name] is None or after[name] is None}
    return [
        FactChange(what=name, before=before.get(name), after=after.get(name))
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name) and name not in unread
    ]


def _is_file(name: str) -> bool:
    return name.startswith(("data: ", "base: "))


def _by_name(part: str, files: Iterable[HashedFile]) -> dict[str, str | None]:
    """Map part and name to hash; files of the same name from several folders are numbered from the second on."""
    seen: Counter[str] = Counter()
    hashes = {}
    for file in files:
        seen[file.name] += 1
        number = f" ({seen[file.name]})" if seen[file.name] > 1 else ""
        hashes[f"{part}: {file.name}{number}"] = file.sha256
    return hashes
