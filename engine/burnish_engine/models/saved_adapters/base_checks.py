"""Refuse an adapter that does not fit the model that it is used with: in plans, training, chat and exports alike.

Loads no torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from burnish_engine.contract.errors import SetupError
from burnish_engine.models.checkpoint.checkpoint_tensors import checkpoint_tensors
from burnish_engine.models.checkpoint.safetensors_header import PLAIN_TYPES, StoredTensor
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.checkpoint.tokenizer_file import read_tokenizer_file
from burnish_engine.models.families import layer_matrices
from burnish_engine.models.families.matrices import TAKEN_FOR_EXPERTS, is_in_4_bits
from burnish_engine.models.saved_adapters.adapter_files import AdapterFiles, part_of, reached_modules, token_rows
from burnish_engine.models.saved_adapters.saved_adapter import PREFIX, is_promised, refuse_missing, refuse_strange

_TABLES = ("embed_tokens", "lm_head")
_LAYER = re.compile(r"(\blayers\.)\d+\.")


def refuse_other_tokens(files: AdapterFiles, source: ModelSource) -> None:
    """Refuse an adapter that was trained with other tokens than its base has.

    Args:
        files: the adapter.
        source: the base.

    Raises:
        SetupError: Embedding or head of the adapter has another number of rows, a tokenizer beside the adapter has
            tokens that the base's does not have, or a tokenizer is damaged.
    """
    _refuse_other_rows(files, source.rows, source.name)
    _refuse_other_tokenizer(files.folder, source)


def refuse_missing_biases(files: AdapterFiles, source: ModelSource) -> None:
    """Refuse an adapter that trains biases (PEFT's `lora_bias`) of layers whose base has none: no export can hold them.

    Args:
        files: the adapter.
        source: the base.

    Raises:
        SetupError: The adapter has such a bias, or the base's weights are damaged.
    """
    modules = [part.module for part in map(part_of, files.tensors) if part.kind == "bias"]
    stored = _language_model(source) if modules else {}
    missing = [one for one in modules if f"{one}.weight" in stored and f"{one}.bias" not in stored]
    if missing:
        raise SetupError(
            f"The adapter in {files.folder} trains biases (lora_bias) of {len(missing)} layers that have no bias in "
            f"{source.name}, first {missing[0]}. The trained model could not be exported: neither PEFT nor Burnish can "
            "merge such a bias.",
            "Train an adapter with lora_bias = false in PEFT, or use a base whose layers have biases.",
        )


def refuse_other_shapes(files: AdapterFiles, source: ModelSource) -> None:
    """Refuse an adapter whose matrices do not fit its base's weights, or are of layers that the base does not have.

    Weights that are stored in another form than the model computes with, such as 4-bit ones, are not compared.

    Args:
        files: the adapter.
        source: the base.

    Raises:
        SetupError: A matrix does not fit, or the base's weights are damaged.
    """
    stored = _language_model(source)
    for name, tensor in files.tensors.items():
        part = part_of(name)
        weight = f"{part.module.replace('.base_layer', '')}.weight"
        if part.kind not in ("A", "B"):
            continue
        if weight not in stored:
            refuse_strange(files.folder, [name] if _LAYER.sub(r"\g<1>0.", weight) in stored else [])
            continue
        plain = stored[weight].dtype in PLAIN_TYPES and len(stored[weight].shape) == 2
        side = tensor.shape[1:] if part.kind == "A" else tensor.shape[:1]
        if plain and (len(side) != 1 or side[0] not in stored[weight].shape):  # GPT-2 stores them transposed
            raise SetupError(
                f"The adapter in {files.folder} has the shape {tensor.shape} for {name.removeprefix(PREFIX)}, and the "
                f"weight in {source.name} has {stored[weight].shape}.",
                "Use it with its own base.",
            )


def refuse_missing_pairs(files: AdapterFiles, source: ModelSource) -> None:
    """Refuse an adapter that lacks both matrices of a linear layer that its config names.

    Nothing is said of models whose shape is not known, and of feed-forwards in models with experts, which PEFT adapts
    in a form of their own.

    Args:
        files: the adapter.
        source: the base.

    Raises:
        SetupError: A layer's matrices are missing, or the base's weights are damaged.
    """
    if source.spec is None:
        return
    stored, config = _language_model(source), files.config
    reached = {*reached_modules(files.tensors), *(config.get("modules_to_save") or ())}
    spared = TAKEN_FOR_EXPERTS if source.spec.num_experts else frozenset[str]()
    missing = list[str]()
    for index, layer in enumerate(source.spec.layers):
        for matrix in filter(is_in_4_bits, layer_matrices(source.spec, layer)):
            path, last = f"model.layers.{index}.{matrix.name}", matrix.name.rpartition(".")[2]
            if reached.isdisjoint((path, last)) and last not in spared and f"{path}.weight" in stored:
                missing += [f"{PREFIX}{path}.lora_A.weight"] if is_promised(files.folder, config, path) else []
    refuse_missing(files.folder, missing)


def _language_model(source: ModelSource) -> Mapping[str, StoredTensor]:
    """Read the stored tensors of the language model by their names in it."""
    stored = checkpoint_tensors(source.folder)
    return source.wrapper.language_model(stored) if source.wrapper else stored


def _refuse_other_rows(files: AdapterFiles, rows: int, base: str) -> None:
    """Refuse an adapter whose embedding or head has another number of rows than its base's; 0 rows: not known."""
    last_token = max((max(rows, default=-1) for rows in token_rows(files.config).values()), default=-1)
    sizes = {f"its token {last_token:,}": last_token + 1} if last_token >= rows else {}
    for name, stored in files.tensors.items():
        part = part_of(name)
        last = part.module.removesuffix(".weight").rpartition(".")[2]
        of_table = (last in _TABLES and part.kind in ("whole", "frozen")) or (last == "lm_head" and part.kind == "B")
        if len(stored.shape) == 2 and (of_table or part.kind == "EA"):
            sizes[name] = stored.shape[-1 if part.kind == "EA" else 0]
    for what, size in sizes.items():
        if rows and size != rows:
            raise SetupError(
                f"The adapter in {files.folder} was trained with another vocabulary: by {what} it has {size:,} tokens, "
                f"and {base} has {rows:,}.",
                f"Resize the model to {size:,} tokens with transformers (resize_token_embeddings), save it with the "
                "adapter's tokenizer, and set model.path to that folder.",
            )


def _refuse_other_tokenizer(folder: Path, source: ModelSource) -> None:
    """Refuse an adapter beside which lies a tokenizer with tokens that the model's does not have."""
    beside, own = read_tokenizer_file(folder), read_tokenizer_file(source.folder)
    if beside is None or own is None:
        return
    known = {token.id: token.text for token in (*own.added, *([own.last] if own.last else []))}
    new = [
        token
        for token in beside.added
        if token.id > max(known, default=-1) or known.get(token.id, token.text) != token.text
    ]
    if new:
        raise SetupError(
            f"The adapter in {folder} was trained with another tokenizer, which lies beside it: {len(new)} of its "
            f"tokens are not {source.name}'s, first {new[0].text!r} ({new[0].id}).",
            "Copy the model's folder, put the adapter's tokenizer files into the copy, and set model.path to it.",
        )
