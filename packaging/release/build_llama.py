"""Builds wheels of llama-cpp-python that need no compiler and run on every processor of an architecture.

    python build_llama.py SOURCE WORK FOLDER [TARGET ...]

SOURCE is the package's source archive, WORK keeps what was compiled, FOLDER gets the wheels, and TARGET is one of
`TARGETS` (none: all). llama.cpp is compiled once for each generation of processors (GGML_CPU_ALL_VARIANTS), and takes
the best that runs when it is loaded. The compiler is zig's, for each target from any machine: it links against glibc
2.28, carries its own C++ library, and keeps 32-byte vectors aligned on Windows, which MinGW's GCC does not (GCC bug
54412).
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from zig_compiler import zig


@dataclass(frozen=True)
class Target:
    """A kind of machine.

    Attributes:
        triple: its name in zig, with the oldest glibc.
        system: its operating system in CMake.
        processor: its processor in CMake.
        tag: platform tag of its wheel.
    """

    triple: str
    system: str
    processor: str
    tag: str


TARGETS = {
    "linux-x86_64": Target("x86_64-linux-gnu.2.28", "Linux", "x86_64", "manylinux_2_28_x86_64"),
    "linux-aarch64": Target("aarch64-linux-gnu.2.28", "Linux", "aarch64", "manylinux_2_28_aarch64"),
    "windows-x86_64": Target("x86_64-windows-gnu", "Windows", "AMD64", "win_amd64"),
}

# GIT_EXE: the commit of whatever repository surrounds the build would get into the libraries.
OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release",
    "CMAKE_PROJECT_llama.cpp_INCLUDE": Path(__file__).parents[1].joinpath("libraries_only.cmake").as_posix(),
    "GGML_NATIVE": "OFF",
    "GGML_BACKEND_DL": "ON",
    "GGML_CPU_ALL_VARIANTS": "ON",
    "GGML_OPENMP": "OFF",
    "GIT_EXE": "OFF",
    "GIT_EXECUTABLE": "OFF",
    "MTMD_VIDEO": "OFF",
}

# Without OpenMP, threads wait for each other in a loop that never gives the processor away. Beside other programs, the
# one that is waited for then gets it late, at every operation of the model. Here they sleep after a while, as with
# OpenMP. The last one wakes them: each first counts itself as a sleeper, and the system lets none sleep that is late.
_WAIT = """\
void ggml_barrier(struct ggml_threadpool * tp) {
"""
_WAIT_ASLEEP = """\
#ifdef __linux__
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
static atomic_int ggml_barrier_sleepers;
static void ggml_barrier_sleep(atomic_int * passed, int before) {
    atomic_fetch_add_explicit(&ggml_barrier_sleepers, 1, memory_order_seq_cst);
    syscall(SYS_futex, passed, FUTEX_WAIT_PRIVATE, before, NULL, NULL, 0);
    atomic_fetch_sub_explicit(&ggml_barrier_sleepers, 1, memory_order_seq_cst);
}
static void ggml_barrier_wake(atomic_int * passed) {
    if (atomic_load_explicit(&ggml_barrier_sleepers, memory_order_seq_cst) > 0) {
        syscall(SYS_futex, passed, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    }
}
#else
static void ggml_barrier_sleep(atomic_int * passed, int before) { (void) passed; (void) before; sched_yield(); }
static void ggml_barrier_wake(atomic_int * passed) { (void) passed; }
#endif
void ggml_barrier(struct ggml_threadpool * tp) {
"""
_LAST = """\
        atomic_fetch_add_explicit(&tp->n_barrier_passed, 1, memory_order_seq_cst);
        return;
"""
_LAST_AND_WAKE = _LAST.replace("        return;", "        ggml_barrier_wake(&tp->n_barrier_passed);\n        return;")
_LOOP = """\
    while (atomic_load_explicit(&tp->n_barrier_passed, memory_order_relaxed) == n_passed) {
        ggml_thread_cpu_relax();
    }
"""
_LOOP_AND_SLEEP = """\
    for (int turns = 0; atomic_load_explicit(&tp->n_barrier_passed, memory_order_relaxed) == n_passed; turns++) {
        if (turns < 2000) {
            ggml_thread_cpu_relax();
        } else {
            ggml_barrier_sleep(&tp->n_barrier_passed, n_passed);
        }
    }
"""
# Without OpenMP, threads are started anew for each token. Here they are kept, asleep between tokens.
_POOL = """\
    ggml_threadpool_t   threadpool;
"""
_POOL_KEPT = (
    _POOL
    + """\
    ggml_threadpool_t   own_threadpool = NULL;
    int                 own_threads    = 0;
"""
)
_FREE = """\
    delete[] cpu_ctx->work_data;
    delete cpu_ctx;
    delete backend;
"""
_FREE_POOL = "    ggml_threadpool_free(cpu_ctx->own_threadpool);\n" + _FREE
_COMPUTE = """\
    struct ggml_cplan cplan = ggml_graph_plan(cgraph, cpu_ctx->n_threads, cpu_ctx->threadpool);

    if (cpu_ctx->work_size"""
_COMPUTE_IN_POOL = """\
    if (cpu_ctx->threadpool == NULL && cpu_ctx->n_threads > std::max(cpu_ctx->own_threads, 1)) {
        struct ggml_threadpool_params params = ggml_threadpool_params_default(cpu_ctx->n_threads);
        params.poll = 0;
        ggml_threadpool_free(cpu_ctx->own_threadpool);
        cpu_ctx->own_threadpool = ggml_threadpool_new(&params);
        cpu_ctx->own_threads    = cpu_ctx->n_threads;
    }
    struct ggml_cplan cplan = ggml_graph_plan(
        cgraph, cpu_ctx->n_threads, cpu_ctx->threadpool ? cpu_ctx->threadpool : cpu_ctx->own_threadpool);

    if (cpu_ctx->work_size"""
# The libraries for each processor are looked for beside the program, which is Python, and in the current folder, where
# anyone may have put one. They lie beside the library that looks for them.
_SEARCH = """\
        // default search paths: executable directory, current directory
        search_paths.push_back(get_executable_path());
        std::error_code cwd_ec;
        const fs::path cwd = fs::current_path(cwd_ec);
        if (cwd_ec) {
            GGML_LOG_DEBUG("%s: current_path() failure, error-message: %s\\n", __func__, cwd_ec.message().c_str());
        } else {
            search_paths.push_back(cwd);
        }
"""
_SEARCH_HERE = """\
#ifdef _WIN32
        HMODULE here = NULL;
        std::vector<wchar_t> path(32768);
        GetModuleHandleExW(
            GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
            (LPCWSTR) &ggml_backend_load_all, &here);
        if (here != NULL && GetModuleFileNameW(here, path.data(), path.size()) > 0) {
            search_paths.push_back(fs::path(path.data()).parent_path());
        }
#else
        Dl_info here;
        if (dladdr((const void *) &ggml_backend_load_all, &here) != 0 && here.dli_fname != nullptr) {
            search_paths.push_back(fs::path(here.dli_fname).parent_path());
        }
#endif
"""
_GGML = "vendor/llama.cpp/ggml/src"
# Processors that the library for an older one serves nearly as well, and those with Arm's SME.
_LEFT_OUT = [
    *("sse42", "sandybridge", "ivybridge", "piledriver", "cannonlake", "cascadelake", "cooperlake"),
    *("armv8.2_1", "armv8.2_3", "armv9.2_1", "armv9.2_2"),
]
CHANGES = {
    f"{_GGML}/ggml-cpu/ggml-cpu.c": [(_WAIT, _WAIT_ASLEEP), (_LAST, _LAST_AND_WAKE), (_LOOP, _LOOP_AND_SLEEP)],
    f"{_GGML}/ggml-cpu/ggml-cpu.cpp": [(_POOL, _POOL_KEPT), (_FREE, _FREE_POOL), (_COMPUTE, _COMPUTE_IN_POOL)],
    f"{_GGML}/ggml-backend-reg.cpp": [(_SEARCH, _SEARCH_HERE)],
}


def unpack(source: Path, folder: Path) -> Path:
    """Unpack the source archive, and change llama.cpp's source where that is needed; returns its folder.

    One that is there is taken as it is, so that an unchanged file keeps its time and is not compiled again.

    Raises:
        ValueError: A file is not as expected, so llama.cpp has changed there.
    """
    known_by = hashlib.sha256(source.read_bytes() + repr((CHANGES, _LEFT_OUT)).encode())
    folder = folder / known_by.hexdigest()[:16]
    root = folder / source.name.removesuffix(".tar.gz")
    if (folder / "complete").exists():
        return root
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    for name, changes in CHANGES.items():
        path = root / name
        text = path.read_text(encoding="utf-8")
        for old, new in changes:
            if text.count(old) != 1:
                raise ValueError(f"{name} holds {text.count(old)} times\n{old}Adapt CHANGES in {__file__}.")
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")
    _leave_out(root / _GGML / "CMakeLists.txt")
    (folder / "complete").touch()
    return root


def _leave_out(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for name in _LEFT_OUT:
        text, count = re.subn(rf"^ *ggml_add_cpu_backend_variant\({re.escape(name)} .*\n", "", text, flags=re.MULTILINE)
        if count != 1:
            raise ValueError(f"{path} names {name} {count} times; adapt _LEFT_OUT in {__file__}.")
    path.write_text(text, encoding="utf-8")


def toolchain(target: Target, folder: Path, source: Path) -> Path:
    """Write CMake's description of the compiler; returns its file."""
    archiver = folder / "zig-ar"
    archiver.write_text(f'#!/bin/sh\nexec "{zig()}" ar "$@"\n', encoding="utf-8")
    archiver.chmod(0o755)
    compiler = Path(__file__).with_name("zig_compiler.py")
    flags = f"-g0 -fomit-frame-pointer -ffile-prefix-map={source}=."  # zig's own are for debugging
    lines = [
        f"set(CMAKE_SYSTEM_NAME {target.system})",
        f"set(CMAKE_SYSTEM_PROCESSOR {target.processor})",
        f'set(CMAKE_C_COMPILER "{sys.executable}" "{compiler}" cc {target.triple})',
        f'set(CMAKE_CXX_COMPILER "{sys.executable}" "{compiler}" c++ {target.triple})',
        f'set(CMAKE_AR "{archiver}")',
        'set(CMAKE_RANLIB ":")',
        f'set(CMAKE_C_FLAGS_INIT "{flags}")',
        f'set(CMAKE_CXX_FLAGS_INIT "{flags}")',
        'set(CMAKE_SHARED_LINKER_FLAGS_INIT "-s")',
        'set(CMAKE_MODULE_LINKER_FLAGS_INIT "-s")',
        "set(CMAKE_C_LINK_DEPENDS_USE_LINKER OFF)",
        "set(CMAKE_CXX_LINK_DEPENDS_USE_LINKER OFF)",
        "set(CMAKE_PLATFORM_NO_VERSIONED_SONAME ON)",  # a wheel holds no links: each name would be a whole copy
        "set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)",
        "set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)",
    ]
    path = folder / "toolchain.cmake"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def compile_libraries(root: Path, target: Target, build: Path, cache: Path) -> list[Path]:
    """Compile llama.cpp's shared libraries; returns their files.

    Args:
        root: folder of the unpacked source.
        target: machine to compile for.
        build: folder for all that is made; what it holds of an earlier build is kept.
        cache: folder in which zig keeps its own libraries, compiled.
    """
    build.mkdir(parents=True, exist_ok=True)
    options = [f"-D{name}={value}" for name, value in OPTIONS.items()]
    described = f"-DCMAKE_TOOLCHAIN_FILE={toolchain(target, build, root)}"
    env = os.environ | dict.fromkeys(["ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"], str(cache))
    subprocess.run(
        ["cmake", "-G", "Ninja", "-S", str(root), "-B", str(build), described, *options], env=env, check=True
    )
    jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(os.cpu_count() or 1)
    subprocess.run(["cmake", "--build", str(build), "-j", jobs, "--target", "llama", "mtmd"], env=env, check=True)
    ending = ".dll" if target.system == "Windows" else ".so"
    return sorted(path for path in build.rglob(f"*{ending}") if "CMakeFiles" not in path.parts)


def pack(root: Path, target: Target, libraries: Sequence[Path], folder: Path) -> Path:
    """Pack the binding and its libraries into a wheel; returns its file."""
    version = re.search(r'^__version__ = "(.+)"', (root / "llama_cpp" / "__init__.py").read_text("utf-8"), re.MULTILINE)
    if version is None:
        raise ValueError(f"{root / 'llama_cpp' / '__init__.py'} names no version.")
    name = f"llama_cpp_python-{version[1]}"
    tag = f"py3-none-{target.tag}"
    described = f"Wheel-Version: 1.0\nGenerator: burnish\nRoot-Is-Purelib: false\nTag: {tag}\n"
    files = {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in (root / "llama_cpp").rglob("*")
        if path.suffix == ".py" or path.name == "py.typed"
    }
    files |= {f"llama_cpp/lib/{path.name}": path.read_bytes() for path in libraries}
    info = f"{name}.dist-info"
    files[f"{info}/licenses/LICENSE.md"] = (root / "LICENSE.md").read_bytes()
    files[f"{info}/licenses/llama.cpp/LICENSE"] = (root / "vendor" / "llama.cpp" / "LICENSE").read_bytes()
    files[f"{info}/METADATA"] = (root / "PKG-INFO").read_bytes()
    files[f"{info}/WHEEL"] = described.encode()
    files[f"{info}/RECORD"] = _record(files, f"{info}/RECORD")
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{name}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return wheel


def _record(files: Mapping[str, bytes], own_name: str) -> bytes:
    lines = []
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(content)}")
    return ("\n".join([*lines, f"{own_name},,"]) + "\n").encode()


def main(arguments: Sequence[str]) -> None:
    """Build the wheels that are asked for."""
    source, work, folder, *names = arguments
    root = unpack(Path(source), Path(work).absolute() / "llama")
    for name in names or TARGETS:
        libraries = compile_libraries(root, TARGETS[name], root.parent / name, Path(work).absolute() / "zig")
        print(pack(root, TARGETS[name], libraries, Path(folder)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
