"""Every configuration of every kernel, compiled for every generation of GPU, without one.

Nothing is left out: all `registry.CAPABILITIES`, all that `compilations()` lists. Two processes an operation share
the work, without TRITON_INTERPRET, because in the tests' own process `triton.jit` gives interpreted functions.
"""

import importlib.util
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from burnish_kernels import ahead
from burnish_kernels.ahead import SHARED_BYTES, check, environment
from burnish_kernels.registry import CAPABILITIES, OPS, Compilation

SPILL_BYTES = 512  # a thread; a few bytes cost nothing, kilobytes are a configuration that does not fit
PROCESSES = 2  # as many as CI has cores

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton has no build for this system"
)


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "burnish_kernels.ahead", *arguments],
        env={**environment(), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def compiled(op):
    """One dictionary a compilation, in two processes."""
    children = [start("--op", op, "--part", f"{part}/{PROCESSES}") for part in range(PROCESSES)]
    try:
        ends = [(*child.communicate(), child.returncode) for child in children]
    finally:
        for child in children:
            child.kill()
    for _, error, code in ends:
        assert code in (0, 3), error  # findings are judged below
    return [json.loads(line) for output, _, _ in ends for line in output.splitlines()]


def complaint(line):
    """What is wrong with an outcome; empty where nothing is."""
    if "error" in line:
        return line["error"]
    if line["shared_bytes"] > SHARED_BYTES:
        return f"{line['shared_bytes']} bytes of shared memory, at most {SHARED_BYTES}"
    if (line["spill_bytes"] or 0) > SPILL_BYTES:
        return f"{line['spill_bytes']} bytes spilled a thread, at most {SPILL_BYTES}"
    return ""


@pytest.mark.parametrize("op", OPS)
def test_every_configuration_compiles_for_every_generation_and_fits(op):
    lines = compiled(op)
    assert {line["capability"] for line in lines} == set(CAPABILITIES), f"{op} has no kernel for some generation"
    wrong = [f"{line['name']}, sm_{line['capability']}: {found}" for line in lines if (found := complaint(line))]
    seconds = sum(line.get("seconds", 0.0) for line in lines)
    print(f"{op}: {len(lines)} compilations, {seconds:.0f} s of work, {seconds / len(lines):.2f} s each")
    assert not wrong, "\n".join(wrong)


def test_an_interpreted_function_is_refused_with_the_reason():
    with pytest.raises(ValueError, match="TRITON_INTERPRET"):
        check(Compilation("plain", lambda: None, {}, {}), 80)


def test_children_compile_whatever_this_process_does(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert "TRITON_INTERPRET" not in environment()
    assert environment()["PATH"] == os.environ["PATH"]


def function(**flags):
    """A stand-in for a jit function with arguments x_ptr, rows and SIZE."""
    names = ["x_ptr", "rows", "SIZE"]
    plain = {"do_not_specialize": False, "do_not_specialize_on_alignment": False}
    parameters = [SimpleNamespace(num=number, **{**plain, **flags}) for number in range(3)]
    return SimpleNamespace(arg_names=names, params=parameters)


def test_constants_need_no_type_and_the_order_is_the_functions():
    one = Compilation("one", function(), {"rows": "i32", "x_ptr": "*bf16"}, {"SIZE": 64})
    assert list(ahead._complete_signature(one).items()) == [("x_ptr", "*bf16"), ("rows", "i32"), ("SIZE", "constexpr")]


@pytest.mark.parametrize(
    ("signature", "constants", "named"),
    [
        ({"x_ptr": "*bf16"}, {"SIZE": 64}, "rows"),
        ({"x_ptr": "*bf16", "rows": "i32", "cols": "i32"}, {"SIZE": 64}, "cols"),
        ({"x_ptr": "*bf16", "rows": "i32", "SIZE": "constexpr"}, {}, "SIZE"),
        ({"x_ptr": "*bf16", "rows": "i32", "SIZE": "i32"}, {"SIZE": 64}, "SIZE"),
    ],
)
def test_a_signature_that_is_not_the_functions_is_refused(signature, constants, named):
    with pytest.raises(ValueError, match=named):
        ahead._complete_signature(Compilation("one", function(), signature, constants))


def test_pointers_and_sizes_are_aligned_unless_the_function_forbids_it():
    signature = {"x_ptr": "*bf16", "rows": "i32", "SIZE": "constexpr"}
    aligned = [["tt.divisibility", 16]]
    assert ahead._attributes(function(), signature) == {(0,): aligned, (1,): aligned}
    assert ahead._attributes(function(do_not_specialize=True), signature) == {}


def test_a_part_of_the_work_is_every_nth_and_errors_are_told(monkeypatch):
    kernels = [Compilation(f"k{number}", None, {}, {}, capabilities=(80, 90)) for number in range(3)]
    op = SimpleNamespace(compilations=lambda: kernels)
    monkeypatch.setattr("burnish_kernels.registry.ops", lambda: {"toy": op})

    def fails(compilation, capability):
        raise RuntimeError("no such layout")

    monkeypatch.setattr(ahead, "check", fails)
    parts = [list(ahead.check_op("toy", part=part, parts=2)) for part in range(2)]
    done = [(line["name"], line["capability"]) for part in parts for line in part]
    assert sorted(done) == [(f"k{number}", capability) for number in range(3) for capability in (80, 90)]
    assert all(line["error"] == "RuntimeError: no such layout" for part in parts for line in part)


def test_what_is_wrong_is_said():
    fine = {"shared_bytes": SHARED_BYTES, "spill_bytes": None}
    assert complaint(fine) == ""
    assert "shared" in complaint({**fine, "shared_bytes": SHARED_BYTES + 1})
    assert "spilled" in complaint({**fine, "spill_bytes": SPILL_BYTES + 1})
    assert complaint({"error": "boom"}) == "boom"
