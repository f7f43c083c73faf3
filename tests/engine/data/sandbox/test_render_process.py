"""The process that renders: it is replaced when it ends, serves several threads, and does not outlive its parent."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from burnish_engine.contract.errors import DataError, SetupError
from burnish_engine.data.files.problems import RowError
from burnish_engine.data.sandbox import confine, render_process, windows_job
from burnish_engine.data.sandbox.render_process import shared
from burnish_engine.data.templates.template import ChatTemplate

SAYS = "{{ messages[0].content }}"
POSIX = pytest.mark.skipif(os.name == "nt", reason="signals")


def says(text, template=None):
    return (template or ChatTemplate(SAYS, {})).render([{"role": "user", "content": text}])


def test_one_process_serves_all_templates():
    says("a")
    first = shared.pid
    assert says("b", ChatTemplate(SAYS + "!", {})) == "b!"
    with pytest.raises(RowError):
        says("c", ChatTemplate("{{ raise_exception('no') }}", {}))
    assert shared.pid == first != os.getpid()


@pytest.mark.full
def test_a_process_that_was_ended_from_outside_is_replaced():
    template = ChatTemplate(SAYS, {})
    first = psutil.Process(shared.pid)
    first.kill()
    first.wait(timeout=60)
    assert says("again", template) == "again"
    assert shared.pid != first.pid


@pytest.mark.full
def test_a_process_that_ends_at_every_request_is_told(monkeypatch):
    template = ChatTemplate(SAYS, {})
    exchange = render_process.frame

    def kill_and_frame(value):
        shared.close()
        monkeypatch.setattr(render_process, "_start", dying)
        return exchange(value)

    start = render_process._start

    def dying():
        child = start()
        child.kill()
        child.wait()
        return child

    monkeypatch.setattr(render_process, "frame", kill_and_frame)
    with pytest.raises(DataError, match="ended with status"):
        says("x", template)


def test_a_process_that_does_not_start_is_told(monkeypatch):
    shared.close()
    monkeypatch.setattr(render_process, "_MODULE", "burnish_engine.data.no_such_module")
    with pytest.raises(SetupError, match="did not start"):
        says("x")
    monkeypatch.undo()
    assert says("x") == "x"


@pytest.mark.full
def test_a_process_that_was_started_ahead_answers_the_first_request_and_is_ended_with_the_rest(monkeypatch):
    shared.close()
    launched, launch = [], render_process._launch
    monkeypatch.setattr(render_process, "_launch", lambda: launched.append(launch()) or launched[-1])
    shared.start()
    shared.start()
    assert says("ahead") == "ahead"
    assert [child.pid for child in launched] == [shared.pid]
    shared.close()
    shared.start()
    shared.close()
    assert launched[1].poll() is not None


def test_a_process_that_failed_to_start_ahead_is_told_at_the_first_request(monkeypatch):
    shared.close()
    monkeypatch.setattr(render_process, "_MODULE", "burnish_engine.data.no_such_module")
    shared.start()
    with pytest.raises(SetupError, match="did not start"):
        says("x")
    monkeypatch.undo()
    assert says("x") == "x"


def test_threads_get_the_answers_to_their_own_questions():
    def ask(number):
        template = ChatTemplate(SAYS + str(number % 3), {})
        return [says(f"{number}.{turn} ", template) for turn in range(20)]

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(ask, range(12)))
    assert found == [[f"{number}.{turn} {number % 3}" for turn in range(20)] for number in range(12)]


@pytest.mark.full
def test_an_interrupted_question_does_not_shift_the_answers(monkeypatch):
    template = ChatTemplate(SAYS, {})

    def interrupted(stream):
        raise KeyboardInterrupt

    monkeypatch.setattr(render_process, "read_length", interrupted)
    with pytest.raises(KeyboardInterrupt):
        says("first", template)
    monkeypatch.undo()
    assert says("second", template) == "second"


@POSIX
def test_interrupts_are_for_the_parent():
    says("a")
    first = shared.pid
    os.kill(first, signal.SIGINT)
    assert says("b") == "b"
    assert shared.pid == first
    assert os.getpgid(first) != os.getpgid(0)


def test_an_answer_that_is_too_long_is_not_read(monkeypatch):
    template = ChatTemplate(SAYS, {})
    monkeypatch.setattr(render_process, "_ANSWER_BYTES", 0)
    monkeypatch.setattr(render_process, "_ANSWER_BYTES_PER_BYTE", 0)
    with pytest.raises(DataError, match="the text limit"):
        says("x", template)


@pytest.mark.parametrize("text", ["\ud800", "\x00\x1b[2J", "é😀", '"\\', ""])
def test_every_text_survives_the_way_there_and_back(text):
    assert says(text) == text


@pytest.mark.full
def test_the_process_ends_with_a_parent_that_was_killed():
    script = (
        "from burnish_engine.data.templates.template import ChatTemplate, shared\n"
        "ChatTemplate('x', {}); print(shared.pid, flush=True); input()"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.communicate()
    assert psutil.wait_procs([child], timeout=120)[0] == [child]


@pytest.mark.full
@POSIX
def test_the_memory_limit_stays_below_a_limit_from_outside():
    script = (
        "import resource; from burnish_engine.data.sandbox import confine\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31)); print(confine.limit_memory(2**33))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert int(ran.stdout) == 2**31


@POSIX
def test_only_the_end_for_time_counts_as_that():
    assert confine.ended_for_time(-signal.SIGPROF)
    assert not any(map(confine.ended_for_time, (0, 1, -signal.SIGKILL, -signal.SIGSEGV)))


class Kernel32:
    """Windows' functions for jobs, written down."""

    def __init__(self):
        self.limits = []

    def CreateJobObjectW(self, *_):  # noqa: N802
        return 5

    def GetCurrentProcess(self):  # noqa: N802
        return 6

    def AssignProcessToJobObject(self, job, process):  # noqa: N802
        return (job.value, process.value) == (5, 6)

    def GetProcessTimes(self, process, creation, ended, kernel, user):  # noqa: N802
        user._obj.value = 30_000_000  # 3 s
        return 1

    def SetInformationJobObject(self, job, kind, limits, size):  # noqa: N802
        found = limits._obj
        assert (kind, size) == (9, 144)  # JobObjectExtendedLimitInformation and its size on 64-bit systems
        self.limits.append((found.basic.flags, found.process_memory, found.basic.process_time))
        return 1


def test_the_job_object_of_windows_gets_the_same_limits():
    kernel32 = Kernel32()
    job = windows_job._JobObject(kernel32)
    job.limit_memory(2**29)
    job.limit_time(5.0)
    job.limit_time(0)
    memory, time, dies = 0x100, 0x2, 0x400
    assert kernel32.limits == [
        (memory | dies, 2**29, 0),
        (memory | time | dies, 2**29, 80_000_000),
        (memory | dies, 2**29, 0),
    ]
