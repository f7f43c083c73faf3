"""Score a demo's replies again: `python -m burnish_engine.demo.score burnish-demo/replies.json`.

`one-sentence` behind it scores those of `burnish demo --preferences`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from burnish_engine.demo.tasks import BENCH_NOTES, ONE_SENTENCE


def main() -> None:
    """Print the score of every model in a replies.json."""
    tasks = {task.dataset: task for task in (BENCH_NOTES, ONE_SENTENCE)}
    task = tasks[sys.argv[2]] if len(sys.argv) > 2 else BENCH_NOTES
    replies = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for model, entries in replies.items():
        sys.stdout.write(f"{model}: {task.count(entries)} of {len(entries)}\n")


if __name__ == "__main__":
    main()
