"""The style sheet that goes over Qt's Fusion style. Widgets opt in by the dynamic property `look`."""

from __future__ import annotations

from burnish_app.look.tokens import (
    CONTROL_PX,
    CONTROL_RADIUS_PX,
    PILL_PX,
    RADIUS_PX,
    RING_PX,
    SCROLL_BAR_PX,
    SMALL_RADIUS_PX,
    Colors,
)

ICONS = "burnishicons"  # search path of Qt's: a folder's own name, with its spaces, would have to be escaped
_INNER_PX = CONTROL_PX - 16
"""Height of a control's text at 100 % text size: what is left between the paddings and borders below."""
_FIELDS = "QLineEdit, QPlainTextEdit, QTextEdit, QAbstractSpinBox, QComboBox"


def style_sheet(colors: Colors) -> str:
    """Return the style sheet in these colors."""
    return "\n".join((_frames(colors), _text_rules(colors), _buttons(colors), _fields(colors), _tables(colors)))


def _each(selectors: str, state: str) -> str:
    return ", ".join(f"{selector.strip()}{state}" for selector in selectors.split(","))


def _frames(c: Colors) -> str:
    banners = "\n".join(
        f'QFrame[look="banner-{kind}"] {{ background: {soft}; border-radius: {RADIUS_PX}px; }}'
        for kind, soft in (
            ("info", c.info_soft),
            ("warning", c.warning_soft),
            ("error", c.error_soft),
            ("success", c.success_soft),
        )
    )
    track, _ = _segments(c)
    return f"""
QToolTip {{ background: {c.raised}; color: {c.text}; border: 1px solid {c.line}; padding: 6px 8px; }}
QScrollArea, QScrollArea > QWidget > QWidget {{ background: transparent; border: none; }}
QWidget#sidebar {{ background: {c.sidebar}; }}
QFrame#footbar {{ background: {c.window}; border-top: 1px solid {c.line}; }}
QFrame[look="card"] {{ background: {c.surface}; border: 1px solid {c.line}; border-radius: {RADIUS_PX}px; }}
QFrame[look="inset"] {{ background: {c.window}; border: 1px solid {c.line}; border-radius: {CONTROL_RADIUS_PX}px; }}
QFrame[look="rule"] {{ background: {c.line}; border: none; max-height: 1px; min-height: 1px; }}
QFrame[look="segments"] {{ background: {track}; border-radius: {CONTROL_RADIUS_PX}px; }}
{banners}
"""


def _text_rules(c: Colors) -> str:
    pills = "\n".join(
        f'QLabel[look="pill-{kind}"] {{ background: {soft}; color: {ink}; }}'
        for kind, soft, ink in (
            ("plain", c.raised, c.muted),
            ("live", c.accent_soft, c.accent_ink),
            ("info", c.info_soft, c.info),
            ("warning", c.warning_soft, c.warning),
            ("error", c.error_soft, c.error),
            ("success", c.success_soft, c.success),
        )
    )
    return f"""
QLabel[look="muted"] {{ color: {c.muted}; }}
QLabel[look="accent"] {{ color: {c.accent_ink}; }}
QLabel[look="link"] {{ color: {c.link}; }}
QLabel[look="error"] {{ color: {c.error}; }}
QLabel[look="warning"] {{ color: {c.warning}; }}
QLabel[look="success"] {{ color: {c.success}; }}
QLabel[look^="pill"] {{ border-radius: {PILL_PX // 2}px; padding: 0 9px; min-height: {PILL_PX}px; }}
{pills}
"""


def _segments(c: Colors) -> tuple[str, str]:
    """Return the colors of a track of segments and of the chosen one, which is the lighter of both in either theme."""
    return (c.sidebar, c.raised) if c.dark else (c.raised, c.surface)


def _buttons(c: Colors) -> str:
    _, chosen = _segments(c)
    return f"""
QPushButton {{ border-radius: {CONTROL_RADIUS_PX}px; border: {RING_PX}px solid transparent;
  min-height: {_INNER_PX}px; padding: 6px 13px; }}
QPushButton:focus {{ border-color: {c.focus}; }}
QPushButton[look="primary"] {{ background: {c.accent}; color: {c.on_accent}; padding: 6px 20px; }}
QPushButton[look="primary"]:hover {{ background: {c.accent_hover}; }}
QPushButton[look="primary"]:focus {{ border-color: {c.text}; }}
QPushButton[look="primary"]:disabled {{ background: {c.raised}; color: {c.faint}; }}
QPushButton[look="secondary"] {{ background: {c.raised}; color: {c.text}; }}
QPushButton[look="secondary"]:hover, QPushButton[look="secondary"]:checked {{ background: {c.line}; }}
QPushButton[look="secondary"]:disabled {{ color: {c.faint}; }}
QPushButton[look="danger"] {{ background: {c.error_soft}; color: {c.error}; }}
QPushButton[look="danger"]:hover {{ background: {c.line}; }}
QPushButton[look="danger"]:disabled {{ background: {c.raised}; color: {c.faint}; }}
QPushButton[look="quiet"] {{ background: transparent; color: {c.link}; padding: 2px 6px; }}
QPushButton[look="quiet"]:hover {{ background: {c.raised}; }}
QPushButton[look="quiet"]:disabled {{ color: {c.faint}; }}
QPushButton[look="segment"] {{ background: transparent; color: {c.muted}; padding: 3px 13px; margin: 3px; }}
QPushButton[look="segment"]:hover {{ color: {c.text}; }}
QPushButton[look="segment"]:checked {{ background: {chosen}; color: {c.text}; border: 1px solid {c.line};
  padding: 4px 14px; }}
QPushButton[look="segment"]:focus {{ border: {RING_PX}px solid {c.focus}; padding: 3px 13px; }}
QPushButton[look="segment"]:disabled {{ color: {c.faint}; }}
QPushButton[look^="chip"] {{ border-radius: {PILL_PX // 2}px; padding: 0 8px; min-height: 0; text-align: left; }}
QPushButton[look="chip-learned"] {{ background: {c.accent_soft}; color: {c.accent_ink}; }}
QPushButton[look="chip-read"] {{ background: {c.link_soft}; color: {c.link}; }}
QPushButton[look="chip-off"] {{ background: {c.raised}; color: {c.muted}; }}
QPushButton[look="chip-open"] {{ background: {c.warning_soft}; color: {c.warning}; }}
QPushButton[look^="chip"]:hover {{ border-color: {c.edge}; }}
QPushButton[look^="chip"]:focus {{ border-color: {c.focus}; }}
QMessageBox QLabel#qt_msgbox_label, QMessageBox QPushButton[look="primary"] {{ font-weight: 600; }}
QMessageBox QPushButton {{ font-weight: 500; }}
QFrame[look="choice"], QFrame[look="choice-on"] {{ background: {c.surface}; border-radius: {CONTROL_RADIUS_PX}px; }}
QFrame[look="choice"] {{ border: {RING_PX}px solid {c.line}; }}
QFrame[look="choice"]:hover {{ background: {c.raised}; }}
QFrame[look="choice-on"] {{ border: {RING_PX}px solid {c.accent}; }}
QCheckBox, QRadioButton {{ spacing: 8px; border: {RING_PX}px solid transparent; border-radius: {SMALL_RADIUS_PX}px; }}
QCheckBox:focus, QRadioButton:focus {{ border-color: {c.focus}; }}
QCheckBox:disabled, QRadioButton:disabled {{ color: {c.faint}; }}
QCheckBox::indicator, QRadioButton::indicator {{ width: 16px; height: 16px; border: 1px solid {c.edge};
  border-radius: {SMALL_RADIUS_PX}px; background: {c.surface}; }}
QRadioButton::indicator {{ border-radius: 9px; }}
QCheckBox::indicator:checked {{ background: {c.accent}; border: 1px solid {c.accent}; image: url({ICONS}:check.svg); }}
QRadioButton::indicator:checked {{ border: 5px solid {c.accent}; width: 8px; height: 8px; border-radius: 9px; }}
QCheckBox::indicator:disabled, QRadioButton::indicator:disabled {{ border-color: {c.line}; }}
QSlider::groove:horizontal {{ background: {c.line}; height: 4px; border-radius: 2px; }}
QSlider::sub-page:horizontal {{ background: {c.accent}; height: 4px; border-radius: 2px; }}
QSlider::handle:horizontal {{ background: {c.surface}; border: 1px solid {c.edge}; width: 16px; margin: -7px 0;
  border-radius: 9px; }}
QSlider::handle:horizontal:focus {{ border: {RING_PX}px solid {c.focus}; }}
"""


def _fields(c: Colors) -> str:
    return f"""
{_FIELDS} {{ background: {c.surface}; color: {c.text}; border: 1px solid {c.edge};
  border-radius: {CONTROL_RADIUS_PX}px; padding: 7px 9px; min-height: {_INNER_PX}px;
  selection-background-color: {c.accent}; selection-color: {c.on_accent}; placeholder-text-color: {c.muted}; }}
{_each(_FIELDS, ":focus")} {{ border: {RING_PX}px solid {c.focus}; padding: 6px 8px; }}
QComboBox QLineEdit, QAbstractSpinBox QLineEdit {{ border: none; padding: 0; background: transparent; min-height: 0; }}
QPlainTextEdit[readOnly="true"] {{ border: 1px solid {c.line}; }}
QPlainTextEdit[readOnly="true"]:focus {{ border: {RING_PX}px solid {c.focus}; }}
QTextEdit[look="plain"] {{ background: transparent; border: {RING_PX}px solid transparent; padding: 0; }}
QTextEdit[look="plain"]:focus {{ border-color: {c.focus}; }}
{_each(_FIELDS, ":disabled")} {{ color: {c.faint}; border-color: {c.line}; }}
{_each(_FIELDS, '[look="error"]')} {{ border: 1px solid {c.error}; }}
{_each(_FIELDS, '[look="error"]:focus')} {{ border: {RING_PX}px solid {c.error}; }}
QComboBox::drop-down {{ border: none; width: 26px; }}
QComboBox::down-arrow {{ image: url({ICONS}:chevron-down.svg); width: 12px; height: 12px; }}
QComboBox QAbstractItemView {{ background: {c.surface}; border: 1px solid {c.edge}; padding: 4px;
  selection-background-color: {c.raised}; selection-color: {c.text}; }}
QAbstractSpinBox::up-button, QAbstractSpinBox::down-button {{ width: 0; border: none; }}
NumberBox::up-button, NumberBox::down-button {{ width: 24px; subcontrol-origin: border; margin: 2px;
  border-radius: {SMALL_RADIUS_PX}px; }}
NumberBox::up-button {{ subcontrol-position: top right; margin-bottom: 0; }}
NumberBox::down-button {{ subcontrol-position: bottom right; margin-top: 0; }}
NumberBox::up-button:hover, NumberBox::down-button:hover {{ background: {c.raised}; }}
NumberBox::up-arrow, NumberBox::down-arrow {{ width: 10px; height: 10px; }}
NumberBox::up-arrow {{ image: url({ICONS}:chevron-up.svg); }}
NumberBox::down-arrow {{ image: url({ICONS}:chevron-down.svg); }}
NumberBox::up-arrow:off, NumberBox::down-arrow:off {{ image: none; }}
NumberBox {{ padding: 6px 28px 6px 0; }}
NumberBox:focus {{ padding: 5px 27px 5px 0; }}
QMenu {{ background: {c.surface}; border: 1px solid {c.line}; padding: 4px; }}
QMenu::item {{ padding: 6px 24px 6px 12px; border-radius: {SMALL_RADIUS_PX}px; }}
QMenu::item:selected {{ background: {c.raised}; color: {c.text}; }}
"""


def _tables(c: Colors) -> str:
    return f"""
QTableView, QListView, QTreeView {{ background: {c.surface}; border: {RING_PX}px solid transparent;
  border-radius: {CONTROL_RADIUS_PX}px; outline: none; alternate-background-color: {c.surface};
  gridline-color: {c.line}; selection-background-color: {c.raised}; selection-color: {c.text}; }}
QTableView:focus, QListView:focus, QTreeView:focus {{ border-color: {c.focus}; }}
QTableView::item {{ padding: 6px 5px; border: none; }}
QListView::item {{ padding: 6px 8px; border: none; }}
QListView[look="places"]::item:selected {{ background: {c.accent_soft}; color: {c.text}; }}
QHeaderView {{ background: transparent; border: none; }}
QHeaderView::section {{ background: {c.surface}; color: {c.muted}; border: none; border-bottom: 1px solid {c.line};
  padding: 8px; }}
QHeaderView::section:vertical {{ border: none; padding: 0 8px; }}
QTableCornerButton::section, QAbstractScrollArea::corner {{ background: transparent; border: none; }}
QScrollBar:vertical {{ background: transparent; width: {SCROLL_BAR_PX}px; margin: 0; }}
QScrollBar:horizontal {{ background: transparent; height: {SCROLL_BAR_PX}px; margin: 0; }}
QScrollBar::handle {{ background: {c.edge}; border-radius: 2px; margin: 0 3px; min-height: 32px; min-width: 32px; }}
QScrollBar::handle:horizontal {{ margin: 3px 0; }}
QScrollBar::handle:hover {{ background: {c.muted}; }}
QScrollBar::handle:disabled {{ background: transparent; }}
QScrollBar::add-line, QScrollBar::sub-line {{ width: 0; height: 0; }}
QScrollBar::add-page, QScrollBar::sub-page {{ background: transparent; }}
"""
