"""Every kind of damage to a finished file is found, whether or not the damage shows in its probabilities."""

import numpy as np
import pytest
import torch
from gguf import GGUFReader
from safetensors.torch import load_file, save_file

from burnish_engine.advise.facts.gguf_rules import gguf_rules
from burnish_engine.contract.recipe.recipe_export import GGUF_TYPES, NEED_IMPORTANCE
from burnish_engine.export.checks.checksums import CHECKSUMS
from burnish_engine.export.checks.contents import check_contents
from burnish_engine.export.checks.trained_weights import Origin
from burnish_engine.export.checks.vocabulary import check_vocabulary
from burnish_engine.export.gguf.vocabulary import Vocabulary
from burnish_engine.export.quantize.importance import compute_importance
from burnish_engine.export.quantize.importance_file import write_importance
from burnish_engine.export.quantize.quantize import quantize
from burnish_engine.export.verify.reference import ExportedModel
from burnish_engine.export.verify.verify import verify_file
from burnish_engine.models.checkpoint.gguf_file.header import GgufHeader
from burnish_engine.models.checkpoint.gguf_file.tensor_names import name_map
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.runs.file_hashes import sha256_file

from support.models.export import make_adapter, rows, tuned_model, write_16_bit
from support.models.gguf_edit import edit_gguf
from support.models.small_families import make_small
from support.models.tiny import make_llama

LLAMA3_ROPE = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}  # fmt: skip
REFINED = "IQ4_NL, GPTQ"
USUAL = ("F16", "Q8_0", "Q4_K_M", REFINED, "Q2_K")
TYPES = [pytest.param(name, marks=() if name in USUAL else pytest.mark.long) for name in (*GGUF_TYPES, REFINED)]
"""Every type that is offered; without an importance matrix, unless the type needs one."""


class Files(dict):
    """A tuned model's files by type, each made when it is first asked for."""

    def __init__(self, origin, folder):
        self.origin, self.folder = origin, folder
        self.matrix, self.hessians = folder / "matrix", folder / "hessians"

    def __missing__(self, name):
        self[name] = self.made(name)
        return self[name]

    def made(self, name):
        source, adapter = self.origin.source, self.origin.adapter
        if name in {"F16", "BF16"}:
            return write_16_bit(source, adapter, self.folder, kind=name)
        if name not in {REFINED, *NEED_IMPORTANCE}:
            return quantize(self["F16"], self.folder / f"{name}.gguf", name, threads=1).path
        if not self.matrix.exists():
            names = name_map(gguf_rules(source.config["model_type"]), source.spec.num_layers)
            model = tuned_model(source, adapter)
            found = compute_importance(model, rows(source, 8), names, tokens=1000, hessians=self.hessians)
            write_importance(found, self.matrix)
        quant, _, refined = name.partition(", ")
        hessians = self.hessians if refined else None
        path = self.folder / f"{name}.gguf"
        return quantize(self["F16"], path, quant, importance=self.matrix, hessians=hessians, threads=1).path


@pytest.fixture(scope="session")
def proven(tmp_path_factory):
    """A tiny tuned Llama with a scaled rope, and its files by type."""
    folder = tmp_path_factory.mktemp("proven")
    make_llama(
        folder / "base", hidden_size=256, intermediate_size=256, num_attention_heads=4, rope_parameters=LLAMA3_ROPE
    )
    source = open_model(str(folder / "base"))
    origin = Origin(source, make_adapter(source, folder / "adapter"))
    return origin, load_tokenizer(source), Files(origin, folder)


def problems(proven, path):
    origin, tokenizer, _ = proven
    return " ".join(check_contents(path, origin, tokenizer))


@pytest.mark.full
@pytest.mark.parametrize("quant", TYPES)
def test_a_whole_file_has_no_faults(proven, quant):
    assert problems(proven, proven[2][quant]) == ""


@pytest.mark.full
def test_the_widest_gaps_of_two_bits_are_no_fault(tmp_path):
    """Rows of one number, its opposite and fourteen zeros, again and again, are off by most of their norm."""
    folder = make_llama(
        tmp_path / "base", hidden_size=256, intermediate_size=256, num_attention_heads=4, tie_word_embeddings=False
    )
    held = load_file(folder / "model.safetensors")
    for name in ("model.embed_tokens.weight", "model.layers.0.mlp.gate_proj.weight"):
        held[name] = torch.zeros_like(held[name])
        held[name][:, ::16], held[name][:, 1::16] = 0.25, -0.25
    save_file(held, folder / "model.safetensors", {"format": "pt"})
    source = open_model(str(folder))
    made = quantize(write_16_bit(source, None, tmp_path), tmp_path / "x.gguf", "Q2_K", threads=1)
    assert check_contents(made.path, Origin(source, None), load_tokenizer(source)) == []


def swap_rows(name, first, second):
    def change(held):
        held[name][[first, second]] = held[name][[second, first]]

    return change


def zero_row(name, row):
    def change(held):
        held[name][row] = 0

    return change


def scale(name, factor):
    def change(held):
        held[name] *= np.float32(factor)

    return change


def scale_q8_row(held):
    """Blocks of Q8_0 begin with their scale in 16 bits."""
    blocks = held["blk.1.ffn_up.weight"][3].reshape(-1, 34)
    blocks[:, :2] = (blocks[:, :2].copy().view(np.float16) * np.float16(1.05)).view(np.uint8)


def one_code(held):
    """The sign of one number of one row."""
    codes = held["blk.0.ffn_gate.weight"][9, 2:34].view(np.int8)
    codes[np.abs(codes).argmax()] *= -1


def scale_k_row(held):
    """Blocks of Q4_K begin with their two scales in 16 bits."""
    blocks = held["blk.1.attn_q.weight"][3].reshape(-1, 144)
    blocks[:, :4] = (blocks[:, :4].copy().view(np.float16) * np.float16(1.05)).view(np.uint8)


def scale_iq4_row(held):
    """Blocks of IQ4_NL begin with their scale in 16 bits."""
    blocks = held["blk.1.attn_q.weight"][3].reshape(-1, 18)
    blocks[:, :2] = (blocks[:, :2].copy().view(np.float16) * np.float16(1.1)).view(np.uint8)


def one_step(held):
    """The lowest bit of one code of the embedding, which is a Q6_K."""
    held["token_embd.weight"][9, 5] ^= 1


def one_number(held):
    held["blk.1.attn_norm.weight"][7] = np.nextafter(held["blk.1.attn_norm.weight"][7], np.float32(9))


def not_a_number(held):
    held["output_norm.weight"][7] = np.nan


def drop(name):
    return lambda held: held.pop(name)


def add(held):
    held["blk.0.attn_q.bias"] = np.zeros(256, dtype=np.float32)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("quant", TYPES)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (swap_rows("blk.0.attn_q.weight", 3, 17), ("blk.0.attn_q.weight", "changed places", "3, 17")),
        (zero_row("blk.1.attn_v.weight", 5), ("blk.1.attn_v.weight", "zeros", "row 5")),
        (zero_row("token_embd.weight", 40), ("token_embd.weight", "zeros", "row 40")),
        (scale("output_norm.weight", 1.05), ("output_norm.weight", "factor", "1.05")),
        (scale("rope_freqs.weight", 2.0), ("rope_freqs.weight", "factor")),
        (one_number, ("blk.1.attn_norm.weight",)),
        (not_a_number, ("output_norm.weight",)),
        (drop("blk.1.ffn_norm.weight"), ("lacks", "blk.1.ffn_norm.weight")),
        (drop("rope_freqs.weight"), ("lacks", "rope_freqs.weight")),
        (add, ("blk.0.attn_q.bias", "does not have")),
    ],
)
def test_a_damaged_tensor_is_named(proven, tmp_path, quant, change, words):
    found = problems(proven, edit_gguf(proven[2][quant], tmp_path / "x.gguf", tensors=change))
    assert all(word in found for word in words), found


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("quant", "change", "words"),
    [
        ("Q8_0", scale_q8_row, ("blk.1.ffn_up.weight", "row 3 ", "1.05")),
        ("Q8_0", one_code, ("blk.0.ffn_gate.weight", "row 9 ")),
        ("Q4_K_M", scale_k_row, ("blk.1.attn_q.weight", "row 3 ", "1.05")),
        ("Q4_K_M", one_step, ("token_embd.weight", "row 9 ")),
        ("IQ4_NL", scale_iq4_row, ("blk.1.attn_q.weight", "row 3 ", "multiplied")),
        ("IQ4_NL", one_step, ("token_embd.weight", "row 9 ")),
    ],
)
def test_a_row_that_its_types_rounding_does_not_make_is_named(proven, tmp_path, quant, change, words):
    found = problems(proven, edit_gguf(proven[2][quant], tmp_path / "x.gguf", tensors=change))
    assert all(word in found for word in words), found


def put(key, value):
    def change(keys):
        keys[key] = value

    return change


def without(key):
    return lambda keys: keys.pop(key)


def swap_rare_tokens(keys):
    tokens = keys["tokenizer.ggml.tokens"]
    tokens[-20:-10], tokens[-10:] = tokens[-10:], tokens[-20:-10]


def drop_merges(keys):
    del keys["tokenizer.ggml.merges"][-20:]


def swap_merges(keys):
    merges = keys["tokenizer.ggml.merges"]
    merges[-1], merges[-2] = merges[-2], merges[-1]


def change_type(keys):
    keys["tokenizer.ggml.token_type"][60] = 3


def change_template(keys):
    keys["tokenizer.chat_template"] = keys["tokenizer.chat_template"].replace("user", "human").rstrip() + "\n"


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (swap_rare_tokens, "'token'"),
        (drop_merges, "'merge'"),
        (swap_merges, "'merge'"),
        (change_type, "'type of token'"),
        (put("tokenizer.ggml.eos_token_id", 7), "eos_token_id is 7"),
        (put("tokenizer.ggml.eot_token_id", 7), "eot_token_id is 7"),
        (without("tokenizer.ggml.bos_token_id"), "bos_token_id"),
        (put("tokenizer.ggml.add_bos_token", True), "add_bos_token is True"),
        (put("tokenizer.ggml.add_eos_token", True), "add_eos_token is True"),
        (change_template, "chat template is not the model's"),
        (without("tokenizer.chat_template"), "chat template is missing"),
        (put("llama.attention.layer_norm_rms_epsilon", 2e-5), "norm epsilon"),
        (put("llama.rope.freq_base", 10_100.0), "rope base"),
        (put("llama.rope.scaling.factor", 2.0), "rope scale"),
        (put("llama.rope.dimension_count", 32), "rotated dimensions"),
        (put("llama.context_length", 4096), "context length"),
        (without("llama.context_length"), "context length"),
        (put("llama.attention.head_count_kv", 4), "key heads"),
        (put("llama.attention.key_length", 32), "width of a key"),
    ],
)
def test_damaged_metadata_is_named(proven, tmp_path, change, words):
    assert words in problems(proven, edit_gguf(proven[2]["Q8_0"], tmp_path / "x.gguf", metadata=change))


@pytest.mark.parametrize("role", ["alpha_p", "beta"])
def test_wrong_numbers_of_an_activation_are_named(tmp_path, role):
    source = make_small("swiss-ai/Apertus-8B-Instruct-2509", tmp_path / "base")
    path, tokenizer, key = write_16_bit(source, None, tmp_path), load_tokenizer(source), f"xielu.{role}"

    def halve_the_last(keys):
        *others, last = keys[key]
        keys[key] = [*others, last / 2]

    for number, change in enumerate((without(key), halve_the_last)):
        damaged = edit_gguf(path, tmp_path / f"{number}.gguf", metadata=change)
        assert check_contents(damaged, Origin(source, None), tokenizer) == [f"Its metadata {key} is not the model's."]


def test_a_wrong_score_of_a_sentencepiece_vocabulary_is_named():
    wanted = Vocabulary("llama", ["<s>", "a", "b"], [3, 1, 1], scores=[0.0, -1.0, -2.0], special={}, chat_template="t")
    keys = {
        "model": "llama", "tokens": ("<s>", "a", "b"), "token_type": (3, 1, 1), "scores": (0.0, -1.0, -2.0),
        "add_bos_token": False, "add_space_prefix": False, "chat_template": "t",
    }  # fmt: skip

    def found(**changes):
        metadata = {f"tokenizer.{'' if key == 'chat_template' else 'ggml.'}{key}": value for key, value in keys.items()}
        return check_vocabulary(GgufHeader({**metadata, **changes}, [], 0), wanted)

    assert found() == []
    (problem,) = found(**{"tokenizer.ggml.scores": (0.0, -1.0, -2.5)})
    assert "2 is -2.5, not -2.0" in problem


@pytest.mark.full
def test_verify_refuses_damage_that_probabilities_hide(proven, tmp_path):
    origin, _, files = proven
    damaged = edit_gguf(files["Q8_0"], tmp_path / "x.gguf", tensors=zero_row("token_embd.weight", 300))
    passed = [
        verify_file(path, ExportedModel(origin.source, origin.adapter, held_out=rows(origin.source, 1), threads=1))
        for path in (files["Q8_0"], damaged)
    ]
    assert [report.passed for report in passed] == [True, False]
    assert passed[1].files[0].mean_kl < 0.1
    assert "token_embd.weight" in " ".join(passed[1].files[0].problems)


@pytest.mark.full
def test_verify_refuses_a_file_that_changed_after_its_export(proven, tmp_path):
    """One block's scale, a bit off, is within four bits' rounding; the checksums beside the file tell."""
    origin, _, files = proven
    name = files["Q8_0"].name
    data = bytearray(files["Q8_0"].read_bytes())
    reader = GGUFReader(files["Q8_0"])
    (tensor,) = (one for one in reader.tensors if one.name == "blk.0.attn_q.weight")
    data[int(tensor.data_offset)] ^= 1  # the last bit of the first block's scale
    (tmp_path / name).write_bytes(data)

    def found():
        report = verify_file(
            tmp_path / name, ExportedModel(origin.source, origin.adapter, held_out=rows(origin.source, 1), threads=1)
        )
        return report.files[0]

    alone = found()
    (tmp_path / CHECKSUMS).write_text(f"{sha256_file(files['Q8_0'])}  {name}\n{'0' * 64}  other.gguf\n")
    changed = found()
    assert not changed.passed
    assert [problem for problem in changed.problems if problem not in alone.problems] == [changed.problems[-1]]
    assert CHECKSUMS in changed.problems[-1]
    (tmp_path / CHECKSUMS).write_text(f"{sha256_file(tmp_path / name)}  {name}\n")
    assert found().problems == alone.problems
