"""Products with a matrix in host memory, in pieces."""

import pytest
import torch

from burnish_engine.models.host_memory.page_lock import PageLock
from burnish_engine.models.host_memory.streamed_matrix import StreamedMatrix

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("piece_bytes", [1, 5000, 1 << 20])
def test_products_are_those_of_the_whole(device, dtype, piece_bytes):
    torch.manual_seed(0)
    matrix, x, y = (torch.randn(shape, dtype=dtype) for shape in ((301, 48), (7, 48), (7, 301)))
    pages = PageLock()
    if device == "cuda":
        assert pages.lock(matrix) == 0
    streamed = StreamedMatrix(matrix, torch.device(device), piece_bytes)
    exact = [x.double() @ matrix.double().t(), y.double() @ matrix.double()]
    found = [streamed.rows_product(x.to(device)), streamed.columns_product(y.to(device))]
    tolerance = 1e-6 if dtype == torch.float32 else 5e-3
    for one, wanted in zip(found, exact, strict=True):
        assert one.dtype == dtype
        assert (one.cpu().double() - wanted).norm() < tolerance * wanted.norm()


@pytest.mark.gpu
def test_pieces_are_captured():
    torch.manual_seed(0)
    matrix, pages = torch.randn(3000, 256), PageLock()
    assert pages.lock(matrix) == 0
    device = torch.device("cuda")
    streamed = StreamedMatrix(matrix, device, 1 << 18)
    x = torch.randn(64, 256, device=device)
    wanted = streamed.rows_product(x).clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = streamed.rows_product(x)
    for factor in (1.0, -2.0):
        x.mul_(factor)
        wanted.mul_(factor)
        graph.replay()
        assert torch.equal(out, wanted)
