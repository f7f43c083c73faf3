"""The status of a step of the work (a page in the sidebar), and its text. No Qt."""

from __future__ import annotations

from typing import Literal

from burnish_app.look.language import tr

StageStatus = Literal["done", "now", "waiting"]
"""Status of a stage of a run or an export."""
StepStatus = Literal["empty", "ready", "busy", "done", "attention"]
STEP_STATUS_TEXT: dict[StepStatus, str] = {
    "empty": tr("nothing yet"),
    "ready": tr("ready for you"),
    "busy": tr("working"),
    "done": tr("done"),
    "attention": tr("needs attention"),
}
