"""Hugging Face Jobs on this machine: the protocol of `HfApi.run_job` and its neighbors, and jobs that really run.

A job is the very script of its document, run by a shell. Its bucket is a folder here, in the place of the mount, and
`python3` makes environments in which pip installs nothing but the wheel that was sent.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

TOKEN = "hf_secretOfThisTest"
PERSON = "tester"
OVER = ("COMPLETED", "CANCELED", "ERROR")
HARDWARE = [
    {
        "name": "cpu-basic", "prettyName": "CPU Basic", "cpu": "2 vCPU", "ram": "16 GB", "ephemeralStorage": "50 GB",
        "accelerator": None, "unitCostMicroUSD": 167, "unitCostUSD": 0.000167, "unitLabel": "minute",
    },
    {
        "name": "t4-small", "prettyName": "T4", "cpu": "4 vCPU", "ram": "15 GB", "ephemeralStorage": "50 GB",
        "accelerator": {"type": "gpu", "model": "T4", "quantity": "1", "vram": "16 GB", "manufacturer": "Nvidia"},
        "unitCostMicroUSD": 6667, "unitCostUSD": 0.006667, "unitLabel": "minute",
    },
    {
        "name": "a100x4", "prettyName": "4x A100", "cpu": "48 vCPU", "ram": "568 GB", "ephemeralStorage": "4 TB",
        "accelerator": {"type": "gpu", "model": "A100", "quantity": "4", "vram": "320 GB", "manufacturer": "Nvidia"},
        "unitCostMicroUSD": 166667, "unitCostUSD": 0.166667, "unitLabel": "minute",
    },
    {
        "name": "inf2x6", "prettyName": "Inf2", "cpu": "24 vCPU", "ram": "384 GB", "ephemeralStorage": "N/A",
        "accelerator": {"type": "neuron", "model": "Inf2", "quantity": "6", "vram": "192 GB", "manufacturer": "AWS"},
        "unitCostMicroUSD": 200000, "unitCostUSD": 0.2, "unitLabel": "minute",
    },
]  # fmt: skip
PYTHON = """#!/bin/sh
if [ "$1 $2" = "-m venv" ]; then mkdir -p "$3/bin" && cp {tools}/inner "$3/bin/python" && exit; fi
exec {python} "$@"
"""
INNER = """#!/bin/sh
env=$(dirname "$(dirname "$0")")
if [ "$1 $2" = "-m pip" ]; then
  for last; do :; done
  exec {python} -m pip install -q --disable-pip-version-check --no-index --no-deps --target "$env/site" "${{last%[*}}"
fi
PYTHONPATH="$env/site" exec {python} "$@"
"""


class Job:
    """One job with its log, over all its attempts."""

    def __init__(self, number, spec):
        self.number, self.spec, self.stage, self.log = number, spec, "SCHEDULING", []
        self.changed, self.process, self.attempts, self.canceled = threading.Condition(), None, 0, False

    def say(self, text):
        with self.changed:
            self.log.append(text)
            self.changed.notify_all()

    def become(self, stage):
        with self.changed:
            self.stage = stage
            self.changed.notify_all()


class JobsServer:
    """The service.

    Attributes:
        jobs: jobs by number.
        specs: documents that jobs were made with, as they came.
        cut_after: numbers of log lines after which a connection is cut, for one connection each.
        has_machines: whether jobs begin; where there are none, they wait.
        bucket: folder of the one bucket.
        mount: path that the bucket's folder of a job has in the job.
    """

    def __init__(self, folder):
        self.folder = Path(folder)
        self.jobs, self.specs, self.cut_after, self.seen_tokens = {}, [], [], set()
        self.bucket, self.mount = self.folder / "bucket", self.folder / "mount"
        self.bucket.mkdir()
        tools = self.folder / "tools"
        tools.mkdir()
        for name, text in (("python3", PYTHON), ("inner", INNER)):
            (tools / name).write_text(text.format(python=sys.executable, tools=tools))
            (tools / name).chmod(0o755)
        self._path = f"{tools}:{os.environ['PATH']}"
        self.closing, self.has_machines = False, True
        server = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                server.answer(self)

            def do_POST(self):
                server.answer(self)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def use(self, patch):
        patch.setenv("HF_ENDPOINT", self.url)
        patch.setenv("HF_TOKEN", TOKEN)
        patch.setenv("BURNISH_OFFLINE", "0")

    def close(self):
        self.closing = True
        for job in self.jobs.values():
            self._kill(job)
        self._server.shutdown()
        self._server.server_close()

    def upload(self, bucket, files, token):
        """Write files into the bucket, in the place of the hub's chunked storage."""
        assert (bucket, token) == (f"{PERSON}/burnish-jobs", TOKEN)
        for here, there in files:
            target = self.bucket / there
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(Path(here).read_bytes())

    def preempt(self, number):
        """Take the machine of a job back; its next attempt begins."""
        self._kill(self.jobs[number])

    def answer(self, request):
        length = int(request.headers.get("Content-Length") or 0)
        body = json.loads(request.rfile.read(length)) if length else None
        path = urlsplit(request.path).path
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._send(request, 401, {"error": "Invalid username or password."})
        if path == "/api/whoami-v2":
            return self._send(request, 200, {"name": PERSON, "type": "user"})
        if path == "/api/jobs/hardware":
            return self._send(request, 200, HARDWARE)
        if request.command == "POST" and path == f"/api/jobs/{PERSON}":
            return self._send(request, 200, self._info(self._start(body)))
        if match := re.fullmatch(rf"/api/jobs/{PERSON}/(\w+)(/logs|/cancel)?", path):
            job = self.jobs[match[1]]
            if match[2] == "/logs":
                return self._stream(request, job)
            if match[2] == "/cancel":
                job.canceled = True
                self._kill(job)
            return self._send(request, 200, self._info(job))
        if match := re.fullmatch(rf"/buckets/{PERSON}/burnish-jobs/resolve/(.+)", path):
            file = self.bucket / unquote(match[1])
            if not file.is_file():
                return self._send(request, 404, {"error": "Entry not found"})
            return self._send(request, 200, file.read_bytes())
        return self._send(request, 404, {"error": path})

    def _start(self, spec):
        self.specs.append(spec)
        job = Job(f"job{len(self.jobs)}", spec)
        self.jobs[job.number] = job
        threading.Thread(target=self._carry_out, args=(job,), daemon=True).start()
        return job

    def _carry_out(self, job):
        volume = job.spec["volumes"][0]
        assert (volume["type"], volume["mountPath"], volume["readOnly"]) == ("bucket", str(self.mount), False)
        self.mount.unlink(missing_ok=True)
        self.mount.symlink_to(self.bucket / volume["path"])
        secrets = job.spec.get("secrets", {})
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "PYTHON"))}
        environment |= {"PATH": self._path, "BURNISH_HOME": str(self.folder / "home"), "OMP_NUM_THREADS": "1"}
        environment |= {**job.spec["environment"], **secrets}
        while not (self.has_machines or job.canceled or self.closing):
            time.sleep(0.02)
        while job.attempts < job.spec.get("attempts", 1) and not job.canceled and not self.closing:
            job.attempts += 1
            machine = self.folder / f"machine{job.number}-{job.attempts}"
            machine.mkdir()
            command = [part.replace("@SCRATCH@", str(machine)) for part in job.spec["command"]]
            job.say("===== Job started at now =====")
            job.process = subprocess.Popen(
                command, env=environment, cwd=machine, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                start_new_session=True,
            )  # fmt: skip
            job.become("RUNNING")
            for line in job.process.stdout:
                job.say(line.rstrip("\n"))
            status = job.process.wait()
            self._kill(job)  # a container ends with its first process
            if status == 0:
                job.become("COMPLETED")
                return
        job.become("CANCELED" if job.canceled else "ERROR")

    @staticmethod
    def _kill(job):
        if job.process is not None:
            with contextlib.suppress(OSError):
                os.killpg(job.process.pid, signal.SIGKILL)

    def _stream(self, request, job):
        request.send_response(200)
        request.send_header("Content-Type", "text/event-stream")
        request.end_headers()
        limit = self.cut_after.pop(0) if self.cut_after else None
        sent = 0
        with contextlib.suppress(OSError):
            while True:
                with job.changed:
                    if len(job.log) == sent and job.stage not in OVER:
                        job.changed.wait(1)
                    lines, over = job.log[sent:], job.stage in OVER
                for line in lines:
                    event = json.dumps({"data": line, "timestamp": "2026-01-01T00:00:00.000Z"})
                    request.wfile.write(f"data: {event}\n\n".encode())
                    sent += 1
                    if limit is not None and sent >= limit:
                        return
                request.wfile.flush()
                if over and sent == len(job.log):
                    return
                if not lines:
                    request.wfile.write(b": keep-alive\n\n")

    def _info(self, job):
        return {
            "id": job.number, "createdAt": "2026-01-01T00:00:00.000Z", "dockerImage": job.spec["dockerImage"],
            "command": job.spec["command"], "flavor": job.spec["flavor"],
            "status": {"stage": job.stage, "message": None},
            "owner": {"id": "1", "name": PERSON, "type": "user"}, "labels": job.spec.get("labels"),
            "secrets": dict.fromkeys(job.spec.get("secrets", {}), ""), "retry": job.spec.get("attempts", 1) - 1,
        }  # fmt: skip

    @staticmethod
    def _send(request, status, content):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        request.send_response(status)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)


def until(condition, seconds=60):
    """Wait for a condition."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
