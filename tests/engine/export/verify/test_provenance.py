"""One changed byte of a file is noticed, and the tensor that it is in is named."""

import hashlib

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, quantize

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.facts.facts import FidelityReport, QuantFidelity
from burnish_engine.export.verify.provenance import find_provenance, hash_file
from burnish_engine.models.checkpoint.gguf_file.header import read_header

NAMES = ("token_embd.weight", "blk.0.attn_q.weight", "blk.0.ffn_down.weight", "output_norm.weight")


def write(path, seed=0, name="model"):
    random = np.random.default_rng(seed)
    writer = GGUFWriter(path, "llama")
    writer.add_name(name)
    for tensor in NAMES[:3]:
        codes = quantize(random.standard_normal((3, 64), dtype=np.float32), GGMLQuantizationType.Q8_0)
        writer.add_tensor(tensor, codes, raw_dtype=GGMLQuantizationType.Q8_0)
    writer.add_tensor(NAMES[3], random.standard_normal(5, dtype=np.float32))  # padding follows
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def hashes(path):
    return hash_file(path, read_header(path))


def report_of(path, *, passed=True):
    found = hashes(path)
    entry = QuantFidelity(
        file=path.name, quant="Q8_0", bytes=path.stat().st_size, sha256=found.file, tensor_sha256=found.tensors,
        tensor_types={}, positions=1, mean_kl=0.0, p99_kl=0.0, top1_agreement=1.0, passed=passed,
    )  # fmt: skip
    return FidelityReport(
        model="x", architecture="llama", token_strings=1, token_mismatches=0, files=[entry], passed=True
    )


def flip(path, tensor):
    """Change the lowest bit of one byte of a tensor."""
    reader = GGUFReader(path, "r+")
    data = next(one.data for one in reader.tensors if one.name == tensor)
    data.reshape(-1).view(np.uint8)[7] ^= 1
    reader.data.flush()


@pytest.fixture
def proven(tmp_path):
    return write(tmp_path / "model-Q8_0.gguf")


def test_hashes_are_those_of_the_bytes(proven):
    found = hashes(proven)
    assert found.file == hashlib.sha256(proven.read_bytes()).hexdigest()
    assert found.tensors == {
        tensor.name: hashlib.sha256(tensor.data.tobytes()).hexdigest() for tensor in GGUFReader(proven).tensors
    }


@pytest.mark.parametrize("name", ["model-Q8_0.gguf", "renamed.gguf"])
@pytest.mark.parametrize("tensor", NAMES)
def test_one_changed_bit_names_its_tensor(proven, tensor, name):
    report = report_of(proven)
    assert find_provenance(name, hashes(proven), [report]).state == "proven"
    flip(proven, tensor)
    found = find_provenance(name, hashes(proven), [report])
    assert found.state == "changed"
    assert [one for one in NAMES if one in found.problem] == [tensor]


def test_changed_settings_are_noticed_where_no_tensor_was_changed(proven, tmp_path):
    report = report_of(proven)
    found = find_provenance(proven.name, hashes(write(tmp_path / "other.gguf", name="else")), [report])
    assert found.state == "changed"
    assert "settings" in found.problem


def test_a_file_of_no_report_is_unknown(proven, tmp_path):
    other = hashes(write(tmp_path / "other.gguf", seed=1))
    for reports in ([], [report_of(proven)], [report_of(proven, passed=False)]):
        assert find_provenance("other.gguf", other, reports).state == "unknown"
    assert find_provenance(proven.name, hashes(proven), [report_of(proven, passed=False)]).state == "unknown"


def test_a_cut_file_is_damaged(proven):
    header = read_header(proven)
    proven.write_bytes(proven.read_bytes()[:-40])
    with pytest.raises(SetupError, match=NAMES[3]):
        hash_file(proven, header)
