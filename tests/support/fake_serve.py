"""A stand-in for `burnish serve`: answers each method with what a JSON file says, read anew for every request.

The file maps a method to a list of messages, sent in order with the request's id put in. Beside real messages an entry
may be {"sleep": seconds}, {"until": file that has to exist first}, {"print": text}, {"exit": code}, or {"hold": true}:
answer no more until canceled. Requests are appended to `<file>.log`. A method that is not in the file
gets an empty result.
"""

import json
import os
import sys
import time
from pathlib import Path


def say(**message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def answers(file):
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def main():
    file = Path(sys.argv[1])
    for entry in answers(file).get("at_start", []):
        if "exit" in entry:
            sys.exit(entry["exit"])
    say(type="hello", protocol=2, burnish="test", pid=os.getpid())
    for line in sys.stdin:
        request = json.loads(line)
        with Path(f"{file}.log").open("a", encoding="utf-8") as log:
            log.write(line)
        if request["method"] == "cancel":
            say(type="canceled", id=request["request"])
            say(type="result", id=request["id"])
            continue
        for entry in answers(file).get(request["method"], [{"type": "result"}]):
            if "sleep" in entry:
                time.sleep(entry["sleep"])
            elif "until" in entry:
                while not Path(entry["until"]).exists():
                    time.sleep(0.01)
            elif "print" in entry:
                sys.stdout.write(entry["print"] + "\n")
            elif "exit" in entry:
                sys.stdout.flush()
                os._exit(entry["exit"])
            elif "hold" in entry:
                break
            else:
                say(**{"id": request["id"], **entry})


if __name__ == "__main__":
    main()
