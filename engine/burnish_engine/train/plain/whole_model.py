"""Full fine-tuning on the plain engine: a model whose every weight is trained.

In fp32 the optimizer changes the weights that the model computes with. In bf16 it changes fp32 masters: a bf16 number
has eight significant bits, and most updates are smaller than the last one, so that they would be lost. The model
computes with bf16 copies of the masters, written after each update. Gradients are bf16, like the results of all
products in bf16, and are converted to fp32 at once, where passes are summed.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.files import read_plain
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.transformers_path import plain
from burnish_engine.models.transformers_path.own_dropout import DROPOUT_PART

_BESIDE = ("*.json", "*.jinja", "*.model", "*.txt", "LICENSE*", "NOTICE*", "README.md")
_ONE_FILE = "1000TB"


class WholeModel:
    """A transformers model and the fp32 weights that the optimizer changes.

    Args:
        source: model to start from, or one that `save` wrote.
        precision: compute precision, "fp32" or "bf16".
        device: device of the model.

    Attributes:
        model: transformers model, in evaluation mode.
        parameters: pairs of name and fp32 weight, in a fixed order; tied weights once.

    Raises:
        UsageError: The model's weights are stored quantized.
        SetupError: The model cannot be loaded.
    """

    def __init__(self, source: ModelSource, precision: str, device: torch.device) -> None:
        self._refuse_quantized(source)
        self._source = source
        self.model = plain.load_base(source, precision, device)
        self.model.requires_grad_(True)
        self.parameters: list[tuple[str, torch.nn.Parameter]] = []
        self._copies: list[tuple[torch.nn.Parameter, torch.nn.Parameter]] = []
        exact = self._exact_weights()
        for name, value in plain.trainable_parameters(self.model):
            if value.dtype == torch.float32:
                self.parameters.append((name, value))
                continue
            number = exact[name].to(device) if name in exact else value.detach().float()
            master = torch.nn.Parameter(number)
            value.register_post_accumulate_grad_hook(_gradient_hook(master))
            self.parameters.append((name, master))
            self._copies.append((value, master))
        self.sync_copies()

    @staticmethod
    def _refuse_quantized(source: ModelSource) -> None:
        if source.stored_quantized:
            raise UsageError(
                f"The model {source.name} is stored quantized; rounded weights cannot be trained themselves.",
                'Set adapter.method = "lora", or choose the same model in 16 bits.',
            )

    def collect_gradients(self) -> None:
        """Do nothing: the weights have their gradients already."""

    @torch.no_grad()
    def sync_copies(self) -> None:
        """Copy the current masters into the weights that the model computes with."""
        if self._copies:
            copies, masters = zip(*self._copies, strict=True)
            torch._foreach_copy_(copies, masters)  # a few kernels in place of one each

    def drop_gradients(self) -> None:
        """Drop all gradients, including those of a pass that broke off."""
        self.model.zero_grad(set_to_none=True)
        for _, master in self._copies:
            master.grad = None

    def save(self, folder: Path) -> None:
        """Write the fp32 weights, exactly, as a folder that transformers loads, with tokenizer and license."""
        self._save_weights(folder)
        self._write_beside(folder)

    def _write_beside(self, folder: Path) -> None:
        """Correct config.json, and copy the files that belong to the weights."""
        _finish_config(folder / "config.json", self._source.config)
        (folder / "generation_config.json").unlink(missing_ok=True)
        for pattern in _BESIDE:
            for file in self._source.folder.glob(pattern):
                wanted = file.is_file() and not file.name.endswith((".index.json", "processor_config.json"))
                if wanted and not (folder / file.name).exists():
                    shutil.copyfile(file, folder / file.name)

    def _save_weights(self, folder: Path) -> None:
        masters = {id(copy): master for copy, master in self._copies}
        values = self.model.state_dict(keep_vars=True)
        saved = {id(value): _unshared(masters.get(id(value), value).detach()) for value in values.values()}
        self._write(folder, {key: saved[id(value)] for key, value in values.items()})  # tied weights stay one tensor

    def _write(self, folder: Path, state: dict[str, torch.Tensor]) -> None:
        # transformers refuses to write what is unusual in a published generation config; that file is copied instead.
        kept, self.model.generation_config = self.model.generation_config, type(self.model.generation_config)()
        try:
            self.model.save_pretrained(str(folder), state_dict=state, max_shard_size=_ONE_FILE)
        finally:
            self.model.generation_config = kept

    def _exact_weights(self) -> dict[str, torch.Tensor]:
        """Return the weights as stored, by name, where the model's own dtype has rounded them; else nothing."""
        stored = self._source.config.get("dtype", self._source.config.get("torch_dtype"))
        if self.model.dtype == torch.float32 or stored == "bfloat16":
            return {}
        return dict(plain.load_base(self._source, "fp32", torch.device("cpu")).named_parameters())


def _gradient_hook(master: torch.nn.Parameter) -> Any:
    """Make a hook that adds a bf16 weight's finished gradient to its master's."""

    def hook(copy: torch.nn.Parameter) -> None:
        assert copy.grad is not None
        if master.grad is None:
            master.grad = copy.grad.float()
        else:
            master.grad += copy.grad
        copy.grad = None

    return hook


def _unshared(value: torch.Tensor) -> torch.Tensor:
    """Move a tensor that shares GPU memory with others to the CPU, because saving would clone it on the GPU."""
    shares = value.untyped_storage().nbytes() > value.numel() * value.element_size()
    return value.cpu() if shares and value.is_cuda else value


def _finish_config(path: Path, base: dict[str, Any]) -> None:
    """Correct the settings of config.json that saving took from the model in memory instead of from the file."""
    config = json.loads(read_plain(path))
    config["dtype"] = "float32"
    for key in {"use_cache", *(key for key in config if DROPOUT_PART in key)}:
        config.pop(key, None)
        if key in base:
            config[key] = base[key]
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
