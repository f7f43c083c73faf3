"""Shapes of well-known models from their published configs, so that speed can be measured without a download."""

from __future__ import annotations

from typing import Any

import torch

from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.models.checkpoint.spec import decoder_spec
from burnish_engine.models.families import family
from burnish_engine.models.families.experts import SCALES
from burnish_engine.models.families.further.apertus import APERTUS
from burnish_engine.models.families.gemma import GEMMA3
from burnish_engine.models.families.gpt_oss import GPT_OSS
from burnish_engine.models.families.lfm import LFM2, LFM2_MOE
from burnish_engine.models.families.llama import LLAMA
from burnish_engine.models.families.olmo import OLMOE
from burnish_engine.models.families.qwen import QWEN2, QWEN2_MOE, QWEN3, QWEN3_MOE
from burnish_engine.models.families.qwen3_5 import QWEN3_5, QWEN3_5_MOE

_QWEN3: dict[str, Any] = {
    "model_type": QWEN3.model_type,
    "vocab_size": 151936,
    "head_dim": 128,
    "hidden_act": "silu",
    "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000,
}
_LLAMA3: dict[str, Any] = {
    "model_type": LLAMA.model_type,
    "vocab_size": 128256,
    "hidden_act": "silu",
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500_000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}
_SMOLLM2 = _LLAMA3 | {
    "rope_scaling": None,
    "rope_theta": 100_000,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
}
_QWEN2 = _QWEN3 | {"model_type": QWEN2.model_type, "max_position_embeddings": 32768}
_GEMMA3: dict[str, Any] = {
    "model_type": GEMMA3.model_type,
    "vocab_size": 262144,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000,
    "rope_local_base_freq": 10000,
    "query_pre_attn_scalar": 256,
    "sliding_window_pattern": 6,
}
_LFM2: dict[str, Any] = {
    "model_type": LFM2.model_type,
    "vocab_size": 65536,
    "head_dim": 64,
    "max_position_embeddings": 128_000,
    "norm_eps": 1e-5,
    "rope_theta": 1_000_000,
    "conv_L_cache": 3,
    "block_auto_adjust_ff_dim": False,
    "layer_types": ["full_attention" if layer in {2, 5, 8, 10, 12, 14} else "conv" for layer in range(16)],
}


_QWEN3_MOE: dict[str, Any] = {
    **_QWEN3,
    "model_type": QWEN3_MOE.model_type,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "norm_topk_prob": True,
}
_QWEN3_5: dict[str, Any] = {
    "model_type": QWEN3_5.model_type,
    "vocab_size": 248320,
    "max_position_embeddings": 262_144,
    "rope_theta": 10_000_000,
}
_GPT_OSS: dict[str, Any] = {
    "model_type": GPT_OSS.model_type,
    "vocab_size": 201088,
    "head_dim": 64,
    "num_local_experts": 32,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 150_000,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 32.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 4096,
    },
    "quantization_config": {"quant_method": "mxfp4"},
}
_OLMOE: dict[str, Any] = {
    "model_type": OLMOE.model_type,
    "vocab_size": 50304,
    "num_experts": 64,
    "num_experts_per_tok": 8,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10_000,
}


def _sizes(hidden: int, wide: int, layers: int, heads: int, kv_heads: int, *, tied: bool) -> dict[str, Any]:
    return {
        "hidden_size": hidden,
        "intermediate_size": wide,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "tie_word_embeddings": tied,
    }


CONFIGS: dict[str, dict[str, Any]] = {
    "smollm2-135m": {**_SMOLLM2, **_sizes(576, 1536, 30, 9, 3, tied=True)},
    "smollm2-360m": {**_SMOLLM2, **_sizes(960, 2560, 32, 15, 5, tied=True)},
    "qwen2.5-0.5b": {**_QWEN2, "head_dim": 64, **_sizes(896, 4864, 24, 14, 2, tied=True)},
    "qwen2.5-1.5b": {**_QWEN2, **_sizes(1536, 8960, 28, 12, 2, tied=True)},
    "qwen2.5-3b": {**_QWEN2, **_sizes(2048, 11008, 36, 16, 2, tied=True)},
    "qwen3-0.6b": {**_QWEN3, **_sizes(1024, 3072, 28, 16, 8, tied=True)},
    "qwen3-1.7b": {**_QWEN3, **_sizes(2048, 6144, 28, 16, 8, tied=True)},
    "llama-3.2-1b": {**_LLAMA3, "head_dim": 64, **_sizes(2048, 8192, 16, 32, 8, tied=True)},
    "gemma-3-1b": {
        **_GEMMA3, "max_position_embeddings": 32768, "sliding_window": 512, **_sizes(1152, 6912, 26, 4, 1, tied=True),
    },
    "gemma-3-4b": {
        **_GEMMA3, "max_position_embeddings": 131072, "sliding_window": 1024,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0}, **_sizes(2560, 10240, 34, 8, 4, tied=True),
    },
    "lfm2.5-350m": {**_LFM2, **_sizes(1024, 4608, 16, 16, 8, tied=True)},
    "lfm2.5-1.2b": {**_LFM2, **_sizes(2048, 8192, 16, 32, 8, tied=True)},
    "qwen3-4b": {**_QWEN3, **_sizes(2560, 9728, 36, 32, 8, tied=True)},
    "qwen3.5-0.8b": {**_QWEN3_5, "linear_num_value_heads": 16, **_sizes(1024, 3584, 24, 8, 2, tied=True)},
    "qwen3.5-4b": {**_QWEN3_5, **_sizes(2560, 9216, 32, 16, 4, tied=True)},
    "qwen3.5-9b": {**_QWEN3_5, **_sizes(4096, 12288, 32, 16, 4, tied=False)},
    "llama-3.1-8b": {**_LLAMA3, "head_dim": 128, **_sizes(4096, 14336, 32, 32, 8, tied=False)},
    "llama-3.1-70b": {**_LLAMA3, "head_dim": 128, **_sizes(8192, 28672, 80, 64, 8, tied=False)},
    "qwen3-14b": {**_QWEN3, **_sizes(5120, 17408, 40, 40, 8, tied=False)},
    "qwen3-32b": {**_QWEN3, **_sizes(5120, 25600, 64, 64, 8, tied=False)},
    "apertus-8b": {
        "model_type": APERTUS.model_type, "vocab_size": 131072, **_sizes(4096, 21504, 32, 32, 8, tied=False),
    },
    "olmoe-1b-7b": {**_OLMOE, **_sizes(2048, 1024, 16, 16, 16, tied=False)},
    "gpt-oss-20b": {**_GPT_OSS, **_sizes(2880, 2880, 24, 64, 8, tied=False)},
    "lfm2-8b-a1b": {
        **_LFM2, "model_type": LFM2_MOE.model_type, "moe_intermediate_size": 1792, "num_experts": 32,
        "num_experts_per_tok": 4,
        "layer_types": ["full_attention" if layer in {2, 6, 10, 14, 18, 21} else "conv" for layer in range(24)],
        **_sizes(2048, 7168, 24, 32, 8, tied=True),
    },
    "qwen1.5-moe-a2.7b": {
        **_QWEN2, "model_type": QWEN2_MOE.model_type, "head_dim": 128, **_sizes(2048, 5632, 24, 16, 16, tied=False),
    },
    "qwen3.5-35b-a3b": {
        **_QWEN3_5, "model_type": QWEN3_5_MOE.model_type, **_sizes(2048, 512, 40, 16, 2, tied=False),
    },
    "qwen3-30b-a3b": {**_QWEN3_MOE, **_sizes(2048, 6144, 48, 32, 4, tied=False)},
}  # fmt: skip
"""Name to the keys of config.json that a decoder is built from."""


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

    def _draw(self, matrix: torch.Tensor) -> torch.Tensor:
        """Fill a matrix on the device that is drawn on, with codes of MXFP4 if it is of bytes; return it."""
        if matrix.dtype == torch.uint8:
            return matrix.random_(0, 256, generator=self._generator)
        return matrix.normal_(0.0, 0.02, generator=self._generator)
