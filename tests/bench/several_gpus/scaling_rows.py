"""Several settings of `burnish bench step` in one start, which `scaling` makes; prints a line of JSON for each.

    python tests/bench scaling_rows '{"gpus": [2], "settings": [{"shape": "qwen3-0.6b", "tokens": 4096}]}'

A setting holds fields of `StepOptions`, `keep` as the command's option has it.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from burnish_engine.bench.shared_step import shared_steps
from burnish_engine.bench.step_options import StepOptions, parse_keep


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("given", type=json.loads, help="GPUs and settings")
    given: dict[str, Any] = parser.parse_args().given
    settings = [StepOptions(**one | {"keep": parse_keep(one["keep"])}) for one in given["settings"]]
    for row in shared_steps(settings, given["gpus"]):
        print(json.dumps(row | {"model": row["shape"]}), flush=True)


if __name__ == "__main__":
    main()
