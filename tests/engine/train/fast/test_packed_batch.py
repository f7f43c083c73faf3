import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish_engine.advise.facts.workload import buckets
from burnish_engine.data.tokens.pack import IGNORED, micro_batch
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.train.fast.packed_batch import (
    PADDING_DOCUMENT_TOKENS,
    BucketLayout,
    StepScalars,
    fill_buffer,
    layout_for,
    write_scalars,
)
from burnish_kernels.attention.tiles import document_tiles


def document(length, row=0, learned=0.5):
    random = np.random.default_rng([row, length])
    return Document(random.integers(1, 50, length).astype(np.int32), random.random(length) < learned, row, "file")


def batch_of(lengths, learned=0.5):
    documents = [document(length, row, learned) for row, length in enumerate(lengths)]
    return documents, micro_batch(documents, range(len(documents)))


def filled(batch, layout):
    buffer = np.full(layout.size, -7, dtype=np.int32)  # what an earlier pass left
    return fill_buffer(batch, layout, buffer), layout.arrays(buffer), buffer


cases = st.tuples(
    st.lists(st.integers(1, 90), min_size=1, max_size=12),
    st.integers(0, 70),  # rows of padding
    st.sampled_from([16, 32, 64]),
    st.sampled_from([8, 24, 512]),
    st.sampled_from([0.0, 0.5, 1.0]),
)


@pytest.mark.full
@settings(max_examples=200, deadline=None)
@given(case=cases)
def test_every_document_can_be_read_back(case):
    lengths, padding, tile_rows, head_rows, learned = case
    documents, batch = batch_of(lengths, learned)
    layout = BucketLayout(sum(lengths) + padding, tile_rows, head_rows)
    counts, fields, _ = filled(batch, layout)

    assert (counts.tokens, counts.documents) == (sum(lengths), len(lengths))
    for own, start, end in zip(documents, batch.boundaries, batch.boundaries[1:], strict=False):
        assert fields.ids_T[start:end].tolist() == own.input_ids.tolist()
        assert fields.rope_row_T[start:end].tolist() == list(range(len(own)))
        assert set(fields.start_T[start:end]) == {start}
        assert set(fields.end_T[start:end]) == {end}

    rows = np.arange(layout.capacity)
    pad = slice(counts.tokens, None)
    assert (fields.ids_T[pad] == 0).all()
    assert ((fields.start_T <= rows) & (rows < fields.end_T)).all()
    assert (fields.start_T[pad] >= counts.tokens).all()
    assert (fields.end_T - fields.start_T)[pad].max(initial=0) <= PADDING_DOCUMENT_TOKENS
    assert (fields.rope_row_T == rows - fields.start_T).all()
    assert fields.end_T[-1] == layout.capacity

    boundaries = np.append(np.unique(fields.start_T), layout.capacity).astype(np.int32)
    assert (fields.tiles_G4 == document_tiles(boundaries, tile_rows, layout.capacity)).all()


@pytest.mark.full
@settings(max_examples=200, deadline=None)
@given(case=cases)
def test_the_head_gets_the_supervised_rows_in_order(case):
    lengths, padding, tile_rows, head_rows, learned = case
    _, batch = batch_of(lengths, learned)
    layout = BucketLayout(sum(lengths) + padding, tile_rows, head_rows)
    counts, fields, _ = filled(batch, layout)

    expected = [row for row, label in enumerate(batch.labels) if label != IGNORED]
    assert counts.supervised == len(expected) == batch.supervised_tokens
    assert fields.head_position_R[: len(expected)].tolist() == expected
    assert fields.head_target_R[: len(expected)].tolist() == batch.labels[expected].tolist()
    # A target is the next token, and that token is the same document's.
    for row, target in zip(expected, fields.head_target_R, strict=False):
        assert row + 1 < fields.end_T[row] <= counts.tokens
        assert fields.ids_T[row + 1] == target
    # The rest adds nothing, and nothing to a row that learns.
    assert (fields.head_position_R[len(expected) :] == layout.capacity - 1).all()
    assert layout.capacity - 1 not in expected
    assert (fields.head_target_R[len(expected) :] == IGNORED).all()
    assert len(fields.head_position_R) == layout.head_capacity
    assert layout.head_capacity % head_rows == 0
    assert (counts.head_chunks - 1) * head_rows < max(counts.supervised, 0) <= counts.head_chunks * head_rows


def test_the_buffer_depends_on_the_documents_alone():
    _, batch = batch_of([30, 7, 50])
    layout = BucketLayout(128, 64, 32)
    names = [name for name in layout.spans if name not in {"normalizer", "learning_rate"}]
    buffers = np.zeros(layout.size, np.int32), np.full(layout.size, 99, np.int32)
    for buffer in buffers:
        fill_buffer(batch, layout, buffer)
    first, second = (layout.arrays(buffer) for buffer in buffers)
    for name in names:
        assert (getattr(first, name) == getattr(second, name)).all()


def test_fields_neither_overlap_nor_lie_askew():
    layout = BucketLayout(320, 64, 48)
    used = np.zeros(layout.size, dtype=int)
    for name, (first, length) in layout.spans.items():
        used[first : first + length] += 1
        assert first * 4 % (16 if name in {"normalizer", "learning_rate"} else 128) == 0
    assert used.max() == 1
    assert layout.size % 32 == 0


def test_device_views_show_what_the_host_wrote():
    _, batch = batch_of([30, 7, 50])
    layout = BucketLayout(128, 64, 32)
    _, arrays, buffer = filled(batch, layout)
    write_scalars(StepScalars(normalizer=1 / 3, learning_rate=2e-4), layout, buffer)
    device_buffer = torch.zeros(layout.size + 64, dtype=torch.int32)
    views = layout.views(device_buffer)
    device_buffer[: layout.size] = torch.from_numpy(buffer)
    for name in layout.spans:
        view, array = getattr(views, name), getattr(arrays, name)
        assert view.dtype == (torch.float32 if name in {"normalizer", "learning_rate"} else torch.int32)
        assert view.shape == array.shape
        assert (view.numpy() == array).all()
    assert views.normalizer.item() == pytest.approx(1 / 3)
    assert views.learning_rate.item() == pytest.approx(2e-4)


def test_scalars_have_one_address_in_every_bucket():
    small, large = BucketLayout(256, 64, 512), BucketLayout(4096, 128, 1024)
    assert all(small.spans[name] == large.spans[name] for name in ("normalizer", "learning_rate"))


def test_long_documents_use_the_long_part_of_the_rope_table():
    _, batch = batch_of([20, 21, 5])
    layout = BucketLayout(64, 32, 16, long_above=20, long_offset=1000)
    _, fields, _ = filled(batch, layout)
    assert fields.rope_row_T.tolist() == [
        *range(20),
        *range(1000, 1021),
        *range(5),
        *range(PADDING_DOCUMENT_TOKENS),
        *range(2),
    ]


def test_a_pass_beyond_the_bucket_is_a_mistake_of_the_caller():
    _, batch = batch_of([65])
    with pytest.raises(ValueError, match="65 tokens"):
        filled(batch, BucketLayout(64, 32, 16))


@pytest.mark.full
@settings(max_examples=100, deadline=None)
@given(budget=st.integers(1, 100_000), packed=st.booleans(), share=st.floats(0.0, 1.0))
def test_every_pass_finds_a_bucket(budget, packed, share):
    layouts = [BucketLayout(rows, 64, 512) for rows in buckets(budget, packed)]
    tokens = max(1, int(budget * share))
    layout = layout_for(tokens, layouts)
    assert tokens <= layout.capacity < budget + 64
    assert not any(tokens <= other.capacity < layout.capacity for other in layouts)


def test_no_bucket_fits():
    with pytest.raises(ValueError, match="no bucket holds a pass of 300 tokens"):
        layout_for(300, [BucketLayout(256, 64, 512)])
