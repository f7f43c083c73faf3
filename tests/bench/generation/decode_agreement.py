"""Log-probabilities of replies beside those of a training pass over the same text.

    python tests/bench decode_agreement --model embedded --device cpu --precision fp32
    python tests/bench decode_agreement --shape qwen3-0.6b

Prints one JSON line: the mean difference of the chosen tokens' log-probabilities, the share within 0.2, and the worst.
"""

from __future__ import annotations

import argparse
import json
import sys
from unittest import mock

import numpy as np
import torch

from burnish_engine.bench.shapes import shape
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.decoder.layer_types import SequenceMetadata
from burnish_engine.models.generation.decoder_generate import DecoderGenerator
from burnish_engine.models.generation.load_fast import load_for_generation
from burnish_engine.models.generation.paged import slots
from burnish_engine.models.generation.sampling import Sampling
from burnish_engine.models.generation.text_generator import ReplyRequest
from burnish_kernels.attention import op as attention
from burnish_kernels.attention.documents import Documents

from bench.generation.decode import built

WITHIN = 0.2


def main() -> int:
    """Compare what the arguments say."""
    parser = argparse.ArgumentParser(prog="python tests/bench decode_agreement", description=__doc__)
    parser.add_argument("--model", help="folder of a model, or embedded; else random weights of the shape")
    parser.add_argument("--shape", default="qwen3-0.6b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--replies", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=128)
    options = parser.parse_args()
    device = torch.device(options.device)
    if options.model:
        loaded, reason = load_for_generation(open_model(options.model), None, options.precision, device)
        assert loaded is not None, reason
        decoder = loaded.decoder
    else:
        decoder = built(shape(options.shape), quantize=False, rank=16)
    draw = torch.Generator().manual_seed(0)
    length = 64
    prompts = torch.randint(100, 40_000, (options.replies, length), generator=draw).tolist()
    steps: list[torch.Tensor] = []
    original = slots.sample.choose

    def choose(logits_BV: torch.Tensor, *rest: object, **more: object) -> torch.Tensor:
        steps.append(logits_BV.float().log_softmax(-1))
        return original(logits_BV, *rest, **more)  # type: ignore[arg-type]

    made: list[list[int]] = [[] for _ in prompts]
    requests = [ReplyRequest(prompt, Sampling(options.tokens, 0.8, seed=row)) for row, prompt in enumerate(prompts)]
    eager = mock.patch.object(slots.ReplySlots, "is_captured", property(lambda _self: False))
    with eager, mock.patch.object(slots.sample, "choose", choose):
        for piece in DecoderGenerator(decoder, paged=True).replies(requests, set(), options.replies):
            made[piece.request] += piece.tokens
    heights = attention.tile_rows(decoder.spec.head_dim, decoder.dtype, device)
    differences: list[float] = []
    reader = DecoderGenerator(decoder, paged=False)
    reader._make_room(length + options.tokens)
    trained = reader._view()
    for row, (prompt, reply) in enumerate(zip(prompts, made, strict=True)):
        text = [*prompt, *reply]
        documents = Documents.from_boundaries(np.array([0, len(text)]), len(text), heights, device)
        place_T = torch.arange(len(text), dtype=torch.int32, device=device)
        with torch.inference_mode():
            hidden_TH = trained.forward(
                torch.tensor(text, device=device), SequenceMetadata(place_T, documents)
            ).hidden_TH
            exact = trained.logits(hidden_TH[length - 1 : -1]).log_softmax(-1)
        for place, token in enumerate(reply):
            differences.append(abs(float(steps[place][row, token] - exact[place, token])))
    found = torch.tensor(differences)
    row_found = {
        "model": options.model or options.shape,
        "precision": options.precision,
        "tokens": len(found),
        "mean": round(float(found.mean()), 5),
        f"within_{WITHIN}": round(float((found <= WITHIN).float().mean()), 5),
        "worst": round(float(found.max()), 4),
    }
    print(json.dumps(row_found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
