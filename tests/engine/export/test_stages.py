"""Killed, canceled, or out of disk at each stage of an export with an importance matrix: no half file, repeatable."""

import os
import signal
import subprocess
import sys
import time
from collections import namedtuple

import pytest

from burnish_engine.contract.errors import DoesNotFitError, NoSpaceError, StoppedError
from burnish_engine.export import job
from burnish_engine.export.base import staging
from burnish_engine.export.job import export_gguf
from burnish_engine.export.quantize import quantize
from burnish_engine.export.verify.reference import ExportedModel, ReferenceOptions
from burnish_engine.runs.file_hashes import sha256_file

from support.app.serve import wait_for
from support.models.export import rows

pytestmark = pytest.mark.usefixtures("short_replies")

STAGES = (
    "Writing the 16-bit file", "Running the trained model", "Weighing what the training rows use", "Checking F16",
    "Making Q4_0", "Checking Q4_0", "Making IQ4_NL", "Checking IQ4_NL",
)  # fmt: skip
KILLED = [
    pytest.param(stage, marks=[] if stage in (STAGES[0], STAGES[2], STAGES[-2]) else pytest.mark.long)
    for stage in STAGES
]
"""The test command kills while nothing, the 16-bit file, and one quantized file are there."""
TYPES = ["Q4_0", "IQ4_NL"]
Usage = namedtuple("Usage", "total used free")


def export(wide, adapter, out, **hooks):
    options = ReferenceOptions(training=rows(wide, 12), tokens=512)
    return export_gguf(
        ExportedModel(wide, adapter, held_out=rows(wide, 2), options=options, threads=1), out, "x", TYPES, **hooks
    )


def left(out):
    return sorted(path.name for path in out.rglob("*"))


@pytest.fixture(scope="module")
def whole(wide, wide_adapter, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "out"
    seen = []
    export(wide, wide_adapter, out, progress=lambda what, _share: seen.append(what))
    assert list(dict.fromkeys(seen)) == [*STAGES, "Done"]
    return out


def same(one, other):
    names = ("x-Q4_0.gguf", "x-IQ4_NL.gguf", "x.imatrix")
    return all(sha256_file(one / name) == sha256_file(other / name) for name in names)


@pytest.mark.full
@pytest.mark.parametrize("stage", STAGES)
def test_canceled_at_a_stage_leaves_nothing_and_works_again(wide, wide_adapter, whole, tmp_path, stage):
    now = []
    with pytest.raises(StoppedError) as caught:
        export(
            wide, wide_adapter, tmp_path, progress=lambda what, _share: now.append(what), canceled=lambda: stage in now
        )
    assert caught.value.exit_code == 20
    assert now[-1] == stage  # at once, not with the next stage
    assert left(tmp_path) == []
    if stage == STAGES[-1]:
        export(wide, wide_adapter, tmp_path)
        assert same(tmp_path, whole)


@pytest.mark.full
@pytest.mark.parametrize("stage", STAGES[1::2])
def test_a_disk_that_fills_at_a_stage_leaves_nothing(wide, wide_adapter, tmp_path, monkeypatch, stage):
    def fill(what, _share):
        if what == stage:
            raise OSError(28, "No space left on device")

    with pytest.raises(NoSpaceError, match="disk is full") as caught:
        export(wide, wide_adapter, tmp_path, progress=fill)
    assert caught.value.exit_code == 15
    assert left(tmp_path) == []


@pytest.mark.full
def test_a_matrix_that_cannot_be_written_is_no_space(wide, wide_adapter, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(job, "write_importance", full)
    with pytest.raises(NoSpaceError, match="disk is full"):
        export(wide, wide_adapter, tmp_path)
    assert left(tmp_path) == []


@pytest.mark.full
def test_the_quantizer_meets_a_full_disk(wide, wide_adapter, tmp_path, monkeypatch):
    real = job.quantize

    def filled(*args, **options):
        monkeypatch.setattr(quantize.shutil, "disk_usage", lambda _path: Usage(10**9, 10**9, 5))
        return real(*args, **options)

    monkeypatch.setattr(job, "quantize", filled)
    with pytest.raises(NoSpaceError, match="The Q4_0 file needs"):
        export(wide, wide_adapter, tmp_path)
    assert left(tmp_path) == []


def test_too_little_memory_for_the_trained_model_is_told_before_it_is_loaded(wide, tmp_path, monkeypatch):
    monkeypatch.setattr(staging, "host_memory", lambda: (10**9, 10**8))
    with pytest.raises(DoesNotFitError, match="Running the trained model needs"):
        export(wide, None, tmp_path)
    assert left(tmp_path) == []


_KILLED = """
import sys
sys.path[:0] = sys.argv[5:]
from pathlib import Path
import torch
torch.set_num_threads(1)
from burnish_engine.models.checkpoint.source import open_model
from support.runs.stages import export_telling
export_telling(open_model(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
"""


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
@pytest.mark.parametrize("stage", KILLED)
def test_killed_at_a_stage_leaves_no_file_and_the_next_export_is_whole(wide, wide_adapter, whole, tmp_path, stage):
    out = tmp_path / "out"
    command = [sys.executable, "-c", _KILLED, str(wide.folder), str(wide_adapter), str(out), stage, *sys.path]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if line.strip() == stage:
            os.kill(process.pid, signal.SIGKILL)
            break
    assert process.wait() == -signal.SIGKILL
    time.sleep(0.5)  # the quantizer ends by itself when its parent is gone
    wait_for(lambda: not [name for name in left(out) if name.endswith((".gguf", ".imatrix")) and name.startswith("x")])
    assert not (out / "fidelity.json").exists()
    export(wide, wide_adapter, out)
    assert same(out, whole)
    assert not list(out.glob(".partial-*"))
