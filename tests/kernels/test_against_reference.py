"""Every case of every operation, forward and backward, against its PyTorch reference."""

import os

import pytest
import torch

from burnish_kernels.registry import ops

CASES = [pytest.param(op, case, id=f"{op.name}-{case.name}") for op in ops().values() for case in op.cases()]
interpreted = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="the interpreter is on only where TRITON_INTERPRET=1"
)


@interpreted
@pytest.mark.parametrize(("op", "case"), CASES)
def test_interpreted_kernel_equals_reference(op, case):
    assert op.compare(case, "cpu") <= case.tolerance


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize(("op", "case"), CASES)
def test_compiled_kernel_equals_reference(op, case):
    assert op.compare(case, "cuda") <= case.tolerance
