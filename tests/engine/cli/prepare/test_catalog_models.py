"""Models of the catalog, small and laid out as on the hub, go from plan to chat, or the catalog says what does not."""

import pytest
from safetensors.torch import load_file, save_file

from burnish_engine.advise.facts.catalog import catalog
from burnish_engine.cli.main import main
from burnish_engine.contract.facts.exports import next_export
from burnish_engine.contract.paths import RunPaths
from burnish_engine.models.checkpoint.gguf_file.header import read_header
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.models.checkpoint.wrapper import WRAPPERS
from burnish_engine.models.families import family
from burnish_engine.runs.card import read_card

from support.models.catalog_models import small_checkpoint
from support.models.tiny import conversations, write_jsonl

pytestmark = pytest.mark.usefixtures("short_replies")

WITH_IMAGES = {
    **{f"google/gemma-3-{size}-it": "gemma3" for size in ("4b", "12b", "27b")},
    **{f"google/gemma-4-{size}-it": "gemma4" for size in ("E2B", "E4B", "26B-A4B", "31B")},
    "google/gemma-4-12B-it": "gemma4_unified",
    **{f"mistralai/Ministral-3-{size}-Instruct-2512-BF16": "mistral3" for size in ("3B", "8B")},
    **{f"Qwen/Qwen3.5-{size}": "qwen3_5" for size in ("0.8B", "2B", "4B", "9B", "27B", "2B-Base", "4B-Base")},
    **{f"Qwen/Qwen3.{version}-27B": "qwen3_5" for version in (6, 8)},
    **{f"Qwen/Qwen3.{version}-35B-A3B": "qwen3_5_moe" for version in (5, 6)},
}
"""Name to model_type of the whole."""
FAMILIES = {(entry.spec.family, entry.name in WITH_IMAGES): entry for entry in reversed(catalog())}
"""The first model of each family, and of Gemma 3 the first with a part for images."""
QWEN3_5 = [entry for entry in catalog() if entry.spec.family.startswith("qwen3_5")]
"""All of these go the whole way to a file in 4 bits."""


def kinds(spec, count):
    return [(layer.kind, layer.feed_forward, layer.rope) for layer in spec.layers[:count]]


@pytest.mark.full
@pytest.mark.parametrize("entry", FAMILIES.values(), ids=lambda entry: entry.name)
def test_a_small_model_is_read_as_its_catalog_entry(entry, tmp_path):
    source = open_model(str(small_checkpoint(entry, tmp_path / "model")))
    assert source.spec.family == entry.spec.family
    for name in ("tied_embeddings", "qk_norm", "fused_projections", "sandwich_norms", "causal", "activation"):
        assert getattr(source.spec, name) == getattr(entry.spec, name), name
    assert source.spec.rope.scaling == entry.spec.rope.scaling
    assert kinds(source.spec, source.spec.num_layers) == kinds(entry.spec, source.spec.num_layers)
    assert source.wrapper is WRAPPERS.get(WITH_IMAGES.get(entry.name, ""))
    assert max(load_tokenizer(source).get_vocab().values()) < source.rows


def whole_way(entry, folder, capsys, quantize="none", quant="F16", prepare=lambda model: model):
    """Plan, train two steps, chat, export, verify and chat; returns the exit code of each, and what was promised."""
    model = prepare(small_checkpoint(entry, folder / "model"))
    data = write_jsonl(folder / "data.jsonl", conversations(30))
    recipe, run = folder / "recipe.toml", folder / "run"
    recipe.write_text(
        f"[model]\npath = '{model}'\nquantize = '{quantize}'\n"
        f"[data]\nfiles = ['{data}']\nmax_length = 200\n[adapter]\nrank = 4\n"
        "[devices]\nkind = 'cpu'\nthreads = 1\n"
        "[train]\nmax_steps = 2\nmicro_batch_tokens = 400\nprecision = 'fp32'\n"
        "[evaluation]\ngeneral_text = false\n",
        encoding="utf-8",
    )
    steps = {
        "suggest": ["suggest", "--model", str(model), "--data", str(data), "--out", str(folder / "suggested.toml")],
        "plan": ["plan", str(recipe)],
        "train": ["train", str(recipe), "--run-dir", str(run)],
        "chat": ["chat", str(run), "--prompt", "Hello", "--max-tokens", "3"],
        "export": ["export", str(run), "--quant", quant],  # of random weights, rounding may change when a reply ends
    }
    codes = {}
    for name, command in steps.items():
        codes[name] = main(command)
        said = capsys.readouterr()
        assert "a bug in Burnish" not in said.err + said.out
    card = read_card(RunPaths(run))
    assert {one.kind for one in card.coverage.kinds if one.reached < one.weights} <= {"router", "convolution"}
    promised = next_export(card.exports)
    if promised not in ("", "--to gguf"):
        codes["promised"] = main(["export", str(run), *promised.split()])
    if not codes["export"]:
        file = next((run / "export").glob("*.gguf"))
        codes["verify"] = main(["verify", str(file), "--against", str(run)])
        codes["exported"] = main(["chat", str(run), "--exported", "--prompt", "Hello", "--max-tokens", "3"])
        capsys.readouterr()
    return codes


@pytest.mark.full
@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(entry, id=entry.name, marks=() if entry in FAMILIES.values() else pytest.mark.long)
        for entry in catalog()
        if entry not in QWEN3_5
    ],
)
def test_every_model_goes_the_whole_way_or_the_catalog_says_what_does_not(entry, tmp_path, capsys, record_property):
    codes = whole_way(entry, tmp_path, capsys)
    record_property(
        "exit_codes", {name: int(code) for name, code in codes.items()}
    )  # shown by --junit-xml with -o junit_family=xunit1
    assert codes.pop("export") == (0 if entry.exports else 2)
    assert set(codes.values()) == {0}


IN_4_BITS = [
    pytest.param(entry, id=entry.name, marks=() if entry.spec.family in {"lfm2", "ministral3"} else pytest.mark.long)
    for entry in FAMILIES.values()
    if family(entry.spec.family)
]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("entry", IN_4_BITS)
def test_every_family_that_is_suggested_in_4_bits_goes_the_whole_way_in_them(entry, tmp_path, capsys):
    codes = whole_way(entry, tmp_path, capsys, "nf4")
    assert codes.keys() >= {"verify", "exported"}
    assert set(codes.values()) == {0}


def sure(folder):
    """Make a model sure of its next token, which is the last one again, so that rounding to 4 bits changes little."""
    path = folder / "model.safetensors"
    held = load_file(path)
    (table,) = (name for name in held if name.endswith("embed_tokens.weight"))
    held |= {name: held[table].clone() for name in held if name.endswith("lm_head.weight")}
    held[table] *= 16
    save_file(held, path, metadata={"format": "pt"})
    return folder


@pytest.mark.full
@pytest.mark.parametrize("entry", QWEN3_5, ids=lambda entry: entry.name)
def test_every_member_of_qwen3_5_goes_the_whole_way_to_4_bits(entry, tmp_path, capsys):
    codes = whole_way(entry, tmp_path, capsys, quant="Q4_K_M", prepare=sure)
    assert codes.keys() >= {"suggest", "plan", "train", "export", "verify", "exported"}
    assert set(codes.values()) == {0}
    held = {
        tensor.name: tensor.type for tensor in read_header(next((tmp_path / "run" / "export").glob("*.gguf"))).tensors
    }
    assert "blk.4.nextn.eh_proj.weight" in held
    assert {"Q5_0", "Q8_0"} <= set(held.values())  # what Q4_K and Q6_K become where rows are narrow
