"""Files given to Ollama and LM Studio: only where they are installed, with errors in words."""

import os
from pathlib import Path

import pytest

from burnish_engine.contract.errors import BurnishError, StoppedError, UsageError
from burnish_engine.export.destinations.installed import installed_programs
from burnish_engine.export.destinations.programs import add_to_lm_studio, add_to_ollama

from support.models import fake_ollama


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with none of the programs; returns the folder of its PATH."""
    programs = tmp_path / "bin"
    programs.mkdir()
    system = ["/usr/bin", "/bin"] if os.name != "nt" else [str(Path(os.environ["SYSTEMROOT"]) / "System32")]
    monkeypatch.setenv("PATH", os.pathsep.join([str(programs), *system]))
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(_paths()))
    return programs


def _paths():
    import burnish_engine

    return [str(Path(burnish_engine.__file__).parents[1])]


def going_on():
    return False


def test_only_what_is_installed_is_offered(machine, tmp_path):
    assert installed_programs() == []
    fake_ollama.install(machine, tmp_path / "kept")
    assert installed_programs() == ["ollama"]
    (tmp_path / "home" / ".lmstudio" / "models").mkdir(parents=True)
    assert installed_programs() == ["ollama", "lm_studio"]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("Support desk (v2):F16", "support-desk-v2:f16"),
        ("desk: second try:F16", "desk-second-try:f16"),  # Ollama refuses a second colon
        ("日本:F16", "burnish:f16"),
    ],
)
def test_ollama_gets_a_modelfile_that_it_can_read(machine, tmp_path, wide, wide_f16, name, wanted):
    fake_ollama.install(machine, tmp_path / "kept")
    called = add_to_ollama(wide_f16, tmp_path / "ollama-F16", wide.folder, name, going_on)
    assert called == wanted
    (kept,) = (tmp_path / "kept").iterdir()
    assert kept.name == called.replace(":", "+")
    assert Path(kept.read_text(encoding="utf-8")).samefile(wide_f16)


def test_what_ollama_says_is_passed_on(machine, tmp_path, wide, wide_f16):
    fake_ollama.install(machine, tmp_path / "kept", refuses="could not connect to ollama app, is it running?")
    with pytest.raises(BurnishError, match="could not connect") as raised:
        add_to_ollama(wide_f16, tmp_path / "o", wide.folder, "x:F16", going_on)
    assert "Start Ollama" in raised.value.remedy
    assert "\x1b" not in raised.value.what


def test_a_client_that_hangs_can_be_stopped(machine, tmp_path, wide, wide_f16):
    fake_ollama.install(machine, tmp_path / "kept", holds=True)
    asked = []

    def canceled():
        asked.append(1)
        return len(asked) > 2

    with pytest.raises(StoppedError):
        add_to_ollama(wide_f16, tmp_path / "o", wide.folder, "x:F16", canceled)


def test_a_program_that_is_not_there_is_a_usage_error(machine, tmp_path, wide, wide_f16):
    with pytest.raises(UsageError, match="Ollama"):
        add_to_ollama(wide_f16, tmp_path / "o", wide.folder, "x", going_on)
    with pytest.raises(UsageError, match="LM Studio"):
        add_to_lm_studio(wide_f16, "x", going_on)


def test_lm_studio_finds_the_file_in_its_folder(machine, tmp_path, wide_f16):
    models = tmp_path / "home" / ".lmstudio" / "models"
    models.mkdir(parents=True)
    called = add_to_lm_studio(wide_f16, "Support desk", going_on)
    assert called == "burnish/Support-desk"
    assert (models / called / wide_f16.name).samefile(wide_f16)
    assert add_to_lm_studio(wide_f16, "Support desk", going_on) == called, "a second time changes nothing"


@pytest.mark.skipif(os.name == "nt", reason="the stand-in is a shell script")
def test_lm_studio_s_own_import_goes_first(machine, tmp_path, wide_f16):
    log = tmp_path / "said"
    client = machine / "lms"
    client.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {log}\nexit "${{LMS_STATUS:-0}}"\n', encoding="utf-8")
    client.chmod(0o755)
    assert add_to_lm_studio(wide_f16, "desk", going_on) == "burnish/desk"
    said = log.read_text(encoding="utf-8").splitlines()
    assert said[0] == "import"
    assert said[-3:] == ["--user-repo", "burnish/desk", str(wide_f16)]
    client.write_text("#!/bin/sh\necho no such folder >&2\nexit 3\n", encoding="utf-8")
    with pytest.raises(BurnishError, match="no such folder"):
        add_to_lm_studio(wide_f16, "desk", going_on)
