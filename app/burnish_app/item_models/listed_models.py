"""The one list of models: those of this machine, of the catalog and of a search of the hub, merged and filtered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt

from burnish_app.look.language import tr
from burnish_app.wording.numbers import count_text, speed_figure
from burnish_engine.contract.facts.advice import CatalogModel, FoundOnHub, LocalModel, RankedModel
from burnish_engine.contract.units import file_size

Index = QModelIndex | QPersistentModelIndex
Scope = Literal["all", "here", "catalog", "hub"]
Verdict = Literal[
    "good", "tight", "slow", "small", "unknown", "too_big_for_target", "too_big_to_train", "too_big", "unusable"
]

_VERDICTS: dict[Verdict, tuple[str, str]] = {
    "good": (tr("Good fit"), "success"),
    "tight": (tr("Tight"), "warning"),
    "slow": (tr("Slow"), "warning"),
    "small": (tr("Small"), "muted"),
    "unknown": (tr("Not judged"), "muted"),
    "too_big_for_target": (tr("Too big to run"), "muted"),
    "too_big_to_train": (tr("Too big to train"), "muted"),
    "too_big": (tr("Too big to train"), "muted"),
    "unusable": (tr("Not trainable"), "error"),
}
"""Verdict: its text and the color of that text, in the order of the list."""
_FITS = ("good", "tight", "slow", "small")
_PLACES = {
    "embedded": tr("Burnish"),
    "burnish": tr("Burnish"),
    "folder": tr("Folder"),
    "hub_cache": tr("Hub cache"),
    "lm_studio": tr("LM Studio"),
    "ollama": tr("Ollama"),
    "catalog": tr("To fetch"),
    "hub": tr("To fetch"),
}
_HEADINGS = (tr("Model"), tr("Weights"), tr("Verdict"), tr("Tokens/s"), tr("Where"))
_HINTS = (
    "",
    tr("Numbers it is made of: B is a billion, M a million. In GB where only its size on disk is known"),
    tr("For training here with your rows, and running on the target. Too big to run: on the target"),
    tr("Predicted tokens of training a second"),
    tr("Whose folder on this machine it is in. Sign-in: its page asks to accept terms before the download"),
)
_NUMBERS = (1, 3)
VERDICT_COLUMN = 2


@dataclass(frozen=True)
class ListedModel:
    """A model of the list.

    Attributes:
        name: name on the hub, or that the program gives it whose folder it is in.
        title: what to call it.
        place: where it is: a place of `LocalModel`, "embedded", or "catalog" and "hub" for what is to be downloaded.
        path: what to write into the recipe; empty: it has to be downloaded first, or cannot be trained.
        verdict: whether it trains here and runs on the target.
        reason: verdict in a sentence.
        parameters: all weights; 0: not known.
        bytes: size of its weights on disk or to download; 0: not known.
        train_bytes: predicted training peak; 0: not known.
        tokens_per_s: predicted training speed; 0: not known.
        license: name of its license; empty: not known.
        gated: whether its page asks to accept terms before the download.
        downloads: downloads of the last month, as the hub counts them; 0: not known.
        found: whether the last search of the hub found it.
        ranked: catalog's entry with its judgment; None: the catalog does not have it.
    """

    name: str
    title: str
    place: str
    path: str
    verdict: Verdict
    reason: str
    parameters: int = 0
    bytes: int = 0
    train_bytes: int = 0
    tokens_per_s: float = 0.0
    license: str = ""
    gated: bool = False
    downloads: int = 0
    found: bool = False
    ranked: RankedModel | None = None

    @property
    def is_here(self) -> bool:
        """Whether it is on this machine."""
        return self.place not in ("catalog", "hub")

    @property
    def can_be_fetched(self) -> bool:
        """Whether it can be downloaded: it is not here, or Burnish's own copy is damaged."""
        return self.verdict != "unusable" if not self.is_here else self.place == "burnish" and not self.path

    @property
    def where(self) -> str:
        """Place in a word or two."""
        return tr("Sign-in") if self.gated and not self.is_here else _PLACES[self.place]

    @property
    def verdict_text(self) -> str:
        """The verdict in a word or two."""
        return _VERDICTS[self.verdict][0]

    @property
    def size_text(self) -> str:
        """Number of weights, or else their size on disk."""
        return count_text(self.parameters) if self.parameters else file_size(self.bytes) if self.bytes else ""

    @property
    def catalog(self) -> CatalogModel | None:
        """Facts of the catalog; None: it does not have the model."""
        return self.ranked.model if self.ranked else None

    @property
    def search_text(self) -> str:
        """Text that a search looks through."""
        model = self.catalog
        more = (model.family, model.kind, model.good_for, model.languages) if model else ()
        return " ".join((self.name, self.title, self.license, _PLACES[self.place], *more)).casefold()


def merge(
    ranked: Sequence[RankedModel], local: Sequence[LocalModel], hub: Sequence[FoundOnHub] = ()
) -> list[ListedModel]:
    """Merge the three sources: each model once, unless several programs keep it here; the best first.

    Args:
        ranked: catalog, best first.
        local: models of this machine, those that train best first.
        hub: what the last search of the hub found.
    """
    by_name = {one.model.name: one for one in ranked}
    found = {one.name for one in hub}
    rows = [_of_local(one, by_name.get(one.name), one.name in found) for one in local]
    here = {row.name for row in rows if row.path or row.place == "burnish"}
    rows += [_of_ranked(one, one.model.name in found) for one in ranked if one.model.name not in here]
    here |= {one.model.name for one in ranked}
    rows += [_of_hub(one) for one in hub if one.name not in here]
    order = list(_VERDICTS)
    places = {"catalog": 1, "hub": 2}
    return sorted(rows, key=lambda row: (order.index(row.verdict), places.get(row.place, 0)))


def chosen(rows: Iterable[ListedModel], scope: Scope, query: str, *, only_fitting: bool) -> list[ListedModel]:
    """Filter the list.

    Args:
        rows: whole list.
        scope: part of it that is shown.
        query: words of which the text on a model must hold each; in the hub's scope the hub has searched.
        only_fitting: whether to leave out what does not train here or run on the target.
    """
    wanted = query.casefold().split()
    return [
        row
        for row in rows
        if _is_in(row, scope)
        and (not only_fitting or row.verdict in _FITS)
        and (scope == "hub" or all(word in row.search_text for word in wanted))
    ]


def _is_in(row: ListedModel, scope: Scope) -> bool:
    match scope:
        case "here":
            return row.is_here
        case "catalog":
            return row.ranked is not None
        case "hub":
            return row.found
        case "all":
            return True


def _of_local(one: LocalModel, ranked: RankedModel | None, found: bool) -> ListedModel:
    model = ranked.model if ranked else None
    return ListedModel(
        name=one.name,
        title=model.title if model else one.name,
        place=one.place,
        path="" if one.verdict == "unusable" else one.folder,
        verdict=one.verdict,
        reason=one.reason,
        parameters=model.parameters if model else one.parameters,
        bytes=one.bytes,
        train_bytes=one.train_bytes,
        tokens_per_s=one.tokens_per_s,
        license=model.license if model else "",
        found=found,
        ranked=ranked,
    )


def _of_ranked(one: RankedModel, found: bool) -> ListedModel:
    model = one.model
    return ListedModel(
        name=model.name,
        title=model.title,
        place="catalog" if not one.here else "embedded" if one.path == "embedded" else "burnish",
        path=one.path,
        verdict=one.verdict,
        reason=one.reason,
        parameters=model.parameters,
        bytes=one.download_bytes,
        train_bytes=one.train_bytes,
        tokens_per_s=one.tokens_per_s,
        license=model.license,
        gated=model.gated,
        found=found,
        ranked=one,
    )


def _of_hub(one: FoundOnHub) -> ListedModel:
    return ListedModel(
        name=one.name,
        title=one.name,
        place="hub",
        path="",
        verdict=one.verdict,
        reason=one.reason,
        parameters=one.parameters,
        bytes=one.download_bytes,
        train_bytes=one.train_bytes,
        tokens_per_s=one.tokens_per_s,
        license=one.license,
        gated=one.gated,
        downloads=one.downloads,
        found=True,
    )


class ListedModelsTableModel(QAbstractTableModel):
    """A table with one row per model. The columns are those of `_HEADINGS`."""

    def __init__(self) -> None:
        super().__init__()
        self._models: list[ListedModel] = []

    def show(self, models: Sequence[ListedModel]) -> None:
        """Replace the models shown."""
        self.beginResetModel()
        self._models = list(models)
        self.endResetModel()

    def at(self, row: int) -> ListedModel | None:
        """Return the model of a row; None if there is no such row."""
        return self._models[row] if 0 <= row < len(self._models) else None

    def row_of(self, name: str) -> int:
        """Return the first row of a model by its recipe path or its name; -1 if it is not listed."""
        by_path = (row for row, one in enumerate(self._models) if one.path == name)
        by_name = (row for row, one in enumerate(self._models) if one.name == name)
        return next(by_path, next(by_name, -1))

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008 Qt's name and default
        """Return the number of models shown."""
        return 0 if parent.isValid() else len(self._models)

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008 Qt's name and default
        """Return the number of columns."""
        return 0 if parent.isValid() else len(_HEADINGS)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return a heading, its hint (tooltip) or its alignment."""
        if orientation != Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.TextAlignmentRole:
            side = Qt.AlignmentFlag.AlignRight if section in _NUMBERS else Qt.AlignmentFlag.AlignLeft
            return side | Qt.AlignmentFlag.AlignVCenter
        return {Qt.ItemDataRole.DisplayRole: _HEADINGS, Qt.ItemDataRole.ToolTipRole: _HINTS}.get(
            Qt.ItemDataRole(role), ("",) * len(_HEADINGS)
        )[section] or None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return a cell's text, alignment or hint, or the name of the verdict's color (UserRole)."""
        model = self.at(index.row())
        if model is None:
            return None
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole):
            return _texts(model)[index.column()]
        if role == Qt.ItemDataRole.ToolTipRole:
            return f"{model.name}\n{model.reason}"
        if role == Qt.ItemDataRole.UserRole and index.column() == VERDICT_COLUMN:
            return _VERDICTS[model.verdict][1]
        if role == Qt.ItemDataRole.TextAlignmentRole and index.column() in _NUMBERS:
            return Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        return None


def _texts(model: ListedModel) -> tuple[str, ...]:
    speed = speed_figure(model.tokens_per_s) if model.tokens_per_s else ""
    return model.title, model.size_text, model.verdict_text, speed, model.where
