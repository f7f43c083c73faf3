"""fp32 stays fp32, whatever was switched on before."""

import subprocess
import sys

import pytest
import torch

from burnish_engine.models.device.precision import DTYPES, exact_products

CHECK = """
import torch
from burnish_engine.models.device.precision import exact_products
matmul = torch.backends.cuda.matmul

def check(poison):
    assert not matmul.allow_tf32, poison
    assert not torch.backends.cudnn.allow_tf32, poison
    assert torch.get_float32_matmul_precision() == "highest", poison
    assert torch.backends.mkldnn.matmul.fp32_precision in ("ieee", "none"), poison
    assert not matmul.allow_bf16_reduced_precision_reduction, poison
    assert not matmul.allow_fp16_reduced_precision_reduction, poison

for poison in (
    "torch.backends.cuda.matmul.allow_tf32 = True",
    "torch.backends.cudnn.allow_tf32 = True",
    "torch.set_float32_matmul_precision('high')",
    "torch.set_float32_matmul_precision('medium')",
    "torch.backends.cuda.matmul.fp32_precision = 'tf32'",
):
    exec(poison)
    exact_products()
    check(poison)
"""


@pytest.mark.full
def test_everything_that_rounds_is_off():
    """In a process of its own: the switches are global."""
    done = subprocess.run([sys.executable, "-c", CHECK], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_tf32_on_request():
    exact_products(tf32=True)
    try:
        assert torch.backends.cuda.matmul.allow_tf32
    finally:
        exact_products()
    assert not torch.backends.cuda.matmul.allow_tf32


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_products_of_fp32_keep_their_digits(device):
    exact_products()
    made = torch.Generator().manual_seed(0)
    a, b = (torch.randn(256, 512, generator=made).to(device) for _ in range(2))
    exact = (a.double() @ b.double().t()).cpu()
    assert float(((a @ b.t()).double().cpu() - exact).norm() / exact.norm()) < 1e-6


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_long_products_of_16_bits_accumulate_in_fp32(dtype):
    """Partial sums of a product that is split over its inner dimension are added in fp32."""
    exact_products()
    made = torch.Generator().manual_seed(0)
    a, b = (torch.rand(64, 65536, generator=made).to(dtype).cuda() for _ in range(2))
    exact = a.double() @ b.double().t()
    assert float(((a @ b.t()).double() - exact).norm() / exact.norm()) < torch.finfo(dtype).eps / 2


def test_names_are_those_of_the_recipe():
    from typing import get_args

    from burnish_engine.contract.recipe.recipe_train import TrainSection

    assert {*DTYPES, "auto"} == set(get_args(TrainSection.model_fields["precision"].annotation))
