"""Rows that need images, audio or video. Burnish trains on text alone, so such rows are left out and counted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from burnish_engine.data.content_parts import NEEDS_MEDIA
from burnish_engine.data.conversation import Conversation
from burnish_engine.data.problems import RowError

_KINDS = ("image", "images", "video", "videos", "audio", "audios")
_NAMES = {
    *_KINDS,
    *(f"{side}_{kind}" for side in ("rejected", "chosen", "positive", "negative") for kind in _KINDS),
    *(f"{kind}_{form}" for kind in ("image", "video", "audio") for form in ("path", "file", "url", "bytes")),
    *("pixel_values", "img", "wav", "mp3"),
}
"""Names of columns that hold media, in TRL, LLaMA-Factory, Axolotl and ms-swift and in public datasets."""
_TAG = re.compile(r"<\|?(image|video|audio)(?:_pad)?\|?>(?!.*</\1>)", re.DOTALL)  # HTML closes its tags


def needs_media(values: dict[str, Any]) -> bool:
    """Whether a row has images, audio or video beside its text.

    Args:
        values: Column to value.
    """
    return any(value not in (None, "", [], {}) for name, value in values.items() if name.strip().lower() in _NAMES)


def has_media_tag(texts: Sequence[str]) -> bool:
    """Whether some text has a place for media in it, such as `<image>`."""
    return any("<" in text and _TAG.search(text) for text in texts)


def refuse_media(values: dict[str, Any], conversation: Conversation, *, by_hand: bool) -> None:
    """Refuse a row that needs media.

    Args:
        values: Column to value.
        conversation: What was read of them.
        by_hand: Whether a person said which columns count. Those with media then do not, unless the text has a place
            for them.

    Raises:
        RowError: The row needs media.
    """
    if not needs_media(values):
        return
    texts = [conversation.text or "", *(message.content for message in conversation.messages)]
    if not by_hand or has_media_tag(texts):
        raise RowError(NEEDS_MEDIA)
