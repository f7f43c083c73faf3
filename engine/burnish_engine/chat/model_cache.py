"""Keep the model of the last chat loaded, so that the next turn starts at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from burnish_engine.chat.backend import ChatBackend
from burnish_engine.chat.device import chat_device
from burnish_engine.chat.gguf_chat import GgufChat
from burnish_engine.chat.target import FileTarget, ModelTarget

if TYPE_CHECKING:
    from burnish_engine.chat.torch_chat import TorchChat

FileStamp = tuple[str, int, int]
"""Path, time of change and size of a file; a rewritten file has another stamp."""


@dataclass(frozen=True)
class _Key:
    model: FileStamp
    adapter: FileStamp | None
    device: str
    template: str = ""


class ModelCache:
    """Hold at most one loaded model; belongs to one thread at a time."""

    def __init__(self) -> None:
        self._key: _Key | None = None
        self._backend: ChatBackend | None = None

    def get(self, target: FileTarget | ModelTarget) -> tuple[ChatBackend, str]:
        """Return the back end for a target, loading it where it is not the last one.

        Returns:
            Back end, and its name with a remark on where it computes.

        Raises:
            BurnishError: The model cannot be loaded.
        """
        if isinstance(target, FileTarget):
            backend = self._file(target.path)
            return backend, backend.name
        return self._model(target)

    def clear(self) -> None:
        """Free the model."""
        if self._backend is not None:
            self._backend.close()
        self._key = self._backend = None

    def _file(self, path: Path) -> ChatBackend:
        key = _Key(_stamp(path), None, "cpu")
        if self._backend is None or self._key != key:
            self.clear()
            self._backend = GgufChat(path)
            self._key = key
        return self._backend

    def _model(self, target: ModelTarget) -> tuple[ChatBackend, str]:
        from burnish_engine.chat.torch_chat import TorchChat
        from burnish_engine.models.device.device import choose_precision

        device, training = chat_device(target.devices)
        source = target.open()
        adapter = _stamp(target.adapter / "adapter_model.safetensors") if target.adapter else None
        key = _Key(_stamp(source.folder / "config.json"), adapter, str(device), source.chat_template)
        backend: TorchChat
        if isinstance(self._backend, TorchChat) and self._key is not None and _serves(self._key, key, target.tuned):
            backend = self._backend
        else:
            self.clear()
            precision = choose_precision("auto", device)
            backend = TorchChat(source, target.adapter, precision=precision, device=device, label=target.label)
            self._backend, self._key = backend, key
        backend.use_adapter(target.tuned)
        return backend, f"{backend.name}, on the CPU: the GPU is training" if training else backend.name


def _serves(loaded: _Key, wanted: _Key, tuned: bool) -> bool:
    """Whether a loaded model answers as the wanted one; as a base it may carry any adapter, switched off."""
    if (loaded.model, loaded.device, loaded.template) != (wanted.model, wanted.device, wanted.template):
        return False
    return not tuned or loaded.adapter == wanted.adapter


def _stamp(path: Path) -> FileStamp:
    """Stamp a file; a missing one raises nothing here, because opening it does."""
    try:
        facts = path.stat()
    except OSError:
        return str(path), 0, 0
    return str(path.resolve()), facts.st_mtime_ns, facts.st_size
