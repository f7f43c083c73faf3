"""Attention over pages refuses what it cannot do, and shares keys among as many programs as help."""

import pytest
import torch

from burnish_kernels.paged_attention.op import forward, splits

Q, K = torch.zeros(2, 4, 16), torch.zeros(2, 2, 16)
PAGES, TABLE, LENGTHS = (
    torch.zeros(3, 2, 64, 16),
    torch.zeros(2, 1, dtype=torch.int32),
    torch.ones(2, dtype=torch.int32),
)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"q_BND": Q[0]}, "q is"),
        ({"k_BMD": K[:1]}, "keys must be"),
        ({"q_BND": torch.zeros(2, 3, 16)}, "evenly"),
        ({"v_BMD": K.double()}, "v must be"),
        ({"keys_PMLD": PAGES.transpose(0, 1).contiguous().transpose(0, 1)}, "contiguous"),
        ({"table_BP": TABLE.long()}, "table"),
        ({"lengths_B": LENGTHS[:1]}, "lengths"),
        ({"scale": 0.0}, "above zero"),
        ({"window": 0}, "above zero"),
        ({"sinks_N": torch.zeros(3)}, "sinks"),
        ({"out": torch.zeros(2, 4, 8)}, "out"),
    ],
)
def test_bad_arguments_are_named(change, words):
    given = {"q_BND": Q, "k_BMD": K, "v_BMD": K, "keys_PMLD": PAGES, "values_PMLD": PAGES.clone()}
    given |= {"table_BP": TABLE, "lengths_B": LENGTHS, "scale": 1.0}
    with pytest.raises(ValueError, match=words):
        forward(**given | change)


def test_one_reply_is_shared_and_many_are_not():
    assert splits(1, 8, 64, 132) > 32
    assert splits(1, 8, 2, 132) == 2  # never more than pages
    assert splits(64, 8, 64, 132) == 1
    assert splits(128, 32, 64, 16) == 1


def test_the_first_token_attends_to_itself():
    q, k, v = torch.randn(1, 4, 16), torch.randn(1, 2, 16), torch.randn(1, 2, 16)
    keys, values = PAGES.clone(), PAGES.clone()
    table = torch.tensor([[2]], dtype=torch.int32)
    out = forward(q, k, v, keys, values, table, torch.ones(1, dtype=torch.int32), scale=0.5)
    torch.testing.assert_close(out, v.repeat_interleave(2, dim=1))
    assert torch.equal(keys[2, :, 0], k[0])
    assert not keys[:2].any()
    assert not values[2, :, 1:].any()
