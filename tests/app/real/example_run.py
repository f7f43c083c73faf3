"""Makes the example that ships from a finished run of the embedded model on the sample notes.

    burnish train RECIPE --run-dir RUN
    python tests/app/real/example_run.py RUN assets/example-run

Copies what the Train page reads, without checkpoints and adapter, and leaves out the folders of the machine.
"""

import json
import sys
import tomllib
from pathlib import Path

FILES = ("recipe.toml", "events.jsonl", "state.json", "card.json")


def main(run, out):
    """Copy a run's small files, with the data files' names in place of their paths."""
    run, out = Path(run), Path(out)
    state = json.loads((run / "state.json").read_text(encoding="utf-8"))
    if state["status"] != "finished":
        sys.exit(f"The run {run} is {state['status']}, not finished: let it end first.")
    data = tomllib.loads((run / "recipe.toml").read_text(encoding="utf-8"))["data"]
    out.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        text = (run / name).read_text(encoding="utf-8")
        for path in [*data["files"], *data["validation_files"]]:
            text = text.replace(path, Path(path).name)
        (out / name).write_text(text.replace(str(run.resolve()), "example"), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
