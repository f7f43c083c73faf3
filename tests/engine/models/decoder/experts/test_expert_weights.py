"""Experts as they are read: transformers' numbers, bitsandbytes' bytes, MXFP4 as published, one expert at a time."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from burnish_engine.contract.errors import SetupError
from burnish_engine.models.checkpoint.source import _read_object
from burnish_engine.models.checkpoint.spec import decoder_spec
from burnish_engine.models.checkpoint.weights import Checkpoint
from burnish_engine.models.decoder.experts.expert_weights import ExpertReader, placed_weight, weight_tensors
from burnish_engine.models.families import family
from burnish_engine.models.host_memory.weight_ring import block_bytes, carve
from burnish_kernels.eight_bit_linear.op import CODES
from burnish_kernels.grouped_codes.op import CodedExperts
from burnish_kernels.moe_unpack.op import Mxfp4Experts, Nf4Experts
from burnish_kernels.nf4 import op as nf4

from support.models.catalog_models import pack_mxfp4
from support.models.tiny_models import MIXTURES, load, make

CPU = torch.device("cpu")


class Watched(Checkpoint):
    """A checkpoint that notes how many numbers each reading takes."""

    def __init__(self, folder):
        super().__init__(folder)
        self.most = 0

    def read_into(self, name, destination, rows=None):
        self.most = max(self.most, destination.numel())
        super().read_into(name, destination, rows)


def reader_of(folder, checkpoint, *, quantize=False, dtype=torch.float32, coded=False):
    spec = decoder_spec(_read_object(folder / "config.json"))
    known = family(spec.family)
    reader = ExpertReader(checkpoint, known, spec, dtype=dtype, device=CPU, quantize=quantize, coded=coded)
    return reader, known.all_expert_stacks(spec)


def stacks_of(folder, stacks):
    """Transformers' stacks, `[E, N, K]` each."""
    state = load(folder).state_dict()
    turned = "gpt_oss" in (folder / "config.json").read_text(encoding="utf-8")
    return {stack.path: state[stack.path].mT if turned else state[stack.path] for stack in stacks}


@pytest.fixture(scope="module", params=MIXTURES)
def mixture(request, tmp_path_factory):
    return make(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture
def packed(tmp_path):
    return pack_mxfp4(make("gpt-oss", tmp_path))


@pytest.mark.full
def test_experts_are_transformers_stacks(mixture):
    with Watched(mixture) as checkpoint:
        reader, stacks = reader_of(mixture, checkpoint)
        wanted = stacks_of(mixture, stacks)
        assert stacks
        for stack in stacks:
            assert torch.equal(reader.read(stack), wanted[stack.path])
        assert checkpoint.most <= max(stack.rows * stack.columns for stack in stacks)


@pytest.mark.full
def test_each_expert_has_the_bytes_of_its_matrix_quantized_alone(mixture):
    """A matrix quantized alone has bitsandbytes' own bytes (`tests/kernels/nf4`)."""
    with Watched(mixture) as checkpoint:
        reader, stacks = reader_of(mixture, checkpoint, quantize=True)
        wanted = stacks_of(mixture, stacks)
        for stack in stacks:
            found = reader.read(stack)
            assert isinstance(found, Nf4Experts)
            for expert, matrix in enumerate(wanted[stack.path]):
                own, alone = found.expert(expert).tensors(), nf4.quantize(matrix.contiguous()).tensors()
                assert own.keys() == alone.keys()
                assert all(torch.equal(own[name], tensor) for name, tensor in alone.items())
        assert checkpoint.most <= max(stack.rows * stack.columns for stack in stacks)


@pytest.mark.full
def test_an_installed_bitsandbytes_gives_experts_the_same_codes(mixture):
    functional = pytest.importorskip("bitsandbytes.functional")
    with Checkpoint(mixture) as checkpoint:
        reader, stacks = reader_of(mixture, checkpoint, quantize=True)
        wanted = stacks_of(mixture, stacks)
        for stack in stacks[:2]:
            found = reader.read(stack)
            for expert, matrix in enumerate(wanted[stack.path]):
                codes, state = functional.quantize_4bit(
                    matrix.contiguous(), quant_type="nf4", compress_statistics=True, blocksize=64
                )
                assert torch.equal(found.packed[expert], codes.flatten())
                assert torch.equal(found.nested_absmax[expert], state.state2.absmax)


def test_published_mxfp4_stays_as_it_is(packed):
    stored = load_file(packed / "model.safetensors")
    with Watched(packed) as checkpoint:
        for quantize in (False, True):
            reader, stacks = reader_of(packed, checkpoint, quantize=quantize)
            for stack in stacks:
                found = reader.read(stack)
                assert isinstance(found, Mxfp4Experts)
                found.check()
                assert torch.equal(found.blocks, stored[f"{stack.path}_blocks"])
                assert torch.equal(found.scales, stored[f"{stack.path}_scales"])
        assert checkpoint.most <= max(stack.rows * stack.columns // 2 for stack in stacks)


def test_a_scale_that_is_no_number_is_refused(packed):
    stored = load_file(packed / "model.safetensors")
    name = next(name for name in stored if name.endswith("_scales"))
    stored[name][0, 0, 0] = 255
    save_file(stored, packed / "model.safetensors", metadata={"format": "pt"})
    with Checkpoint(packed) as checkpoint, pytest.raises(SetupError, match="no number"):
        reader, stacks = reader_of(packed, checkpoint)
        for stack in stacks:
            reader.read(stack)


@pytest.mark.parametrize("shape", ["qwen3-moe", "mixtral", "lfm2-moe"])
def test_files_with_whole_stacks_are_read_too(shape, tmp_path):
    """Such files have one tensor for each stack, as transformers holds it in memory."""
    folder = make(shape, tmp_path)
    with Checkpoint(folder) as checkpoint:
        reader, stacks = reader_of(folder, checkpoint)
        wanted = {stack.path: reader.read(stack) for stack in stacks}
    stored = {name: value for name, value in load_file(folder / "model.safetensors").items() if ".experts." not in name}
    save_file(stored | wanted, folder / "model.safetensors", metadata={"format": "pt"})
    with Watched(folder) as checkpoint:
        spec = decoder_spec(_read_object(folder / "config.json"))
        checkpoint.require(family(spec.family).tensors(spec, checkpoint))
        reader, stacks = reader_of(folder, checkpoint)
        assert all(torch.equal(reader.read(stack), wanted[stack.path]) for stack in stacks)
        assert checkpoint.most <= max(stack.rows * stack.columns for stack in stacks)


@pytest.mark.full
def test_each_expert_has_the_codes_of_its_own_matrix(mixture):
    """Made of the stored numbers, not of those that bf16 would leave."""
    with Watched(mixture) as checkpoint:
        reader, stacks = reader_of(mixture, checkpoint, dtype=torch.bfloat16, coded=True)
        wanted = stacks_of(mixture, stacks)
        for stack in stacks:
            found = reader.read(stack)
            assert isinstance(found, CodedExperts)
            scale = wanted[stack.path].abs().amax(dim=(1, 2)) / 448
            torch.testing.assert_close(found.scale, scale)
            codes = (wanted[stack.path] * (1 / found.scale)[:, None, None]).to(CODES)
            assert torch.equal(found.codes.float(), codes.float())
        assert checkpoint.most <= max(stack.rows * stack.columns for stack in stacks)


@pytest.mark.parametrize("form", [{}, {"quantize": True}, {"coded": True}])
def test_stacks_fill_a_block_of_host_memory(mixture, form):
    with Checkpoint(mixture) as checkpoint:
        reader, stacks = reader_of(mixture, checkpoint, **form)
        like = [reader.like(stack) for stack in stacks]
        shapes = [tensor for weight in like for tensor in weight_tensors(weight).values()]
        views = carve(torch.empty(block_bytes(shapes), dtype=torch.uint8), shapes)
        places = [placed_weight(weight, views) for weight in like]
        assert next(views, None) is None
        for stack, place in zip(stacks, places, strict=True):
            reader.read(stack, into=place)
        for stack, place in zip(stacks, places, strict=True):
            wanted, found = weight_tensors(reader.read(stack)), weight_tensors(place)
            assert all(torch.equal(found[name].float(), tensor.float()) for name, tensor in wanted.items())


def test_16_bit_stacks_are_rounded_once(mixture):
    with Checkpoint(mixture) as checkpoint:
        whole, stacks = reader_of(mixture, checkpoint)
        half, _ = reader_of(mixture, checkpoint, dtype=torch.bfloat16)
        for stack in stacks[:2]:
            assert torch.equal(half.read(stack), whole.read(stack).to(torch.bfloat16))


def test_a_missing_expert_is_named(tmp_path):
    folder = make("qwen3-moe", tmp_path)
    stored = load_file(folder / "model.safetensors")
    del stored["model.layers.2.mlp.experts.5.up_proj.weight"]
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    spec = decoder_spec(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    with Checkpoint(folder) as checkpoint, pytest.raises(SetupError, match=r"layers\.2\.mlp\.experts\.5\.up_proj"):
        checkpoint.require(family(spec.family).tensors(spec, checkpoint))


def test_a_dense_layer_has_no_experts(tmp_path):
    folder = make("lfm2-moe", tmp_path)
    spec = decoder_spec(_read_object(folder / "config.json"))
    known = family(spec.family)
    assert [len(known.expert_stacks(spec, layer)) for layer in range(spec.num_layers)] == [0, 2, 2, 2]
    assert {module.stack for module in known.modules(spec) if module.layer == 1} == {"mixer_in", "mixer_out"}
