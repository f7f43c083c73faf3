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
    assert splits(2, 2, None, 132) == splits(2, 2, 1000, 132) > 1  # where pages must not decide


def test_a_row_has_the_same_bits_in_any_company_that_shares_keys_alike():
    keys, values = torch.randn(9, 2, 64, 16), torch.randn(9, 2, 64, 16)
    own = {"q": torch.randn(4, 16), "k": torch.randn(2, 16), "v": torch.randn(2, 16)}

    def attend(rows, place, pages):
        q, k, v = (torch.randn(rows, *one.shape) for one in own.values())
        q[place], k[place], v[place] = own.values()
        table = torch.zeros(rows, pages, dtype=torch.int32)
        table[place, :3] = torch.tensor([4, 2, 7])
        lengths = torch.zeros(rows, dtype=torch.int32)
        lengths[place] = 150
        return forward(q, k, v, keys.clone(), values.clone(), table, lengths, scale=0.3, split=5)[place]

    alone = attend(1, 0, 3)
    assert all(torch.equal(attend(*other), alone) for other in ((3, 2, 3), (8, 4, 3)))


def test_the_first_token_attends_to_itself():
    q, k, v = torch.randn(1, 4, 16), torch.randn(1, 2, 16), torch.randn(1, 2, 16)
    keys, values = PAGES.clone(), PAGES.clone()
    table = torch.tensor([[2]], dtype=torch.int32)
    out = forward(q, k, v, keys, values, table, torch.ones(1, dtype=torch.int32), scale=0.5)
    torch.testing.assert_close(out, v.repeat_interleave(2, dim=1))
    assert torch.equal(keys[2, :, 0], k[0])
    assert not keys[:2].any()
    assert not values[2, :, 1:].any()
