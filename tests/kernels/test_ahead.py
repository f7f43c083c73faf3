"""Kernels compiled for every generation of GPU, without one.

The quick suite compiles the first configuration of each kernel for one of `registry.CAPABILITIES` by turns. The whole
suite compiles all that `compilations()` lists, each for every fourth and the first of each kernel for all, and with
`-m long` each for all. Triton keeps what it compiled in the user's cache, by a hash of the source. All is done in a
process of its own, without TRITON_INTERPRET, because in the tests' own process `triton.jit` gives interpreted
functions. It compiles one operation after the other: its start takes as long as many a compilation.
"""

import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from types import SimpleNamespace

import pytest

from burnish_kernels import ahead
from burnish_kernels.ahead import SHARED_BYTES, check, environment, shared_limit
from burnish_kernels.eight_bit_linear.cases import INSTRUCTIONS
from burnish_kernels.eight_bit_linear.rows import CODES, INT8
from burnish_kernels.mxfp8_linear.cases import INSTRUCTIONS as MX_INSTRUCTIONS
from burnish_kernels.registry import CAPABILITIES, FP8_CAPABILITIES, OPS, Compilation

SPILL_BYTES = 512  # a thread; a few bytes cost nothing, kilobytes are a configuration that does not fit
# Whose accumulator must stay in registers; on sm_80 INT8 spills 72 bytes in the epilogue, once for a tile.
MORE_SPILL_BYTES = {"dq-sm80-512-8/4-float32": 2304}  # without tensor cores, it is slow all the same
FEWER_SPILL_BYTES = {"eight_bit_linear": 72, "mxfp8_linear": 32, "grouped_codes": 32}
FEWER_CAPABILITIES = {
    "mxfp8_linear": FP8_CAPABILITIES,
    "grouped_codes": FP8_CAPABILITIES,
}  # of operations that other GPUs do in PyTorch

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton has no build for this system"
)


COMPILES = """
import json, sys
from burnish_kernels.ahead import check_op
for line in sys.stdin:
    op, options = json.loads(line)
    print(json.dumps(list(check_op(op, **options))), flush=True)
"""


@pytest.fixture(scope="module")
def compiled():
    """Compile some of an operation's configurations in the other process; returns one dictionary a compilation."""
    environ = {**environment(), "OMP_NUM_THREADS": "1"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", COMPILES], env=environ, text=True, **pipes) as process:

        def ask(op, **options):
            process.stdin.write(json.dumps([op, options]) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield ask
        process.stdin.close()


def complaint(line):
    """What is wrong with an outcome; empty where nothing is."""
    if "error" in line:
        return line["error"]
    if line["shared_bytes"] > (limit := shared_limit(line["capability"])):
        return f"{line['shared_bytes']} bytes of shared memory, at most {limit}"
    usual = FEWER_SPILL_BYTES.get(line["op"], SPILL_BYTES)
    if (line["spill_bytes"] or 0) > (limit := MORE_SPILL_BYTES.get(line["name"], usual)):
        return f"{line['spill_bytes']} bytes spilled a thread, at most {limit}"
    return ""


def require_fitting(op, lines):
    wrong = [f"{line['name']}, sm_{line['capability']}: {found}" for line in lines if (found := complaint(line))]
    seconds = sum(line.get("seconds", 0.0) for line in lines)
    print(f"{op}: {len(lines)} compilations, {seconds:.0f} s of work, {seconds / len(lines):.2f} s each")
    assert not wrong, "\n".join(wrong)


@pytest.mark.quick_cases(16)
@pytest.mark.parametrize("op", OPS)
def test_every_kernel_compiles_and_fits(compiled, op):
    require_fitting(op, compiled(op, firsts=True))


@pytest.mark.full
@pytest.mark.parametrize(
    "sample",
    [pytest.param(4, id="a quarter"), pytest.param(1, id="all", marks=pytest.mark.long)],
)
@pytest.mark.parametrize("op", OPS)
def test_every_configuration_compiles_and_fits(compiled, op, sample):
    lines = compiled(op, sample=sample)
    expected = set(FEWER_CAPABILITIES.get(op, CAPABILITIES))
    assert {line["capability"] for line in lines} == expected, f"{op} has no kernel for some generation"
    require_fitting(op, lines)


def test_norms_that_write_codes_add_up_rows_in_the_same_order(compiled):
    """In another layout the sums differ, and what has to pass from one to another takes shared memory."""
    shared = {line["name"]: line["shared_bytes"] for line in compiled("rms_norm", sample=4)}
    coded = [name for name in shared if "-codes-" in name]
    assert coded
    assert {name: shared[name] for name in coded} == {name: shared[name.partition("-codes-")[0]] for name in coded}


@pytest.mark.full
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
    assert list(ahead.complete_signature(one).items()) == [("x_ptr", "*bf16"), ("rows", "i32"), ("SIZE", "constexpr")]


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
        ahead.complete_signature(Compilation("one", function(), signature, constants))


def test_an_argument_named_like_one_of_the_launch_is_refused():
    one = SimpleNamespace(arg_names=["x_ptr", "stream"])
    with pytest.raises(ValueError, match="keeps the name stream"):
        ahead.complete_signature(Compilation("one", one, {"x_ptr": "*bf16", "stream": "i32"}, {}))


def test_pointers_and_sizes_are_aligned_unless_the_function_forbids_it():
    signature = {"x_ptr": "*bf16", "rows": "i32", "SIZE": "constexpr"}
    aligned = [["tt.divisibility", 16]]
    assert ahead._attributes(function(), signature) == {(0,): aligned, (1,): aligned}
    several = signature | {"x_ptr": ("*bf16", "*u8")}
    assert ahead._attributes(function(), several) == {(0, 0): aligned, (0, 1): aligned, (1,): aligned}
    assert ahead._attributes(function(do_not_specialize=True), signature) == {}


@pytest.mark.parametrize(
    ("codes", "right", "wrong"),
    [(CODES, "f32.e4m3.e4m3.f32", "f32.f16.f16.f32"), (INT8, "s32.s8.s8.s32", "s32.u8.u8.s32")],
    ids=["e4m3", "int8"],
)
def test_a_product_that_falls_back_to_16_bits_is_refused(codes, right, wrong):
    product = Compilation("product", None, {}, {}, instructions=INSTRUCTIONS[codes])
    tail = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%r1};\n"
    assert set(INSTRUCTIONS[codes]) == set(CAPABILITIES if codes == INT8 else FP8_CAPABILITIES)
    for capability in INSTRUCTIONS[codes]:
        shape = "mma.sync.aligned.m16n8k32.row.col"
        shape = "wgmma.mma_async.sync.aligned.m64n128k32" if capability == 90 else shape
        ahead.require_instruction(product, capability, f"{tail}{shape}.{right} {{%r1}};")
        for other in (f"{shape}.{wrong}", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"):
            with pytest.raises(ValueError, match="has no"):
                ahead.require_instruction(product, capability, f"cvt.rn.f16x2.e4m3x2 %r1;\n{tail}{other} {{%r1}};")
    ahead.require_instruction(product, 70, tail)


def test_a_block_scaled_product_that_falls_back_is_refused():
    product = Compilation("product", None, {}, {}, instructions=MX_INSTRUCTIONS)
    kind = "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4"
    tail = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%r1};\n"
    ahead.require_instruction(product, 120, f"{tail}{kind}.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0 {{%r1}};")
    for wrong in (tail, f"{tail}{kind}.f32.e4m3.e4m3.f32 {{%r1}};"):
        with pytest.raises(ValueError, match="has no"):
            ahead.require_instruction(product, 120, wrong)
        ahead.require_instruction(product, 90, wrong)


def test_errors_are_told(monkeypatch):
    kernels = [Compilation(f"k{number}", None, {}, {}, capabilities=(80, 90)) for number in range(3)]
    op = SimpleNamespace(compilations=lambda: kernels)
    monkeypatch.setattr("burnish_kernels.registry.ops", lambda: {"toy": op})

    def fails(compilation, capability):
        raise RuntimeError("no such layout")

    monkeypatch.setattr(ahead, "check", fails)
    lines = list(ahead.check_op("toy"))
    assert [(line["name"], line["capability"]) for line in lines] == [
        (f"k{number}", capability) for number in range(3) for capability in (80, 90)
    ]
    assert all(line["error"] == "RuntimeError: no such layout" for line in lines)


def test_in_a_sample_configurations_take_turns_and_the_first_is_compiled_for_all(monkeypatch):
    kernels = [Compilation(f"k{number}", None, {}, {}) for number in range(4)]
    monkeypatch.setattr("burnish_kernels.registry.ops", lambda: {"toy": SimpleNamespace(compilations=lambda: kernels)})
    monkeypatch.setattr(ahead, "check", lambda *_: ahead.Compiled(0, None, None, 0.0))
    found = [(line["name"], line["capability"]) for line in ahead.check_op("toy", sample=3)]
    assert {capability for name, capability in found if name == "k0"} == set(CAPABILITIES)
    assert [found[5:7], found[7:8], found[8:]] == [[("k1", 86), ("k1", 90)], [("k2", 89)], [("k3", 80), ("k3", 120)]]


def test_no_sample_is_compiled_for_more_shared_memory_alone(monkeypatch):
    kernels = [Compilation(f"k{number}", None, {}, {}) for number in range(20)]
    monkeypatch.setattr("burnish_kernels.registry.ops", lambda: {"toy": SimpleNamespace(compilations=lambda: kernels)})
    monkeypatch.setattr(ahead, "check", lambda *_: ahead.Compiled(0, None, None, 0.0))
    for sample in (3, 4):
        found = [(line["name"], line["capability"]) for line in ahead.check_op("toy", sample=sample)]
        assert {name for name, capability in found if shared_limit(capability) == SHARED_BYTES} == {
            one.name for one in kernels
        }


def test_the_first_configuration_of_each_kernel_is_compiled_for_all(monkeypatch):
    kernels = [Compilation(name, name[0], {}, {}) for name in ("a0", "a1", "b0", "b1")]
    monkeypatch.setattr("burnish_kernels.registry.ops", lambda: {"toy": SimpleNamespace(compilations=lambda: kernels)})
    monkeypatch.setattr(ahead, "check", lambda *_: ahead.Compiled(0, None, None, 0.0))
    found = Counter(line["name"] for line in ahead.check_op("toy", sample=3))
    assert found == {"a0": len(CAPABILITIES), "a1": 2, "b0": len(CAPABILITIES), "b1": 2}


def test_of_the_first_configurations_each_kernel_takes_another_card(monkeypatch):
    kernels = [Compilation(name, name[0], {}, {}) for name in ("a0", "a1", "b0", "b1", "c0")]
    monkeypatch.setattr(
        "burnish_kernels.registry.ops", lambda: {"gather": SimpleNamespace(compilations=lambda: kernels)}
    )
    monkeypatch.setattr(ahead, "check", lambda *_: ahead.Compiled(0, None, None, 0.0))
    found = [(line["name"], line["capability"]) for line in ahead.check_op("gather", firsts=True)]
    assert [name for name, _ in found] == ["a0", "b0", "c0"]
    assert len({capability for _, capability in found}) == 3


@pytest.mark.parametrize("step", ["0", "-2"])
def test_a_step_below_one_is_a_usage_error(step, capsys):
    with pytest.raises(SystemExit):
        ahead.main(["--op", "gather", "--sample", step])
    assert step in capsys.readouterr().err


@pytest.mark.parametrize(
    ("outcome", "code"),
    [({"shared_bytes": SHARED_BYTES}, 0), ({"shared_bytes": SHARED_BYTES + 1}, 3), ({"error": "no"}, 3)],
)
def test_the_program_prints_a_line_a_compilation_and_says_whether_all_fit(monkeypatch, capsys, outcome, code):
    asked = []

    def check_op(op, capabilities, *, sample):
        asked.append((op, capabilities, sample))
        yield from ({"op": op, "capability": 89, "shared_bytes": 0}, {"op": op, "capability": 89, **outcome})

    monkeypatch.setattr(ahead, "check_op", check_op)
    assert ahead.main(["--op", "gather", "--op", "rope", "--capability", "89", "--sample", "3"]) == code
    assert asked == [("gather", (89,), 3), ("rope", (89,), 3)]
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["op"] for line in lines] == ["gather", "gather", "rope", "rope"]
    assert outcome.items() <= lines[1].items()


def test_a_configuration_of_few_capabilities_is_in_every_sample(monkeypatch):
    kernels = [Compilation(f"k{number}", None, {}, {}, capabilities=(90,)) for number in range(4)]
    monkeypatch.setattr("burnish_kernels.registry.ops", lambda: {"toy": SimpleNamespace(compilations=lambda: kernels)})
    monkeypatch.setattr(ahead, "check", lambda *_: ahead.Compiled(0, None, None, 0.0))
    assert Counter(line["capability"] for line in ahead.check_op("toy", sample=3)) == {90: 4}


def test_what_is_wrong_is_said():
    fine = {"op": "gather", "name": "rows", "capability": 89, "shared_bytes": SHARED_BYTES, "spill_bytes": None}
    assert complaint(fine) == ""
    assert "shared" in complaint({**fine, "shared_bytes": SHARED_BYTES + 1})
    assert complaint({**fine, "capability": 90, "shared_bytes": SHARED_BYTES + 1}) == ""
    assert "spilled" in complaint({**fine, "spill_bytes": SPILL_BYTES + 1})
    assert "spilled" in complaint(
        {**fine, "op": "eight_bit_linear", "spill_bytes": FEWER_SPILL_BYTES["eight_bit_linear"] + 1}
    )
    assert complaint({"error": "boom"}) == "boom"
