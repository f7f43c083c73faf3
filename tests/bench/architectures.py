"""Which causal architectures of the installed transformers attend by our kernels on the plain engine, and are right.

    python tests/bench/architectures.py [NAME ...]

Builds each with a few small layers and random weights, as far as its config lets itself be made small, and has the
plain engine choose a layout as it would on a GPU. Where that is "documents", prints how far logits of packed documents,
longer than the window, are from those of each document alone, as a share of the largest; more than 1e-3 is WRONG, and
makes the exit code 1. Runs on the CPU in fp32, where our attention is the kernels' reference.
"""

from __future__ import annotations

import sys
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from burnish_engine.models.transformers_path import packed_attention
from burnish_engine.train.plain.layout_choice import choose_layout

CPU = torch.device("cpu")
BOUNDARIES = np.array([0, 40, 70, 75])
VOCABULARY, MOST_WEIGHTS, MOST_OFF = 97, 60_000_000, 1e-3
SMALL = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32, "n_routed_experts": 4, "shared_expert_intermediate_size": 32, "sliding_window": 12,
    "use_sliding_window": True, "max_window_layers": 1, "attention_chunk_size": 12,
}  # fmt: skip


def small_config(name: str) -> Any:
    """Its config, as small as it can be made."""
    try:
        return AutoConfig.for_model(name, **SMALL)
    except Exception:  # noqa: BLE001  it refuses one of them: change what it has
        config = AutoConfig.for_model(name)
        for part in {id(one): one for one in (config, config.get_text_config())}.values():
            for key, value in SMALL.items():
                if hasattr(part, key):
                    setattr(part, key, value)
        return config


def small_model(name: str) -> Any:
    """With weights large enough for attention to matter; None where it stays large."""
    config = small_config(name)
    with torch.device("meta"):
        if sum(value.numel() for value in AutoModelForCausalLM.from_config(config).parameters()) > MOST_WEIGHTS:
            return None
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for value in model.parameters():
            if value.ndim > 1:
                value.mul_(3)
    return model


@torch.no_grad()
def off(model: Any) -> float:
    """How far packed documents are from each one alone, as a share of the largest logit."""
    ids = torch.randint(3, VOCABULARY, (1, int(BOUNDARIES[-1])))
    positions = torch.cat([torch.arange(n) for n in np.diff(BOUNDARIES)])[None]
    alone = torch.cat([model(input_ids=ids[:, a:b], use_cache=False).logits[0] for a, b in pairwise(BOUNDARIES)])
    with packed_attention.within(BOUNDARIES):
        together = model(input_ids=ids, position_ids=positions, use_cache=False).logits[0]
    return float((together - alone).abs().max() / alone.abs().max())


def look(name: str) -> tuple[str, str]:
    """What became of an architecture, and more about it."""
    try:
        model = small_model(name)
        if model is None:
            return "stays large", ""
        if not packed_attention.can_attend(model, CPU):
            return "keeps its own", ""
        layout, note = choose_layout(model, VOCABULARY, CPU, pack=True)
        if layout != "documents":
            return layout, note
        far = off(model)
        return ("WRONG" if far > MOST_OFF else "documents"), f"{far:.1e}"
    except Exception as error:  # noqa: BLE001  what fails is told, and the others are looked at
        return "failed", f"{type(error).__name__}: {error}".splitlines()[0][:120]


def main() -> None:
    """Look at all, or at those named."""
    transformers.logging.set_verbosity_error()
    real = packed_attention.can_attend
    packed_attention.can_attend = lambda model, _: real(model, torch.device("cuda"))
    packed_attention.device_problem = lambda _device: ""
    counts: Counter[str] = Counter()
    for name in sys.argv[1:] or sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        found, more = look(name)
        counts[found] += 1
        print(f"{name}: {found}" + (f", {more}" if more else ""), flush=True)
    print(f"transformers {transformers.__version__}:", dict(counts))
    sys.exit(1 if counts["WRONG"] else 0)


if __name__ == "__main__":
    main()
