"""Carries out a set-up: the virtual environment, the packages, Burnish itself, and a trial that they work."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import llama_plan
from child_process import child_env, pip_env, run_logged, say, tail
from choose_builds import KERNEL_CAPABILITY, LLAMA_VERSION, Choice, torch_index_for
from machine_facts import Facts
from setup_checks import (
    GB,
    SPACE_NEEDED,
    DiskNeed,
    SetupProblem,
    check_space,
    compiler_problem,
    pip_problem,
    trial_problem,
)
from venv_state import LOG, clear, is_replaceable, python_version, remove_half_installed, site_packages, torch_build
from venv_state import venv_python as python_of

_TRIAL_TIMEOUT_S = 300
_EDITABLE_BUILD = ("editables",)  # packages that hatchling needs beside [build-system] when the install is editable
_BASE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


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
    facts: Facts
    choice: Choice
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
        requirements = requirements_for(_project(self.root), self.choice, dev=self.dev)
        if not compile_llama:
            requirements.append(self.choice.llama)  # it is there already; what it needs itself comes now
        with _phase(
            f"packages: {self.choice.torch} ({self.choice.build} build), {len(requirements) - 1} others, their needs"
        ):
            self._pip("installing packages", *self._sources(), *requirements)
        if compile_llama:
            self._compile_llama()
        self._burnish()
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
        listing = subprocess.run(
            [str(python_of(self.venv)), "-m", "pip", "cache", "list", "llama_cpp_python", "--format=abspath"],
            env=pip_env(self.env, self.venv),
            capture_output=True,
            check=False,
        ).stdout.decode("utf-8", errors="replace")
        cached = llama_plan.cached_wheel(listing, LLAMA_VERSION)
        ways = llama_plan.plan(
            installed=llama_plan.installed_version(site_packages(self.venv)),
            wanted=LLAMA_VERSION,
            own_cmake_args=bool(self.env.get("CMAKE_ARGS")),
            cached_wheel=cached,
            own_index=bool(index),
        )
        prebuilt = [
            "--only-binary",
            "llama-cpp-python",
            *_index_arguments(index),
            *self._wheelhouse(),
            self.choice.llama,
        ]
        arguments = {"cache": [cached], "prebuilt": prebuilt}
        for way in ways:
            if way == "compile":
                return False
            with _phase(f"{self.choice.llama}: looking for a prebuilt wheel ({way})"):
                if self._pip_code("looking", "--no-deps", *arguments[way]) == 0:
                    return True
        return True

    def _compile_llama(self) -> None:
        cores = os.cpu_count() or 1
        with _phase(f"{self.choice.llama}: compiling llama.cpp, 3 to 5 minutes on 2 free cores ({cores} here)"):
            own = ["--no-cache-dir", "--no-binary", "llama-cpp-python"] if self.env.get("CMAKE_ARGS") else []
            env = llama_plan.compile_env(pip_env(self.env, self.venv), cores)
            self._pip("compiling llama.cpp", *own, *self._sources(), self.choice.llama, env=env)

    def _torch(self) -> None:
        """Take torch from its own index if one is named; remove one that cannot use the GPU."""
        if self._torch_fits():
            return
        there, build = torch_build(self.venv), self.choice.build
        if there:
            with _phase(f"removing torch's {there} build: this machine needs {build}"):
                command = [str(python_of(self.venv)), "-m", "pip", "uninstall", "--yes", "torch"]
                run_logged(command, self.log, pip_env(self.env, self.venv), "removing torch")
        index = self.facts.torch_index
        if not Path(index).is_dir() or (Path(index) / build).is_dir():
            index = torch_index_for(index, build)
        if index:
            with _phase(f"{self.choice.torch} from BURNISH_TORCH_INDEX ({build} build)"):
                self._pip("installing torch", "--no-deps", *_index_arguments(index), self.choice.torch)

    def _torch_fits(self) -> bool:
        """Whether a torch is installed that serves the choice; a CUDA build also runs on a CPU."""
        there = torch_build(self.venv)
        return bool(there) and self.choice.build in {there, "cpu"}

    def _burnish(self) -> None:
        demo = _project(self.root)["project"]["optional-dependencies"]["demo"]
        with _phase("Burnish itself and its embedded model"):
            self._pip("installing Burnish", "--no-deps", "--no-build-isolation", "--editable", str(self.root))
            make_path_files_ascii(self.root, site_packages(self.venv))
            self._pip("installing the embedded model", "--no-deps", *self._sources(), *demo)

    def _try_out(self) -> None:
        gpu = self.choice.uses_gpu
        command = [
            str(python_of(self.venv)),
            str(Path(__file__).with_name("torch_trial.py")),
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

    def _sources(self) -> list[str]:
        lock = self.root / "packaging" / "lock"
        files = [lock / "constraints.txt", lock / f"constraints-{self.choice.build}.txt"]
        return [part for path in files if path.is_file() for part in ("-c", str(path))] + self._wheelhouse()

    def _wheelhouse(self) -> list[str]:
        folder = self.env.get("BURNISH_WHEELHOUSE", "").strip()
        return ["--find-links", folder] if folder else []

    def _child(self) -> dict[str, str]:
        return child_env(self.env, self.venv)

    def _pip_code(self, doing: str, *arguments: str, env: Mapping[str, str] | None = None) -> int:
        command = [str(python_of(self.venv)), "-m", "pip", "install", "--no-warn-script-location", *arguments]
        return run_logged(command, self.log, env or pip_env(self.env, self.venv), doing)

    def _pip(self, doing: str, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        if self._pip_code(doing, *arguments, env=env):
            end = tail(self.log)
            say(end)
            raise pip_problem(doing, end, self.log)


def describe(facts: Facts, choice: Choice) -> str:
    """The machine and what was chosen for it, in one line."""
    dotted = ".".join(str(part) for part in facts.python)
    gpus = ", ".join(gpu.name for gpu in facts.gpus) or "no usable NVIDIA GPU"
    driver = f", driver {'.'.join(str(part) for part in facts.driver)}" if facts.gpus and facts.driver else ""
    return f"{facts.system} {facts.machine}, Python {dotted}, {gpus}{driver}: {choice.torch}, {choice.build} build"


def requirements_for(project: Mapping[str, object], choice: Choice, *, dev: bool) -> list[str]:
    """List the requirements to hand to pip in one go: torch first, then the rest; llama-cpp-python comes on its own.

    Args:
        project: parsed pyproject.toml.
        choice: chosen builds.
        dev: whether to add the developers' tools.
    """
    table = json.loads(json.dumps(project))
    wanted = [*table["build-system"]["requires"], *_EDITABLE_BUILD, *table["project"]["dependencies"]]
    extras = table["project"].get("optional-dependencies", {})
    for extra in ("window", "dev") if dev else ("window",):
        wanted += extras.get(extra, [])
    apart = {"torch", "triton", "triton-windows", "llama-cpp-python"}
    others = [text for text in wanted if base_name(text) not in apart]
    return [choice.torch, *([choice.triton] if choice.triton else []), *others]


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


def base_name(requirement: str) -> str:
    """The normalized name of a requirement: `Llama_cpp.python>=1; marker` gives `llama-cpp-python`."""
    match = _BASE_NAME.match(requirement.strip())
    return re.sub(r"[-_.]+", "-", match[0]).lower() if match else ""


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


def _project(root: Path) -> dict[str, dict[str, dict[str, list[str]]]]:
    with (root / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)


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
