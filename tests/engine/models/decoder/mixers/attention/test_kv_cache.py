"""The cache of keys and values: where tokens stand, what is hidden, how it grows and shrinks."""

import pytest
import torch

from burnish_engine.contract.facts.facts import DecoderSpec, LayerSpec
from burnish_engine.models.decoder.mixers.attention import kv_cache
from burnish_engine.models.decoder.mixers.attention.kv_cache import KVCache

SPEC = DecoderSpec(
    family="llama", vocab_size=32, hidden_size=16, intermediate_size=16, num_heads=4, num_kv_heads=2, head_dim=8,
    layers=[LayerSpec(), LayerSpec()], max_context=64,
)  # fmt: skip


def filled(lengths, reserve, seed=0):
    """A cache with random prompts, and what was written: per layer and row keys and values [length, M, D]."""
    torch.manual_seed(seed)
    cache = KVCache(SPEC, lengths, reserve, torch.float32, torch.device("cpu"))
    row_T = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    column_T = torch.cat([torch.arange(length) + pad for length, pad in zip(lengths, cache.pads, strict=True)])
    written = []
    for layer in range(2):
        k_TMD, v_TMD = torch.randn(2, sum(lengths), 2, 8)
        cache.write(layer, k_TMD, v_TMD, row_T=row_T, column_T=column_T)
        written.append([list(pair) for pair in zip(k_TMD.split(lengths), v_TMD.split(lengths), strict=True)])
    return cache, written


def grow(cache, written, seed):
    """Add one random token to every row."""
    torch.manual_seed(seed)
    cache.add_column()
    for layer, rows in enumerate(written):
        k_BMD, v_BMD = torch.randn(2, len(rows), 2, 8)
        cache.append(layer, k_BMD, v_BMD)
        for row, pair in enumerate(rows):
            pair[0], pair[1] = torch.cat([pair[0], k_BMD[row : row + 1]]), torch.cat([pair[1], v_BMD[row : row + 1]])


def check(cache, written, window=None):
    """What is seen is what was written, the newest tokens last, and nothing else."""
    for layer, rows in enumerate(written):
        visible = cache.visible(layer, window)
        columns = visible.keys_XLD.shape[1]
        for row, pair in enumerate(rows):
            wanted = [tensor[-window:] if window else tensor for tensor in pair]
            length = len(wanted[0])
            for got_XLD, wanted_LMD in zip(visible[:2], wanted, strict=True):
                got_MLD = got_XLD.view(len(rows), 2, columns, 8)[row]
                assert torch.equal(got_MLD[:, columns - length :].transpose(0, 1), wanted_LMD)
                assert not got_MLD[:, : columns - length].isnan().any()
            if visible.hidden_B1L is None:
                assert columns == length
            else:
                assert visible.hidden_B1L[row, 0].tolist() == [True] * (columns - length) + [False] * length


@pytest.mark.parametrize("window", [None, 1, 3, 100])
def test_rows_of_different_length_grow_together(window):
    cache, written = filled([4, 1, 7], reserve=5)
    check(cache, written, window)
    for seed in range(5):
        grow(cache, written, seed)
        check(cache, written, window)


def test_no_mask_where_nothing_is_hidden():
    cache, _ = filled([4, 4], 2)
    assert cache.visible(0, None).hidden_B1L is None
    cache, _ = filled([4, 9], 2)
    assert cache.visible(0, None).hidden_B1L is not None
    assert cache.visible(0, 4).hidden_B1L is None


def test_rows_leave():
    cache, written = filled([4, 1, 7, 2], reserve=9)
    for seed, kept in enumerate(([0, 2, 3], [2, 0], [0])):
        check(cache, written)
        cache.keep(kept)
        written = [[rows[row] for row in kept] for rows in written]
        check(cache, written)
        grow(cache, written, seed)
        check(cache, written, 3)
    assert cache.visible(0, None).keys_XLD.shape[1] == len(written[0][0][0])  # its own pad is cut away


def test_room_is_made_when_it_is_needed(monkeypatch):
    monkeypatch.setattr(kv_cache, "INITIAL_RESERVE", 2)
    cache, written = filled([4, 1], reserve=8)
    capacities = set()
    for seed in range(10):  # two more than was said
        grow(cache, written, seed)
        check(cache, written)
        capacities.add(cache._capacity)
    assert min(capacities) == 6
    assert 12 in capacities  # not beyond what was reserved before it is used up
    assert max(capacities) <= 14
