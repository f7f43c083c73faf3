"""Reading a GGUF's header, whole and hostile."""

import struct

import pytest

from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.models.checkpoint.gguf_file.header import read_header


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def gguf(pairs=b"", pair_count=0, tensors=b"", tensor_count=0, version=3):
    return b"GGUF" + struct.pack("<IQQ", version, tensor_count, pair_count) + pairs + tensors


def test_a_file_written_by_hand(tmp_path):
    pairs = (
        text("general.architecture") + struct.pack("<I", 8) + text("llama")
        + text("llama.block_count") + struct.pack("<II", 4, 2)
        + text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("bc")
        + text("tokenizer.ggml.scores") + struct.pack("<IIQff", 9, 6, 2, 1.0, 2.0)
        + text("flag") + struct.pack("<I?", 7, True)
    )  # fmt: skip
    tensors = text("token_embd.weight") + struct.pack("<IQQIQ", 2, 64, 10, 8, 0)
    path = tmp_path / "x.gguf"
    path.write_bytes(gguf(pairs, 5, tensors, 1))
    header = read_header(path)
    assert header.architecture == "llama"
    assert header.number("block_count") == 2
    assert header.metadata["tokenizer.ggml.tokens"] == 2  # texts are counted
    assert header.metadata["tokenizer.ggml.scores"] == (1.0, 2.0)  # a few numbers are kept: each layer may have its own
    assert header.metadata["flag"] is True
    assert header.tensors[0].shape == (10, 64)
    assert header.type_counts() == {"Q8_0": 1}
    assert header.data_start % 32 == 0


def test_the_same_as_gguf_reader(wide_f16):
    from gguf import GGUFReader

    header, reader = read_header(wide_f16), GGUFReader(wide_f16)
    assert [tensor.name for tensor in header.tensors] == [tensor.name for tensor in reader.tensors]
    assert [tensor.type for tensor in header.tensors] == [tensor.tensor_type.name for tensor in reader.tensors]
    assert [list(tensor.shape) for tensor in header.tensors] == [list(t.shape)[::-1] for t in reader.tensors]
    assert header.data_start == reader.data_offset
    assert header.metadata["tokenizer.chat_template"] == reader.fields["tokenizer.chat_template"].contents()


@pytest.mark.parametrize(
    "damage",
    [
        gguf(version=77),
        gguf(tensor_count=2**60),
        gguf(pair_count=2**60),
        gguf(text("k") + struct.pack("<I", 99), 1),
        gguf(struct.pack("<Q", 2**50) + b"x", 1),
        gguf(text("k") + struct.pack("<IIQ", 9, 8, 2**62), 1),
        gguf(text("k") + struct.pack("<IIQ", 9, 4, 2**62), 1),
        gguf(tensors=text("t") + struct.pack("<I", 400), tensor_count=1),
        gguf(tensors=text("t") + struct.pack("<IQIQ", 1, 4, 9999, 0), tensor_count=1),
        gguf(pair_count=3),
    ],
)
def test_damaged_headers_are_refused_quickly(tmp_path, damage):
    path = tmp_path / "x.gguf"
    path.write_bytes(damage)
    with pytest.raises(SetupError, match="is damaged"):
        read_header(path)


def test_a_value_of_an_unknown_type_is_named_as_such(tmp_path):
    path = tmp_path / "x.gguf"
    for pairs in (text("k") + struct.pack("<I", 99), text("k") + struct.pack("<IIQ", 9, 99, 3)):
        path.write_bytes(gguf(pairs, 1))
        with pytest.raises(SetupError, match="type 99"):
            read_header(path)


def test_every_cut_is_noticed(tmp_path, wide_f16):
    whole = wide_f16.read_bytes()
    path = tmp_path / "x.gguf"
    for end in (8, 23, 30, 100, 1000, 5000):
        path.write_bytes(whole[:end])
        with pytest.raises(SetupError):
            read_header(path)


def test_other_files(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        read_header(tmp_path / "missing.gguf")
    (tmp_path / "x.gguf").write_bytes(b"PK\x03\x04")
    with pytest.raises(UsageError, match="is not a GGUF"):
        read_header(tmp_path / "x.gguf")
