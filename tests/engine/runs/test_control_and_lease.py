"""Commands reach the run once; a device has one holder; a dead holder blocks nobody."""

import subprocess
import sys
import textwrap

import pytest

from burnish_engine.contract.errors import ExitCode, LeasedError, UsageError
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.runs.control import ControlReader, send
from burnish_engine.runs.jobs import actions, lease
from burnish_engine.runs.process import identity, is_alive, own_identity
from burnish_engine.runs.store import create_run, read_state


@pytest.fixture
def other_process():
    """A live process that is not this one, as (pid, creation time)."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process.pid, identity(process.pid)[1]
    process.kill()
    process.wait()


def hold(device, run, owner, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(lease, "own_identity", lambda: owner)
        lease.acquire(device, run)


def test_each_command_is_read_once_and_in_order():
    paths = create_run(Recipe())
    reader = ControlReader(paths.control)
    first, second = send(paths, "pause"), send(paths, "stop")
    assert [command.id for command in reader.poll()] == [first.id, second.id]
    assert reader.poll() == []


def test_commands_to_an_earlier_process_are_not_carried_out_again():
    paths = create_run(Recipe())
    send(paths, "stop")
    assert ControlReader(paths.control).poll() == []


def test_a_half_written_command_waits_for_its_end_and_rubbish_is_skipped():
    paths = create_run(Recipe())
    reader = ControlReader(paths.control)
    with paths.control.open("ab") as file:
        file.write(b'rubbish\n{"v": 1, "id": "a", "name": "st')
        file.flush()
        assert reader.poll() == []
        file.write(b'op"}\n')
    assert [command.name for command in reader.poll()] == ["stop"]


def test_a_device_has_one_holder(other_process, monkeypatch):
    run, later = create_run(Recipe()), create_run(Recipe())
    hold("cuda-0", run, other_process, monkeypatch)
    with pytest.raises(LeasedError) as caught:
        lease.acquire("cuda-0", later)
    assert caught.value.exit_code is ExitCode.LEASED
    assert str(run.root) in str(caught.value)
    lease.acquire("cuda-1", later)
    lease.acquire("cuda-0", later, force=True)  # shares it; the first run stays the holder
    lease.release(run)  # this process holds the other device, for another run
    assert lease.holder_of("cuda-1") == str(later.root)
    lease.release(later)
    assert lease.holder_of("cuda-0") == str(run.root)
    assert lease.holder_of("cuda-1") is None


def test_a_dead_holder_blocks_nobody(monkeypatch):
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = process.pid, identity(process.pid)[1]
    run = create_run(Recipe())
    hold("cpu", run, owner, monkeypatch)
    assert lease.holder_of("cpu") == str(run.root)
    process.kill()
    process.wait()
    assert not is_alive(*owner)
    lease.acquire("cpu", create_run(Recipe()))


@pytest.mark.full
def test_only_the_holder_releases(other_process, monkeypatch):
    run = create_run(Recipe())
    hold("cpu", run, other_process, monkeypatch)
    lease.release(run)
    assert lease.holder_of("cpu") == str(run.root)


@pytest.mark.full
def test_the_first_waiting_run_of_each_free_device_starts(other_process, monkeypatch):
    started = []
    monkeypatch.setattr(lease, "start_detached", lambda arguments, *_: started.append(arguments[2]) or other_process[0])
    first, second, third = (create_run(Recipe()) for _ in range(3))
    lease.enqueue(first, "cpu")
    lease.enqueue(second, "cpu")
    lease.enqueue(third, "cuda-0")
    assert read_state(second).status == "queued"
    assert lease.start_waiting() == [first.root, third.root]
    assert started == [str(first.root), str(third.root)]
    assert [entry.run for entry in lease.queue()] == [second.root]
    assert lease.holder_of("cpu") == str(first.root)
    assert lease.start_waiting() == []  # the started process holds the device until it ends
    assert lease.dequeue(second)
    assert not lease.dequeue(second)
    assert read_state(second).status == "stopped"


@pytest.mark.full
def test_a_run_that_shall_start_anyway_still_does_after_it_waited(other_process, monkeypatch):
    """And on as many GPUs as were asked for."""
    started = []
    monkeypatch.setattr(lease, "start_detached", lambda arguments, *_: started.append(arguments) or other_process[0])
    lease.enqueue(create_run(Recipe()), "cpu", anyway=True)
    lease.enqueue(create_run(Recipe()), "cuda-0", gpus=4)
    lease.start_waiting()
    assert ["--anyway" in arguments for arguments in started] == [True, False]
    assert [arguments[-2:] == ["--gpus", "4"] for arguments in started] == [False, True]


@pytest.mark.parametrize("anyway", [True, False])
def test_a_run_that_is_started_anyway_says_so_to_its_process(monkeypatch, anyway):
    started = []
    monkeypatch.setattr(actions, "start_detached", lambda arguments, *_: started.append(arguments))
    paths = actions.start(Recipe(data=DataSection(files=["/data/a.jsonl"])), anyway=anyway)
    assert [(arguments[2], "--anyway" in arguments) for arguments in started] == [(str(paths.root), anyway)]


@pytest.mark.full
def test_a_started_process_takes_over_its_reservation(other_process, monkeypatch):
    """Also where the pid that was started is not the one that trains (Windows: a launcher stands between)."""
    monkeypatch.setattr(lease, "start_detached", lambda *_: other_process[0])
    run = create_run(Recipe())
    lease.enqueue(run, "cpu")
    lease.start_waiting()
    with pytest.raises(LeasedError):
        lease.acquire("cpu", create_run(Recipe()))
    lease.acquire("cpu", run)
    lease.release(run)
    assert lease.holder_of("cpu") is None


def test_a_queued_run_that_cannot_start_is_passed_over(other_process, monkeypatch):
    broken, good = create_run(Recipe()), create_run(Recipe())
    lease.enqueue(broken, "cpu")
    lease.enqueue(good, "cpu")
    broken.state.write_text("{")
    monkeypatch.setattr(lease, "start_detached", lambda *_: other_process[0])
    assert lease.start_waiting() == [good.root]
    assert lease.queue() == []


@pytest.mark.full
def test_a_run_has_one_process():
    run = create_run(Recipe())
    code = (
        "import sys\nfrom pathlib import Path\nfrom burnish_engine.contract.paths import RunPaths\n"
        "from burnish_engine.runs.jobs import lease\n"
        f"with lease.owned(RunPaths(Path({str(run.root)!r}))):\n    print('mine', flush=True)\n    input()\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert owner.stdout.readline().strip() == b"mine"
    with pytest.raises(UsageError, match="another process"), lease.owned(run):
        pass
    owner.kill()
    owner.wait()
    with lease.owned(run):
        pass


def test_own_identity_is_alive_and_a_reused_pid_is_not():
    pid, created = own_identity()
    assert is_alive(pid, created)
    assert not is_alive(pid, created - 500)
    assert not is_alive(None, None)


@pytest.mark.full
def test_writers_do_not_tear_each_others_lines():
    paths = create_run(Recipe())
    reader = ControlReader(paths.control)
    code = textwrap.dedent(
        f"""
        from burnish_engine.contract.paths import RunPaths
        from burnish_engine.runs.control import send
        from pathlib import Path
        for _ in range(25):
            send(RunPaths(Path({str(paths.root)!r})), "sample")
        """
    )
    writers = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    commands = reader.poll()
    assert len(commands) == 75
    assert len({command.id for command in commands}) == 75
