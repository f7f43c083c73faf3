"""Odd files and recipes, drawn by seed: each ends with a result or one paragraph, never as a bug of Burnish.

The quick suite draws a few of each kind; `-m long` draws all.
"""

import json
import os
import random
import time

import pytest

from burnish_engine.cli.main import main
from burnish_engine.contract.errors import ExitCode, SetupError
from burnish_engine.export.verify.report import read_report
from burnish_engine.models.checkpoint.source import generation_ends
from burnish_engine.models.checkpoint.spec import decoder_spec
from burnish_engine.models.families import family

from support.models.small_families import PUBLISHED, shrink
from support.models.tiny import conversations, make_tokenizer, write_jsonl

MOST_S = 30.0
"""Processor time of one case, seconds."""
ODD = (
    None, True, -1, 0, 1, 3, 1.5, 10**9, 10**30, -(10**30), float("nan"), float("inf"), "x", "", "0", [], [None],
    [0, -1], {}, {"a": 1}, [[[[1]]]], "\ud800", "a\0b", "é" * 300, 1e-320, 10**400,
)  # fmt: skip
ODD_TOML = (
    "-1", "0", "1", "1.5", "nan", "-inf", "true", '"x"', '""', '"judge"', "[]", '["a", "b"]', '["<"]', "[[1]]",
    "{a = 1}", "99999999999999999999", '"\\u0000"', '"(((((a+)+)+)+)+)+$"', '"(?P<x"', '"/dev/zero"',
    f'"{"a" * 300}"', "1e400",
)  # fmt: skip
KEYS = {
    "reward": (
        "kind", "name", "weight", "span", "pattern", "tags", "tokens", "model", "question", "check", "seconds",
        "isolation", "file", "function", "unknown",
    ),
    "reinforce": ("groups", "replies", "max_tokens", "temperature", "updates", "spread", "clip_low", "kl_weight"),
    "evaluation": ("sample_share", "prompts", "every"),
}  # fmt: skip
KINDS = ("task", "keys", "distance", "format", "tags", "length", "script", "judge", "code", "python")
MODELS = ("Qwen/Qwen3.5-0.8B, text", "google/gemma-4-E2B-it, text", "google/gemma-4-31B-it, text")


def drawn(quick, all_of_them):
    """The seeds of a kind of input: a few for the quick suite, the others `long`."""
    later = (pytest.param(seed, marks=pytest.mark.long) for seed in range(quick, all_of_them))
    return pytest.mark.parametrize("seed", [*range(quick), *later])


def ended(capsys, *arguments):
    """Run a command; return its exit code and what it printed, once nothing of it looks like a bug."""
    began = time.process_time()
    code = main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    assert code != ExitCode.BUG, said.err
    assert "Traceback" not in said.err
    assert said.err.count("burnish:") == (code != ExitCode.DONE), said.err
    assert time.process_time() - began < MOST_S
    return code, said.out


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    """Folders of small models with headers of weights and no numbers: a plan reads no more."""
    found = {}
    for name in MODELS:
        folder = tmp_path_factory.mktemp("base")
        made = make_tokenizer(folder)
        config = {**shrink(PUBLISHED[name]), "vocab_size": len(made) + 5}
        if "vocab_size_per_layer_input" in config:
            config["vocab_size_per_layer_input"] = config["vocab_size"]
        spec = decoder_spec(config)
        write_empty_weights(folder / "model.safetensors", family(spec.family).tensors(spec))
        found[name] = folder, config
    return found


def write_empty_weights(file, shapes):
    """Write a safetensors file of bf16 zeros that takes no room on the disk."""
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2
        for length in shape:
            size *= length
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text)
    os.truncate(file, 8 + len(text) + at)


def places(config, before=()):
    """The keys of a configuration, nested ones too."""
    for key, value in config.items():
        yield *before, key
        if isinstance(value, dict):
            yield from places(value, (*before, key))


def made_odd(config, chance):
    """A configuration with one place changed."""
    config = json.loads(json.dumps(config))
    *outer, key = chance.choice(list(places(config)))
    holder = config
    for name in outer:
        holder = holder[name]
    old, how = holder[key], chance.randrange(8)
    if how < 5:
        holder[key] = chance.choice(ODD)
    elif isinstance(old, list) and old:
        holder[key] = chance.choice([old[:-1], old + old[-1:], [chance.choice(ODD)] * len(old)])
    elif isinstance(old, int) and not isinstance(old, bool):
        holder[key] = chance.choice([old + 1, 2 * old, -old, 1000 * old])
    else:
        del holder[key]
    return config


def planned(folder, capsys):
    write_jsonl(folder / "rows.jsonl", conversations(6))
    recipe = folder / "recipe.toml"
    recipe.write_text('[model]\npath = "."\n[data]\nfiles = ["rows.jsonl"]\nmax_length = 64\n[devices]\nkind = "cpu"\n')
    return ended(capsys, "plan", recipe)[0]


def linked(base, folder):
    """A copy of a base's files without its configuration."""
    for file in base.iterdir():
        os.link(file, folder / file.name)
    return folder


@pytest.mark.parametrize("name", [MODELS[0], pytest.param(MODELS[1], marks=pytest.mark.full)])
def test_a_model_of_headers_alone_is_planned(bases, tmp_path, capsys, name):
    """So that the cases below are refused for what is odd about them."""
    base, config = bases[name]
    (linked(base, tmp_path) / "config.json").write_text(json.dumps(config))
    assert planned(tmp_path, capsys) == ExitCode.DONE


@drawn(6, 120)
def test_a_plan_of_an_odd_configuration(bases, tmp_path, capsys, seed):
    chance = random.Random(seed)
    base, config = bases[MODELS[seed % len(MODELS)]]
    (linked(base, tmp_path) / "config.json").write_text(json.dumps(made_odd(config, chance)))
    planned(tmp_path, capsys)


@pytest.mark.parametrize(
    ("model", "key", "value"),
    [
        (MODELS[1], ("rope_parameters", "sliding_attention"), 10**30), (MODELS[1], ("per_layer_config",), {"0": "x"}),
        (MODELS[0], ("rope_parameters", "mrope_section"), [[1]]), (MODELS[0], ("full_attention_interval",), "x"),
    ],
)  # fmt: skip
def test_a_nested_value_of_another_type_leaves_no_specification(model, key, value):
    config = json.loads(json.dumps(shrink(PUBLISHED[model])))
    assert decoder_spec(config) is not None
    holder = config
    for name in key[:-1]:
        holder = holder[name]
    holder[key[-1]] = value
    assert decoder_spec(config) is None


@drawn(5, 60)
def test_rewards_of_an_odd_recipe(bases, tmp_path, capsys, seed):
    chance = random.Random(seed)
    base, config = bases[MODELS[0]]
    (linked(base, tmp_path) / "config.json").write_text(json.dumps(config))
    write_jsonl(tmp_path / "rows.jsonl", [{"prompt": f"{n} + 1?", "completion": str(n + 1)} for n in range(6)])
    tables = {"reward": {"kind": f'"{chance.choice(KINDS)}"'}, "reinforce": {}, "evaluation": {}}
    for _ in range(chance.randrange(1, 4)):
        table = chance.choice(["reward", "reward", "reinforce", "evaluation"])
        tables[table][chance.choice(KEYS[table])] = chance.choice(ODD_TOML)
    recipe = tmp_path / "recipe.toml"
    lines = ['[model]\npath = "."\n[data]\nfiles = ["rows.jsonl"]\nmax_length = 64\n[devices]\nkind = "cpu"']
    lines.append('[preference]\nobjective = "grpo"\n[task]\nmetric = "number"')
    for table, values in tables.items():
        lines += [f"[[{table}]]" if table == "reward" else f"[{table}]", *(f"{k} = {v}" for k, v in values.items())]
    recipe.write_text("\n".join(lines), encoding="utf-8")
    command = ("rewards", "try", recipe, "--own", "--rows", "2") if seed % 3 else ("plan", recipe)
    ended(capsys, *command)


@drawn(4, 30)
def test_models_in_odd_folders_are_listed_or_passed_over(tmp_path, capsys, monkeypatch, seed):
    chance = random.Random(seed)
    places = {name: tmp_path / name for name in ("hub", "ollama", "home")}
    monkeypatch.setenv("HF_HUB_CACHE", str(places["hub"]))
    monkeypatch.setenv("OLLAMA_MODELS", str(places["ollama"]))
    monkeypatch.setenv("HOME", str(places["home"]))
    snapshot = places["hub"] / "models--a--b" / "snapshots" / "0"
    manifest = places["ollama"] / "manifests" / "registry" / "library" / "m"
    studio = places["home"] / ".lmstudio" / "models" / "a" / "b"
    layers = ("3", '[{"size": -5, "mediaType": "x.image.model"}]', '[{"size": 1e400, "mediaType": "x.image.model"}]')
    texts = ["", "{", "[]", "null", "[" * 5000, '{"model_type": ["x"]}', *(f'{{"layers": {one}}}' for one in layers)]
    for folder, names in (
        (snapshot, ("config.json", "model.safetensors")),
        (manifest, ("latest",)),
        (studio, ("m.gguf",)),
    ):
        folder.mkdir(parents=True)
        for name in names:
            put_something_odd(folder / name, chance, texts)
    put_something_odd(snapshot.parents[1] / "refs", chance, texts)
    code, printed = ended(capsys, "models", "local", "--json")
    assert code == ExitCode.DONE
    assert isinstance(json.loads(printed), list)


ADAPTER_KEYS = (
    "peft_type", "r", "lora_alpha", "lora_dropout", "target_modules", "target_parameters", "modules_to_save", "bias",
    "rank_pattern", "alpha_pattern", "use_dora", "use_rslora", "lora_bias", "ensure_weight_tying", "fan_in_fan_out",
    "trainable_token_indices", "layers_to_transform", "layers_pattern", "exclude_modules", "init_lora_weights",
    "base_model_name_or_path", "layer_replication",
)  # fmt: skip


@drawn(8, 120)
def test_a_plan_that_continues_an_odd_adapter(bases, tmp_path, capsys, seed):
    chance = random.Random(seed)
    base, config = bases[MODELS[0]]
    (linked(base, tmp_path) / "config.json").write_text(json.dumps(config))
    write_jsonl(tmp_path / "rows.jsonl", conversations(6))
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    q = "base_model.model.model.layers.3.self_attn.q_proj.lora_"
    shapes = {f"{q}A.weight": (4, config["hidden_size"]), f"{q}B.weight": (chance.choice([4, 64, 512]), 4)}
    write_empty_weights(adapter / "adapter_model.safetensors", shapes)
    said = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}
    for _ in range(chance.randrange(1, 4)):
        value = chance.choice(ODD)
        said[chance.choice(ADAPTER_KEYS)] = {"q_proj": value} if chance.randrange(3) == 0 else value
    (adapter / "adapter_config.json").write_text(json.dumps(said))
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        '[model]\npath = "."\n[data]\nfiles = ["rows.jsonl"]\nmax_length = 64\n[devices]\nkind = "cpu"\n'
        '[adapter]\nstart = "adapter"\n'
    )
    ended(capsys, "plan", recipe)


REPLY_SCORES = (
    "nan", "inf", "10**400", "'x'", "None", "[]", "1j", "True", "score(*row)", "1 / 0", "bytearray(10**15)",
    "[0].pop(9)", "__import__('nothing')", "__import__('sys').exit(3)", "(yield)", "'\\ud800' + 1", "1.0",
)  # fmt: skip


@drawn(2, len(REPLY_SCORES))
def test_rewards_of_an_odd_function(bases, tmp_path, capsys, seed):
    base, config = bases[MODELS[0]]
    (linked(base, tmp_path) / "config.json").write_text(json.dumps(config))
    write_jsonl(tmp_path / "rows.jsonl", [{"prompt": f"{n} + 1?", "completion": str(n + 1)} for n in range(6)])
    (tmp_path / "odd.py").write_text(f"from math import inf, nan\ndef score(*row):\n    return {REPLY_SCORES[seed]}\n")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        '[model]\npath = "."\n[data]\nfiles = ["rows.jsonl"]\nmax_length = 64\n[devices]\nkind = "cpu"\n'
        '[preference]\nobjective = "grpo"\n[task]\nmetric = "number"\n'
        '[[reward]]\nkind = "python"\nfile = "odd.py"\nfunction = "score"\n'
    )
    ended(capsys, "rewards", "try", recipe, "--own", "--rows", "2")


def put_something_odd(path, chance, texts):
    """Put a text, bytes, a folder, a pipe or a link that leads nowhere or to itself at a path."""
    match chance.randrange(6):
        case 0:
            path.mkdir()
        case 1 if hasattr(os, "mkfifo"):
            os.mkfifo(path)
        case 2:
            path.symlink_to(chance.choice(["nowhere", path.name, "/"]))
        case 3:
            path.write_bytes(chance.randbytes(chance.choice([0, 7, 4000])))
        case _:
            path.write_text(chance.choice(texts), encoding="utf-8")


@pytest.mark.parametrize("value", ODD, ids=repr)
def test_odd_ends_of_replies_are_refused_or_numbers(tmp_path, value):
    file = tmp_path / "generation_config.json"
    file.write_text(json.dumps({"eos_token_id": value}))
    try:
        assert all(type(one) is int for one in generation_ends(tmp_path))
    except SetupError as error:
        assert "generation_config.json" in str(error)
    else:
        assert value is None or type(value) is int or value in ([], [0, -1])


@drawn(4, 20)
def test_an_odd_report_of_an_export_is_none(tmp_path, seed):
    chance = random.Random(seed)
    put_something_odd(
        tmp_path / "fidelity.json", chance, ["", "{}", "[]", '{"files": 3}', "[" * 5000, '{"passed": NaN}']
    )
    assert read_report(tmp_path) is None
