"""Tells rows that need images, audio or video. Burnish trains on text alone, so such rows are dropped and counted."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any

NEEDS_MEDIA = "needs images, audio or video, and only text is trained on"

_KINDS = ("image", "images", "video", "videos", "audio", "audios")
_NAMES = {
    *_KINDS,
    *(f"{side}_{kind}" for side in ("rejected", "chosen", "positive", "negative") for kind in _KINDS),
    *(f"{kind}_{form}" for kind in ("image", "video", "audio") for form in ("path", "file", "url", "bytes")),
    *("pixel_values", "img", "wav", "mp3"),
}
"""Names of media columns in TRL, LLaMA-Factory, Axolotl, ms-swift and public datasets."""
_HINTS = re.compile(r"image|img|photo|picture|audio|video|speech|voice|sound|wav|file_?name|file_?path")
"""Parts of column names that hold media where their values are media files."""
_FILE = re.compile(
    r"data:(?:image|audio|video)/|.*\.(?:png|jpe?g|gif|webp|bmp|tiff?|wav|mp3|flac|ogg|m4a|mp4|avi|mov|mkv|webm)\Z",
    re.IGNORECASE | re.DOTALL,
)
_STRUCTS = ({"bytes", "path"}, {"array", "sampling_rate"})
"""Keys of images and audio as the `datasets` library stores them."""
_LONGEST_PATH = 4096  # characters
_TAG = re.compile(
    r"<\|?(image|video|audio)(?:_pad|_soft_token|_placeholder|_\d{1,4})?\|?>"
    r"|<start_of_(?:image|audio)>|<img>[^<>\s]{1,4096}</img>",
    re.IGNORECASE,
)
"""Tags of LLaVA, Qwen-VL (new and old), Phi-3 vision and Gemma 3. HTML has two of them, and closes them."""


def needs_media(values: dict[str, Any], read: Collection[str] = ()) -> bool:
    """Whether a row, or a turn, has images, audio or video beside its text.

    Args:
        values: column to value.
        read: columns that are read as text.
    """
    return any(
        value not in (None, "", [], {}) and name not in read and _is_media(name, value)
        for name, value in values.items()
    )


def has_media_tag(texts: Sequence[str]) -> bool:
    """Whether some text contains a tag for media, such as `<image>`."""
    return any("<" in text and _has_tag(text) for text in texts)


def _has_tag(text: str) -> bool:
    closed: dict[str, int] = {}
    for tag in _TAG.finditer(text):
        kind = tag[1]
        if kind is None or tag.start() > closed.setdefault(kind, text.rfind(f"</{kind}>")):
            return True
    return False


def _is_media(name: str, value: Any) -> bool:
    named, hinted = _kind_of(name)
    if named:
        return True
    first = value[0] if isinstance(value, list) else value
    if isinstance(first, dict):
        return any(first.keys() >= keys for keys in _STRUCTS)
    return hinted and isinstance(first, str) and len(first) <= _LONGEST_PATH and bool(_FILE.match(first))


@lru_cache(maxsize=1024)
def _kind_of(name: str) -> tuple[bool, bool]:
    """Return whether a column's name says that it holds media, and whether it may."""
    bare = name.strip().lower()
    return bare in _NAMES, bool(_HINTS.search(bare))
