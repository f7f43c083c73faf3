"""Process that downloads a dataset: `python -m burnish_engine.data.files.hub_worker NAME REVISION PATTERN...`.

An empty REVISION is the newest. Standard output ends with {"folder": "..."} or with a `hub.failures.HubFailure`.
"""

from __future__ import annotations

import json
import sys


def main(name: str, revision: str, patterns: list[str]) -> int:
    """Download the files of a dataset that match a pattern; return the process's exit status."""
    from burnish_engine.hub.failures import failure_of

    try:
        from huggingface_hub import snapshot_download

        folder = snapshot_download(name, repo_type="dataset", revision=revision or None, allow_patterns=patterns)
    except Exception as error:  # noqa: BLE001  whatever it is, the other process says it in words
        sys.stdout.write(failure_of(error).model_dump_json() + "\n")
        return 1
    sys.stdout.write(json.dumps({"folder": folder}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
