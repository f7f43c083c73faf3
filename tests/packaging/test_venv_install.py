"""What is handed to pip, and how llama-cpp-python gets here."""

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import llama_plan
import pytest
import venv_install
from child_process import child_env, pip_env, run_logged, tail

from burnish_engine.install.machine.choose_builds import LLAMA_VERSION, BuildChoice
from burnish_engine.install.machine.machine_facts import Gpu, SetupFacts
from burnish_engine.install.machine.setup_checks import SPACE_NEEDED, DiskNeed


@pytest.mark.parametrize(
    ("installed", "own_args", "release", "cached", "own_index", "ways"),
    [
        (LLAMA_VERSION, False, False, "", False, ()),
        (LLAMA_VERSION, True, True, "", False, ()),
        ("", False, False, "", False, ("prebuilt", "compile")),
        ("0.3.1", False, False, "", False, ("prebuilt", "compile")),
        ("", False, False, "wheel", False, ("cache", "prebuilt", "compile")),
        ("", False, False, "wheel", True, ("prebuilt", "compile")),
        ("", False, True, "wheel", False, ("release", "cache", "prebuilt", "compile")),
        ("", False, True, "wheel", True, ("prebuilt", "release", "compile")),
        ("", True, True, "wheel", True, ("compile",)),
    ],
)
def test_prebuilt_or_compile(
    installed: str, own_args: bool, release: bool, cached: str, own_index: bool, ways: tuple[str, ...]
) -> None:
    found = llama_plan.plan(
        installed=installed,
        wanted=LLAMA_VERSION,
        own_cmake_args=own_args,
        release=release,
        cached_wheel=cached,
        own_index=own_index,
    )
    assert found == ways


def test_a_release_is_looked_for_beside_the_source_unless_another_is_named(tmp_path: Path) -> None:
    def setup(**env: str) -> venv_install.Setup:
        return venv_install.Setup(tmp_path, env, SetupFacts("Linux", "x86_64", (3, 12, 3)), BuildChoice(), dev=False)

    assert setup().release == ""
    (tmp_path / "dist").mkdir()
    assert setup().release == str(tmp_path / "dist")
    assert setup(BURNISH_RELEASE=" https://host/1 ").release == "https://host/1"


def test_options_of_the_compile_stay_whole_in_a_folder_with_spaces() -> None:
    options = shlex.split(llama_plan.DEFAULT_CMAKE_ARGS)
    path = next(one for one in options if "_INCLUDE=" in one).partition("=")[2]
    assert "set(LLAMA_BUILD_COMMON OFF)" in Path(path).read_text(encoding="utf-8").splitlines()


def test_a_wheel_in_pips_cache_is_taken_when_it_was_made_of_the_known_source(tmp_path: Path) -> None:
    wheel, other = (tmp_path / name / "llama_cpp_python-0.3.36-py3-none-linux_x86_64.whl" for name in ("a", "b"))
    for path, digest in ((wheel, "known"), (other, "foreign")):
        path.parent.mkdir()
        path.with_name("origin.json").write_text(json.dumps({"archive_info": {"hashes": {"sha256": digest}}}))
    listing = f"/c/llama_cpp_python-0.3.35-py3-none-any.whl\n{other}\n{wheel}\n"
    assert llama_plan.cached_wheel(listing, "0.3.36", {"known"}) == str(wheel)
    assert llama_plan.cached_wheel(listing, "0.3.3", {"known"}) == ""
    assert llama_plan.cached_wheel(listing, "0.3.35", {"known"}) == ""  # nothing says what it was made of
    assert llama_plan.cached_wheel(listing, "0.3.36", {"unknown"}) == ""
    assert llama_plan.cached_wheel("No locally built wheels cached.\n", "0.3.36", {"known"}) == ""


def test_installed_llama(tmp_path: Path) -> None:
    assert llama_plan.installed_version(tmp_path) == ""
    (tmp_path / "llama_cpp_python-0.3.36.dist-info").mkdir()
    assert llama_plan.installed_version(tmp_path) == "0.3.36"


def test_own_cmake_options_win() -> None:
    assert "GGML_NATIVE=OFF" in llama_plan.compile_env({}, 4, Path("t"))["CMAKE_ARGS"]
    own = {"CMAKE_ARGS": "-DGGML_CUDA=ON", "CMAKE_BUILD_PARALLEL_LEVEL": "1"}
    assert own.items() <= llama_plan.compile_env(own, 4, Path("t")).items()


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


def test_a_machine_and_what_is_chosen_for_it_are_told_in_a_line() -> None:
    bare = SetupFacts("Linux", "x86_64", (3, 12, 3), driver=(580, 65, 6))
    cards = (Gpu("RTX 3090", (8, 6), None), Gpu("RTX 4090", (8, 9), None))
    told = venv_install.describe(replace(bare, gpus=cards), BuildChoice(build="cu130"))
    assert told.startswith("Linux x86_64, Python 3.12.3, RTX 3090, RTX 4090, driver 580.65.6: torch==")
    assert told.endswith("cu130 build")
    assert "driver" not in venv_install.describe(bare, BuildChoice()), "without a card that it runs"


@pytest.mark.parametrize(
    ("choice", "kind"),
    [
        (BuildChoice(build="cu130"), "cuda"), (BuildChoice(build="cpu"), "cpu"),
        (BuildChoice(build="cpu", cpu_build_sure=False), "cuda"),
    ],
)  # fmt: skip
def test_room_is_asked_for_whatever_pip_may_fetch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, choice: BuildChoice, kind: str
) -> None:
    asked: list[int] = []

    def check_space(needs: list[DiskNeed]) -> None:
        asked.extend(need.needed_bytes for need in needs)
        raise KeyboardInterrupt

    monkeypatch.setattr(venv_install, "check_space", check_space)
    (tmp_path / ".venv").mkdir()
    with pytest.raises(KeyboardInterrupt):
        venv_install.Setup(tmp_path, {}, SetupFacts("Linux", "x86_64", (3, 12, 3)), choice, dev=False).install()
    assert tuple(asked) == SPACE_NEEDED[kind]


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
