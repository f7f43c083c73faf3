"""How far a download is, in words. Pure functions, no Qt."""

from __future__ import annotations

from burnish_app.look.language import tr
from burnish_app.wording.numbers import duration_text, percent
from burnish_engine.contract.facts.downloads import Download
from burnish_engine.contract.units import file_size


def progress_text(download: Download) -> str:
    """Return what is being done, in a word or two: "Waiting", "Fetching 42 %"."""
    if download.status == "queued":
        return tr("Waiting its turn")
    if not download.total:
        return tr("Fetching ...")
    return tr("Fetching {share}").format(share=percent(min(download.done / download.total, 1.0)))


def detail_text(download: Download) -> str:
    """Return size, speed and time left, or why the download does not go on."""
    size = (
        tr("{done} of {total}").format(done=file_size(download.done), total=file_size(download.total))
        if download.total
        else ""
    )
    parts: list[str] = []
    match download.status:
        case "finished":
            parts = [tr("Here, and checked"), file_size(download.total)]
        case "failed":
            parts = [f"{download.message} {download.remedy}".strip()]
        case "paused":
            parts = [f"{download.message} {download.remedy}".strip() or tr("Paused"), size]
        case "queued":
            parts = [tr("Waiting its turn"), size]
        case "running":
            parts = [size, *_running(download)]
    return "  ·  ".join(part for part in parts if part)


def _running(download: Download) -> list[str]:
    if not download.bytes_per_s:
        return [download.what[:1].upper() + download.what[1:]]
    left = download.seconds_left
    speed = tr("{megabytes:,.1f} MB/s").format(megabytes=download.bytes_per_s / 1e6)
    return [speed, tr("{time} left").format(time=duration_text(left))] if left is not None else [speed]
