"""Host memory: containers' limits of both kinds, WSL, and how much may be page-locked."""

from types import SimpleNamespace

import psutil
import pytest

from burnish_engine.hardware.host.host_memory import GIB, HostSystem, host_memory, is_wsl, lockable_bytes

WSL = "Linux version 6.6.87.2-microsoft-standard-WSL2 (root@439a258ad544) (gcc 11.2.0) #1 SMP\n"
NATIVE = "Linux version 6.8.0-48-generic (buildd@lcy02-amd64-010)\n"
NO_LIMIT = 9223372036854771712  # what version 1 says where there is none


@pytest.fixture
def host(monkeypatch, tmp_path):
    """A machine with 64 GiB, 40 of them free: groups (path -> file -> content), /proc/self/cgroup and kernel."""

    def make(files=None, *, groups="0::/\n", version=NATIVE, platform="linux", total=64 * GIB, free=40 * GIB):
        monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=total, available=free))
        proc, cgroup = tmp_path / "proc", tmp_path / "cgroup"
        (proc / "self").mkdir(parents=True, exist_ok=True)
        (proc / "version").write_text(version)
        (proc / "self" / "cgroup").write_text(groups)
        for name, content in (files or {}).items():
            (cgroup / name).parent.mkdir(parents=True, exist_ok=True)
            (cgroup / name).write_text(f"{content}\n")
        return HostSystem(proc=proc, cgroup=cgroup, platform=platform)

    return make


def v2(folder, limit, used, cache=0):
    prefix = f"{folder}/" if folder else ""
    stat = f"anon 1\ninactive_file {cache}\nactive_file 3"
    return {f"{prefix}memory.max": limit, f"{prefix}memory.current": used, f"{prefix}memory.stat": stat}


def v1(folder, limit, used, cache=0):
    prefix = f"memory/{folder}/" if folder else "memory/"
    stat = f"inactive_file 5\ntotal_inactive_file {cache}"
    return {
        f"{prefix}memory.limit_in_bytes": limit,
        f"{prefix}memory.usage_in_bytes": used,
        f"{prefix}memory.stat": stat,
    }


def test_a_machine_without_limits_has_what_it_has(host):
    assert host_memory(host()) == (64 * GIB, 40 * GIB)
    assert host_memory(host(v2("", "max", 5 * GIB))) == (64 * GIB, 40 * GIB)
    assert host_memory(host(v1("", NO_LIMIT, 5 * GIB), groups="4:memory:/\n")) == (64 * GIB, 40 * GIB)


@pytest.mark.parametrize("files", [v2("", 16 * GIB, 10 * GIB, 4 * GIB), v1("", 16 * GIB, 10 * GIB, 4 * GIB)])
def test_a_containers_limit_counts_and_its_page_cache_is_free(host, files):
    groups = "0::/\n" if "memory.max" in files else "4:cpu,memory:/docker/5f\n"
    assert host_memory(host(files, groups=groups)) == (16 * GIB, 10 * GIB)


def test_the_limit_of_a_group_further_up_counts_too(host):
    files = v2("user/job", "max", GIB) | v2("user", 8 * GIB, 7 * GIB)
    assert host_memory(host(files, groups="0::/user/job\n")) == (8 * GIB, GIB)
    files = v1("slurm/job", 32 * GIB, 2 * GIB) | v1("slurm", NO_LIMIT, 3 * GIB)
    assert host_memory(host(files, groups="11:memory:/slurm/job\n0::/\n")) == (32 * GIB, 30 * GIB)


def test_a_group_over_its_limit_leaves_nothing(host):
    assert host_memory(host(v2("", 4 * GIB, 5 * GIB))) == (4 * GIB, 0)


@pytest.mark.parametrize("groups", ["", "nonsense\n", "0::/../../elsewhere\n", ":::\n", "x:memory:/a\n"])
def test_what_cannot_be_read_limits_nothing(host, groups):
    assert host_memory(host({"memory.max": "a lot"}, groups=groups)) == (64 * GIB, 40 * GIB)


def test_locked_memory_leaves_room_for_the_system(host):
    assert lockable_bytes(integrated=False, system=host()) == 38 * GIB
    assert lockable_bytes(integrated=False, system=host(free=64 * GIB)) == 48 * GIB
    assert lockable_bytes(integrated=False, system=host(v2("", 16 * GIB, 4 * GIB))) == 10 * GIB
    assert lockable_bytes(integrated=False, system=host(v2("", 16 * GIB, 0))) == 12 * GIB


@pytest.mark.parametrize("how", [{"platform": "win32"}, {"version": WSL}])
def test_windows_lends_graphics_half_of_its_memory(host, how):
    assert lockable_bytes(integrated=False, system=host(free=60 * GIB, **how)) == 32 * GIB
    assert lockable_bytes(integrated=False, system=host(free=10 * GIB, **how)) == 8 * GIB


def test_too_little_is_nothing(host):
    assert lockable_bytes(integrated=False, system=host(free=2 * GIB + 2**20)) == 0
    assert lockable_bytes(integrated=False, system=host(free=GIB)) == 0


def test_a_gpu_without_memory_of_its_own_has_nothing_to_gain(host):
    assert lockable_bytes(integrated=True, system=host()) == 0


def test_wsl_is_told_by_its_kernel(host):
    assert is_wsl(host(version=WSL))
    assert not is_wsl(host())


def test_this_machine():
    total, free = host_memory()
    assert 0 < free <= total <= psutil.virtual_memory().total
    assert 0 <= lockable_bytes(integrated=False) < total
