"""Templates that try to use up the machine are ended by a limit, and the error names it."""

import threading
from contextlib import contextmanager

import psutil
import pytest

from burnish_engine.contract.errors import DataError, ExitCode
from burnish_engine.data.rows.conversation import Conversation, Message
from burnish_engine.data.sandbox.render_process import shared
from burnish_engine.data.templates.row_renderer import RowRenderer
from burnish_engine.data.templates.template import ChatTemplate

from support.data.hostile_templates import EACH_ROW, HOSTILE, ONE_OF_EACH

CHAT = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
MOST_CPU_S, MOST_BYTES = 20.0, 2**30


@contextmanager
def guarded():
    """Kills the process that renders where its own limits do not, so that a test without them fails and ends."""
    done = threading.Event()

    def watch():
        while not done.wait(0.02):
            try:
                child = psutil.Process(shared.pid) if shared.pid else None
                if child and (sum(child.cpu_times()[:2]) > MOST_CPU_S or child.memory_info().rss > MOST_BYTES):
                    child.kill()
            except psutil.Error:
                continue

    shared.close()  # a process of one's own: what another used of its time does not count
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def refusal(source):
    with guarded(), pytest.raises(DataError) as caught:
        ChatTemplate(source, {}).render(CHAT)
    assert caught.value.exit_code is ExitCode.DATA
    return str(caught.value)


def check(name):
    hostile = HOSTILE[name]
    said = refusal(hostile.source)
    assert any(f"the {limit} limit" in said for limit in hostile.limit.split("|")), said
    assert ChatTemplate("{{ messages[0].content }}", {}).render(CHAT) == "Hello"


@pytest.mark.full
@pytest.mark.slow  # the time limit is five seconds of processor time
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_template_that_exceeds_a_limit_is_ended_and_the_next_one_renders(name):
    check(name)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in HOSTILE if name not in ONE_OF_EACH])
def test_every_template_that_exceeds_a_limit_is_ended(name):
    check(name)


def exhaust(name):
    """Render as many rows as a large file has, or until the template is ended."""
    renderer = RowRenderer(ChatTemplate(EACH_ROW[name], {}), None, [])
    messages = tuple(Message(turn["role"], turn["content"]) for turn in CHAT)
    rows = [Conversation(messages, None, 0, "") for _ in range(20)]
    for _ in range(500):
        renderer.render(rows)


@pytest.mark.full
@pytest.mark.slow  # as above
def test_a_template_that_takes_long_for_each_row_is_ended():
    with guarded(), pytest.raises(DataError, match="the time limit"):
        exhaust("sort")


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in EACH_ROW if name != "sort"])
def test_every_template_that_takes_long_for_each_row_is_ended(name):
    with guarded(), pytest.raises(DataError, match="the time limit"):
        exhaust(name)


@pytest.mark.full
def test_writing_much_for_each_row_is_ended():
    source = "{% for i in range(90) %}{{ 'x' * 10000 }}{% endfor %}{{ messages[-1].content }}"
    template = ChatTemplate(source, {})
    with guarded(), pytest.raises(DataError, match="the text limit"):
        for _ in range(60):
            template.render(CHAT)


def test_long_conversations_of_many_turns_are_no_attack():
    turns = [Message(("user", "assistant")[turn % 2], f"turn {turn} " + "word " * 40) for turn in range(400)]
    source = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
    renderer = RowRenderer(ChatTemplate(source, {"eos_token": "</s>"}), "</s>", ["</s>"])
    (rendered,) = renderer.render([Conversation(tuple(turns), None, 0, "")])
    assert len(rendered.spans) == 200
