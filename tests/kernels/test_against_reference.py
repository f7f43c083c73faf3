"""Every case of every operation, forward and backward, against its PyTorch reference."""

import os

import pytest

from burnish_kernels.registry import ops

INTERPRETED_S = 180  # of one case on a busy machine; larger ones are marked gpu_only

EVERY = [(op, case, f"{op.name}-{case.name}") for op in ops().values() for case in op.cases()]
CASES = [pytest.param(op, case, id=name) for op, case, name in EVERY]
SMALL_CASES = [pytest.param(op, case, id=name) for op, case, name in EVERY if not case.gpu_only]
interpreted = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="the interpreter is on only where TRITON_INTERPRET=1"
)


@pytest.mark.quick_cases(128)
@interpreted
@pytest.mark.timeout(INTERPRETED_S)
@pytest.mark.parametrize(("op", "case"), SMALL_CASES)
def test_interpreted_kernel_equals_reference(op, case):
    assert op.compare(case, "cpu") <= case.tolerance


@pytest.mark.gpu
@pytest.mark.parametrize(("op", "case"), CASES)
def test_compiled_kernel_equals_reference(op, case):
    assert op.compare(case, "cuda") <= case.tolerance
