"""A way to another machine that says what a test wrote down, and runs in which nothing is trained."""

from burnish_engine.contract.facts.remote_job import RemoteJob
from burnish_engine.contract.recipe.recipe import DevicesSection, Recipe
from burnish_engine.contract.run.events import PhaseChanged, StepDone
from burnish_engine.remote.backends.backend import DroppedError, JobStatus
from burnish_engine.remote.there.relay_line import RelayLine
from burnish_engine.runs.store import create_run

UNWATCHED = '[guard]\naction = "off"\n'
"""Settings of runs that are short and whose training is not what is tested."""
JOB = RemoteJob(where="ssh:office", id="7", folder="/jobs/x")


def new_run(folder):
    """A run folder whose run is elsewhere."""
    return create_run(Recipe(devices=DevicesSection(where="ssh:office")), folder / "run")


def step(number, *, seq=None, attempt=0):
    """The line of a step; its position in the file is its number less one."""
    event = StepDone(
        step=number, epoch=0.5, loss=1.0 / number, learning_rate=1e-4, grad_norm=1.0, tokens=1, supervised_tokens=1,
        tokens_per_s=1, supervised_tokens_per_s=1, step_s=1, memory_bytes=1, eta_s=1.0,
        seq=number - 1 if seq is None else seq, t=float(number),
    )  # fmt: skip
    return RelayLine(kind="event", text=event.model_dump_json(), attempt=attempt)


def phase(seq, name="training", attempt=0):
    event = PhaseChanged(phase=name, seq=seq, t=1.0)
    return RelayLine(kind="event", text=event.model_dump_json(), attempt=attempt)


def end(status="finished", **changes):
    return RelayLine(kind="end", status=status, exit_code=0, **changes)


class Scripted:
    """Connections one after the other, each a list of lines; an exception in it breaks the connection there.

    Attributes:
        positions: positions from which lines were asked for.
        sent: commands that were handed on.
        files: files of the run there, by path.
        alive: what the place says of the job.
    """

    def __init__(self, *connections, files=None):
        self.connections, self.files = list(connections), files or {}
        self.positions, self.sent, self.alive, self.asked = [], [], True, 0
        self.refuse_sends = 0

    def lines(self, _job, position):
        self.positions.append(position)
        if not self.connections:
            raise DroppedError("no more connections")
        for line in self.connections.pop(0):
            if isinstance(line, Exception):
                raise line
            yield line

    def status(self, _job):
        self.asked += 1
        return JobStatus(self.alive, "" if self.alive else "The place ended it.")

    def send(self, _job, command):
        if self.refuse_sends:
            self.refuse_sends -= 1
            raise DroppedError("not now")
        self.sent.append(command)

    def fetch(self, _job, files, target):
        for name in files:
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.files[name])
