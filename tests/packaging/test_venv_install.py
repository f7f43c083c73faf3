"""What is handed to pip, and how llama-cpp-python gets here."""

import sys
import tomllib
from pathlib import Path

import llama_plan
import pytest
import venv_install
from child_process import child_env, pip_env, run_logged, tail
from choose_builds import LLAMA_VERSION, Choice

ROOT = Path(__file__).resolve().parents[2]

PROJECT = {
    "build-system": {"requires": ["hatchling>=1.27"]},
    "project": {
        "dependencies": ["Llama_cpp.python>=0.3", "numpy>=2", "torch>=2.11", "triton>=3.6; platform_system == 'Linux'"],
        "optional-dependencies": {"dev": ["pytest>=9"]},
    },
}


def test_requirements_hold_the_choice_and_leave_llama_out() -> None:
    found = venv_install.requirements_for(PROJECT, Choice(triton="triton==3.7.1"), dev=False)
    assert found == ["torch==2.13.0", "triton==3.7.1", "hatchling>=1.27", "editables", "numpy>=2"]
    assert venv_install.requirements_for(PROJECT, Choice(), dev=True)[-1] == "pytest>=9"


def test_the_real_project_has_what_the_set_up_reads() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    names = {venv_install.base_name(text) for text in venv_install.requirements_for(project, Choice(), dev=True)}
    assert {"torch", "transformers", "pytest", "ruff", "mypy", "hatchling"} <= names
    users = {venv_install.base_name(text) for text in venv_install.requirements_for(project, Choice(), dev=False)}
    assert {"pyside6-essentials", "pyqtgraph", "markdown-it-py"} <= users, "the window is not only for developers"
    assert project["project"]["optional-dependencies"]["demo"]


@pytest.mark.parametrize(
    ("requirement", "name"),
    [("PySide6_Essentials>=6", "pyside6-essentials"), ("a.b[c]==1; python_version<'4'", "a-b"), (" x", "x"), ("", "")],
)
def test_base_name(requirement: str, name: str) -> None:
    assert venv_install.base_name(requirement) == name


@pytest.mark.parametrize(
    ("installed", "own_args", "cached", "own_index", "ways"),
    [
        (LLAMA_VERSION, False, "", False, ()),
        (LLAMA_VERSION, True, "", False, ()),
        ("", False, "", False, ("prebuilt", "compile")),
        ("0.3.1", False, "", False, ("prebuilt", "compile")),
        ("", False, "wheel", False, ("cache", "prebuilt", "compile")),
        ("", False, "wheel", True, ("prebuilt", "compile")),
        ("", True, "wheel", True, ("compile",)),
    ],
)
def test_prebuilt_or_compile(
    installed: str, own_args: bool, cached: str, own_index: bool, ways: tuple[str, ...]
) -> None:
    found = llama_plan.plan(
        installed=installed, wanted=LLAMA_VERSION, own_cmake_args=own_args, cached_wheel=cached, own_index=own_index
    )
    assert found == ways


def test_wheel_in_pips_cache() -> None:
    listing = "/c/llama_cpp_python-0.3.35-py3-none-any.whl\n/c/x/llama_cpp_python-0.3.36-py3-none-linux_x86_64.whl\n"
    assert llama_plan.cached_wheel(listing, "0.3.36").endswith("/x/llama_cpp_python-0.3.36-py3-none-linux_x86_64.whl")
    assert llama_plan.cached_wheel(listing, "0.3.3") == ""
    assert llama_plan.cached_wheel("No locally built wheels cached.\n", "0.3.36") == ""


def test_installed_llama(tmp_path: Path) -> None:
    assert llama_plan.installed_version(tmp_path) == ""
    (tmp_path / "llama_cpp_python-0.3.36.dist-info").mkdir()
    assert llama_plan.installed_version(tmp_path) == "0.3.36"


def test_own_cmake_options_win() -> None:
    assert "GGML_NATIVE=OFF" in llama_plan.compile_env({}, 4)["CMAKE_ARGS"]
    own = {"CMAKE_ARGS": "-DGGML_CUDA=ON", "CMAKE_BUILD_PARALLEL_LEVEL": "1"}
    assert llama_plan.compile_env(own, 4) == own


def test_environment_of_children() -> None:
    env = {"PATH": "/bin", "PYTHONPATH": "/evil", "PYTHONHOME": "/evil", "PIP_TARGET": "/t", "PIP_INDEX_URL": "u"}
    child = child_env(env, Path("/v"))
    assert "PYTHONPATH" not in child
    assert "PYTHONHOME" not in child
    assert (child["PYTHONUTF8"], child["VIRTUAL_ENV"]) == ("1", str(Path("/v")))
    assert child["PATH"].endswith("/bin")
    pip = pip_env(env | {"PIP_REQUIRE_VIRTUALENV": "1"}, Path("/v"))
    assert pip["PIP_INDEX_URL"] == "u"
    assert not {"PIP_TARGET", "PIP_REQUIRE_VIRTUALENV"} & set(pip)


def test_output_goes_to_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = run_logged([sys.executable, "-c", "print('ö', flush=True); exit(3)"], log, {"PYTHONUTF8": "1"}, "x")
    assert code == 3
    assert tail(log, 1) == "ö"
    assert tail(tmp_path / "none") == ""


def test_missing_ensurepip_names_the_package(tmp_path: Path) -> None:
    said = "The virtual environment was not created successfully because ensurepip is not available."
    assert "apt install python3.12-venv" in str(venv_install.venv_problem(said, (3, 12, 3)))
    assert "boom" in str(venv_install.venv_problem("boom", (3, 12, 3)))


@pytest.mark.parametrize("folder", ["plain", "José", "テスト b"])
def test_path_files_become_ascii(tmp_path: Path, folder: str) -> None:
    root, site = tmp_path / folder, tmp_path / "site"
    site.mkdir()
    paths = f"{root / 'app'}\n{root / 'engine'}\n"
    (site / "_editable_impl_burnish.pth").write_text(paths, encoding="utf-8")
    (site / "other.pth").write_text("/somewhere/é\n", encoding="utf-8")
    venv_install.make_path_files_ascii(root, site)
    written = (site / "_editable_impl_burnish.pth").read_bytes()
    if folder == "plain":
        assert written.decode() == paths
        return
    assert written.isascii()
    scope = {"before": list(sys.path)}
    exec(f"{written.decode()}after = list(sys.path); sys.path[:] = before", scope)
    assert scope["after"][-2:] == [str(root / "app"), str(root / "engine")]
    assert (site / "other.pth").read_text(encoding="utf-8") == "/somewhere/é\n"


def test_the_environments_own_python_never_makes_it_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert venv_install.base_python(tmp_path) == sys.executable
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "_base_executable", "/usr/bin/base", raising=False)
    assert venv_install.base_python(tmp_path) == "/usr/bin/base"
