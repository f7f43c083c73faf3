"""Write a model as a 16-bit GGUF: metadata, vocabulary, and merged tensors, one in memory at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from burnish_engine.advise.facts.gguf_rules import gguf_refusal, gguf_rules
from burnish_engine.advise.facts.gguf_size import type_bytes
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.files import read_plain
from burnish_engine.contract.paths import safe_name
from burnish_engine.contract.wording.tables import EXPORT_STAGES
from burnish_engine.export.base.staging import Canceled, never, stop_if
from burnish_engine.export.gguf.planned_tensors import PlannedTensor, file_spec, layer_numbers, plan_tensors
from burnish_engine.export.gguf.pre_tokenizer import PRE_KEY, choose_pre_tokenizer
from burnish_engine.export.gguf.vocabulary import Vocabulary, read_vocabulary
from burnish_engine.export.weights.folders import Progress, no_progress, to_dtype
from burnish_engine.export.weights.merge import MergedWeights
from burnish_engine.models.checkpoint.gguf_file.header import ADAPTER_DIGEST, DEQUANTIZED, MERGED_ONTO, MODEL_DIGEST
from burnish_engine.models.checkpoint.gguf_file.tensor_names import name_map
from burnish_engine.models.checkpoint.source import ModelSource, generation_ends
from burnish_engine.models.families.rules.gguf import GgufRules, Metadata

_FILE_TYPES = {"F32": 0, "F16": 1, "BF16": 32}  # llama_ftype, llama.h
_ALIGNMENT = 32  # GGUF_DEFAULT_ALIGNMENT
_NAME_TRAPS = re.compile(r"(phi|modern)[-_ ]?(?=3|bert)", re.IGNORECASE)
"""Names with phi3, phi-3 or modern-bert enable token rules in libllama that crash other vocabularies
(llama-vocab.cpp, "set attributes by model/tokenizer/architecture name")."""
_PHI3_TOKENS = {"<unk>", "<s>", "</s>", "<|endoftext|>"}
"""Tokens that those rules require for phi-3."""


@dataclass(frozen=True)
class GgufPlan:
    """Complete content of a file, before any weight is read; tests inject faults here."""

    architecture: str  # value of `general.architecture`
    general: Metadata  # whole keys, such as `general.name`
    metadata: Metadata  # keys that get the architecture's prefix
    vocabulary: Vocabulary  # content of the tokenizer keys
    pre_tokenizer: str  # value of `tokenizer.ggml.pre`; empty for vocabularies without one
    tensors: list[PlannedTensor] = field(default_factory=list)  # all tensors, in order
    name_map: Callable[[str], str | None] = lambda _name: None  # function from base tensor name to GGUF name

    @property
    def queries_per_key(self) -> int:
        """Query heads per key head in the first layer, as llama.cpp counts them; 0 where there are no key heads."""
        heads, keys = self.metadata["attention.head_count"], self.metadata["attention.head_count_kv"]
        first = keys[0] if isinstance(keys, list) else keys
        return int(heads) // int(first) if first and not isinstance(heads, list) else 0

    @property
    def drafting(self) -> list[PlannedTensor]:
        """Matrices of layers for multi-token prediction, whose inputs no row of text makes known."""
        counts = [self.metadata.get(key, 0) for key in ("block_count", "nextn_predict_layers")]
        every, further = (count if isinstance(count, int) else 0 for count in counts)
        begins = tuple(f"blk.{layer}." for layer in range(every - further, every))
        return [one for one in self.tensors if one.name.startswith(begins) and not one.full_precision]

    @property
    def experts(self) -> int:
        """Number of experts of a layer; 0 for dense models."""
        count = self.metadata.get("expert_count", 0)
        return count if isinstance(count, int) else 0


def plan_gguf(
    source: ModelSource,
    weights: MergedWeights,
    tokenizer: Any,
    name: str,
    *,
    expected: Sequence[tuple[str, list[int]]],
    scratch: Path,
) -> GgufPlan:
    """Plan the content of a file, testing llama.cpp's pre-tokenizers.

    Args:
        source: The base model.
        weights: weights of the model, with the adapter merged in.
        tokenizer: tokenizer of the model.
        name: name of the model.
        expected: texts with their right token ids.
        scratch: folder for a small temporary file.

    Raises:
        UsageError: The family, or a feature of this model, cannot be exported to GGUF.
        FidelityError: No pre-tokenizer of llama.cpp splits text as this tokenizer does.
    """
    model_type = str(source.config.get("model_type"))
    refused = gguf_refusal(model_type, source.spec, source.config, source.name)
    spec = weights.spec
    if refused is not None or spec is None:
        raise UsageError(*(refused or ("The model's shape is not known.",)))
    rules = gguf_rules(model_type)
    own, spec = spec.num_layers, file_spec(rules, spec, weights)
    rows = weights.shape("model.embed_tokens.weight")[0]
    vocabulary = read_vocabulary(tokenizer, rows, declared_stops(source), merges_as=rules.merges_as)
    plan = GgufPlan(
        architecture=rules.architecture,
        general={
            **_general(source, weights, _descriptive_name(name, vocabulary)),
            **layer_numbers(rules, spec, weights),
        },
        metadata={
            **rules.all_metadata(spec, source.config),
            **_mtp_metadata(spec.num_layers - own),
            "vocab_size": rows,
        },
        vocabulary=vocabulary,
        pre_tokenizer="",
        tensors=plan_tensors(rules, spec, weights),
        name_map=name_map(rules, spec.num_layers),
    )
    if vocabulary.model != "gpt2":
        return plan
    return replace(plan, pre_tokenizer=_try_pre_tokenizers(plan, rules, expected, scratch))


def _mtp_metadata(layers: int) -> Metadata:
    """Return the key by which llama.cpp tells layers for multi-token prediction from the model's own before them."""
    return {"nextn_predict_layers": layers} if layers else {}


def write_gguf(
    plan: GgufPlan,
    path: Path,
    file_type: str = "F16",
    *,
    progress: Progress = no_progress,
    canceled: Canceled = never,
) -> None:
    """Write the file. Weights are rounded once, from fp32; one-dimensional tensors stay fp32.

    Args:
        plan: content of the file.
        path: file to write, in a staging folder.
        file_type: "F16", "BF16", or "F32" to compare without rounding.
        progress: callback given the share of bytes written.
        canceled: callback polled between tensors; True stops the work.

    Raises:
        FidelityError: A weight is beyond the range of the type.
        OSError: The disk is full; the staging folder's guard turns it into NoSpaceError.
        StoppedError: Canceled.
    """
    writer = _open_writer(plan, path, file_type)
    try:
        sizes = [_add_info(writer, tensor, file_type) for tensor in plan.tensors]
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        done, total, stream = 0, sum(sizes), writer.fout[0]
        writer.write_padding(stream, stream.tell())
        for tensor, size in zip(plan.tensors, sizes, strict=True):
            written = 0
            for piece in _pieces(tensor, file_type):
                stop_if(canceled, "The export")
                piece.tofile(stream)
                written += piece.nbytes
                progress(EXPORT_STAGES["write"], (done + written) / total)
            if written != size:
                raise UsageError(
                    f"{tensor.name} has {written} bytes where {size} were expected.",
                    "Check that adapter and base belong together.",
                )
            writer.write_padding(stream, size)
            done += size
    finally:
        writer.close()


def header_bytes(plan: GgufPlan, scratch: Path) -> int:
    """Compute the size of the header, which is equal for every file type, bytes.

    Args:
        plan: content of the file.
        scratch: folder for a small temporary file.
    """
    path = scratch / "header.gguf"
    writer = _open_writer(plan, path, "F16")
    try:
        for tensor in plan.tensors:
            _add_info(writer, tensor, "F16")
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
    finally:
        writer.close()
    size = path.stat().st_size
    path.unlink()
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def clean_name(name: str) -> str:
    """Make a model name safe as `general.name`: no path parts, and no name that libllama treats specially."""
    return _NAME_TRAPS.sub(r"\1 v", safe_name(name, "model"))


def _descriptive_name(name: str, vocabulary: Vocabulary) -> str:
    """Choose the `general.name`, from which libllama derives how special tokens treat white space."""
    clean = clean_name(name)
    known = set(vocabulary.tokens) >= _PHI3_TOKENS
    return f"{clean} phi-3" if vocabulary.swallows_space and known else clean


def _open_writer(plan: GgufPlan, path: Path, file_type: str) -> Any:
    import gguf

    writer = gguf.GGUFWriter(path, plan.architecture)
    for key, value in plan.general.items():
        _add(writer, key, value)
    writer.add_file_type(_FILE_TYPES[file_type])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for key, value in plan.metadata.items():
        _add(writer, f"{plan.architecture}.{key}", value)
    _add_vocabulary(writer, plan)
    return writer


def _add(writer: Any, key: str, value: float | bool | str | Sequence[float]) -> None:
    add: Callable[[str, Any], None]
    if isinstance(value, list):
        add = writer.add_array
    elif isinstance(value, bool):
        add = writer.add_bool
    elif isinstance(value, int):
        add = writer.add_uint32
    elif isinstance(value, float):
        add = writer.add_float32
    else:
        add = writer.add_string
    add(key, value)


def _add_vocabulary(writer: Any, plan: GgufPlan) -> None:
    vocabulary = plan.vocabulary
    writer.add_tokenizer_model(vocabulary.model)
    if plan.pre_tokenizer:
        writer.add_string(PRE_KEY, plan.pre_tokenizer)
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(vocabulary.types)
    if vocabulary.merges:
        writer.add_token_merges(vocabulary.merges)
    if vocabulary.scores:
        writer.add_token_scores(vocabulary.scores)
    for key, token in vocabulary.special.items():
        writer.add_uint32(f"tokenizer.ggml.{key}", token)
    writer.add_add_bos_token(vocabulary.add_bos)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(vocabulary.add_space_prefix)
    if vocabulary.chat_template:
        writer.add_chat_template(vocabulary.chat_template)


def _try_pre_tokenizers(
    plan: GgufPlan, rules: GgufRules, expected: Sequence[tuple[str, list[int]]], scratch: Path
) -> str:
    path = scratch / "vocabulary.gguf"
    writer = _open_writer(replace(plan, pre_tokenizer="default"), path, "F16")
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
    finally:
        writer.close()
    try:
        return choose_pre_tokenizer(path, expected, rules.pre_tokenizers)
    finally:
        path.unlink(missing_ok=True)


def _add_info(writer: Any, tensor: PlannedTensor, file_type: str) -> int:
    """Announce a tensor to the writer; return its size in bytes."""
    import gguf

    kind = tensor.type if tensor.packed or tensor.full_precision else file_type
    size = type_bytes(tensor.shape, kind)
    numbers = np.dtype("float32")  # any but bytes, whose shape the writer would take for that of the rows' bytes
    writer.add_tensor_info(tensor.name, tensor.shape, numbers, size, raw_dtype=gguf.GGMLQuantizationType[kind])
    return size


def _pieces(tensor: PlannedTensor, file_type: str) -> Iterator[npt.NDArray[Any]]:
    """Make a tensor, and yield its bytes in one piece, or matrix by matrix."""
    made = tensor.make()
    whole = isinstance(made, torch.Tensor)
    wanted = tensor.shape if whole else tensor.shape[1:]
    for value in (made,) if isinstance(made, torch.Tensor) else made:
        if tensor.packed:
            yield value.numpy()
            continue
        if tuple(value.shape) != wanted:
            raise UsageError(
                f"{tensor.name} has the shape {list(value.shape)} where {list(wanted)} was expected.",
                "Check that adapter and base belong together.",
            )
        yield _array(to_dtype(tensor.name, value, "F32" if tensor.full_precision else file_type))


def _array(value: torch.Tensor) -> npt.NDArray[Any]:
    """Convert to little-endian numbers for the writer; numpy has no bf16, so 16-bit types travel as their bits."""
    value = value.contiguous()
    array: npt.NDArray[Any] = (value if value.dtype == torch.float32 else value.view(torch.int16)).numpy()
    return array


def _general(source: ModelSource, weights: MergedWeights, name: str) -> Metadata:
    from burnish_engine.contract.version import burnish_version

    keys: Metadata = {
        "general.type": "model",
        "general.name": name,
        "general.base_model.count": 1,
        "general.base_model.0.name": clean_name(source.name),
        "general.quantized_by": "Burnish",
        "burnish.version": burnish_version(),
    }
    if license_name := _license(source):
        keys["general.license"] = license_name
    if weights.adapter is not None:
        keys[ADAPTER_DIGEST] = weights.adapter.digest
    if weights.onto_rounded:
        keys[MERGED_ONTO] = DEQUANTIZED
    if source.trained_digest:
        keys[MODEL_DIGEST] = source.trained_digest
    return keys


def _license(source: ModelSource) -> str:
    """Read the license, such as apache-2.0, from the front matter of the model's README; empty where it names none."""
    try:
        text = read_plain(source.folder / "README.md")
    except (OSError, UnicodeDecodeError):
        return ""
    match = re.match(r"---\n(?:.*\n)*?license:[ \t]*([\w.\-+ ]{1,60})\n(?:.*\n)*?---", text)
    return match.group(1).strip() if match else ""


def declared_stops(source: ModelSource) -> list[int]:
    """List the tokens that config.json and generation_config.json declare to end a reply."""
    named = source.config.get("eos_token_id")
    own = named if isinstance(named, list) else [] if named is None else [named]
    return [*own, *generation_ends(source.folder)]
