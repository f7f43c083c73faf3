"""Blocks of GGUF: values of the package gguf bit for bit, those of llama.cpp's own decoder, and refusals."""

import ctypes

import llama_cpp._ggml as ggml
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, quants

from burnish_kernels.gguf_blocks.cases import random_blocks
from burnish_kernels.gguf_blocks.op import BLOCK_TYPES, GgufBlocks, dequantize, empty


@pytest.fixture(autouse=True)
def reference(monkeypatch):
    """The path without a GPU; kernels have cases of their own."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


@pytest.mark.parametrize("kind", BLOCK_TYPES)
def test_values_are_those_of_the_package_gguf_bit_for_bit(kind):
    weight = random_blocks(kind, 9, 1024, "cpu")
    weight.data[-1] = (torch.arange(weight.data.shape[1]) % 256) & 0xFB  # denormal and negative scales too, no infinity
    wanted = torch.tensor(quants.dequantize(weight.data.numpy(), GGMLQuantizationType[kind]))
    assert torch.equal(dequantize(weight, dtype=torch.float32).view(torch.int32), wanted.view(torch.int32))
    assert torch.equal(dequantize(weight, dtype=torch.bfloat16), wanted.bfloat16())


@pytest.mark.parametrize("kind", BLOCK_TYPES)
def test_values_are_those_of_llama_cpp(kind):
    weight = random_blocks(kind, 4, 512, "cpu")
    found, wanted = dequantize(weight, dtype=torch.float32), np.empty((4, 512), np.float32)
    _to_float(kind)(weight.data.numpy().ctypes.data, wanted.ctypes.data, wanted.size)
    assert torch.allclose(found, torch.tensor(wanted), rtol=1e-6, atol=1e-7)  # compilers fuse products and sums there


def _to_float(kind):
    """llama.cpp's function that decodes blocks of a type."""

    class Traits(ctypes.Structure):  # ggml_type_traits, ggml.h
        _fields_ = [
            ("type_name", ctypes.c_char_p),
            ("blck_size", ctypes.c_int64),
            ("blck_size_interleave", ctypes.c_int64),
            ("type_size", ctypes.c_size_t),
            ("is_quantized", ctypes.c_bool),
            ("to_float", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)),
        ]

    traits = ggml.libggml.ggml_get_type_traits
    traits.restype, traits.argtypes = ctypes.POINTER(Traits), [ctypes.c_int]
    found = traits(GGMLQuantizationType[kind].value).contents
    assert (found.blck_size, found.type_size) == (BLOCK_TYPES[kind].values, BLOCK_TYPES[kind].bytes)
    return found.to_float


def test_rows_go_into_a_part_of_a_larger_matrix():
    weight, matrix = random_blocks("Q4_K", 3, 256, "cpu"), torch.zeros(5, 300)
    dequantize(weight, dtype=torch.float32, out=matrix[1:4, :256])
    assert torch.equal(matrix[1:4, :256], dequantize(weight, dtype=torch.float32))
    assert not matrix[:, 256:].any()
    assert not matrix[[0, 4]].any()


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="do not fill blocks of 256"):
        empty((4, 300), "Q6_K", "cpu")
    with pytest.raises(ValueError, match="whole blocks"):
        dequantize(GgufBlocks(torch.zeros(4, 17, dtype=torch.uint8), "Q4_0"), dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="not Q2_K"):
        dequantize(GgufBlocks(torch.zeros(4, 84, dtype=torch.uint8), "Q2_K"), dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="out must be"):
        dequantize(empty((4, 256), "Q8_0", "cpu"), dtype=torch.bfloat16, out=torch.zeros(4, 256))
