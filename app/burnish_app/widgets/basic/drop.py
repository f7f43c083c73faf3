"""Drag and drop: classifies dropped paths, follows drags, and shows an overlay that says what may be dropped."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from PySide6.QtCore import QEvent, QObject, QPointF, QRectF, Qt, QTimer, QUrl, Signal
from PySide6.QtGui import (
    QColor,
    QDragEnterEvent,
    QDragLeaveEvent,
    QDragMoveEvent,
    QDropEvent,
    QPainter,
    QPaintEvent,
    QPen,
)
from PySide6.QtWidgets import QWidget

from burnish_app.look.language import tr
from burnish_app.look.theme import colors_of, font
from burnish_app.look.tokens import RADIUS_PX, TITLE_PX, UNIT
from burnish_engine.contract.files import is_file, is_folder
from burnish_engine.contract.paths import expand_home, is_address

_PLAIN = (
    ".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".arrow", ".feather", ".txt", ".text", ".md", ".markdown",
)  # fmt: skip
_PACKED = (".gz", ".zst", ".bz2", ".xz")
DATA_ENDINGS = (*_PLAIN, ".zip", *(plain + packed for plain in _PLAIN for packed in _PACKED))
DATA_FILTER = tr("Datasets ({join})").format(join=" ".join(f"*{ending}" for ending in (*_PLAIN, ".zip", *_PACKED)))
"""Name filter of file dialogs for datasets."""
DATA_FORMATS_TEXT = tr("JSONL, JSON, CSV, TSV, Parquet, Arrow, TXT or Markdown, also packed or in a folder")
HUB_PREFIX = "hf://"
"""Prefix of a dataset on the Hugging Face hub, which may be typed in place of a path."""
_MODEL_FILES = ("config.json", "adapter_config.json", "adapter/adapter_config.json")
"""Files of a model's folder, an adapter's, and a run's with its adapter."""
_MAX_FILES_CHECKED = 2000  # names in a dropped folder


@dataclass(frozen=True)
class ClassifiedDrop:
    """The result of classifying dropped paths.

    Attributes:
        page: key of the page that takes the paths; empty: all of them were refused.
        paths: paths that the page gets.
        what: sentence on why something was refused; empty: nothing was.
        remedy: advice on what to drop instead.
    """

    page: str
    paths: list[str]
    what: str = ""
    remedy: str = ""


def typed_path(text: str) -> str:
    """Turn a typed or pasted text into an absolute path. The text is a path, in quotes or not, or a file's URL.

    An empty text stays empty, and an address, such as that of a dataset on the hub, stays as it is.
    """
    text = text.strip().strip('"')
    is_file = text.startswith("file:")
    if not text or (is_address(text) and not is_file):
        return text
    return str(expand_home(QUrl(text).toLocalFile() if is_file else text).absolute())


def classify_drop(paths: list[str]) -> ClassifiedDrop:
    """Classify dropped paths: data goes to Data, a model's or adapter's folder to Model, a recipe to Recipe.

    Args:
        paths: absolute paths; an empty text stands for something that is not a local file.
    """
    files = [path for path in paths if path and _is_data(Path(path))]
    folders = [path for path in paths if path and path not in files and is_folder(Path(path))]
    others = [path for path in paths if path not in files and path not in folders]
    remedy = tr(
        "A dataset is {data_formats_text}. A model is a GGUF file, or a folder that holds config.json; a recipe is a "
        "TOML file."
    ).format(data_formats_text=DATA_FORMATS_TEXT)
    if files:
        left_out = [Path(path).name or tr("something that is no local file") for path in (*folders, *others)]
        return ClassifiedDrop(
            "data",
            files,
            tr("Left out: {left_out}.").format(left_out=", ".join(left_out)) if left_out else "",
            remedy if left_out else "",
        )
    if len(folders) == 1 and _is_model(Path(folders[0])):
        return ClassifiedDrop("model", folders)
    if len(folders) > 1:
        return ClassifiedDrop(
            "",
            [],
            tr("These are {folders} folders; one model is trained at a time.").format(folders=len(folders)),
            remedy,
        )
    if folders:
        name = Path(folders[0]).name
        return ClassifiedDrop(
            "", [], tr("The folder {name} is no model: it has no config.json.").format(name=name), remedy
        )
    if len(others) == 1 and is_recipe(Path(others[0])):
        return ClassifiedDrop("recipe", others)
    if len(others) == 1 and Path(others[0]).suffix.lower() == ".gguf":
        return ClassifiedDrop("model", others)
    if others and Path(others[0]).suffix:
        return ClassifiedDrop(
            "", [], tr("Files of the type {suffix} are not read.").format(suffix=Path(others[0]).suffix), remedy
        )
    return ClassifiedDrop("", [], tr("That is neither a dataset nor a model's folder."), remedy)


def _is_data(path: Path) -> bool:
    """Whether the path is a data file, or a folder that holds data files and no model."""
    if is_file(path):
        return is_data_name(path.name)
    if not is_folder(path) or _is_model(path):
        return False
    with suppress(OSError):  # a folder of another user's
        return any(is_data_name(file.name) for file in islice(path.rglob("*"), _MAX_FILES_CHECKED))
    return False


def is_data_name(name: str) -> bool:
    """Whether a file's name is one of a data file."""
    return name.lower().endswith(DATA_ENDINGS)


def is_recipe(path: Path) -> bool:
    """Whether the path is a recipe's file, by its name."""
    return path.suffix.lower() == ".toml" and is_file(path)


def _is_model(folder: Path) -> bool:
    """Whether a folder holds a model, or an adapter to continue from."""
    return any(is_file(folder / name) for name in _MODEL_FILES)


def _answer_copy(event: QDropEvent) -> None:
    """Accept a drag so that its source keeps the file: one that is answered Move deletes it."""
    event.setDropAction(Qt.DropAction.CopyAction)
    if event.type() == QEvent.Type.Drop and event.dropAction() == Qt.DropAction.MoveAction:  # it offers nothing else
        event.setDropAction(Qt.DropAction.IgnoreAction)
    event.accept()


class DropOverlay(QWidget):
    """An overlay that covers the window during a drag and says what may be dropped, or offers two zones for it.

    Args:
        parent: window; from now on it takes drops.
        has_data: function that says whether there is data already.

    Attributes:
        dropped: signal with the dropped paths, and whether data takes the place of the data that is there. It comes
            after the drag is over: slow handling must not hold up the other program.
    """

    dropped = Signal(list, bool)

    def __init__(self, parent: QWidget, has_data: Callable[[], bool]) -> None:
        super().__init__(parent)
        self._over, self._has_data = parent, has_data
        parent.setAcceptDrops(True)
        parent.installEventFilter(self)
        self._follow_window()
        self._has_choice = self._over_second = False
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.hide()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Follow a drag over the window, and take what is dropped."""
        if isinstance(event, QDropEvent):  # the base class of entering and moving drags
            urls = event.mimeData().urls()
            if any(url.isLocalFile() or watched is self._over for url in urls):
                self._take(event, urls)
                _answer_copy(event)
                return True
        elif isinstance(event, QDragLeaveEvent):
            self.hide()
        elif event.type() == QEvent.Type.Show and watched is self._over:
            self._follow_window()
        return super().eventFilter(watched, event)

    def _follow_window(self) -> None:
        """Get drags of files before the widgets below the pointer, of which text boxes would answer Move."""
        handle = self._over.windowHandle()
        if handle is not None:
            handle.installEventFilter(self)

    def _take(self, event: QDropEvent, urls: list[QUrl]) -> None:
        if isinstance(event, QDragEnterEvent):
            self.cover(choice=self._has_data() and any(is_data_name(url.fileName()) for url in urls))
        elif isinstance(event, QDragMoveEvent):
            self.point_at(event.position())
        else:
            self.hide()
            paths, instead = [url.toLocalFile() for url in urls], self.is_instead(event.position())
            QTimer.singleShot(0, self, lambda: self.dropped.emit(paths, instead))

    def cover(self, *, choice: bool = False) -> None:
        """Show the overlay over the whole parent.

        Args:
            choice: whether data is there already: one zone adds to it, the other one replaces it.
        """
        self._has_choice, self._over_second = choice, False
        self.setGeometry(self._over.rect())
        self.raise_()
        self.show()

    def point_at(self, position: QPointF) -> None:
        """Mark the zone under the pointer."""
        if self.is_instead(position) != self._over_second:
            self._over_second = not self._over_second
            self.update()

    def is_instead(self, position: QPointF) -> bool:
        """Whether a position is in the zone that replaces what is there."""
        return self._has_choice and position.x() > self.width() / 2

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw a dashed frame around each zone, its action, and the accepted types."""
        colors = colors_of(self)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        ground = QColor(colors.window)
        ground.setAlpha(235)
        painter.fillRect(self.rect(), ground)
        whole = QRectF(self.rect()).adjusted(3 * UNIT, 3 * UNIT, -3 * UNIT, -3 * UNIT)
        if not self._has_choice:
            words = tr("A dataset ({data_formats_text}), a model's folder or a recipe")
            self._paint_zone(painter, whole, tr("Drop it here"), words.format(data_formats_text=DATA_FORMATS_TEXT))
            return
        first, second = QRectF(whole), QRectF(whole)
        first.setRight(whole.center().x() - UNIT)
        second.setLeft(whole.center().x() + UNIT)
        both, kept = tr("The model learns from both."), tr("It learns from these alone; no file is deleted.")
        self._paint_zone(painter, first, tr("Add to the data"), both, marked=not self._over_second)
        self._paint_zone(painter, second, tr("Replace the data"), kept, marked=self._over_second)

    def _paint_zone(self, painter: QPainter, zone: QRectF, title: str, text: str, *, marked: bool = True) -> None:
        colors = colors_of(self)
        pen = QPen(QColor(colors.accent if marked else colors.edge), 2)
        pen.setDashPattern([6, 4])
        painter.setPen(pen)
        painter.setBrush(QColor(colors.accent_soft if marked and self._has_choice else colors.window))
        painter.drawRoundedRect(zone, RADIUS_PX, RADIUS_PX)
        middle = zone.center().y()
        center = Qt.AlignmentFlag.AlignHCenter | Qt.AlignmentFlag.AlignVCenter
        painter.setPen(QColor(colors.text))
        painter.setFont(font(TITLE_PX, bold=True))
        painter.drawText(QRectF(zone.left(), middle - 40, zone.width(), 40), center, title)
        painter.setPen(QColor(colors.muted))
        painter.setFont(font())
        below = QRectF(zone.left(), middle, zone.width(), zone.height() / 2).adjusted(2 * UNIT, UNIT, -2 * UNIT, -UNIT)
        painter.drawText(below, Qt.AlignmentFlag.AlignHCenter | Qt.TextFlag.TextWordWrap, text)
