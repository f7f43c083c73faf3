"""What other machines tell is typed and bounded before it is used: numbers, lines, names and archives."""

import io
import json
import tarfile
import time

import pytest

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.facts.remote_job import RemoteJob
from burnish_engine.contract.recipe.recipe import MOST_GPUS
from burnish_engine.hardware.gpu.topology import with_edges
from burnish_engine.remote.backends import slurm, ssh
from burnish_engine.remote.backends.hf import HfBackend
from burnish_engine.remote.backends.machines import host_machine
from burnish_engine.remote.backends.on_host import unpack
from burnish_engine.remote.backends.shell import LocalShell
from burnish_engine.remote.backends.sky import read_offers
from burnish_engine.remote.bring_back import bring_back
from burnish_engine.remote.mirror import Mirror
from burnish_engine.remote.there.relay_line import MARK, read_line
from burnish_engine.runs.process import is_alive
from burnish_engine.runs.store import create_run

from support.runs.tiny_runs import tiny_recipe

NINES = "9" * 5000
JOB = RemoteJob(where="slurm", id="7")


def is_sane(machine):
    with_edges(machine)
    return len(machine.gpus) <= MOST_GPUS and machine.ram_total_bytes < 2**63 and machine.cpu_cores < 2**20


SURVEYS = [
    f"cores={NINES}", f"ram={NINES}", f"free=-{NINES}", "disk=1e999", "cores=²", "ram=٣", "=", f"os={'x' * 10**5}",
    f"gpu=A, {NINES}, {NINES}, {NINES}.{NINES}, {NINES}, {NINES}", "gpu=A, 1, 1, ².³", "gpu=,,,,,,", "gpu=A",
    "gpu=A, 80000, 80000, 9.0\n" * 5000, "path=GPU0 GPU1\npath=GPU0 X NV²\npath=GPU1 NV9 X",
    f"gpu=A, 1, 1, 9.0\ngpu=A, 1, 1, 9.0\npath= GPU0 GPU1\npath=GPU0 X NV{NINES}\npath=GPU{NINES} NV1 X",
]  # fmt: skip


@pytest.mark.parametrize("survey", SURVEYS, ids=range(len(SURVEYS)))
def test_a_host_may_say_anything_of_itself(survey):
    assert is_sane(host_machine(survey))


NODES = [
    f"p|gpu:a100:{NINES}|1|1|1:00", "p|gpu:99999|1|1|1:00", "p|gpu:-1|1|1|1:00", "p|gpu:a100:²|1|1|1:00",
    f"p||{NINES}|{NINES}|{NINES}-00:00:00", f"p||1|1|{NINES}:{NINES}", "p||1|1|٣:٣", "|||||||||", "p",
    "p|gpu:a:0|a|b|c",
]  # fmt: skip


@pytest.mark.parametrize("line", NODES, ids=range(len(NODES)))
def test_a_cluster_may_list_anything(monkeypatch, line):
    monkeypatch.setattr(slurm, "run", lambda *_arguments, **_options: line + "\n")
    for offer in slurm.SlurmBackend("slurm", LocalShell()).offers():
        assert is_sane(offer.machine)
        assert offer.gpus <= MOST_GPUS
        assert offer.longest_s is None or 0 <= offer.longest_s < 2**40


@pytest.mark.parametrize("number", ["", "-1", "0", "²", "٣", NINES, "1 2", "1;x", "12; rm -rf x", "1e3", "\x00"])
def test_what_is_no_number_of_a_job_is_never_one(monkeypatch, number):
    for module in (slurm, ssh):
        monkeypatch.setattr(module, "run", lambda *_arguments, **_options: number + "\n")
    job = JOB.model_copy(update={"id": number})
    for backend in (slurm.SlurmBackend("slurm", LocalShell()), ssh.SshBackend("ssh:x", LocalShell())):
        with pytest.raises(SetupError, match="no number of a job"):
            backend.status(job)
    if ";" not in number:  # a federation adds its cluster's name
        with pytest.raises(SetupError, match="no number of a job"):
            slurm.SlurmBackend("slurm", LocalShell()).restart(JOB)
    with pytest.raises(SetupError, match="no number of a job"):
        ssh.SshBackend("ssh:x", LocalShell()).restart(JOB)


ENTRY = {
    "accelerator_name": "A100",
    "accelerator_count": 1,
    "cpu_count": 8,
    "device_memory": 40,
    "memory": 9,
    "price": 1,
}
ODD_NUMBERS = [
    "1e999",
    "-1e999",
    "NaN",
    "-5",
    NINES,
    f"{NINES}.0",
    "[]",
    "{}",
    "true",
    "null",
    '"x"',
    '"1e400"',
    '"nan"',
]


@pytest.mark.parametrize("key", [key for key in ENTRY if key != "accelerator_name"])
def test_skypilot_may_list_any_numbers(key):
    for number in ODD_NUMBERS:
        listed = json.dumps({"a": [ENTRY | {key: 12345678}]}).replace("12345678", number)
        try:
            offers = read_offers(listed)
        except SetupError:
            continue
        assert all(is_sane(offer.machine) and offer.gpus <= MOST_GPUS for offer in offers), number


def test_skypilot_may_answer_anything():
    for answer in ("{" * 100_000, "{", '{"a": 3}', '{"a": [3]}', '{"a": [[]]}', "[]", ""):
        with pytest.raises(SetupError, match="cannot be read"):
            read_offers(answer)


@pytest.mark.parametrize("key", ["quantity", "vram", "cpu", "ram", "ephemeralStorage", "unitCostUSD"])
def test_hugging_face_jobs_may_list_any_numbers(monkeypatch, key):
    entry = {"name": "x", "accelerator": {"type": "gpu", "model": "A100", "quantity": "1", "vram": "80 GB"}, "cpu": "8",
             "ram": "9 GB", "unitLabel": "minute", "unitCostUSD": 1.0}  # fmt: skip
    part = entry["accelerator"] if key in entry["accelerator"] else entry
    for number in [10**400, -1, float("inf"), float("nan"), NINES, f"{NINES} TB", [], None, {}, "²", "x", True]:
        part[key] = number
        listed = [json.loads(json.dumps(entry))]
        client = type("Client", (), {"ask": lambda _self, *_arguments, listed=listed: listed})()
        monkeypatch.setattr(HfBackend, "_client", client)
        try:
            offers = HfBackend("hf", "").offers()
        except SetupError:
            continue
        assert all(is_sane(offer.machine) for offer in offers), number
        assert all(offer.usd_per_hour is None or 0 <= offer.usd_per_hour < 1e12 for offer in offers), number


LINES = [
    '{"kind": "attempt", "attempt": 99999999999}', '{"kind": "attempt", "attempt": -1}',
    '{"kind": "attempt", "attempt": 1e3}',
    f'{{"kind": "attempt", "events": {NINES}}}', '{"kind": "attempt", "events": -1}',
    '{"kind": "end", "exit_code": 1e99}',
    f'{{"kind": "end", "exit_code": {10**40}}}', '{"kind": "end", "files": []}', '{"kind": "end", "files": {"a": 1}}',
    '{"kind": "x"}', '{"kind": "state", "text": 3}', "{" * 10**5, "[]", "null", "", "\x00",
    '{"kind": "event", "text": "\\ud800"}',
]  # fmt: skip


@pytest.mark.parametrize("line", LINES, ids=range(len(LINES)))
def test_a_line_that_is_none_is_not_read(line):
    found = read_line(MARK + line)
    assert found is None or (found.attempt >= 0 and found.events >= 0)


def test_numbers_out_of_range_stop_nothing_that_comes_after(tmp_path, burnish_home):
    paths = create_run(tiny_recipe(tmp_path), tmp_path / "run")
    mirror = Mirror(paths, JOB)
    done = '{"type": "message", "seq": %d, "t": 1.0, "text": "x", "level": "note"}'
    before = mirror.position
    for kind, text in [
        ("event", done % 10**30), ("event", done % -1), ("event", "{}"), ("event", '{"type": "message"}\n{}'),
        ("hardware", '{"type": "sample", "t": 1e300}'), ("hardware", '{"type": "sample", "t": Infinity}'),
        ("hardware", '{"type": "sample", "t": NaN}'), ("state", '{"run": 3}'), ("state", '{"run": "x", "step": 1e99}'),
        ("state", "[]"),
    ]:  # fmt: skip
        line = read_line(MARK + json.dumps({"kind": kind, "text": text}))
        mirror.take(line, over_gaps=True)
    assert mirror.position == before
    mirror.say("still here")


NAMES = [
    "adapter/" + "a/" * 5000 + "x", "adapter/" + "a/" * 20 + "x", "adapter/\0", "adapter/../../x", "/etc/passwd", "..",
    "", "other/x", "adapter\\..\\x", "adapter/\x1b[2J", "adapter/" + "n" * 5000, "recipe.toml",
    "state.json", "adapter/a\nb",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_a_result_names_files_of_a_run_alone(tmp_path, name):
    paths = create_run(tiny_recipe(tmp_path), tmp_path / "run")
    before = {path: path.read_bytes() for path in paths.root.rglob("*") if path.is_file()}
    with pytest.raises(SetupError, match="which no run has"):
        bring_back(None, JOB, paths, {name: "0" * 64})
    assert {path: path.read_bytes() for path in paths.root.rglob("*") if path.is_file()} == before


def member(name, kind=tarfile.REGTYPE, **more):
    info = tarfile.TarInfo(name)
    info.type = kind
    for key, value in more.items():
        setattr(info, key, value)
    return info


MEMBERS = [
    member("adapter/" + "a/" * 3000 + "x"), member("/etc/passwd"), member("../x"), member("adapter/other"),
    member("adapter/x", tarfile.SYMTYPE, linkname="/etc/passwd"), member("adapter/x", tarfile.LNKTYPE, linkname="y"),
    member("adapter/x", tarfile.FIFOTYPE), member("adapter/x", tarfile.CHRTYPE), member("adapter/x", tarfile.DIRTYPE),
    member(""), member("n" * 5000), member("adapter/x", tarfile.GNUTYPE_SPARSE),
]  # fmt: skip


@pytest.mark.parametrize("odd", MEMBERS, ids=range(len(MEMBERS)))
def test_an_archive_holds_the_files_that_were_asked_for_alone(tmp_path, odd):
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(odd)
    archive.seek(0)
    with pytest.raises(SetupError):
        unpack(archive, tmp_path, ["adapter/x"])
    assert not list(tmp_path.iterdir())


def test_what_was_asked_for_is_unpacked(tmp_path):
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:") as tar:
        tar.addfile(member("./adapter/x", size=2), io.BytesIO(b"ab"))
    archive.seek(0)
    unpack(archive, tmp_path, ["adapter/x"])
    assert (tmp_path / "adapter" / "x").read_bytes() == b"ab"


@pytest.mark.parametrize("pid", [-1, 0, 2**31, 10**30])
def test_no_process_has_such_a_number(pid):
    assert not is_alive(pid, time.time())
