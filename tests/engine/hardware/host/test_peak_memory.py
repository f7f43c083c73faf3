"""The peak that the operating system keeps: what was taken and given back in between counts, and it can begin anew."""

import mmap
import sys

import pytest

from burnish_engine.hardware.host.peak_memory import held_bytes, peak_bytes, reset_peak

MIB = 2**20


def take(size):
    """Hold so many bytes for a moment, of the system and not of memory that the process has already."""
    with mmap.mmap(-1, size) as held:
        for page in range(0, size, mmap.PAGESIZE):
            held[page] = 1


@pytest.mark.full
def test_what_was_given_back_counts():
    reset_peak()
    take(96 * MIB)
    peak = peak_bytes()
    if peak is None:
        pytest.skip("this system keeps no peak")
    assert peak >= held_bytes() + 64 * MIB


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can reset it")
def test_a_reset_forgets_what_was_before():
    take(96 * MIB)
    before = peak_bytes()
    if not reset_peak():
        pytest.skip("this kernel cannot reset it")
    assert peak_bytes() <= before - 64 * MIB


def test_systems_that_tell_nothing(tmp_path):
    assert not reset_peak(tmp_path / "no" / "clear_refs")
    (tmp_path / "status").write_text("Name:\tpython\nVmHWM:\t    2048 kB\nVmRSS:\t 12 kB\n")
    assert peak_bytes(tmp_path / "status") == 2048 * 1024
    (tmp_path / "status").write_text("Name:\tpython\nVmHWM:\n")
    peak_bytes(tmp_path / "status")  # another source, or none, and no error
