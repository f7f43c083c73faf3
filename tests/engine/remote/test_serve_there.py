"""Another machine's engine: its lines come through, and why they do not is said as a line too."""

import json
import subprocess
import sys

import psutil
import pytest

from burnish_engine.contract.errors import ExitCode

from support.machines.fake_ssh import FakeSsh

COMMAND = [sys.executable, "-P", "-m", "burnish_engine.cli.main", "serve", "--on", "ssh:office"]


@pytest.fixture
def ssh(tmp_path, monkeypatch):
    made = FakeSsh(tmp_path)
    made.use(monkeypatch)
    return made


@pytest.fixture
def served(ssh):
    with subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def lines(process):
    for line in process.stdout:
        if line.strip():
            yield json.loads(line)


def until(process, kind):
    """The first line of a kind, and what came before it."""
    before = []
    for line in lines(process):
        if line["type"] == kind:
            return line, before
        before.append(line)
    raise AssertionError(before)


@pytest.mark.full
def test_how_the_connection_is_made_comes_before_the_greeting(ssh, served):
    hello, before = until(served, "hello")
    assert hello["pid"] != served.pid
    assert before
    assert {(line["type"], line["id"]) for line in before} == {("progress", "")}
    served.stdin.write('{"method": "machine", "id": "a"}\n')
    served.stdin.flush()
    answer, _ = until(served, "result")
    assert answer["machine"]["cpu_cores"] >= 1
    assert not list(ssh.jobs.glob("jobs/*"))  # while it answers
    served.stdin.close()
    assert served.wait(60) == ExitCode.DONE


def test_an_engine_there_that_is_gone_is_said_with_its_last_words(ssh, served):
    hello, _ = until(served, "hello")
    psutil.Process(hello["pid"]).kill()
    failure, _ = until(served, "failure")
    assert failure["id"] == ""
    assert "ssh:office" in failure["what"]
    assert served.wait(60) == failure["exit_code"] == ExitCode.ENVIRONMENT


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("Host key verification failed.", "ssh office"),
        ("ssh: connect to host office port 22: Connection timed out", "Try again"),
    ],
)
def test_a_machine_that_cannot_be_reached_is_said_with_sshs_own_words(ssh, words, remedy):
    ssh.fail(words)
    done = subprocess.run(COMMAND, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    failure = json.loads(done.stdout.splitlines()[-1])
    assert (failure["type"], failure["id"]) == ("failure", "")
    assert words.rstrip(".") in failure["what"]
    assert remedy in failure["remedy"]
    assert done.returncode == failure["exit_code"] == ExitCode.ENVIRONMENT


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("place", ["here", "slurm:office"])
def test_only_a_machine_that_ssh_reaches_answers(ssh, place):
    done = subprocess.run([*COMMAND[:-1], place], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert done.returncode == ExitCode.USAGE
