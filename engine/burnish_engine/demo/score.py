"""Score a demo's replies again: `python -m burnish_engine.demo.score burnish-demo/replies.json`.

Replies of `burnish demo --preferences` need the dataset's name as second argument: `one-sentence`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from burnish_engine.demo.tasks import BENCH_NOTES, ONE_SENTENCE


def main() -> None:
    """Print the score of every model in a replies.json."""
    tasks = {task.dataset: task for task in (BENCH_NOTES, ONE_SENTENCE)}
    parser = argparse.ArgumentParser(description="Score the replies of a demo again.")
    parser.add_argument("replies", type=Path, help="replies.json of the demo's folder")
    parser.add_argument("dataset", nargs="?", choices=list(tasks), default=BENCH_NOTES.dataset)
    options = parser.parse_args()
    for model, entries in json.loads(options.replies.read_text(encoding="utf-8")).items():
        sys.stdout.write(f"{model}: {tasks[options.dataset].count(entries)} of {len(entries)}\n")


if __name__ == "__main__":
    main()
