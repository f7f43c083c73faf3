"""Stream a checkpoint's tensors into existing tensors, without a second copy of the model on host or device.

Files are read in pieces into two reused host buffers (pinned where the destination is a GPU, so that one uploads while
the next is read), not memory-mapped: pages of a mapping count as resident and grow to the size of the model. Types are
converted on the destination's device.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import torch

from burnish_engine.contract.errors import SetupError
from burnish_engine.models.checkpoint.checkpoint_tensors import checkpoint_tensors
from burnish_engine.models.checkpoint.safetensors_header import PLAIN_TYPES, StoredTensor
from burnish_engine.models.checkpoint.stored_fp8 import scale_name, values
from burnish_engine.models.checkpoint.wrapper import Wrapper
from burnish_engine.models.families.experts import BLOCKS, SCALES
from burnish_kernels.gguf_blocks.blocks import GgufBlocks

PIECE_BYTES = 32 * 1024 * 1024
"""One of the two host buffers. Larger ones read no faster from an NVMe disk."""
_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn,
}  # fmt: skip


class Checkpoint:
    """The weights of a model folder. Use it as a context manager: it holds open files and buffers.

    Args:
        folder: folder with `model.safetensors`, or an index and its files.
        piece_bytes: size of one host buffer.
        wrapper: layout of the folder's language model, whose tensors alone are then read, by its own names; None: the
            folder holds nothing else.

    Raises:
        SetupError: There are no weights, or a file is damaged; the message names it.
    """

    def __init__(self, folder: Path, piece_bytes: int = PIECE_BYTES, *, wrapper: Wrapper | None = None) -> None:
        self._folder = folder
        tensors = checkpoint_tensors(folder)
        self._tensors = wrapper.language_model(tensors) if wrapper else tensors
        self._piece_bytes = piece_bytes
        self._files: dict[Path, BinaryIO] = {}
        self._buffers: dict[torch.device, _TransferBuffers] = {}

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the files and free the buffers."""
        for file in self._files.values():
            file.close()
        self._files.clear()
        self._buffers.clear()

    def names(self) -> list[str]:
        """Return the names of all tensors, in no particular order."""
        return list(self._tensors)

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor.

        Raises:
            SetupError: There is no such tensor.
        """
        return self._stored(name).shape

    def dtype(self, name: str) -> str:
        """Return the type of a tensor by the format's name, such as BF16.

        Raises:
            SetupError: There is no such tensor.
        """
        return self._stored(name).dtype

    def require(self, shapes: dict[str, tuple[int, ...]]) -> None:
        """Check before anything large is allocated that tensors exist, in these shapes and types.

        The type is a floating-point one; of a stack of experts in MXFP4, U8; FP8 with scales beside it; or GGUF's
        blocks.

        Raises:
            SetupError: Some are missing or differ; the message names the first.
        """
        self._check_present(shapes)
        for name, shape in shapes.items():
            stored = self._tensors[name]
            if stored.shape != tuple(shape):
                raise SetupError(
                    f"The tensor {name} in {stored.file} has the shape {list(stored.shape)}; config.json says "
                    f"{list(shape)}.",
                    "Download the model again: config and weights are of different models.",
                )
            is_packed = (name.endswith((BLOCKS, SCALES)) and stored.dtype == "U8") or bool(self.block_type(name))
            if stored.dtype not in PLAIN_TYPES and not is_packed and not self._is_fp8(name):
                raise SetupError(
                    f"The tensor {name} in {stored.file} is stored as {stored.dtype}, not as F32, F16 or BF16.",
                    "Use the model's original, not quantized files.",
                )

    def read(self, name: str) -> torch.Tensor:
        """Return one tensor as stored, on the CPU. Meant for small ones: it is allocated whole.

        Raises:
            SetupError: There is no such tensor, or it cannot be read.
        """
        stored = self._stored(name)
        if stored.dtype not in _DTYPES:
            raise SetupError(f"The tensor {name} in {stored.file} is stored as {stored.dtype}.", "Use other files.")
        found = torch.empty(stored.shape, dtype=_DTYPES[stored.dtype])
        if found.numel():
            self._fill(found.reshape(-1).view(torch.uint8), stored, stored.start)
        return found

    def read_into(self, name: str, destination: torch.Tensor, rows: slice | None = None) -> None:
        """Fill a tensor, converting its type on the destination's device; FP8 is multiplied with its scales.

        On a GPU the copy is queued on the current stream; whatever runs on that stream afterwards sees it.

        Args:
            name: floating-point tensor of the checkpoint, or one in MXFP4 for a destination of bytes.
            destination: tensor to fill, with the shape of the tensor or of its rows; any strides, so it may be part of
                a larger one.
            rows: range of rows (first dimension) of the stored tensor, with step 1; None for all.

        Raises:
            SetupError: There is no such tensor, its shape or type does not fit, or it cannot be read.
        """
        stored = self._stored(name)
        first, count = _range(stored, rows)
        wanted = (count, *stored.shape[1:]) if stored.shape else ()
        if tuple(destination.shape) != wanted:
            raise SetupError(
                f"The tensor {name} in {stored.file} has the shape {list(wanted)} where {list(destination.shape)} was "
                "expected.",
                "Download the model again: config and weights are of different models.",
            )
        self.require({name: stored.shape})
        if not destination.numel():
            return
        if self._is_fp8(name):
            assert rows is None  # of matrices that are read whole
            scales = self.read(scale_name(name, self))
            destination.detach().copy_(values(name, self.read(name), scales, destination.device))
            return
        dtype = _DTYPES[stored.dtype]
        target = destination.detach()
        if not stored.shape:
            target = target.reshape(1)
        row_bytes = (stored.end - stored.start) // max(1, stored.shape[0] if stored.shape else 1)
        buffers = self._buffers_for(destination.device, row_bytes)
        step = buffers.size // row_bytes
        for done in range(0, count, step):
            part = target[done : done + step]
            host = buffers.take(part.shape[0] * row_bytes)
            self._fill(host, stored, stored.start + (first + done) * row_bytes)
            buffers.put(host, dtype, part)

    def block_type(self, name: str) -> str:  # noqa: ARG002
        """Return the GGUF type of a weight that is stored in its blocks; empty for other tensors."""
        return ""

    def read_blocks(self, name: str) -> GgufBlocks:
        """Return a weight that is stored in blocks of GGUF (`block_type`), on the CPU.

        Raises:
            SetupError: There is no such tensor, or it cannot be read.
        """
        raise SetupError(f"The tensor {name} in {self._folder} is not stored in blocks.", "Use other files.")

    def _is_fp8(self, name: str) -> bool:
        """Return whether a weight is stored in FP8, with scales beside it."""
        return self._tensors[name].dtype == "F8_E4M3" and bool(scale_name(name, self))

    def _stored(self, name: str) -> StoredTensor:
        self._check_present([name])
        return self._tensors[name]

    def _check_present(self, names: Iterable[str]) -> None:
        missing = [name for name in names if name not in self._tensors]
        if missing:
            count = f"{len(missing)} tensors, first {missing[0]}" if len(missing) > 1 else f"the tensor {missing[0]}"
            raise SetupError(f"The weights in {self._folder} lack {count}.", "Download the model again.")

    def _buffers_for(self, device: torch.device, row_bytes: int) -> _TransferBuffers:
        found = self._buffers.get(device)
        if found is None or found.size < row_bytes:
            found = self._buffers[device] = _TransferBuffers(device, max(self._piece_bytes, row_bytes))
        return found

    def _fill(self, host: torch.Tensor, stored: StoredTensor, position: int) -> None:
        """Read the bytes from `position` of the tensor's file until the buffer is full."""
        view = memoryview(host.numpy())
        try:
            file = self._files.get(stored.file)
            if file is None:
                file = self._files[stored.file] = stored.file.open("rb", buffering=0)
            file.seek(position)
            while view:
                got = file.readinto(view)  # type: ignore[attr-defined]  # raw files have it
                if not got:
                    raise SetupError(f"{stored.file} ends within {stored.name}.", "Download the file again.")
                view = view[got:]
        except OSError as error:
            raise SetupError(
                f"{stored.file} cannot be read: {error.strerror or error}.", "Check permissions and disk."
            ) from error


class _TransferBuffers:
    """Two host buffers, and two device buffers for a GPU, used in turn.

    Attributes:
        size: bytes of one buffer.
    """

    def __init__(self, device: torch.device, size: int) -> None:
        self.size = size
        self._uploads = device.type == "cuda"
        # On the CPU nothing happens meanwhile: one buffer does.
        count = 2 if self._uploads else 1
        self._host = [torch.empty(size, dtype=torch.uint8, pin_memory=self._uploads) for _ in range(count)]
        self._device = [
            torch.empty(size, dtype=torch.uint8, device=device) for _ in range(count if self._uploads else 0)
        ]
        self._free: list[torch.cuda.Event | None] = [None] * count
        self._turn = 0

    def take(self, count: int) -> torch.Tensor:
        """Return the first `count` bytes of the next host buffer, free to be written."""
        self._turn = (self._turn + 1) % len(self._host)
        event = self._free[self._turn]
        if event is not None:
            event.synchronize()
        return self._host[self._turn][:count]

    def put(self, host: torch.Tensor, dtype: torch.dtype, destination: torch.Tensor) -> None:
        """Convert the content of the buffer just taken into the destination."""
        if not self._uploads:
            destination.copy_(host.view(dtype).view(destination.shape))
            return
        there = self._device[self._turn][: host.numel()]
        there.copy_(host, non_blocking=True)
        destination.copy_(there.view(dtype).view(destination.shape))
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(destination.device))
        self._free[self._turn] = event


def _range(stored: StoredTensor, rows: slice | None) -> tuple[int, int]:
    """Return the first row and the number of rows."""
    if not stored.shape:
        return 0, 1
    first, end, step = (rows or slice(None)).indices(stored.shape[0])
    if step != 1:
        raise ValueError(f"rows with a step of {step}")
    return first, max(0, end - first)
