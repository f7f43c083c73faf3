"""Shapes of well-known models from their published configs, so that speed can be measured without a download."""

from __future__ import annotations

from typing import Any

import torch

from burnish_engine.advise.facts.catalog import shape_configs
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.models.checkpoint.spec import decoder_spec
from burnish_engine.models.families import family
from burnish_engine.models.families.experts import SCALES
from burnish_engine.models.families.qwen import QWEN2_MOE
from burnish_kernels.gguf_blocks.blocks import GgufBlocks

_QWEN2_MOE: dict[str, Any] = {
    "model_type": QWEN2_MOE.model_type,
    "vocab_size": 151936,
    "head_dim": 128,
    "max_position_embeddings": 32768,
    "rope_theta": 1_000_000,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "tie_word_embeddings": False,
}

CONFIGS: dict[str, dict[str, Any]] = {**shape_configs(), "qwen1.5-moe-a2.7b": _QWEN2_MOE}
"""Name to the keys of config.json that a decoder is built from: the catalog's shapes, and one that it does not list."""


def shape(name: str, layers: int = 0) -> DecoderSpec:
    """Return the decoder specification of a named shape.

    Args:
        name: name of the shape.
        layers: number of layers to keep, from the first, so that a layer's time and the rest come apart; 0: all.

    Raises:
        KeyError: No shape has that name.
    """
    spec = decoder_spec(CONFIGS[name])
    assert spec is not None
    return spec.model_copy(update={"layers": spec.layers[:layers]}) if layers else spec


_ZEROS = ("bias", ".sinks")
"""Endings of the names of tensors that are 0 before training."""
_GAINS = ("linear_attn.norm.weight",)
"""Endings of the names of norms that multiply by their weight where the model's others multiply by 1 + weight."""
_MXFP4_SCALE = 120  # 2^-7: random codes, of which the largest is 6, then deviate by 0.023
_PIECE = 1 << 24  # numbers drawn at once for a matrix that is not on the device


class RandomWeights:
    """Stand-in for a checkpoint: normal weights with the deviation of an initialization, drawn on the device.

    Args:
        spec: decoder specification with the tensors' shapes.
        device: device to draw on.
        seed: seed of the draw.
    """

    def __init__(self, spec: DecoderSpec, device: torch.device, seed: int = 0) -> None:
        known = family(spec.family)
        assert known is not None
        self._shapes = known.tensors(spec)
        self._device, self._generator = device, torch.Generator(device).manual_seed(seed)
        self._norm_weight = 0.0 if spec.norm_one_plus else 1.0

    def __contains__(self, name: object) -> bool:
        return name in self._shapes

    def names(self) -> list[str]:
        """List the names of all tensors."""
        return list(self._shapes)

    def read(self, name: str) -> torch.Tensor:
        """Make a small tensor: zeros for biases and sinks, a norm's neutral weight, random numbers for a router."""
        shape = self._shapes[name]
        if name.endswith(_ZEROS):
            return torch.zeros(shape)
        if len(shape) == 2:  # equal rows of a router would send every token to the first experts
            return self._draw(torch.empty(shape, device=self._device))
        return torch.full(shape, self._norm_weight if len(shape) == 1 and not name.endswith(_GAINS) else 1.0)

    def read_into(self, name: str, destination: torch.Tensor, rows: slice | None = None) -> None:  # noqa: ARG002
        """Fill a matrix, or some of its rows, with transformers' initial standard deviation, wherever it is."""
        if destination.dtype == torch.uint8 and name.endswith(SCALES):
            destination.fill_(_MXFP4_SCALE)
        elif destination.device == self._generator.device:
            self._draw(destination)
        else:
            for piece in destination.split(max(1, _PIECE // destination[0].numel())):
                piece.copy_(self._draw(torch.empty(piece.shape, dtype=piece.dtype, device=self._device)))

    def block_type(self, _name: str) -> str:
        """Return that no weight is in blocks of GGUF."""
        return ""

    def read_blocks(self, name: str) -> GgufBlocks:
        """Refuse: no weight is in blocks of GGUF."""
        raise ValueError(f"{name} is not stored in blocks")

    def _draw(self, matrix: torch.Tensor) -> torch.Tensor:
        """Fill a matrix on the device that is drawn on, with codes of MXFP4 if it is of bytes; return it."""
        if matrix.dtype == torch.uint8:
            return matrix.random_(0, 256, generator=self._generator)
        return matrix.normal_(0.0, 0.02, generator=self._generator)
