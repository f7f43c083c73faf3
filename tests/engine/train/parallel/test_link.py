"""Messages between the processes of a run."""

import socket
import struct
import threading

import pytest
import torch

from burnish_engine.train.parallel.link import Link, LinkLostError


@pytest.fixture
def ends():
    pair = [Link(one) for one in socket.socketpair()]
    yield pair
    for link in pair:
        link.close()


def test_a_message_arrives_with_its_tensors_to_the_bit(ends):
    tensors = {
        "floats": torch.tensor([float("nan"), -0.0, 1e-45]),
        "none": torch.zeros(0, 2),
        "numbers": torch.arange(300_000),
    }
    sender = threading.Thread(target=ends[0].send, args=({"do": "start", "é": [1, None]}, tensors))
    sender.start()
    message, found = ends[1].receive()
    sender.join()
    assert message == {"do": "start", "é": [1, None]}
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].shape == tensor.shape
        assert found[name].numpy().tobytes() == tensor.numpy().tobytes()
    ends[1].send({})
    assert ends[0].receive() == ({}, {})


def test_the_end_of_the_other_process_is_noticed(ends):
    waiting, noticed = threading.Event(), []

    def wait():
        waiting.set()
        with pytest.raises(LinkLostError):
            ends[1].receive()
        noticed.append(True)

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait()
    ends[0].close()
    thread.join(10)
    assert noticed
    with pytest.raises(LinkLostError):
        for _ in range(100):
            ends[1].send({"do": "step"})


@pytest.mark.parametrize(("text_bytes", "tensor_bytes"), [(5000, 0), (2, 2**30)])
def test_a_greeting_is_short_and_without_tensors(ends, text_bytes, tensor_bytes):
    ends[0].send({"rank": 1})
    assert ends[1].receive_greeting(10) == {"rank": 1}
    ours, theirs = socket.socketpair()
    theirs.sendall(struct.pack("!IQ", text_bytes, tensor_bytes) + b"{}".ljust(text_bytes))
    with pytest.raises(LinkLostError):
        Link(ours).receive_greeting(10)
    theirs.close()


def test_the_end_of_a_whole_machine_is_noticed():
    with socket.create_server(("127.0.0.1", 0)) as server:
        link = Link(socket.create_connection(server.getsockname()))
    with socket.socket(fileno=link.fileno()) as asked:
        assert asked.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if hasattr(socket, "TCP_KEEPIDLE"):
            assert asked.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) <= 60
        asked.detach()
    link.close()


@pytest.mark.parametrize(
    "sent", [struct.pack("!IQ", 2**31, 0), struct.pack("!IQ", 5, 0) + b"{no}!", struct.pack("!IQ", 2, 0) + b"[]"]
)
def test_what_is_no_message_is_refused(sent):
    ours, theirs = socket.socketpair()
    theirs.sendall(sent)
    theirs.close()
    with pytest.raises(LinkLostError):
        Link(ours).receive()
