"""A stand-in for `burnish serve`: answers each method with what a JSON file says, read anew for every request.

The file maps a method to a list of messages, sent in order with the request's id put in. Beside real messages an entry
may be {"sleep": seconds}, {"until": file that has to exist first}, {"print": text}, {"exit": code}, or {"hold": true}:
answer no more until canceled. Under "at_start" stands what comes before the greeting; {"protocol": number} there is the
version that the greeting names. Requests are appended to `<file>.log`. A method that is not in the file
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


def greet(entries):
    protocol = 2
    for entry in entries:
        if "exit" in entry:
            sys.exit(entry["exit"])
        if "until" in entry:
            wait_for(entry["until"])
        elif "protocol" in entry:
            protocol = entry["protocol"]
        else:
            say(**entry)
    say(type="hello", protocol=protocol, burnish="test", pid=os.getpid())


def wait_for(file):
    while not Path(file).exists():
        time.sleep(0.01)


def main():
    file = Path(sys.argv[1])
    greet(answers(file).get("at_start", []))
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
                wait_for(entry["until"])
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
