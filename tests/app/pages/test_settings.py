"""The page Settings."""

import re

import pytest
from PySide6.QtWidgets import QLabel

from burnish_engine.contract.paths import assets_dir

pytestmark = pytest.mark.gui


@pytest.mark.full
def test_its_keys_are_those_of_the_guide(window):
    """The guide's table of keys and the card list the same ones."""
    window.go_to("settings")
    shown = {label.text().casefold() for label in window.page("settings").findChildren(QLabel)}
    text = (assets_dir() / "guide" / "window.md").read_text(encoding="utf-8")
    table = text.partition("| keys |")[2].partition("\n\n")[0]
    keys = re.findall(r"^\| ([^|]+?) \|", table, flags=re.MULTILINE)
    assert len(keys) > 8
    assert [key for key in keys if key.casefold() not in shown] == []
