"""Takes a GPU's memory away and gives it back, from a process of its own: `with Ballast() as ballast: ballast.take()`.

Also by hand, to make a card look smaller: `python tests/support/memory/ballast.py --leave-gib 8` leaves so much free
until it is ended or its input closes.
"""

import argparse
import subprocess
import sys

MIB = 2**20
_PIECES = [2**30, 2**28, 2**26, 2**24, 2**22, 2**20]


class Ballast:
    """A process that holds memory of the first GPU."""

    def __enter__(self):
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert self._process.stdout.readline().strip() == "ready"
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.wait(30)

    def take(self, leave_mib=0):
        """Take everything but so much; returns what is free then, bytes."""
        return self._ask(f"take {leave_mib}")

    def drop(self):
        """Give everything back; returns what is free then, bytes."""
        return self._ask("drop")

    def _ask(self, line):
        self._process.stdin.write(line + "\n")
        return int(self._process.stdout.readline())


def _serve():
    import torch

    held = []
    torch.zeros(1, device="cuda")
    torch.cuda.empty_cache()
    print("ready", flush=True)
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "take":
            leave = int(rest[0]) * MIB
            for size in _PIECES:
                while torch.cuda.mem_get_info()[0] - size >= leave:
                    try:
                        held.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
                    except torch.OutOfMemoryError:
                        break
        else:
            held.clear()
            torch.cuda.empty_cache()
        print(torch.cuda.mem_get_info()[0], flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--leave-gib", type=float, help="Take all but so much at once, and wait for the input to close."
    )
    arguments = parser.parse_args()
    if arguments.leave_gib is None:
        _serve()
    else:
        with Ballast() as one:
            print(f"{one.take(int(arguments.leave_gib * 1024)) / 2**30:.3f} GiB are free", flush=True)
            sys.stdin.read()
