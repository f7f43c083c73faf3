"""The recording of a run's hardware: bounded, whole after a crash, exact in energy."""

import errno
import json
from dataclasses import fields

import pytest

from burnish_engine.contract.facts.hardware import (
    GpuHolders,
    GpuSample,
    HardwareSample,
    HardwareStart,
    MemoryHolder,
    MemoryUsers,
    SampledGpu,
    hardware_line_json,
)
from burnish_engine.contract.run.hardware_log import GpuHistory, HardwareReader, newest, read_history
from burnish_engine.runs import hardware_file
from burnish_engine.runs.hardware_file import HardwareFile, merge_old, merge_samples, read_lines

T = 1.7e9


def start(t=T):
    return HardwareStart(t=t, pid=1, gpus=[SampledGpu(index=0, name="RTX", memory_total_bytes=24 * 2**30)])


def sample(second, *, power=100.0, used=10, load=0.5, **more):
    gpu = GpuSample(index=0, power_w=power, used_bytes=used, load=load, temperature_c=60, **more)
    return HardwareSample(t=T + second, seconds=1.0, cpu=0.25, gpus=[gpu])


def energy(lines):
    return sum(line.gpus[0].power_w * line.seconds for line in lines if isinstance(line, HardwareSample))


def write(path, lines, **settings):
    file = HardwareFile(path, **settings)
    for line in lines:
        file.write(line)
    file.close()


def test_what_is_written_is_read_again(tmp_path):
    path = tmp_path / "hardware.jsonl"
    users = MemoryUsers(t=T, gpus=[GpuHolders(index=0, holders=[MemoryHolder(pid=3, name="game", bytes=7)])])
    lines = [start(), users, sample(1), sample(2, power=200.0, throttle={"heat": 1.0})]
    write(path, lines)
    assert read_lines(path) == lines
    history = read_history(path)
    gpu = history.gpus[0]
    assert history.energy_j == 300.0
    assert list(gpu.power_w.values()) == [100.0, 200.0]
    assert list(gpu.throttled.values()) == [0.0, 1.0]
    assert gpu.throttle_s == {"heat": 1.0}
    assert gpu.holders[0].name == "game"
    assert gpu.facts.name == "RTX"


def test_every_figure_has_a_column_of_its_own_and_stays_when_samples_are_merged(tmp_path):
    names = [one.name for one in fields(GpuHistory) if one.name in GpuSample.model_fields]
    assert len(names) > 8
    figures = {name: number for number, name in enumerate(names, 10)}
    gpu = GpuSample(index=0, throttle={"heat": 0.5}, pcie_generation=4, pcie_width=8, **figures)
    machine = {"cpu": 0.25, "ram_used_bytes": 7, "process_bytes": 3}
    lines = [HardwareSample(t=T + second, seconds=1.0, gpus=[gpu], **machine) for second in (1, 2)]
    write(tmp_path / "hardware.jsonl", lines)
    history = read_history(tmp_path / "hardware.jsonl")
    for kept, count in ((history, 2), (newest(history, 0.5), 1)):
        assert {name: list(getattr(kept.gpus[0], name).values()) for name in names} == {
            name: [number] * count for name, number in figures.items()
        }
        assert {name: list(getattr(kept, name).values()) for name in machine} == {
            name: [number] * count for name, number in machine.items()
        }
    merged = merge_samples(*lines)
    assert merged == lines[1].model_copy(update={"seconds": 2.0})


@pytest.mark.parametrize("torn", [b'{"type":"sam', b"\xff\xfe", b"x" * 200_000])
def test_a_torn_line_is_cut_off(tmp_path, torn):
    path = tmp_path / "hardware.jsonl"
    write(path, [start(), sample(1)])
    with path.open("ab") as file:
        file.write(torn)
    write(path, [sample(2)])
    assert len(read_history(path)) == 2
    assert b"x" * 10 not in path.read_bytes()
    assert all(json.loads(line) for line in path.read_bytes().splitlines())


def test_lines_of_a_newer_version_are_passed_over(tmp_path):
    path = tmp_path / "hardware.jsonl"
    path.write_text('{"type":"weather","v":9}\n{"type":"start","v":2,"t":1}\n')
    write(path, [sample(1)])
    reader = HardwareReader(path)
    assert reader.read()
    assert (len(reader.state), reader.skipped) == (1, 2)


@pytest.mark.full
def test_the_file_stays_small_and_its_energy_exact(tmp_path):
    """Nearly a day, of which the newest minute is as it was."""
    path, bound = tmp_path / "hardware.jsonl", 40_000
    lines = [sample(second, power=100.0 + second % 7, used=second % 11) for second in range(1, 8001)]
    file, largest = HardwareFile(path, most_bytes=bound, fine_s=60), 0
    file.write(start())
    for line in lines:
        file.write(line)
        largest = max(largest, path.stat().st_size)
    file.close()
    assert largest <= bound + 1000
    kept = read_lines(path)
    assert energy(kept) == pytest.approx(energy(lines), rel=1e-6)
    assert kept[-50:] == lines[-50:]
    samples = kept[1:]
    assert sum(line.seconds for line in samples) == pytest.approx(8000)
    assert max(line.gpus[0].used_bytes for line in samples) == 10
    assert read_history(path).energy_j == pytest.approx(energy(lines), rel=1e-6)


def test_a_bound_that_the_newest_alone_exceed_is_kept_too():
    lines = [sample(second) for second in range(1, 401)]
    merged = merge_old(lines, 20_000, 600)
    assert sum(len(hardware_line_json(line)) for line in merged) <= 20_000
    assert energy(merged) == pytest.approx(energy(lines))


def test_samples_of_two_processes_are_not_merged():
    first, second = [sample(number) for number in range(1, 5)], [sample(number) for number in range(1001, 1005)]
    merged = merge_old([*first, start(T + 1000), *second], 1, 0)
    starts = [number for number, line in enumerate(merged) if isinstance(line, HardwareStart)]
    assert starts == [1]
    assert [line.seconds for line in merged if isinstance(line, HardwareSample)] == [4.0, 4.0]


def test_merging_takes_means_and_the_largest_memory():
    lines = [
        sample(1, power=100.0, used=5, load=0.0, throttle={"idle": 1.0}),
        sample(2, power=300.0, used=9, load=1.0, throttle={"heat": 1.0}),
    ]
    (merged,) = merge_old(lines, 1, 0)
    (gpu,) = merged.gpus
    assert (gpu.power_w, gpu.used_bytes, gpu.load) == (200.0, 9, 0.5)
    assert gpu.throttle == {"idle": 0.5, "heat": 0.5}
    assert (merged.t, merged.seconds) == (T + 2, 2.0)


def test_a_card_that_was_lost_meanwhile_keeps_its_energy():
    lost = HardwareSample(t=T + 2, seconds=1.0, gpus=[GpuSample(index=0)])
    (merged,) = merge_old([sample(1, power=100.0, load=0.5), lost], 1, 0)
    assert merged.gpus[0].power_w * merged.seconds == 100.0
    assert merged.gpus[0].load == 0.5


def test_a_reader_begins_anew_when_the_file_was_replaced(tmp_path):
    path = tmp_path / "hardware.jsonl"
    file, reader = HardwareFile(path, most_bytes=20_000, fine_s=10), HardwareReader(path)
    for second in range(1, 1001):
        file.write(sample(second))
        if second % 3 == 0:
            reader.read()
    file.close()
    while reader.read():
        pass
    assert reader.state.energy_j == pytest.approx(100_000.0)
    assert len(reader.state) == len(read_lines(path)) < 1000
    times = list(reader.state.t.values())
    assert times == sorted(times)


def test_a_file_that_was_replaced_by_a_larger_one_is_read_anew_too(tmp_path):
    path = tmp_path / "hardware.jsonl"
    write(path, [sample(1), sample(2)])
    reader = HardwareReader(path)
    reader.read()
    write(tmp_path / "other", [sample(second) for second in range(1, 10)])
    (tmp_path / "other").replace(path)
    while reader.read():
        pass
    assert len(reader.state) == 9


def test_a_full_disk_or_a_held_file_costs_samples_only(tmp_path, monkeypatch):
    path = tmp_path / "hardware.jsonl"
    file = HardwareFile(path, most_bytes=5000, fine_s=10)
    file.write(sample(1))

    class Full:
        def write(self, _data):
            raise OSError(errno.ENOSPC, "No space left on device")

        def truncate(self, _size):
            raise OSError(errno.ENOSPC, "No space left on device")

    real, file._file = file._file, Full()
    file.write(sample(2))
    file._file = real
    monkeypatch.setattr(hardware_file, "write_atomic", lambda *_, **__: (_ for _ in ()).throw(PermissionError("held")))
    for second in range(3, 100):
        file.write(sample(second))
    file.close()
    assert len(read_lines(path)) == 98
    assert not list(tmp_path.glob("*.tmp"))


def test_a_folder_that_is_gone_is_no_failure(tmp_path):
    write(tmp_path / "gone" / "hardware.jsonl", [start(), sample(1)])


def test_a_clock_set_back_between_two_processes_keeps_the_columns_in_order(tmp_path):
    path = tmp_path / "hardware.jsonl"
    write(path, [start(), sample(100), sample(101), start(T + 1), sample(2)])
    times = list(read_history(path).t.values())
    assert times == sorted(times)
    assert len(times) == 3
