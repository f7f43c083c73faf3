"""Merge an adapter into base weights in fp32, one tensor in memory at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.contract.facts.exports import ExportKind
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.export.base.kind_check import check_kind
from burnish_engine.export.weights.adapter import read_adapter
from burnish_engine.export.weights.adapter_weights import AdapterWeights, LowRankUpdate
from burnish_engine.export.weights.experts import ExpertPart, StoredStack, stored_stacks
from burnish_engine.export.weights.nf4_merge import round_trip
from burnish_engine.models.checkpoint.checkpoint_tensors import checkpoint_tensors
from burnish_engine.models.checkpoint.gguf_file.folder import gguf_of
from burnish_engine.models.checkpoint.gguf_file.gguf_checkpoint import GgufCheckpoint
from burnish_engine.models.checkpoint.meta_model import meta_model, stored_names
from burnish_engine.models.checkpoint.mtp_layers import is_mtp, mtp_count, mtp_names, with_mtp_layers
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.families import family
from burnish_engine.models.saved_adapters.adapter_files import read_files
from burnish_engine.models.saved_adapters.base_checks import refuse_other_tokens
from burnish_kernels.gguf_blocks.types import BLOCK_TYPES

PLAIN_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
"""Types of unquantized base tensors; a tensor of any other type is quantized."""
_TABLE_TYPES = {"I64", "BOOL"}  # types of tables of whole numbers, such as one of ids
_INNER = "language_model."
"""Beginning of stored names in checkpoints that hold the whole language model, head and all, as one part."""
_QUANTIZED_SUFFIXES = (".absmax", ".quant_map", ".SCB", ".qweight", ".scales", ".weight_scale", ".weight_scale_inv")


class MergedWeights:
    """Read the tensors of a base model, with an adapter merged in, on demand.

    For a model that holds further parts, `names` are the language model's tensors by its own names, and `others` are
    the rest by their names in the files. Layers for multi-token prediction are in `others`; `mtp_names` and
    `mtp_stacks` name them as further layers of the model. Tables of whole numbers, such as each token's expert, are in
    `others` too, and so are experts in MXFP4 that no adapter changes. Adapted ones are unpacked: each stack is one bf16
    tensor, which holds MXFP4's values exactly.

    Every export of an adapter is made from here, so an adapter is refused for the same reasons by all of them.

    Args:
        source: base model.
        adapter: folder of the PEFT adapter, or None for the base alone.
        rounded: names of base tensors that are rounded to NF4 and back before the adapter is added, and of stacks of
            experts in transformers' model.
        kind: kind of export, whose refusals apply.

    Raises:
        UsageError: This kind of export does not work for the model: the base is quantized, say, or the adapter cannot
            be merged into it.
        SetupError: A file is missing or damaged, or the adapter belongs to another model.
    """

    unties = False
    """Whether the adapter makes head and embedding differ, so that the merged model has a head of its own."""

    def __init__(
        self,
        source: ModelSource,
        adapter: Path | None,
        rounded: Collection[str] = frozenset(),
        kind: ExportKind = "safetensors",
    ) -> None:
        check_kind(kind, source, adapter)
        if adapter is not None:
            refuse_other_tokens(read_files(adapter), source)
        self.source, self._rounded = source, rounded
        stored = checkpoint_tensors(source.folder)
        own = _own_names(source, sorted(stored))
        self.stacks = stored_stacks(family(source.spec.family) if source.spec else None, source.spec, own)
        whole = [stack for stack in self.stacks.values() if not stack.is_separate]
        self._whole = {stack.tensor(0, stack.parts[0]): stack for stack in whole}
        self._unpacked = {name: stack for name, stack in self._whole.items() if stack.is_mxfp4}
        packed = {name: own.pop(name) for stack in self._unpacked.values() for name in stack.stored.tensors}
        self._stored = {name: place for name, place in own.items() if stored[place].dtype not in _TABLE_TYPES}
        if not source.has_drafts:
            stored = {name: tensor for name, tensor in stored.items() if not is_mtp(name)}
        mtp = mtp_names(stored, source.spec.num_layers) if source.spec else {}
        self.mtp_names, self.mtp_stacks = list(mtp), _mtp_stacks(source, mtp)
        self._tensors = stored | {name: stored[place] for name, place in (packed | self._stored | mtp).items()}
        self._open: dict[Path, Any] = {}
        self._gguf = GgufCheckpoint(source.folder) if gguf_of(source.folder) else None
        self._rounded_experts = _separate_experts([stack for stack in self.stacks.values() if stack.path in rounded])
        self.adapter: AdapterWeights | None = self._renamed(read_adapter(adapter)) if adapter is not None else None
        self._embedding, self._head = _table_names(source, self._stored)
        self.unties = self._untie()
        self.unpacks_mxfp4 = bool(packed) and self.adapter is not None and bool(self.adapter.stacks)
        left_out = [*self._stored.values(), *(packed.values() if self.unpacks_mxfp4 else ())]
        self.others = sorted(stored.keys() - set(left_out))
        self._refuse_quantized_tensors()
        self._unused = set(self.adapter.targets) if self.adapter else set()
        self._check_targets()

    @property
    def onto_rounded(self) -> bool:
        """Whether the adapter is added to weights rounded to NF4 rather than to the base's own."""
        return bool(self._rounded)

    def is_rounded(self, name: str) -> bool:
        """Whether a tensor, or a stack of experts, is rounded to NF4 before the adapter is added."""
        return name in self._rounded

    @property
    def names(self) -> list[str]:
        """Names of the language model's tensors, in the order of the files; unpacked stacks of experts last."""
        own_head = [self._head] if self.unties and self._head not in self._stored else []
        return [*self._stored, *own_head, *(self._unpacked if self.unpacks_mxfp4 else ())]

    @property
    def spec(self) -> DecoderSpec | None:
        """Specification of the merged model: the base's, but with a head of its own where the adapter unties it."""
        spec = self.source.spec
        return spec.model_copy(update={"tied_embeddings": False}) if spec is not None and self.unties else spec

    @property
    def expert_names(self) -> frozenset[str]:
        """The names, of all `names` and `mtp_names`, of tensors that hold matrices or biases of experts."""
        stacks = [*self.stacks.values(), *self.mtp_stacks]
        held = {name for stack in stacks for name in (*stack.stored.tensors, stack.bias)}
        return frozenset(held.intersection((*self._stored, *self.mtp_names)) | self._unpacked.keys())

    def shape(self, name: str) -> tuple[int, ...]:
        """Return a tensor's shape without reading the tensor."""
        unpacked = self._unpacked.get(name)
        return unpacked.shape if unpacked else self._tensors[self._read_for(name)].shape

    def base_dtype(self, name: str) -> str:
        """Return a tensor's type in the checkpoint, such as BF16, without reading the tensor; of unpacked ones BF16.

        BF16 is also that of weights which are decoded from a GGUF's blocks.
        """
        kind = "BF16" if name in self._unpacked else self._tensors[self._read_for(name)].dtype
        return "BF16" if kind in BLOCK_TYPES else kind

    def stored_name(self, name: str) -> str:
        """Return a tensor's name in the files of the base; of a head that it lacks, in those of the merged model."""
        if name == self._head and name not in self._stored and self._stored.get(self._embedding, "").startswith(_INNER):
            return f"{_INNER}{name}"
        return self._stored.get(name, name)

    def load_other(self, name: str) -> torch.Tensor:
        """Load a tensor of `others` unchanged."""
        return self._read(name)

    def load(self, name: str) -> torch.Tensor:
        """Load a merged tensor in fp32.

        Raises:
            SetupError: The adapter's shapes do not fit the base's.
        """
        if name in self._whole:
            return torch.stack(list(self.pieces(name)))
        self._unused.discard(name)
        return self._base(name) if self.adapter is None else self.adapter.merged(name, lambda: self._base(name))

    def pieces(self, name: str) -> Iterator[torch.Tensor]:
        """Load a merged tensor in fp32 in pieces along its first dimension: a stack expert by expert, others whole."""
        stack = self._whole.get(name)
        if stack is None:
            yield self.load(name)
            return
        for expert in range(stack.stack.experts):
            matrix = torch.empty(stack.stack.rows, stack.stack.columns)
            for part in stack.parts:
                matrix[stack.rows(part)] = self.load_expert(stack, expert, part)
            yield matrix.T if stack.is_transposed else matrix

    def load_expert(self, stack: StoredStack, expert: int, part: ExpertPart) -> torch.Tensor:
        """Load one merged matrix of an expert in fp32 [out, in].

        Args:
            stack: one of `stacks`.
            expert: number of the expert.
            part: one of the stack's parts.
        """
        if stack.is_separate:
            return self.load(stack.tensor(expert, part))
        if stack.path in self._rounded:
            matrix = self._rounded_matrix(stack, expert)[stack.rows(part)]
        else:
            matrix = stack.read(expert, part, self._slice)
        update = self._stack_update(stack, expert, part)
        if update is None:
            return matrix
        if expert == stack.stack.experts - 1 and part == stack.parts[-1]:
            self._unused.discard(stack.path)
        return update.merged(matrix)

    def load_packed(self, stack: StoredStack, expert: int, part: ExpertPart) -> tuple[torch.Tensor, torch.Tensor]:
        """Load one matrix that `keeps_mxfp4`, as codes [out, in / 32, 16] and exponents [out, in / 32], uint8."""
        return stack.read_packed(expert, part, self._slice)

    def load_slice(self, name: str, index: int) -> torch.Tensor:
        """Load one entry of a stored tensor's first dimension as it is in the files, without an adapter."""
        entry: torch.Tensor = self._slice(name)[index]
        return entry

    def keeps_mxfp4(self, stack: StoredStack) -> bool:
        """Whether a stack is in MXFP4 and no adapter changes it."""
        return stack.is_mxfp4 and (self.adapter is None or stack.path not in self.adapter.stacks)

    def check_all_used(self) -> None:
        """Check that every tensor of the adapter went into a tensor that was read.

        Raises:
            SetupError: A tensor did not, so the result is not the trained model.
        """
        if self._unused:
            raise SetupError(
                f"{len(self._unused)} tensors of the adapter were not used, first {min(self._unused)}; the "
                "result would not be the trained model.",
                "Please report this with the model's name.",
            )

    def _base(self, name: str) -> torch.Tensor:
        """Load a tensor of the base in fp32, rounded to NF4 and back where that is wanted."""
        if (place := self._rounded_experts.get(name)) is not None:
            stack, expert, part = place
            return self._rounded_matrix(stack, expert)[stack.rows(part)]
        weight = self._read(self._read_for(name)).float()
        return round_trip(weight) if name in self._rounded else weight

    def _rounded_matrix(self, stack: StoredStack, expert: int) -> torch.Tensor:
        """Round one expert's matrix of a stack [rows, columns] to NF4 and back: its parts together, as in training."""
        matrix = torch.empty(stack.stack.rows, stack.stack.columns)
        for part in stack.parts:
            if stack.is_separate:
                matrix[stack.rows(part)] = self._read(stack.tensor(expert, part)).float()
            else:
                matrix[stack.rows(part)] = stack.read(expert, part, self._slice)
        return round_trip(matrix)

    def _read(self, name: str) -> torch.Tensor:
        """Read a tensor of the files, without an adapter, in the type that it is stored in; blocks in fp32."""
        if self._gguf is not None:
            return self._gguf.read(self._tensors[name].name)
        tensor: torch.Tensor = self._file(name).get_tensor(self._tensors[name].name)
        return tensor

    def _slice(self, name: str) -> Any:
        name = self._read_for(name)
        return self._file(name).get_slice(self._tensors[name].name)

    def _read_for(self, name: str) -> str:
        """Return the tensor that is read for a name: the embedding for the head of a model that has none of its own."""
        return self._embedding if self.unties and name == self._head else name

    def _stack_update(self, stack: StoredStack, expert: int, part: ExpertPart) -> LowRankUpdate | None:
        update = self.adapter.stacks.get(stack.path) if self.adapter is not None else None
        return None if update is None else update.of_expert(expert, stack.rows(part))

    def _file(self, name: str) -> Any:
        from safetensors import SafetensorError, safe_open

        path = self._tensors[name].file
        if path not in self._open:
            try:
                self._open[path] = safe_open(path, framework="pt")
            except (SafetensorError, OSError) as error:
                raise SetupError(f"{path} cannot be read: {error}.", "Download the file again.") from error
        return self._open[path]

    def _renamed(self, adapter: AdapterWeights) -> AdapterWeights:
        """Give an adapter's parts the names of the stored tensors, where transformers names these anew on loading."""
        if self.stacks:
            return self._on_experts(adapter)
        if self.source.spec is not None or adapter.targets <= self._stored.keys():
            return adapter  # families with a specification keep their names
        names = stored_names(self.source.config, self._stored)
        return adapter.renamed(lambda name: names.get(name, name))

    def _untie(self) -> bool:
        """Return whether the adapter makes head and embedding differ; where the two stay one, only the latter counts.

        transformers ties them if the config says so and the files hold no other head.
        """
        adapter, spec = self.adapter, self.source.spec
        tied = spec.tied_embeddings if spec is not None else self._head not in self._stored
        if adapter is None or not tied or not {self._embedding, self._head} & adapter.targets:
            return False
        if self._head in self._stored and not torch.equal(self._slice(self._head)[:], self._slice(self._embedding)[:]):
            return False
        if adapter.unties(self._embedding, self._head):
            return True
        self.adapter = adapter.without(self._head)
        return False

    def _on_experts(self, adapter: AdapterWeights) -> AdapterWeights:
        """Give updates the names of the files: one for each expert that has its own tensors; routers keep theirs."""
        routers = {path.partition(".experts.")[0]: self._place(stack) for path, stack in self.stacks.items()}
        updates = {_moved(name, routers): update for name, update in adapter.updates.items()}
        stacks = dict(adapter.stacks)
        for path, update in adapter.stacks.items():
            stack = self.stacks.get(path)
            if stack is None:
                continue  # `_check_targets` tells
            shape = (update.experts, len(update.b), update.a.shape[1])
            if shape != (stack.stack.experts, stack.stack.rows, stack.stack.columns):
                raise SetupError(
                    f"The adapter's update of {path} is of {shape[0]} experts of the shape {list(shape[1:])}; "
                    f"{self.source.name} has {stack.stack.experts} of {[stack.stack.rows, stack.stack.columns]} there.",
                    "Use the adapter with the model it was trained on.",
                )
            if stack.is_separate:
                del stacks[path]
                for expert in range(stack.stack.experts):
                    for part in stack.parts:
                        updates[stack.tensor(expert, part)] = update.of_expert(expert, stack.rows(part))
        return replace(adapter, updates=updates, stacks=stacks)

    @staticmethod
    def _place(stack: StoredStack) -> str:
        """Name of the feed-forward around a stack's experts in the files."""
        return next(iter(stack.stored.tensors)).partition(".experts.")[0]

    def _refuse_quantized_tensors(self) -> None:
        for name in self._stored:
            kind = self.base_dtype(name)
            if kind not in PLAIN_DTYPES or name.endswith(_QUANTIZED_SUFFIXES):
                raise UsageError(
                    f"The base model {self.source.name} holds quantized weights ({name} is {kind}).",
                    "Export with the same model in 16 bit as the base.",
                )

    def _check_targets(self) -> None:
        if self.adapter is None:
            return
        unknown = sorted(self.adapter.targets - set(self.names) - self.stacks.keys())
        if unknown:
            biases = unknown[0] in self.adapter.shifts
            raise SetupError(
                f"The adapter in {self.adapter.folder} changes {len(unknown)} tensors that {self.source.name} does not "
                f"have, first {unknown[0]}.",
                "Layers without a bias cannot be merged with lora_bias; export the adapter itself (--to adapter)."
                if biases
                else "Use the adapter with the model it was trained on.",
            )
        for name, update in self.adapter.updates.items():
            shape = (update.b.shape[0], update.a.shape[1])
            self._check_shape(name, shape[::-1] if update.embedding else shape)
        for name, tensor in (*self.adapter.replacements.items(), *self.adapter.shifts.items()):
            self._check_shape(name, tuple(tensor.shape))
        for name, rows in self.adapter.rows.items():
            least = int(rows.tokens.max()) + 1
            self._check_shape(name, (max(self.shape(name)[0], least), rows.values.shape[1]))

    def _check_shape(self, name: str, shape: tuple[int, ...]) -> None:
        if self.shape(name) != shape:
            raise SetupError(
                f"The adapter's update of {name} has the shape {list(shape)}; {self.source.name} has "
                f"{list(self.shape(name))} there.",
                "Use the adapter with the model it was trained on.",
            )


def _own_names(source: ModelSource, stored: list[str]) -> dict[str, str]:
    """Map the names of the language model's tensors, as an adapter knows them, to those in the files."""
    own = {name: name for name in stored if not is_mtp(name)}
    own = source.wrapper.language_model(own) if source.wrapper else own
    known = family(source.spec.family) if source.spec else None
    if known is None or source.spec is None:
        return own
    loaded = {f"{known.stored_path(one.path)}.weight": f"{one.path}.weight" for one in known.modules(source.spec)}
    return {loaded.get(name, name): place for name, place in own.items()}


def _mtp_stacks(source: ModelSource, names: Collection[str]) -> list[StoredStack]:
    """Find the stacks of experts of layers for multi-token prediction, which have such names."""
    if source.spec is None or not names:
        return []
    whole = with_mtp_layers(source.spec, mtp_count(names, source.spec.num_layers))
    stacks = stored_stacks(family(source.spec.family), whole, names)
    return [stack for stack in stacks.values() if stack.stack.layer >= source.spec.num_layers]


def _separate_experts(stacks: list[StoredStack]) -> dict[str, tuple[StoredStack, int, ExpertPart]]:
    """Find the stack, expert and part of each tensor that holds one matrix of an expert."""
    return {
        stack.tensor(expert, part): (stack, expert, part)
        for stack in stacks
        if stack.is_separate
        for expert in range(stack.stack.experts)
        for part in stack.parts
    }


def _table_names(source: ModelSource, files: Collection[str]) -> tuple[str, str]:
    """Return the names of embedding and head: in the files, or of a head that they do not hold in the model."""
    if source.spec is not None:
        return "model.embed_tokens.weight", "lm_head.weight"
    model = meta_model(source.config)
    tables = (model.get_input_embeddings(), model.get_output_embeddings())
    paths = {id(module): name for name, module in model.named_modules()}
    embedding, head = (f"{paths.get(id(table), '')}.weight" for table in tables)
    names = stored_names(source.config, files)
    return names.get(embedding, embedding), names.get(head, head)


def _moved(name: str, places: dict[str, str]) -> str:
    """Return a name whose feed-forward is called as in the files."""
    parts = name.split(".")
    place = ".".join(parts[:4])
    return ".".join([places.get(place, place), *parts[4:]])
