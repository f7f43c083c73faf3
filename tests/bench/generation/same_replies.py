"""Greedy replies in pages beside transformers' own, for small models of every family of the fast engine, in fp32.

    python tests/bench same_replies --prompts 200 --tokens 24 --device cpu

Prints one JSON line for each family: how many replies are the same, token for token.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path

import torch

from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.checkpoint.spec import decoder_spec
from burnish_engine.models.generation.decoder_generate import DecoderGenerator
from burnish_engine.models.generation.load_fast import load_for_generation
from burnish_engine.models.generation.sampling import Sampling
from burnish_engine.models.generation.text_generator import ReplyRequest

from support.models import tiny_models

_LONGEST = 150
_TOKEN_IDS = (3, 384)


def compared(folder: Path, prompts: list[list[int]], tokens: int, device: torch.device) -> dict[str, int]:
    """Return how many replies there were, and how many are transformers'."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    source = ModelSource(folder, folder.name, config, decoder_spec(config))
    made, reason = load_for_generation(source, None, "fp32", device)
    assert made is not None, reason
    requests = [ReplyRequest(prompt, Sampling(tokens)) for prompt in prompts]
    ours: list[list[int]] = [[] for _ in prompts]
    for piece in DecoderGenerator(made.decoder, paged=True).replies(requests, set(), 32):
        ours[piece.request] += piece.tokens
    model = tiny_models.load(folder).to(device)
    same = 0
    for prompt, reply in zip(prompts, ours, strict=True):
        ids = torch.tensor([prompt], device=device)
        theirs = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=tokens,
            eos_token_id=None,
            pad_token_id=0,
        )
        same += theirs[0, len(prompt) :].tolist() == reply
    return {"prompts": len(prompts), "same": same}


def main() -> int:
    """Compare what the arguments say."""
    parser = argparse.ArgumentParser(prog="python tests/bench same_replies", description=__doc__)
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--shape", action="append", help="this family only; may be repeated")
    options = parser.parse_args()
    draw = random.Random(0)
    prompts = [[draw.randrange(*_TOKEN_IDS) for _ in range(draw.randint(1, _LONGEST))] for _ in range(options.prompts)]
    with tempfile.TemporaryDirectory() as root:
        for shape in options.shape or [*tiny_models.SHAPES, *tiny_models.MIXTURES]:
            folder = tiny_models.make(shape, Path(root) / shape)
            found = compared(folder, prompts, options.tokens, torch.device(options.device))
            print(json.dumps({"family": shape, **found}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
