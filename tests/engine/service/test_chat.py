"""Chat through the server: streamed, canceled, base and tuned from one model, and a worker that may die."""

import signal

import psutil
import pytest

from burnish_engine.chat.target import find_target
from burnish_engine.chat.torch_chat import TorchChat
from burnish_engine.contract.serve.messages import Canceled, Failure, Piece
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.generation.sampling import Sampling
from burnish_engine.runs.store import read_recipe

from support.app.serve import wait_for

SAY = [{"role": "user", "content": "My lamp number 3 is broken?"}]
SHORT = {"max_tokens": 12}


def worker_of(server):
    """The chat process."""
    return next(
        child
        for child in psutil.Process(server.hello.pid).children()
        if "burnish_engine.chat.worker" in child.cmdline()
    )


@pytest.mark.full
def test_base_and_tuned_answer_from_one_loaded_model(warm_server, run):
    wanted = {}
    source = open_model(read_recipe(run).model.path)
    for variant, adapter in (("base", None), ("tuned", run.adapter)):
        backend = TorchChat(source, adapter)
        wanted[variant] = backend.stream(SAY, Sampling(max_tokens=12)).finish().text
        backend.close()
    assert wanted["base"] != wanted["tuned"]
    pids = set()
    for variant in ("tuned", "base", "tuned"):
        request_id = warm_server.send("chat", target="tuned", variant=variant, messages=SAY, options=SHORT)
        *pieces, last = warm_server.until_end(request_id)
        assert last.reply.text == wanted[variant] == "".join(piece.text for piece in pieces)
        assert all(isinstance(piece, Piece) for piece in pieces)
        assert len(pieces) > 1
        assert last.reply.name == ("base" if variant == "base" else "base (tuned)")
        assert last.reply.tokens == 12
        pids.add(worker_of(warm_server).pid)
    assert len(pids) == 1


def test_freeing_ends_the_process_and_the_next_turn_starts_one(warm_server, run):
    ask = {"target": "tuned", "messages": SAY, "options": SHORT}
    first = warm_server.result("chat", **ask)
    worker = worker_of(warm_server)
    warm_server.result("free")
    assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE
    assert warm_server.result("chat", **ask).reply.text == first.reply.text
    warm_server.result("free")
    warm_server.result("free")


def test_a_reply_can_be_canceled_between_tokens(warm_server, run):
    long = {"max_tokens": 400}
    first = warm_server.send("chat", target="tuned", variant="base", messages=SAY, options=long)
    wait_for(lambda: isinstance(warm_server.next(), Piece))
    second = warm_server.send("chat", target="tuned", messages=SAY, options=long)  # waits for its turn
    warm_server.send("cancel", request=second)
    assert isinstance(warm_server.until_end(second)[-1], Canceled)
    warm_server.send("cancel", request=first)
    assert isinstance(warm_server.until_end(first)[-1], Canceled)
    worker = worker_of(warm_server)
    warm_server.result("chat", target="tuned", messages=SAY, options=SHORT)
    assert worker_of(warm_server).pid == worker.pid  # it listened: nothing had to be loaded again


def test_what_cannot_be_talked_to_is_told(warm_server, run):
    assert "no-such" in warm_server.failure("chat", target="no-such", messages=SAY).what
    assert "no exported GGUF" in warm_server.failure("chat", target="tuned", variant="exported", messages=SAY).what
    long = [{"role": "user", "content": "word " * 3000}]
    assert "tokens" in warm_server.failure("chat", target="tuned", messages=long).what
    (run.adapter / "adapter_model.safetensors").unlink()
    assert "no adapter yet" in warm_server.failure("chat", target="tuned", messages=SAY).what
    assert warm_server.result("chat", target="tuned", variant="base", messages=SAY, options=SHORT).reply.tokens


def test_a_killed_chat_process_is_told_and_comes_back(warm_server, run):
    ask = {"target": "tuned", "variant": "base", "messages": SAY}
    wanted = warm_server.result("chat", **ask, options=SHORT).reply.text
    request_id = warm_server.send("chat", **ask, options={"max_tokens": 400})
    worker_of(warm_server).kill()
    end = warm_server.until_end(request_id)[-1]
    assert isinstance(end, Failure)
    assert end.exit_code == 12
    assert "tuned" in end.what
    assert signal.Signals.SIGKILL.name in end.what or "exit status" in end.what
    assert warm_server.result("chat", **ask, options=SHORT).reply.text == wanted


@pytest.mark.full
def test_files_that_break_llama_cpp_take_nothing_with_them(warm_server, run, tmp_path):
    from support.models.export import break_epsilon, write_16_bit

    no_model = tmp_path / "no-model.gguf"
    no_model.write_bytes(b"GGUF\x03\x00\x00\x00" + b"\xff" * 4000)
    crash = write_16_bit(open_model(read_recipe(run).model.path), None, tmp_path, name="crash")
    good = warm_server.result("chat", target=str(crash), messages=SAY, options=SHORT).reply
    assert good.name == crash.name
    warm_server.result("free")
    break_epsilon(crash)
    for file in (no_model, crash):
        failure = warm_server.failure("chat", target=str(file), messages=SAY)
        assert failure.exit_code == 12
        assert file.name in failure.what
    assert "GGML_ASSERT" in failure.what
    assert warm_server.result("chat", target="tuned", messages=SAY, options=SHORT).reply.tokens


@pytest.mark.full
def test_a_newer_adapter_is_loaded(warm_server, run):
    from support.models.export import make_adapter

    before = warm_server.result("chat", target="tuned", messages=SAY, options=SHORT).reply.text
    make_adapter(open_model(read_recipe(run).model.path), run.adapter, seed=7)
    after = warm_server.result("chat", target="tuned", messages=SAY, options=SHORT).reply.text
    assert after != before


def test_targets(run, tmp_path):
    assert find_target("tuned", "tuned").adapter == run.adapter
    base = find_target("tuned", "base")
    assert (base.adapter, base.tuned) == (run.adapter, False)
    older, newer = run.export / "a.gguf", run.export / "b.gguf"
    run.export.mkdir()
    for age, file in ((100, older), (1, newer)):
        file.touch()
        import os
        import time

        os.utime(file, (time.time() - age, time.time() - age))
    assert find_target("tuned", "exported").path == newer
    assert find_target(str(older), "tuned").path == older
    assert find_target("embedded", "tuned").model == "embedded"


def test_the_cpu_is_used_while_a_run_holds_the_gpu(monkeypatch, burnish_home, run):
    import torch

    from burnish_engine.chat import device as chat_device
    from burnish_engine.contract.recipe.recipe import DevicesSection
    from burnish_engine.models.device import device as models_device
    from burnish_engine.runs.jobs import lease

    monkeypatch.setattr(models_device, "choose_device", lambda _devices: torch.device("cuda", 0))
    assert chat_device.chat_device(DevicesSection()) == (torch.device("cuda", 0), False)
    lease.acquire("cuda-0", run)
    try:
        assert chat_device.chat_device(DevicesSection()) == (torch.device("cpu"), True)
    finally:
        lease.release(run)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("use", [True, False])
def test_an_adapter_that_is_not_there_cannot_be_used(run, use):
    from burnish_engine.contract.errors import UsageError

    backend = TorchChat(open_model(read_recipe(run).model.path))
    if use:
        with pytest.raises(UsageError, match="without an adapter"):
            backend.use_adapter(True)
    else:
        backend.use_adapter(False)
        assert backend.name == "base"
    backend.close()
