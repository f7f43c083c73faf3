"""Replies of transformers with an adapter, on random weights of the same shape and the same prompts as `decode`.

    python tests/bench decode_peers --shape qwen3-0.6b --replies 64 --tokens 256

Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import torch

from burnish_engine.bench.shapes import CONFIGS

_MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def model_of(name: str, attention: str) -> Any:
    """Return a model of random weights in bf16 with an adapter of rank 16 on every projection."""
    import peft
    from transformers import AutoConfig, AutoModelForCausalLM

    keys = dict(CONFIGS[name])
    config = AutoConfig.for_model(keys.pop("model_type"), **keys)
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            model = AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()
    finally:
        torch.set_default_dtype(torch.float32)
    peft.inject_adapter_in_model(peft.LoraConfig(r=16, target_modules=_MODULES), model)
    return model.to(torch.bfloat16)


def main() -> int:
    """Measure what the arguments say."""
    parser = argparse.ArgumentParser(prog="python tests/bench decode_peers", description=__doc__)
    parser.add_argument("--shape", default="qwen3-0.6b")
    parser.add_argument("--replies", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--attention", default="sdpa")
    options = parser.parse_args()
    model = model_of(options.shape, options.attention)
    draw = torch.Generator().manual_seed(0)
    shape = (options.replies, options.prompt)
    ids = torch.randint(100, CONFIGS[options.shape]["vocab_size"] - 100, shape, generator=draw).cuda()

    def make(tokens: int) -> float:
        torch.cuda.synchronize()
        began = time.perf_counter()
        made = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
            pad_token_id=0,
        )
        torch.cuda.synchronize()
        assert made.shape[1] == options.prompt + tokens
        return time.perf_counter() - began

    with torch.inference_mode():
        make(4)
        seconds = make(options.tokens)
    row = {
        "peer": f"transformers {options.attention}",
        "shape": options.shape,
        "replies": options.replies,
        "tok_s": round(options.replies * options.tokens / seconds),
        "seconds": round(seconds, 2),
        "peak_gib": round(torch.cuda.max_memory_reserved() / 2**30, 2),
    }
    print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
