"""How the processes of a run find each other, and which GPUs are refused before any is started."""

import json
import socket
import struct
import sys
import threading
from contextlib import suppress
from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.contract.facts.machine import GpuFacts
from burnish_engine.train.parallel import launch, world
from burnish_engine.train.parallel.launch import devices_of, started_ranks
from burnish_engine.train.parallel.link import Link
from burnish_engine.train.parallel.world import World, gather_links, link_to_leader

GIVEN = {"RANK": "1", "LOCAL_RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "head", "MASTER_PORT": "29400"}


def test_torchruns_variables_say_which_rank_a_process_is():
    assert World.from_environment(GIVEN) == World(1, 4, 0, "head", 29400)
    assert World.from_environment(GIVEN | {"TORCHELASTIC_USE_AGENT_STORE": "True"}).store_exists
    for others in ({}, GIVEN | {"WORLD_SIZE": "1", "RANK": "0"}, {"RANK": "1"}, {"WORLD_SIZE": "1"}):
        assert World.from_environment(others) is None
    ours = World(0, 3, 0, port=5)
    assert World.from_environment(ours.environment(2)) == World(2, 3, 2, port=5)


@pytest.mark.parametrize("name", ["MASTER_PORT", "WORLD_SIZE", "LOCAL_RANK"])
def test_variables_that_are_no_numbers_are_refused_and_not_taken_for_none(name):
    """Else the leader would train alone, and the others wait for it."""
    with pytest.raises(SetupError, match=f"{name} is 'x'"):
        World.from_environment(GIVEN | {name: "x"})


@pytest.mark.parametrize(
    ("name", "value"),
    [("RANK", "-1"), ("RANK", "4"), ("RANK", "9" * 5000), ("LOCAL_RANK", "-1"), ("LOCAL_RANK", "4"),
     ("WORLD_SIZE", "-4"), ("WORLD_SIZE", "0"), ("WORLD_SIZE", "9999999"),
     ("LOCAL_WORLD_SIZE", "0"), ("LOCAL_WORLD_SIZE", "5")],
)  # fmt: skip
def test_ranks_that_no_process_has_are_refused(name, value):
    with pytest.raises(SetupError, match=f"{name} is "):
        World.from_environment(GIVEN | {name: value})
    with pytest.raises(SetupError, match="RANK is '1'"):
        World.from_environment({"RANK": "1", "WORLD_SIZE": "1"})


def test_devices_are_gpus_or_as_many_processes_on_the_cpu():
    assert devices_of(torch.device("cuda", 1), [1, 3]) == [torch.device("cuda", 1), torch.device("cuda", 3)]
    assert devices_of(torch.device("cpu"), range(3)) == [torch.device("cpu")] * 3


def test_one_device_starts_nothing(tmp_path):
    with started_ranks([torch.device("cpu")], tmp_path, "no.such.module") as ranks:
        assert ranks is None


def test_a_run_without_a_device_connects_nothing_under_torchrun_either(tmp_path, monkeypatch):
    """A run whose device cannot be chosen has none, and is then recorded as failed."""
    for name, value in (GIVEN | {"RANK": "0"}).items():
        monkeypatch.setenv(name, value)
    with started_ranks([], tmp_path) as ranks:
        assert ranks is None


def test_gpus_that_do_not_exist_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(UsageError, match="GPU 2"), started_ranks([torch.device("cuda", i) for i in (0, 2)], tmp_path):
        pass


def gpu(name, capability):
    return GpuFacts(index=0, name=name, compute_capability=capability)


def test_only_gpus_that_all_compute_in_bf16_or_none_share_a_run(monkeypatch):
    newer, older = gpu("NVIDIA GeForce RTX 4090", (8, 9)), gpu("Tesla T4", (7, 5))
    later = gpu("one of next year", (13, 0))
    monkeypatch.setattr(launch, "gpu_of", lambda _device: newer)
    devices = [torch.device("cuda", 0)]
    links = {2: SimpleNamespace(gpu=newer), 1: SimpleNamespace(gpu=later)}
    assert launch._gpus_of(devices, links) == [newer, later, newer]
    with pytest.raises(UsageError, match="bf16"):
        launch._gpus_of(devices, {1: SimpleNamespace(gpu=older)})


def test_torchruns_processes_take_the_gpus_of_their_places(monkeypatch):
    for name, value in (GIVEN | {"RANK": "0", "LOCAL_WORLD_SIZE": "2"}).items():
        monkeypatch.setenv(name, value)
    assert devices_of(torch.device("cuda", 3), [3]) == [torch.device("cuda", 0), torch.device("cuda", 1)]


@pytest.fixture
def store():
    return dist.TCPStore("127.0.0.1", 0, 3, is_master=True, timeout=timedelta(seconds=30), wait_for_workers=False)


def test_only_who_knows_the_word_becomes_a_rank(store, monkeypatch):
    """A stranger, and one that knows the word but says that it is the leader, are turned away."""
    place, card = World(0, 3, 0, port=store.port), gpu("NVIDIA GeForce RTX 4090", (8, 9))
    monkeypatch.setattr(world, "gpu_of", lambda _device: card)
    devices, found = [torch.device("cpu")] * 3, {}
    theirs = World(1, 3, 1, port=store.port).store()  # a client waits for a key and lets nobody else use it meanwhile

    def strange(word, rank):
        told = json.loads(theirs.get("burnish/leader"))
        link = Link(socket.create_connection(("127.0.0.1", told["port"])))
        link.send({"rank": rank, "word": told["word"] if word is None else word})
        with pytest.raises(world.LinkLostError):
            link.receive()

    def ranks():
        strange("guess", 1)
        strange(None, 0)
        for rank in (2, 1):
            found[rank] = link_to_leader(World(rank, 3, rank, port=store.port), theirs)

    thread = threading.Thread(target=ranks)
    thread.start()
    links = gather_links(place, store, devices, lambda: None)
    thread.join()
    assert sorted(links) == [1, 2]
    assert [link.gpu for link in links.values()] == [card, card]
    for rank, (link, device) in found.items():
        links[rank].send({"to": rank})
        assert link.receive()[0] == {"to": rank}
        assert device == torch.device("cpu")


@pytest.mark.skipif(sys.platform == "win32", reason="there the store chooses its addresses itself")
def test_the_store_of_ranks_on_one_machine_is_reached_from_that_machine_only():
    ours = World(0, 2, 0).store()
    ours.set("word", "secret")
    assert World(1, 2, 1, port=ours.port).store().get("word") == b"secret"
    with socket.socket() as other:  # where the store listens on all addresses, nobody else can on this one
        other.bind(("127.0.0.2", ours.port))


@pytest.mark.parametrize("place", ["leader", "leader of several machines", "other rank"])
def test_a_store_that_cannot_be_reached_is_said_with_its_address(monkeypatch, place):
    monkeypatch.setattr(world, "_JOIN_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if place == "other rank":
            server.close()  # nobody answers there
        address = "127.0.0.2" if place == "leader of several machines" else "127.0.0.1"
        with pytest.raises(SetupError, match=rf"{address}, port {port} ") as told:
            World(int(place == "other rank"), 2, 0, address, port).store()
    assert "MASTER_PORT" in told.value.remedy


@pytest.mark.parametrize("port", [65_536, -1])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_number_that_is_no_port_is_said(rank, port):
    given = World.from_environment(GIVEN | {"RANK": str(rank), "MASTER_PORT": str(port)})
    with pytest.raises(SetupError, match=f"MASTER_PORT is {port}"):
        given.store()


@pytest.mark.parametrize("leader", ["says nothing", "ended"])
def test_a_rank_without_a_leader_says_so(store, leader):
    with socket.create_server(("127.0.0.1", 0)) as ended:
        port = ended.getsockname()[1]
    if leader == "ended":
        store.set("burnish/leader", json.dumps({"port": port, "word": "w", "devices": ["cpu"] * 3}))
    store.set_timeout(timedelta(seconds=0.2))
    with pytest.raises(SetupError, match="Rank 1"):
        link_to_leader(World(1, 3, 1, port=store.port), store)


def test_only_an_address_or_port_is_blamed_on_the_store(monkeypatch):
    def fails(*_arguments, **_settings):
        raise RuntimeError("use_libuv was requested but PyTorch was built without")

    monkeypatch.setattr(dist, "TCPStore", fails)
    with pytest.raises(RuntimeError, match="libuv"):
        World(1, 2, 1, port=5).store()


@pytest.mark.parametrize(
    "sent",
    [
        b"[" * 1000,
        json.dumps({"rank": 1, "word": "\N{LATIN SMALL LETTER E WITH ACUTE}"}, ensure_ascii=False).encode(),
        json.dumps({"rank": 1, "word": 7}).encode(),
    ],
    ids=["nested", "not ASCII", "no text"],
)
def test_whatever_a_stranger_sends_the_leader_waits_on(store, sent):
    def strange():
        told = json.loads(theirs.get("burnish/leader"))
        with socket.create_connection(("127.0.0.1", told["port"])) as stranger:
            stranger.sendall(struct.pack("!IQ", len(sent), 0) + sent)
            with suppress(ConnectionError):
                assert not stranger.recv(1)
        link_to_leader(World(1, 2, 1, port=store.port), theirs)

    theirs = World(1, 2, 1, port=store.port).store()
    thread = threading.Thread(target=strange)
    thread.start()
    assert list(gather_links(World(0, 2, 0, port=store.port), store, [torch.device("cpu")] * 2, lambda: None)) == [1]
    thread.join()


def test_a_stranger_that_dawdles_is_turned_away():
    ours, theirs = socket.socketpair()
    theirs.sendall(struct.pack("!IQ", 500, 0))
    feeding = threading.Event()

    def feed():
        with suppress(OSError):
            while not feeding.wait(0.02):
                theirs.sendall(b" ")

    thread = threading.Thread(target=feed)
    thread.start()
    with pytest.raises(world.LinkLostError):
        Link(ours).receive_greeting(0.2)
    feeding.set()
    thread.join()


def test_a_rank_that_died_ends_the_wait(store):
    def alive():
        raise SetupError("it died")

    with pytest.raises(SetupError, match="it died"):
        gather_links(World(0, 2, 0, port=store.port), store, [torch.device("cpu")] * 2, alive)


def test_a_rank_of_torchrun_takes_the_gpu_of_its_place_on_the_machine(store):
    told = {"port": 0, "word": "w", "devices": ["cuda:0"]}
    with socket.create_server(("127.0.0.1", 0)) as server:
        store.set("burnish/leader", json.dumps(told | {"port": server.getsockname()[1]}))
        _, device = link_to_leader(World(5, 8, 1, port=store.port), store)
    assert device == torch.device("cuda", 1)
