"""Which headings of a table are cut, measured with the fonts and widths of what is shown."""

from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QFontMetrics
from PySide6.QtWidgets import QStyleOptionHeader

from burnish_app.look.theme import font
from burnish_app.widgets.basic.wrapping_head import WrappingHead
from burnish_app.widgets.data.role_header import RoleHeader

PADDING_PX, PICTURE_PX = 8, 26  # on each side of a heading; of a picture before it, with its distance


def drawn_text(head, column):
    """Return what a head draws as a heading."""
    option = QStyleOptionHeader()
    head.initStyleOptionForIndex(option, column)
    return option.text


def cut_headings(table):
    """Return the headings of the columns that are shown in which a word, or a line, finds no room."""
    head, model = table.horizontalHeader(), table.model()
    cut = []
    for column in range(model.columnCount()):
        text = str(model.headerData(column, Qt.Orientation.Horizontal) or "")
        room_px = head.sectionSize(column) - 2 * PADDING_PX
        if model.headerData(column, Qt.Orientation.Horizontal, Qt.ItemDataRole.DecorationRole) is not None:
            room_px -= PICTURE_PX
        own_font = font(bold=True) if isinstance(head, RoleHeader) else head.font()
        flags = Qt.TextFlag.TextWordWrap if isinstance(head, WrappingHead) else 0
        needed = QFontMetrics(own_font).boundingRect(QRect(0, 0, max(room_px, 1), 10_000), flags, text)
        fits = needed.width() <= room_px and needed.height() <= head.height() - 8
        if not head.isSectionHidden(column) and not (fits and "…" not in drawn_text(head, column)):
            cut.append(text)
    return cut
