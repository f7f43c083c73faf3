"""Process that uploads files to a bucket: `python -m burnish_engine.remote.backends.hf_upload`.

Buckets take files in the hub's chunked storage alone, which huggingface_hub's own library writes; that library needs a
process that was started online. The request is JSON on standard input: {"bucket", "files": [[path here, path there]]}.
The token is in HF_TOKEN. Standard output ends with a `hub.failures.HubFailure` where the upload failed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> int:
    """Upload the files of the request; return the process's exit status."""
    from huggingface_hub import HfApi

    from burnish_engine.hub.failures import failure_of

    request = json.load(sys.stdin)
    try:
        api = HfApi()
        api.create_bucket(request["bucket"], private=True, exist_ok=True)
        api.batch_bucket_files(request["bucket"], add=[(Path(here), there) for here, there in request["files"]])
    except Exception as error:  # noqa: BLE001  whatever it is, the other process says it in words
        sys.stdout.write(failure_of(error).model_dump_json() + "\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
