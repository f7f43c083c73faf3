"""The guide in a window of its own: pages and search at the left, the page at the right, all offline."""

from __future__ import annotations

import html
import re

from markdown_it import MarkdownIt
from PySide6.QtCore import QEvent, QSize, Qt, QTimer, QUrl
from PySide6.QtGui import QDesktopServices, QKeySequence, QShortcut
from PySide6.QtWidgets import (
    QHBoxLayout,
    QLineEdit,
    QListWidget,
    QListWidgetItem,
    QSplitter,
    QTextBrowser,
    QVBoxLayout,
    QWidget,
)

from burnish_app.look.fonts import scaled
from burnish_app.look.guide_style import TABLE, guide_style
from burnish_app.look.language import tr
from burnish_app.look.theme import colors_of, font
from burnish_app.look.tokens import BODY_PX, UNIT
from burnish_app.state.guide_pages import FIRST, GuidePage, anchor_of, load_guide, search_guide
from burnish_app.widgets.basic.buttons import quiet
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.text import caption
from burnish_engine.contract.paths import assets_dir

_SIZE_PX, _LIST_PX = QSize(1040, 760), 300
_FRAME_PX = QSize(16, 48)  # room for the frame that the system draws around a window
_SEARCH_AFTER_MS = 150
_SCHEMES = ("https", "http", "mailto")  # addresses that leave the guide
_PLACE = Qt.ItemDataRole.UserRole
_IMAGE = re.compile(r'<img src="([^"]*)" alt="([^"]*)" ?/?>')


class GuideWindow(QWidget):
    """Shows the guide.

    Args:
        parent: window that it belongs to; None: none.
        pages: pages to show; None: the guide that ships with Burnish.

    Attributes:
        search: field for the words to look for.
        places: list of pages, or of what was found.
        page: the page that is read.
    """

    def __init__(self, parent: QWidget | None = None, pages: list[GuidePage] | None = None) -> None:
        super().__init__(parent, Qt.WindowType.Window)
        self._pages = {page.file: page for page in (load_guide() if pages is None else pages)}
        self._place = ""
        self._former: list[str] = []
        self.setWindowTitle(tr("Burnish guide"))
        self.resize(_SIZE_PX.boundedTo(self.screen().availableSize() - _FRAME_PX))
        self.search = QLineEdit()
        self.search.setPlaceholderText(tr("Search the guide"))
        self.search.setAccessibleName(tr("Search the guide"))
        self.search.setClearButtonEnabled(True)
        self.search.setAcceptDrops(False)  # it would answer Move to a file, and the source delete it
        self._timer = QTimer(self, singleShot=True, interval=_SEARCH_AFTER_MS)
        self._timer.timeout.connect(self._list_places)
        self.search.textEdited.connect(lambda _text: self._timer.start())
        self.search.returnPressed.connect(self._open_first)
        self.places = QListWidget()
        self.places.setAccessibleName(tr("Pages of the guide"))
        self.places.setProperty("look", "places")
        self.places.setWordWrap(True)
        self.places.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.places.currentItemChanged.connect(self._chosen)
        self._found = caption("")
        self.page = QTextBrowser()
        self.page.setOpenLinks(False)
        self.page.setAccessibleName(tr("Page of the guide"))
        self.page.setFont(font(BODY_PX))
        self.page.document().setDocumentMargin(3 * UNIT)
        self.page.anchorClicked.connect(self._follow)
        self.back = quiet(tr("Back"), self.go_back, "undo")
        self.back.setEnabled(False)
        side = QWidget()
        fill(
            QVBoxLayout(side),
            self.search,
            self._found,
            self.places,
            (self.back, 0, Qt.AlignmentFlag.AlignLeft),
            spacing_px=UNIT,
            margins_px=(2 * UNIT, 2 * UNIT, UNIT, 2 * UNIT),
        )
        split = QSplitter()
        split.addWidget(side)
        split.addWidget(self.page)
        split.setStretchFactor(1, 1)
        split.setSizes([scaled(_LIST_PX), _SIZE_PX.width() - scaled(_LIST_PX)])
        fill(QHBoxLayout(self), split)
        for keys, slot in (
            ("Esc", self.close),
            ("Ctrl+F", self._focus_search),
            ("Alt+Left", self.go_back),
        ):
            QShortcut(QKeySequence(keys), self, slot)
        self._list_places()

    @property
    def place(self) -> str:
        """The place that is shown: a page's file, with "#" and a section's anchor where one was asked for."""
        return self._place

    def show_place(self, place: str) -> None:
        """Show a page, at a section of it; an unknown page shows the first one.

        Args:
            place: page's file, or that with "#" and a section's anchor.
        """
        if self._place and self._place != place:
            self._former.append(self._place)
        self._open(place)

    def go_back(self) -> None:
        """Show the place before this one."""
        if self._former:
            self._open(self._former.pop())

    def changeEvent(self, event: QEvent) -> None:
        """Draw the page in the colors of another theme, where it was scrolled to."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange and self._place:
            bar = self.page.verticalScrollBar()
            at = bar.value()
            self._write_page()
            bar.setValue(at)

    def _open(self, place: str) -> None:
        file, _, anchor = place.partition("#")
        if file not in self._pages:
            file, anchor = (FIRST if FIRST in self._pages else next(iter(self._pages), "")), ""
        if not file:
            return
        is_other = self._file != file
        self._place = f"{file}#{anchor}" if anchor else file
        if is_other:
            self._write_page()
        self._scroll_to(anchor)
        self.back.setEnabled(bool(self._former))
        if not self.search.text().strip():
            self._mark(file)

    @property
    def _file(self) -> str:
        """The file of the page that is shown; empty: none is."""
        return self._place.partition("#")[0]

    def _write_page(self) -> None:
        self.page.document().setDefaultStyleSheet(guide_style(colors_of(self)))
        self.page.setHtml(page_html(self._pages[self._file]))

    def _follow(self, link: QUrl) -> None:
        """Follow a link within the guide here; an address and another file of Burnish open where the system does it."""
        if link.scheme():
            if link.scheme() in _SCHEMES:
                QDesktopServices.openUrl(link)
            return
        file = link.path() or self._file
        if file not in self._pages:
            beside = (assets_dir() / "guide" / file).resolve()
            if beside.is_relative_to(assets_dir().resolve()) and beside.is_file():
                QDesktopServices.openUrl(QUrl.fromLocalFile(str(beside)))
            return
        self.show_place(f"{file}#{link.fragment()}" if link.fragment() else file)

    def _list_places(self) -> None:
        words = self.search.text().strip()
        hits = search_guide(list(self._pages.values()), words)
        self.places.blockSignals(True)
        self.places.clear()
        if words:
            entries = [(f"{hit.title}\n{hit.excerpt}", hit.place) for hit in hits]
        else:
            entries = [(page.title, page.file) for page in self._pages.values()]
        for text, place in entries:
            item = QListWidgetItem(text)
            item.setData(_PLACE, place)
            self.places.addItem(item)
        self.places.blockSignals(False)
        self._found.setText(tr("No section has all these words. Try fewer.") if words and not hits else "")
        self._found.setVisible(bool(self._found.text()))
        if not words:
            self._mark(self._file)

    def _mark(self, file: str) -> None:
        """Mark a page in the list without opening it."""
        self.places.blockSignals(True)
        for row in range(self.places.count()):
            if self.places.item(row).data(_PLACE) == file:
                self.places.setCurrentRow(row)
        self.places.blockSignals(False)

    def _chosen(self, item: QListWidgetItem | None) -> None:
        if item is not None:
            self.show_place(item.data(_PLACE))

    def _open_first(self) -> None:
        self._timer.stop()
        self._list_places()
        if self.places.count():
            self.places.setCurrentRow(0)

    def _focus_search(self) -> None:
        self.search.setFocus()
        self.search.selectAll()

    def _scroll_to(self, anchor: str) -> None:
        """Scroll so that the heading with this anchor is at the top; without one, to the page's beginning."""
        if anchor:
            self.page.scrollToAnchor(anchor)
        else:
            self.page.verticalScrollBar().setValue(0)


def page_html(page: GuidePage) -> str:
    """Return a page as HTML: its headings are anchors, its tables take the width there is.

    Pictures are links: Qt draws no SVG whose colors are variables, so the system shows them.
    """
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")

    def heading(match: re.Match[str]) -> str:
        level, content = match[1], match[2]
        anchor = anchor_of(html.unescape(re.sub(r"<[^>]+>", "", content)))
        return f'<h{level}><a name="{anchor}"></a>{content}</h{level}>'

    made = re.sub(r"<h(\d)>(.*?)</h\1>", heading, str(parser.render(page.markdown)), flags=re.DOTALL)
    made = made.replace("\n</code></pre>", "</code></pre>")
    made = _IMAGE.sub(r'<a href="\1">\2</a>', made)
    return made.replace("<table>", TABLE)
