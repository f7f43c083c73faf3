"""Processes of runs, forked from one that has its libraries loaded, so that a test may start and kill many (POSIX)."""

import json
import os
import signal
import subprocess
import sys
import time

_SERVER = """
import importlib.util, json, os, sys
import torch, transformers  # not peft: on a GPU its bitsandbytes begins CUDA, which no fork survives
if importlib.util.find_spec("datasets"):  # these runs do without it
    import datasets
from transformers import AutoModelForCausalLM, AutoTokenizer
from burnish_engine.contract.paths import RunPaths
from burnish_engine.train.parallel import run_rank
from burnish_engine.train.run import run_training
from pathlib import Path
print("ready", flush=True)
for line in sys.stdin:
    order = json.loads(line)
    if "poll" in order:
        done, status = os.waitpid(order["poll"], os.WNOHANG)
        print(os.waitstatus_to_exitcode(status) if done else "", flush=True)
        continue
    pid = os.fork()
    if pid == 0:
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC) if order["log"] else 2
        for number in (1, 2):
            os.dup2(log, number)
        os.environ.update(order["variables"])
        if order["run"]:
            os._exit(int(run_training(RunPaths(Path(order["run"]))).exit_code))
        run_rank.main()
    print(pid, flush=True)
"""


class ForkServer:
    """The process that forks.

    Attributes:
        ranks: processes started by `start_rank`.
    """

    def __init__(self):
        environment = {
            **os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        self._server = subprocess.Popen(
            [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self._server.stdout.readline() == "ready\n"
        self.ranks = []

    def ask(self, order):
        """Return the server's answer to an order."""
        self._server.stdin.write(json.dumps(order) + "\n")
        self._server.stdin.flush()
        return self._server.stdout.readline().strip()

    def start_run(self, paths):
        """Start a run, or continue with it, in a process of its own."""
        return self._forked(run=str(paths.root))

    def start_rank(self, world, rank, logs, _module):
        """Start a rank, in place of `launch._start`."""
        links = {name: value for name, value in os.environ.items() if name.startswith("NCCL_")}  # that the run set
        process = self._forked(log=str(logs / f"rank-{rank}.log"), variables=links | world.environment(rank))
        self.ranks.append(process)
        return process

    def _forked(self, *, run="", log="", variables=None):
        home = {"BURNISH_HOME": os.environ["BURNISH_HOME"]}  # another in each test
        return Forked(self, int(self.ask({"run": run, "log": log, "variables": home | (variables or {})})))

    def close(self):
        """End the server."""
        self._server.stdin.close()
        self._server.wait(120)


class Forked:
    """A process that the server forked, with the part of `subprocess.Popen` that ranks and tests need."""

    def __init__(self, server, pid):
        self._server, self.pid, self.returncode, self.stdin = server, pid, None, None

    def poll(self):
        """Return the exit code, negative for a signal; None while the process continues."""
        if self.returncode is None and (answer := self._server.ask({"poll": self.pid})):
            self.returncode = int(answer)
        return self.returncode

    def wait(self, timeout=30.0):
        """Return the exit code once there is one."""
        until = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(0.02)
        return self.returncode

    def kill(self):
        """Kill the process, if it is not over."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
