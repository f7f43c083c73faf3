"""Following a job: repeats, gaps, broken connections, another attempt, silence, commands, and its end."""

import hashlib
import time

import pytest

from burnish_engine.contract.errors import ExitCode
from burnish_engine.remote.backends.backend import DroppedError
from burnish_engine.remote.follow import Follower
from burnish_engine.remote.mirror import Mirror, read_job
from burnish_engine.remote.there.relay_line import RelayLine
from burnish_engine.runs.control import ControlReader, send
from burnish_engine.runs.events_file import read_events
from burnish_engine.runs.store import read_state, summarize

from support.machines.remote_jobs import JOB, Scripted, end, new_run, phase, step

CUT = DroppedError("cut")


@pytest.fixture
def paths(tmp_path):
    return new_run(tmp_path)


def follow(paths, backend, listener=None, note=lambda _text: None):
    mirror = Mirror(paths, JOB, listener)
    return Follower(backend, mirror, paths, note, waits_s=(0.01, 0.02)).follow()


def steps(paths):
    return [event.step for event in read_events(paths.events)]


def test_repeats_are_dropped_and_nothing_is_lost(paths):
    backend = Scripted([step(1), step(2), CUT], [step(1), step(2), step(3), CUT], [step(3), step(4), end()])
    seen = []
    outcome = follow(paths, backend, lambda event: seen.append(event.step))
    assert outcome.status == "finished"
    assert steps(paths) == seen == [1, 2, 3, 4]
    assert [position.events for position in backend.positions] == [0, 2, 3]


def test_a_gap_is_asked_for_again(paths):
    backend = Scripted([step(1), step(3)], [step(2), step(3), end()])
    follow(paths, backend)
    assert steps(paths) == [1, 2, 3]


def test_a_gap_that_nobody_fills_does_not_hold_up_the_end(paths):
    lost = [step(1), step(3), step(4)]
    backend = Scripted(*[lost] * 3, [*lost, CUT], [*lost, step(5), end()])
    assert follow(paths, backend).status == "finished"
    assert steps(paths) == [1, 3, 4, 5]  # what came is kept once, and its last number counts after a restart
    assert Mirror(paths, JOB).position.events == 5


def test_another_attempt_after_a_gap_keeps_what_was_saved(paths):
    lost = [RelayLine(kind="attempt", attempt=1), *(step(n, attempt=1) for n in (1, 3, 4, 5))]
    again = [RelayLine(kind="attempt", attempt=2, events=4), step(5, attempt=2), step(6, attempt=2), end(attempt=2)]
    follow(paths, Scripted(*[lost] * 4, again))
    assert steps(paths) == [1, 3, 4, 5, 6]


def test_gaps_at_different_places_are_each_asked_for_again(paths):
    lossy = [[*(step(n) for n in range(1, at)), step(at + 1)] for at in range(2, 7)]
    follow(paths, Scripted(*lossy, [*(step(n) for n in range(1, 8)), end()]))
    assert steps(paths) == [1, 2, 3, 4, 5, 6, 7]


def test_another_attempt_goes_on_from_what_was_saved(paths):
    """Events after the save were lost with the machine, and are lost here; old lines that repeat are ignored."""
    first = [RelayLine(kind="attempt", attempt=1), *(step(n, attempt=1) for n in (1, 2, 3, 4))]
    second = [RelayLine(kind="attempt", attempt=2, events=2), step(3, attempt=2), end(attempt=2)]
    backend = Scripted([*first, CUT], [*first, *second])
    outcome = follow(paths, backend)
    assert outcome.status == "finished"
    assert steps(paths) == [1, 2, 3]
    assert read_job(paths).attempt == 2


def test_what_an_earlier_attempt_says_is_not_taken_for_this_ones(paths):
    """A service repeats a job's whole log: the end, the events and the state of the attempt before come once more."""
    late = read_state(paths).model_copy(update={"status": "running", "step": 99})
    state = RelayLine(kind="state", text=late.model_dump_json(), attempt=1)
    earlier = [step(1, attempt=1), step(2, attempt=1), state, end("failed", attempt=1)]
    begins = RelayLine(kind="attempt", attempt=2, events=1)
    backend = Scripted([earlier[0], begins, *earlier, step(2, attempt=2), phase(2, attempt=2), end(attempt=2)])
    seen = []
    assert follow(paths, backend, seen.append).status == "finished"
    assert [(event.type, event.seq) for event in seen] == [("step", 0), ("step", 1), ("phase", 2)]
    assert read_state(paths).step != 99


def test_the_end_of_this_attempt_ends_it(paths):
    again = [RelayLine(kind="attempt", attempt=2, events=0), end("stopped", attempt=2), step(1, attempt=2)]
    outcome = follow(paths, Scripted([step(1), *again]))
    assert outcome.status == "stopped"


def test_a_torn_line_of_a_crash_here_is_cut_off(paths):
    paths.events.write_bytes(step(1).text.encode() + b"\n" + step(2).text.encode()[:20])
    backend = Scripted([step(2), end()])
    follow(paths, backend)
    assert steps(paths) == [1, 2]


def test_a_job_that_its_place_has_ended_is_given_up(paths):
    backend = Scripted([step(1), CUT], [CUT])
    backend.alive = False
    outcome = follow(paths, backend)
    assert (outcome.status, outcome.exit_code) == ("failed", ExitCode.BUG)
    assert "place" in outcome.message


def test_a_job_that_lives_is_never_given_up(paths):
    backend = Scripted(*[[CUT]] * 6, [step(1), end()])
    assert follow(paths, backend).status == "finished"
    assert backend.asked >= 6


def test_commands_reach_the_run_over_a_broken_connection(paths):
    backend = Scripted([])
    backend.refuse_sends = 1

    def late():
        yield step(1)
        sent = send(paths, "stop")
        deadline = time.monotonic() + 20
        while sent.id not in [command.id for command in backend.sent] and time.monotonic() < deadline:
            time.sleep(0.02)
        yield end("stopped")

    backend.connections = [late()]
    outcome = follow(paths, backend)
    assert (outcome.status, outcome.exit_code) == ("stopped", ExitCode.STOPPED)
    assert [command.name for command in backend.sent] == ["stop"]


def test_commands_from_before_this_attempt_are_not_sent_and_those_of_the_hand_over_are(paths):
    send(paths, "stop")
    reader = ControlReader(paths.control)
    sent = send(paths, "checkpoint")
    backend = Scripted([])

    def late():
        deadline = time.monotonic() + 20
        while not backend.sent and time.monotonic() < deadline:
            time.sleep(0.02)
        yield end()

    backend.connections = [late()]
    Follower(backend, Mirror(paths, JOB), paths, lambda _text: None, commands=reader, waits_s=(0.01,)).follow()
    assert [command.id for command in backend.sent] == [sent.id]


def test_the_run_is_alive_here_while_it_is_followed(paths):
    seen = []
    told = read_state(paths).model_copy(update={"status": "running", "step": 5, "run": "job", "pid": 1})
    state = RelayLine(kind="state", text=told.model_dump_json())
    follow(paths, Scripted([state, step(1), end()]), lambda _event: seen.append(summarize(paths)))
    assert (seen[0].status, seen[0].state.step, seen[0].state.run) == ("running", 5, "run")
    assert seen[0].state.where == "ssh:office"


@pytest.mark.parametrize("name", ["../x", "/etc/x", "adapter/../../x", "elsewhere/x", "a\\b", ""])
def test_a_result_that_names_a_file_elsewhere_is_refused(paths, name, tmp_path):
    backend = Scripted([end(files={name: "0" * 64})], files={name: b"x"})
    with pytest.raises(Exception, match="which no run has"):
        follow(paths, backend)
    assert not (tmp_path / "x").exists()


def test_a_result_with_other_bytes_is_refused_and_nothing_is_put_in_place(paths):
    right, wrong = b"right", b"wrong"
    names = {"card.json": hashlib.sha256(right).hexdigest(), "held_out.json": hashlib.sha256(right).hexdigest()}
    backend = Scripted([end(files=names)], files={"card.json": right, "held_out.json": wrong})
    with pytest.raises(Exception, match=r"held_out\.json is not the file"):
        follow(paths, backend)
    assert not paths.card.exists()
    assert not list(paths.root.glob(".brought-back*"))


def test_of_an_adapter_all_files_come_again_where_one_changed(paths):
    """It is checked as a whole, before any of it is put in place."""
    names = ["adapter/adapter_config.json", "adapter/adapter_model.safetensors", "card.json"]
    (paths.root / "adapter").mkdir()
    (paths.root / names[0]).write_bytes(b"same")
    paths.card.write_bytes(b"same")
    files = {names[0]: b"same", names[1]: b"new", names[2]: b"same"}
    backend = Scripted([end(files={name: hashlib.sha256(data).hexdigest() for name, data in files.items()})])
    backend.files, asked = files, []
    backend.fetch = lambda _job, files, _target: asked.extend(files)
    with pytest.raises(Exception, match="is not the file"):
        follow(paths, backend)
    assert asked == names[:2]


def test_an_adapter_that_is_none_is_refused(paths):
    data = b"no tensors"
    name = "adapter/adapter_model.safetensors"
    backend = Scripted([end(files={name: hashlib.sha256(data).hexdigest()})], files={name: data})
    with pytest.raises(Exception, match="cannot be used"):
        follow(paths, backend)
    assert not paths.adapter.exists()


def test_a_phase_of_another_version_does_not_stop_the_rest(paths):
    strange = phase(0).model_copy(update={"text": '{"type": "unheard_of", "seq": 0}'})
    assert follow(paths, Scripted([strange, end()])).status == "finished"
