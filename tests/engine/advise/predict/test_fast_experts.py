"""Bytes of experts: the sizes that they are counted by are those of the kernels, which load torch."""

from burnish_engine.advise.predict import fast_experts
from burnish_engine.models.families import experts, record
from burnish_kernels.grouped_linear import tiles
from burnish_kernels.moe_sort import order
from burnish_kernels.moe_unpack import stacks
from burnish_kernels.nf4 import reference as nf4


def test_sizes_are_those_of_the_kernels():
    assert fast_experts.TILE_ROWS == order.TILE_ROWS
    assert fast_experts.UNPACK_ROWS == tiles.UNPACK_ROWS
    assert fast_experts._NESTED_BLOCK == nf4.NESTED_BLOCK
    assert record.NF4_BLOCK == nf4.BLOCK
    assert experts.MXFP4_BLOCK == stacks.MXFP4_BLOCK
