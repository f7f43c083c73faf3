"""A training step beside a lower bound that is timed in the same process: the work that no engine avoids; prints JSON.

    python tests/bench floor [--shape qwen3-0.6b] [--tokens 16384] [--layers 0] [--method lora] [--keep products]

The bound consists of the frozen projections (forward and gradient of the input), the head on all tokens, and
FlashAttention-2 over the packed documents, without norms, rotation, activation, adapters, losses and optimizer. The
attention part is the time of FlashAttention-2, not a limit. A mixture's feed-forward is timed as dense products of one
expert's width, with a row for each expert that a token visits. All products are of bf16, for weights in four bits too.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import torch

from burnish_engine.bench.documents import packs
from burnish_engine.bench.shapes import shape
from burnish_engine.bench.step import StepBench
from burnish_engine.bench.step_options import StepOptions, parse_keep
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.models.families import family
from burnish_engine.models.families.matrices import StackName

_HEAD_ROWS = 4096
_PACKS = 8  # the cost of attention follows the sum of squared lengths, which varies from pack to pack


@dataclass(frozen=True)
class Floor:
    """Lower bound of a step's time, in milliseconds.

    Attributes:
        projections: time of all frozen projections, forward and backward.
        head: time of the head on all tokens, forward and backward.
        attention: time of FlashAttention-2, forward and backward.
    """

    projections: float
    head: float
    attention: float

    @property
    def total(self) -> float:
        """Sum of all three, milliseconds."""
        return self.projections + self.head + self.attention


def floor_ms(name: str, tokens: int, *, layers: int = 0) -> Floor:
    """Time the floor of a shape on this GPU.

    Args:
        name: name of the shape.
        tokens: tokens of a step.
        layers: number of layers to keep, from the first; 0: all.
    """
    spec = shape(name, layers)
    known = family(spec.family)
    assert known is not None
    sizes: Counter[tuple[int, StackName]] = Counter()
    inputs = {(module.layer, module.stack): module.columns for module in known.modules(spec)}
    for module in known.modules(spec):
        sizes[module.layer, module.stack] += module.rows
    stacks = Counter((rows, inputs[stack]) for stack, rows in sizes.items())
    projections = sum(count * _product_ms(tokens, *size) for size, count in stacks.items())
    experts = Counter((stack.rows, stack.columns) for stack in known.all_expert_stacks(spec))
    visits = tokens * spec.experts_per_token
    projections += sum(count * _product_ms(visits, *size) for size, count in experts.items())
    rows = min(_HEAD_ROWS, tokens)
    head = _product_ms(rows, spec.vocab_size, spec.hidden_size) * tokens / rows
    attending = sum(layer.attends for layer in spec.layers)
    return Floor(projections, head, _attention_ms(spec, tokens) * attending)


def _product_ms(rows: int, outputs: int, inputs: int) -> float:
    """Time the forward and the gradient of the input of one frozen projection."""
    x, weight, dy = _random(rows, inputs), _random(outputs, inputs), _random(rows, outputs)
    return _median_ms(lambda: x @ weight.t()) + _median_ms(lambda: dy @ weight)


def _attention_ms(spec: DecoderSpec, tokens: int) -> float:
    from torch.nn.attention.varlen import varlen_attn

    times = []
    plan = packs(tokens)
    for index in range(_PACKS):
        boundaries = plan[index].boundaries
        ends = torch.from_numpy(boundaries).cuda()
        longest, count = int(np.diff(boundaries).max()), int(boundaries[-1])
        heads = (spec.num_heads, spec.num_kv_heads, spec.num_kv_heads)
        q, k, v = (_random(count, n, spec.head_dim).requires_grad_() for n in heads)

        def forward(
            q: torch.Tensor = q,
            k: torch.Tensor = k,
            v: torch.Tensor = v,
            ends: torch.Tensor = ends,
            most: int = longest,
        ) -> torch.Tensor:
            result: torch.Tensor = varlen_attn(q, k, v, ends, ends, most, most, window_size=(-1, 0))
            return result

        gradient = torch.randn_like(forward())
        inputs = (q, k, v)
        times.append(_median_ms(lambda f=forward, i=inputs, g=gradient: torch.autograd.grad(f(), i, g)))  # type: ignore[misc]
    return float(np.mean(times))


def _random(*size: int) -> torch.Tensor:
    return torch.randn(*size, device="cuda", dtype=torch.bfloat16)


def _median_ms(run: Callable[[], object]) -> float:
    from triton.testing import do_bench

    return float(do_bench(run, return_mode="median", warmup=5, rep=30))


def main() -> None:
    """Time the step and its floor."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="qwen3-0.6b")
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--layers", type=int, default=0, help="number of layers to keep, from the first; 0: all")
    parser.add_argument("--method", default="lora", choices=["lora", "qlora"])
    parser.add_argument("--keep", default="products")
    given = vars(parser.parse_args())
    report = StepBench(StepOptions(**given | {"keep": parse_keep(given["keep"])})).run()
    parts = floor_ms(given["shape"], given["tokens"], layers=given["layers"])
    report["floor_ms"] = asdict(parts) | {"total": parts.total}
    report["of_floor"] = parts.total * report["fill"] / report["step_ms"]
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
