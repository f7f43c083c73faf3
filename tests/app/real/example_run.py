"""Makes an example that ships from a finished run of the embedded model on the sample notes.

    burnish train RECIPE --run-dir RUN
    burnish export RUN --quant Q8_0          # for the example with a proof
    python tests/app/real/example_run.py RUN assets/example-runs/NAME

Copies what the pages read, the adapter and the proof of its file, without checkpoints and without the file, which is
too large to ship. Leaves out the folders of the machine; the card's entry of a file that named one is made anew.
"""

import hashlib
import json
import shutil
import sys
import tomllib
from pathlib import Path

TEXTS = (
    "recipe.toml", "events.jsonl", "state.json", "card.json", "held_out.json", "adapter/adapter_config.json",
    "export/fidelity.json", "export/job.json",
)  # fmt: skip
WEIGHTS = "adapter/adapter_model.safetensors"


def main(run, out):
    """Copy a run's small files, with names in place of paths."""
    run, out = Path(run), Path(out)
    state = json.loads((run / "state.json").read_text(encoding="utf-8"))
    if state["status"] != "finished":
        sys.exit(f"The run {run} is {state['status']}, not finished: let it end first.")
    data = tomllib.loads((run / "recipe.toml").read_text(encoding="utf-8"))["data"]
    base = json.loads((run / "adapter" / "adapter_config.json").read_text(encoding="utf-8"))["base_model_name_or_path"]
    names = {path: Path(path).name for path in [*data["files"], *data["validation_files"]]}
    names |= {str(run.resolve()): out.name, base: "embedded"}
    for name in TEXTS:
        if (run / name).is_file():
            text = (run / name).read_text(encoding="utf-8")
            for path, short in names.items():
                text = text.replace(path, short)
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_text(text, encoding="utf-8")
    shutil.copyfile(run / WEIGHTS, out / WEIGHTS)
    describe_anew(out / "card.json", out / "adapter" / "adapter_config.json")


def describe_anew(card_file, file):
    """Write size and hash of a file into the card's result."""
    card, content = json.loads(card_file.read_text(encoding="utf-8")), file.read_bytes()
    entry = next(one for one in card["result"]["files"] if one["name"] == file.name)
    entry.update(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    card_file.write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
