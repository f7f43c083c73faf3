"""Starts the studio many times under load, and says how many starts died, with where the first one did.

    python tests/bench starts [--starts 300] [--load 4] [--switch-us 5000]

Each start is a process of its own: the window is shown, three pages are visited while the others are still being
imported, and once all pages are made it closes. No server is started. Beside it `--load` processes compute. A small
`--switch-us` lets Python change threads far more often than it does by itself, every 5,000 microseconds: what two
threads do wrong together shows in fewer starts. Prints the longest time for which the window's thread handled no event.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

LIMIT_S = 600
BUSY = "while True: sum(range(10_000))"
STUDIO = """
import faulthandler, sys, time
faulthandler.enable()
sys.setswitchinterval(float(sys.argv.pop()) / 1e6)
from PySide6.QtCore import QTimer
import burnish_app.window as window
import burnish_app.__main__ as start
grown, last, longest = 0, None, [0.0, 0.0]
def tick():
    global last
    now = time.perf_counter(), time.thread_time()
    if last is not None:
        longest[:] = [max(most, after - before) for most, after, before in zip(longest, now, last)]
    last = now
def ended():
    global grown
    grown += 1
    if grown == 2:  # after the imports, and after all pages were made
        print("longest", *longest, flush=True)
        sys.exit(0)
begin, fill = window.Window.begin, window.Window._fill
def begun(self):
    self.ticks = QTimer(self, interval=5)
    self.ticks.timeout.connect(tick)
    self.ticks.start()
    self.grown.connect(ended)
    begin(self)
def filled(self, client, bench):
    client.start = lambda: None
    fill(self, client, bench)
    for wait_ms, key in ((0, "train"), (30, "recipe"), (60, "compare")):
        QTimer.singleShot(wait_ms, self, lambda key=key: self.visit(key))
window.Window.begin, window.Window._fill = begun, filled
start.main()
"""


def start(home, switch_us):
    """Start the studio once; return its exit code, what it printed, and its errors."""
    environment = {"QT_QPA_PLATFORM": "offscreen", **os.environ, "BURNISH_HOME": home}
    command = [sys.executable, "-c", STUDIO, str(switch_us)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return ended.returncode, ended.stdout, ended.stderr


def main():
    """Start the studio again and again and print what became of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=300)
    parser.add_argument("--load", type=int, default=2 * (os.cpu_count() or 1))
    parser.add_argument("--switch-us", type=float, default=5000.0)
    options = parser.parse_args()
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(options.load)]
    died, longest, began = [], [], time.perf_counter()
    try:
        with tempfile.TemporaryDirectory() as home:
            for _ in range(options.starts):
                code, printed, errors = start(home, options.switch_us)
                if code or not printed.startswith("longest"):
                    died.append((code, errors))
                else:
                    longest.append([float(number) for number in printed.split()[1:3]])
    finally:
        for other in others:
            other.kill()
            other.wait()
    took_s = time.perf_counter() - began
    print(f"{options.starts} starts beside {options.load} busy processes, {took_s:.0f} s: {len(died)} died")
    if longest:
        for name, times in zip(("by the clock", "of the window's own work"), zip(*longest, strict=True), strict=True):
            middle, worst = statistics.median(times), max(times)
            print(f"longest time without an event, {name}: {middle:.3f} s, at worst {worst:.3f} s")
    if died:
        print(f"exit codes {sorted(code for code, _ in died)}; the first one's errors:\n{died[0][1][-4000:]}")
        sys.exit(1)


if __name__ == "__main__":
    main()
