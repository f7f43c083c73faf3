"""Several models answer at once where memory allows it, else one after another, and why is said."""

from types import SimpleNamespace

import psutil
import pytest

from burnish_engine.chat.chat_pool import ChatPool
from burnish_engine.contract.errors import SetupError, StoppedError
from burnish_engine.contract.serve.messages import Progress
from burnish_engine.contract.serve.model_requests import ChatRequest
from burnish_engine.runs.jobs import lease

GIB = 2**30
SAY = [{"role": "user", "content": "My lamp number 3 is broken?"}]
SHORT = {"max_tokens": 12}


def ask(lane, variant="base", target="tuned"):
    return ChatRequest(id=f"{lane}{variant}", target=target, variant=variant, lane=lane, messages=SAY)


def pool(free_bytes):
    return ChatPool(lambda: SimpleNamespace(gpus=[], ram_free_bytes=free_bytes))


def test_lanes_are_apart_where_there_is_room(run):
    made = pool(100 * GIB)
    assert [made._choose(ask(lane))[0] for lane in range(3)] == [0, 1, 2]


def test_without_room_the_first_lane_answers_for_all(run):
    made = pool(GIB)
    assert made._choose(ask(0)) == (0, "")
    lane, why = made._choose(ask(1, "tuned"))
    assert lane == 0
    assert "memory" in why


def test_what_is_about_to_be_loaded_counts(run):
    one = pool(0)._need(ask(0))[0]
    made = pool(int(2.5 * one))
    lanes = [made._choose(ask(lane, variant))[0] for lane, variant in enumerate(("base", "tuned", "base"))]
    assert lanes == [0, 1, 0], "the third would not fit beside the two that are being loaded"


def test_what_is_loaded_already_needs_no_more_room(run):
    made = pool(100 * GIB)
    assert made._choose(ask(1))[0] == 1
    made._machine = lambda: SimpleNamespace(gpus=[], ram_free_bytes=0)
    assert made._choose(ask(1)) == (1, "")
    assert made._choose(ask(2))[0] == 0


def test_beside_a_run_they_answer_one_after_another(run):
    made = pool(100 * GIB)
    lease.acquire("cpu", run)
    try:
        lane, why = made._choose(ask(1))
    finally:
        lease.release(run)
    assert lane == 0
    assert "training" in why


class NoChild:
    """Stands in for a chat process; `ask` ends as it is told."""

    def __init__(self, end, *, busy=False):
        self.end, self.ended, self.busy = end, 0, busy

    def ask(self, request, job, *, about):
        raise self.end

    def end_if_idle(self):
        self.ended += 1
        return not self.busy


def test_a_reply_that_was_stopped_leaves_its_model_loaded_and_a_failed_one_may_not(run):
    for end, kept in ((StoppedError("Stopped."), True), (SetupError("It died.", ""), False)):
        made = pool(100 * GIB)
        made._children[1] = NoChild(end)
        with pytest.raises(type(end)):
            made.ask(ask(1), SimpleNamespace(progress=lambda *_: None))
        made._machine = lambda: SimpleNamespace(gpus=[], ram_free_bytes=0)
        assert (made._choose(ask(1)) == (1, "")) == kept


def test_a_lane_that_gets_no_room_gives_back_what_it_holds(run):
    made = pool(0)
    made._children = [NoChild(StoppedError("Stopped.")) for _ in range(3)]
    with pytest.raises(StoppedError):
        made.ask(ask(2), SimpleNamespace(progress=lambda *_: None))
    assert [child.ended for child in made._children] == [0, 0, 1]


def test_a_lane_that_is_answering_keeps_what_it_holds(run):
    made = pool(100 * GIB)
    made._children = [NoChild(None, busy=lane == 2) for lane in range(3)]
    for lane in range(3):
        made._choose(ask(lane))
    made._loading.clear()
    made.end_if_idle()
    made._machine = lambda: SimpleNamespace(gpus=[], ram_free_bytes=0)
    assert [made._choose(ask(lane))[0] for lane in (1, 2)] == [0, 2]


def chat_processes(server):
    children = psutil.Process(server.hello.pid).children()
    return [child.pid for child in children if "burnish_engine.chat.worker" in child.cmdline()]


def test_two_lanes_of_the_server_answer_with_two_processes(warm_server, run):
    ids = [
        warm_server.send("chat", target="tuned", variant=variant, lane=lane, messages=SAY, options=SHORT)
        for lane, variant in enumerate(("base", "tuned"))
    ]
    replies = [warm_server.until_end(one)[-1].reply for one in ids]
    assert all(reply.tokens and 0 < reply.first_token_s <= reply.seconds for reply in replies)
    assert [reply.waited for reply in replies] == ["", ""]
    assert len(chat_processes(warm_server)) == 2
    alone = warm_server.result("chat", target="tuned", variant="tuned", messages=SAY, options=SHORT).reply
    assert alone.text == replies[1].text, "a lane changes nothing about the reply"
    warm_server.result("free")
    assert not chat_processes(warm_server)


@pytest.mark.parametrize("lane", [1, 2])
def test_a_lane_that_waits_says_why(warm_server, run, lane):
    lease.acquire("cpu", run)
    try:
        request = warm_server.send("chat", target="tuned", lane=lane, messages=SAY, options=SHORT)
        *messages, last = warm_server.until_end(request)
    finally:
        lease.release(run)
    assert "training" in last.reply.waited
    assert any(isinstance(one, Progress) and last.reply.waited in one.what for one in messages)


def test_held_out_rows_come_with_their_replies(warm_server, run):
    from burnish_engine.runs.held_out import save_held_out

    chats = [[{"role": "user", "content": f"Q{n}"}, {"role": "assistant", "content": f"A{n}"}] for n in range(5)]
    save_held_out(run, [[1]], chats)
    found = warm_server.result("held_out", run="tuned", most=3).conversations
    assert [[turn.content for turn in row] for row in found] == [["Q0", "A0"], ["Q1", "A1"], ["Q2", "A2"]]


@pytest.mark.full
def test_a_vote_is_kept_and_counted_in_the_list_of_runs(warm_server, run):
    vote = {"run": "tuned", "prompt": "x", "shown": ["base", "tuned"]}
    assert warm_server.result("vote", **vote, best="tuned").votes.wins["tuned"] == 1
    assert warm_server.result("vote", **vote, best="").votes.equal == 1
    (listed,) = [one for one in warm_server.result("runs").runs if one.folder == str(run.root)]
    assert listed.votes.votes == 2
    what = warm_server.failure("vote", **vote, best="somebody else").what
    assert "shown" in what
    assert "pydantic" not in what
