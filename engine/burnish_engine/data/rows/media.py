"""Refuses rows that need images, audio or video. Burnish trains on text alone, so such rows are dropped and counted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from burnish_engine.data.files.problems import RowError
from burnish_engine.data.rows.content_parts import NEEDS_MEDIA
from burnish_engine.data.rows.conversation import Conversation

_KINDS = ("image", "images", "video", "videos", "audio", "audios")
_NAMES = {
    *_KINDS,
    *(f"{side}_{kind}" for side in ("rejected", "chosen", "positive", "negative") for kind in _KINDS),
    *(f"{kind}_{form}" for kind in ("image", "video", "audio") for form in ("path", "file", "url", "bytes")),
    *("pixel_values", "img", "wav", "mp3"),
}
"""Names of media columns in TRL, LLaMA-Factory, Axolotl, ms-swift and public datasets."""
_TAG = re.compile(r"<\|?(image|video|audio)(?:_pad)?\|?>(?!.*</\1>)", re.DOTALL)  # HTML closes its tags


def needs_media(values: dict[str, Any]) -> bool:
    """Whether a row has images, audio or video beside its text.

    Args:
        values: column to value.
    """
    return any(value not in (None, "", [], {}) for name, value in values.items() if name.strip().lower() in _NAMES)


def has_media_tag(texts: Sequence[str]) -> bool:
    """Whether some text contains a tag for media, such as `<image>`."""
    return any("<" in text and _TAG.search(text) for text in texts)


def refuse_media(values: dict[str, Any], conversation: Conversation, *, from_recipe: bool) -> None:
    """Refuse a row that needs media.

    Args:
        values: column to value.
        conversation: conversation that was parsed from the row.
        from_recipe: whether the recipe names the columns. Media columns are then ignored, unless the text has a tag for
            media.

    Raises:
        RowError: The row needs media.
    """
    if not needs_media(values):
        return
    texts = [conversation.text or "", *(message.content for message in conversation.messages)]
    if not from_recipe or has_media_tag(texts):
        raise RowError(NEEDS_MEDIA)
