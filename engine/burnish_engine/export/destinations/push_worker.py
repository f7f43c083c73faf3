"""Process that uploads files: `python -m burnish_engine.export.destinations.push_worker REQUEST`.

REQUEST is JSON: {"repository", "private", "files"}. Standard output ends with {"url": "..."} or with a
`hub.failures.HubFailure`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(text: str) -> int:
    """Upload the files of a request; return the process's exit status."""
    from huggingface_hub import CommitOperationAdd, HfApi

    from burnish_engine.hub.failures import failure_of

    request = json.loads(text)
    files = [Path(name) for name in request["files"]]
    try:
        api = HfApi()
        api.create_repo(request["repository"], private=request["private"], exist_ok=True)
        operations = [CommitOperationAdd(path_in_repo=path.name, path_or_fileobj=path) for path in files]
        commit = api.create_commit(
            request["repository"], operations, commit_message=f"{len(files)} files, verified by Burnish"
        )
    except Exception as error:  # noqa: BLE001  whatever it is, the other process says it in words
        sys.stdout.write(failure_of(error).model_dump_json() + "\n")
        return 1
    sys.stdout.write(json.dumps({"url": str(commit.commit_url)}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
