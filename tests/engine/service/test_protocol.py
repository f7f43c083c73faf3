"""The line itself: it starts fast, survives anything, keeps torch out, and ends with its client."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from burnish_engine.cli.main import main
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.facts.machine import MachineFacts
from burnish_engine.contract.run.events import event_classes
from burnish_engine.contract.serve.messages import Failure, Result
from burnish_engine.contract.serve.protocol import parse_message, parse_request, request_classes
from burnish_engine.contract.serve.protocol_line import MAX_LINE_BYTES, PROTOCOL_VERSION
from burnish_engine.contract.serve.protocol_page import protocol_page

from support.app.serve import LONG_S, Server


@pytest.mark.full
def test_the_page_in_the_assets_is_the_protocol(assets, capsys):
    assert main(["serve", "--protocol"]) == 0
    printed = capsys.readouterr().out
    assert printed == protocol_page()
    assert (assets / "guide" / "serve-protocol.md").read_text(encoding="utf-8") == printed, "make it anew"
    for request in request_classes():
        assert f"### `{request.model_fields['method'].default}`" in printed
    events = printed.partition("## Events of a run")[2]
    for event in event_classes():
        assert f"### `{event.model_fields['type'].default}`" in events


def models_in(annotation):
    """The classes of objects in a field's type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models_in(part)


@pytest.mark.full
def test_the_page_describes_all_that_a_client_has_to_write():
    page, answered = protocol_page(), {DatasetFacts, MachineFacts}
    to_describe = {
        model
        for request in request_classes()
        for field in request.model_fields.values()
        for model in models_in(field.annotation)
    }
    assert sorted(model.__name__ for model in to_describe - answered if f"### `{model.__name__}`" not in page) == []
    assert answered < to_describe


def test_the_page_says_what_limits_a_value_has():
    rows = protocol_page().partition("### `rows`")[2].partition("###")[0]
    assert "| `count` | `int` ≥ 1 ≤ 500 |" in rows
    assert "| `places` | `list[RowPlace]` up to 500 items |" in rows


def test_the_exchange_on_the_page_is_of_the_protocol():
    lines = protocol_page().partition("```\n")[2].partition("\n```")[0].splitlines()
    asked = [parse_request(line[2:]) for line in lines if line.startswith("> ")]
    said = [parse_message(line[2:]) for line in lines if line.startswith("< ") and "..." not in line]
    assert [request.method for request in asked] == ["machine", "chat", "cancel"]
    assert [message.type for message in said] == ["piece", "canceled"]


def test_it_says_hello_before_it_is_asked(target):
    assert target.hello.protocol == PROTOCOL_VERSION
    assert target.hello.pid == target.process.pid or os.name == "nt"  # there a launcher stands in between


def test_every_method_has_a_handler():
    from burnish_engine.channel.child import Child
    from burnish_engine.chat.chat_pool import ChatPool
    from burnish_engine.service.machine import MachineCache
    from burnish_engine.service.serve import handlers

    machine = MachineCache()
    known = {request.model_fields["method"].default for request in request_classes()} - {"cancel"}
    assert set(handlers(machine, Child("x", "x"), ChatPool(machine.facts))) == known


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """A server that lives through all examples."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BURNISH_HOME", str(tmp_path_factory.mktemp("home")))
        with Server() as running:
            yield running


def alive(server):
    """A following request is answered; everything before it was a failure without id."""
    request_id = server.send("runs")
    while True:
        message = server.next()
        if message.id == request_id:
            assert isinstance(message, Result)
            return
        assert isinstance(message, Failure)
        assert message.id == ""
        assert message.exit_code == 2


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.full
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300))
def test_no_bytes_end_it(target, raw):
    target.write(raw + b"\n")
    alive(target)


@pytest.mark.full
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(["id", "method", "path", "recipe", "run", "request", "x"]), json_values))
def test_no_json_ends_it(target, document):
    target.write(json.dumps(document).encode() + b"\n")
    alive(target)


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000,
        b'{"id": "a", "method": "runs"',
        b'{"id": "", "method": "runs"}',
        b'{"id": "a", "method": "explode"}',
        b'{"id": "a", "method": "runs", "more": 1}',
        b'{"id": "\xff", "method": "runs"}',
        b'{"id": "\\ud800", "method": "runs"}',
        b'{"id": "a", "method": "chat", "target": "x", "messages": []}',
        b"\x00" * 1000,
    ],
    ids=["deep", "cut", "no id", "no method", "extra key", "no utf-8", "surrogate", "no messages", "zeros"],
)
def test_lines_that_are_no_request_are_refused_with_a_reason(target, line):
    target.write(line + b"\n")
    answer = target.next()
    assert (answer.type, answer.id, answer.exit_code) == ("failure", "", 2)
    assert answer.what
    alive(target)


def test_a_line_without_end_does_not_fill_the_memory(target):
    process = psutil.Process(target.hello.pid)
    before = process.memory_info().rss
    for _ in range(40):
        target.write(b"x" * 2**20)
    target.write(b"\n")
    answer = target.next()
    assert "longer than" in answer.what
    assert process.memory_info().rss - before < 4 * MAX_LINE_BYTES
    alive(target)


@pytest.mark.full
def test_it_ends_with_its_input_at_once(server):
    assert server.end() == 0


@pytest.mark.full
def test_it_ends_with_its_input_while_it_works_and_takes_its_workers_along(server, recipe):
    server.result("inspect", recipe=recipe)
    workers = psutil.Process(server.hello.pid).children(recursive=True)
    assert workers
    server.send("doctor")
    server.send("hardware")  # which has no end of its own
    time.sleep(0.5)
    assert server.end() == 0
    assert not psutil.wait_procs(workers, timeout=LONG_S)[1]


@pytest.mark.full
def test_it_ends_when_nobody_reads(burnish_home):
    process = subprocess.Popen(
        [sys.executable, "-m", "burnish_engine.cli.main", "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    process.stdout.readline()
    process.stdout.close()
    process.stdin.write(b'{"id": "1", "method": "machine"}\n')
    process.stdin.flush()
    assert process.wait(timeout=LONG_S) == 0
    process.stdin.close()


@pytest.mark.full
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="reads /proc")
def test_torch_stays_out_of_the_server(server, recipe, run):
    server.result("inspect", recipe=recipe)
    server.result("estimate", recipe=recipe)
    server.result("machine")
    server.result("chat", target=str(run.root), messages=[{"role": "user", "content": "Hi"}], options={"max_tokens": 2})
    server.result("runs")

    def loads_torch(pid):
        return "libtorch" in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")

    assert not loads_torch(server.hello.pid)
    workers = psutil.Process(server.hello.pid).children()
    assert any(loads_torch(worker.pid) for worker in workers)  # the test can tell
