"""What tests of the kernels share."""

import pytest


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    """Device that tensors lie on: the processor, and a GPU where there is one."""
    return request.param
