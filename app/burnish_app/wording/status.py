"""The status of a step of the work (a page in the sidebar), and its text. No Qt."""

from __future__ import annotations

from typing import Literal

StepStatus = Literal["empty", "ready", "busy", "done", "attention"]
STEP_STATUS_TEXT: dict[StepStatus, str] = {
    "empty": "nothing yet",
    "ready": "ready for you",
    "busy": "working",
    "done": "done",
    "attention": "needs attention",
}
