"""Compares the start of the studio with that of a bare PySide6 window, in one run: from process to shown window.

    python tests/bench start_time [--starts 10]

Both are started by turns, so that a busy machine slows them alike. Prints the medians, their ratio, and how long it
takes until the first page can be used.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

BARE = """
import sys
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication, QMainWindow
app = QApplication([])
window = QMainWindow()
window.resize(1280, 800)
window.show()
QTimer.singleShot(0, window, lambda: (print("shown", flush=True), app.quit()))
app.exec()
"""
STUDIO = """
import sys
import burnish_app.window as window
import burnish_app.__main__ as start
begin, fill = window.Window.begin, window.Window._fill
def begun(self):
    print("shown", flush=True)
    begin(self)
def filled(self, client, bench):
    fill(self, client, bench)
    print("usable", flush=True)
    client.start = lambda: None  # no server: it has nothing to do with the window's start
    from PySide6.QtCore import QTimer
    QTimer.singleShot(0, self, lambda: sys.exit(0))
window.Window.begin, window.Window._fill = begun, filled
start.main()
"""


def start(code, environment):
    """Run code in a process; seconds from its creation to each line that it prints."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, text=True
    )
    found = {line.strip(): time.perf_counter() - began for line in process.stdout}
    process.wait()
    return found


def main():
    """Start both by turns and print what they took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=10)
    options = parser.parse_args()
    bare, shown, usable = [], [], []
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "BURNISH_HOME": home}
        start(STUDIO, environment)  # compiles
        for _ in range(options.starts):
            bare.append(start(BARE, environment)["shown"])
            times = start(STUDIO, environment)
            shown.append(times["shown"])
            usable.append(times["usable"])
    middle = statistics.median
    print(f"bare window  {middle(bare):.3f} s")
    print(f"studio shown {middle(shown):.3f} s, {middle(shown) / middle(bare):.2f} times")
    print(f"first page   {middle(usable):.3f} s, {middle(usable) / middle(bare):.2f} times")


if __name__ == "__main__":
    main()
