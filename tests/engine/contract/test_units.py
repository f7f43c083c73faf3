"""Memory in GiB, files in GB, wherever a size is told."""

import pytest

from burnish_engine.contract.units import energy_size, file_size, memory_of, memory_size, plural, short_time


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 bytes"), (1023, "1023 bytes"), (2048, "2 KiB"), (2**20 - 1, "1.0 MiB"), (3 * 2**20, "3.0 MiB"),
        (96 * 2**20, "0.094 GiB"), (512 * 2**20, "0.50 GiB"), (2**30 - 1, "1.00 GiB"), (2**30, "1.0 GiB"),
        (22.7 * 2**30, "22.7 GiB"), (412 * 2**30, "412 GiB"),
    ],
)  # fmt: skip
def test_memory(count, words):
    assert memory_size(count) == words


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (999_960, "1.0 MB"), (87_300_000, "0.087 GB"),
        (397_000_000, "0.40 GB"), (1_300_000_000, "1.30 GB"), (24.4e9, "24.40 GB"),
        (99.94e9, "99.94 GB"), (99.95e9, "100 GB"), (442.38e9, "442 GB"), (7.2e12, "7,200 GB"),
    ],
)  # fmt: skip
def test_files(count, words):
    assert file_size(count) == words


@pytest.mark.parametrize(
    ("joules", "words"),
    [
        (0, "0.00 Wh"), (540, "0.15 Wh"), (3590, "1.0 Wh"), (45_000, "12.5 Wh"), (600_000, "167 Wh"),
        (3_599_000, "1.00 kWh"), (4.824e6, "1.34 kWh"),
    ],
)  # fmt: skip
def test_energy(joules, words):
    assert energy_size(joules) == words


@pytest.mark.parametrize(
    ("used", "total", "words"),
    [(0, 24 * 2**30, "0.0 / 24.0 GiB"), (10.3 * 2**30, 24 * 2**30, "10.3 / 24.0 GiB"),
     (2**27, 2**29, "0.12 GiB / 0.50 GiB")],
)  # fmt: skip
def test_memory_beside_all_of_it(used, total, words):
    assert memory_of(used, total) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(1e-4, "0.10 ms"), (1e-3, "1.0 ms"), (0.0285, "28 ms"), (0.12, "120 ms"), (0.9996, "1.0 s"), (62, "62.0 s")],
)
def test_short_times(seconds, words):
    assert short_time(seconds) == words


@pytest.mark.parametrize(("count", "words"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (1200, "1,200 rows")])
def test_one_thing_has_the_singular(count, words):
    assert plural(count, "row") == words
