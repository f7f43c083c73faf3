"""Replies of the fast engine beside the copy rate, on random weights of a known shape; `decode_peers` has the peers.

    python tests/bench decode --shape qwen3-0.6b --replies 1 64 --prompt 512 --tokens 1024

The floor of a step is the time to read all weights (but the embeddings, of which it reads rows) and the keys and values
of every reply once, at the copy rate measured here. Prints one JSON line for each measurement.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable

import torch

from burnish_engine.bench.shapes import RandomWeights, shape
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.models.decoder.decoder import Decoder
from burnish_engine.models.decoder.decoder_load import DecoderOptions, build_decoder
from burnish_engine.models.decoder.lora_adapter import NO_ADAPTER, plan_adapter
from burnish_engine.models.decoder.mixers.attention.declared import page_bytes
from burnish_engine.models.families import family
from burnish_engine.models.generation.decoder_generate import DecoderGenerator
from burnish_engine.models.generation.sampling import Sampling
from burnish_engine.models.generation.text_generator import ReplyRequest
from burnish_engine.train.fast.fast_model import make_trainable
from burnish_kernels.paged_attention.op import PAGE


def copy_rate() -> float:
    """Return bytes read and written a second by a large copy on the device."""
    source = torch.randint(0, 255, (1 << 31,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    times = []
    for _ in range(8):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        target.copy_(source)
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return 2 * source.nbytes / statistics.median(times)


def built(spec: DecoderSpec, *, quantize: bool, rank: int) -> Decoder:
    """Return a decoder of random weights with an adapter that is not zero."""
    known = family(spec.family)
    assert known is not None
    plan = NO_ADAPTER
    if rank:
        plan = plan_adapter(AdapterSection(rank=rank), known.modules(spec), known.all_expert_stacks(spec))
    device = torch.device("cuda")
    loaded = build_decoder(
        RandomWeights(spec, device), spec, DecoderOptions(torch.bfloat16, device, 64, plan, quantize=quantize)
    )
    if rank:
        model = make_trainable(loaded)
        model.initialize(0)
        for matrix in model.adapter.tensors:
            matrix.normal_(0.0, 0.01)
        model.optimizer.write_compute_copies()
    return loaded.decoder


def weight_bytes(spec: DecoderSpec, replies: int, *, quantize: bool) -> float:
    """Return the bytes of the weights that a step reads: all but the embeddings, and of the experts those chosen.

    Experts are taken as chosen evenly, so that a share of 1 - (1 - k / E) ^ replies is read.
    """
    known = family(spec.family)
    assert known is not None
    chosen = 1.0
    if spec.num_experts:
        chosen = 1 - (1 - spec.experts_per_token / spec.num_experts) ** replies
    total, width = 0.0, 0.516 if quantize else 2.0
    for name, size in known.tensors(spec).items():
        numbers = math.prod(size)
        if "embed_tokens" in name or name.startswith("lm_head"):
            continue
        share = chosen if "experts" in name else 1.0
        total += numbers * share * (1.0 if name.endswith(("_blocks", "_scales")) else width)
    return total + spec.vocab_size * spec.hidden_size * 2


def measured(make: Callable[[list[ReplyRequest]], None], requests: list[ReplyRequest], rounds: int) -> list[float]:
    """Return the seconds of each round."""
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        began = time.perf_counter()
        make(requests)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return times


def main() -> int:
    """Measure what the arguments say."""
    parser = argparse.ArgumentParser(prog="python tests/bench decode", description=__doc__)
    parser.add_argument("--shape", default="qwen3-0.6b")
    parser.add_argument("--layers", type=int, default=0, help="layers to keep; 0: all")
    parser.add_argument("--replies", type=int, nargs="+", default=[64])
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--nf4", action="store_true")
    parser.add_argument("--both", action="store_true", help="every second reply is the base's, in the same steps")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--top-p", type=float, default=1.0)
    options = parser.parse_args()
    spec = shape(options.shape, options.layers)
    rate = copy_rate()
    generator = DecoderGenerator(built(spec, quantize=options.nf4, rank=options.rank), keeps_slots=True)
    for count in options.replies:
        draw = torch.Generator().manual_seed(0)
        requests = [
            ReplyRequest(
                torch.randint(100, spec.vocab_size - 100, (options.prompt,), generator=draw).tolist(),
                Sampling(options.tokens, options.temperature, options.top_p, seed=number),
                base=options.both and number % 2 == 1,
            )
            for number in range(count)
        ]

        def make(wanted: list[ReplyRequest], count: int = count) -> None:
            made = sum(len(piece.tokens) for piece in generator.replies(wanted, set(), count))
            assert made == sum(one.sampling.max_tokens for one in wanted), made

        short = [ReplyRequest(one.ids, Sampling(1), one.base) for one in requests]
        make(requests[:count])
        prompts_s = statistics.median(measured(make, short, 3))
        times = measured(make, requests, options.rounds)
        middle = options.prompt + options.tokens / 2
        keys = page_bytes(spec, 2) / PAGE * middle * count
        floor_s = (weight_bytes(spec, count, quantize=options.nf4) + keys) / rate
        step_s = (min(times) - prompts_s) / (options.tokens - 1)
        row = {
            "shape": options.shape,
            "replies": count,
            "nf4": options.nf4,
            "both": options.both,
            "rank": options.rank,
            "tok_s": round(count * options.tokens / min(times)),
            "step_ms": round(step_s * 1e3, 3),
            "floor_ms": round(floor_s * 1e3, 3),
            "of_floor": round(floor_s / step_s, 3),
            "prompts_ms": round(prompts_s * 1e3, 1),
            "rounds_s": [round(one, 3) for one in times],
            "copy_gb_s": round(rate / 1e9),
            "peak_gib": round(torch.cuda.max_memory_reserved() / 2**30, 2),
        }
        print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
