"""Experts' products in FP8 on one GPU, and what makes their codes, beside 16 bits at the sizes of published mixtures.

    python tests/bench grouped_codes [--models qwen3-30b-a3b] [--tokens 16384 4096] [--seconds 170] [--out FILE]

For each map of a model's experts, both directions and an even router: the product of codes with every tile of
`HOPPER_CANDIDATES`, codes made of four bits, rows quantized, the whole as training does it, and the same in 16 bits
with groups unpacked into 192 MiB. Every product is compared with the reference on some rows. Prints a JSON line each.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from burnish_engine.models.decoder.experts.declared import scratch_elements
from burnish_kernels.eight_bit_linear.op import CODES, quantize_rows
from burnish_kernels.eight_bit_linear.tiles import HOPPERS, EightBitTile
from burnish_kernels.grouped_codes.kernel import launch_grouped_codes
from burnish_kernels.grouped_codes.op import expert_scales, grouped_codes, unpack_codes
from burnish_kernels.grouped_codes.tiles import HOPPER_CANDIDATES, choose_tile
from burnish_kernels.grouped_linear.op import grouped_linear
from burnish_kernels.moe_sort.op import sort_by_expert
from burnish_kernels.moe_unpack.cases import random_stack
from burnish_kernels.tuning import device_of

from bench.kernels.eight_bit_products import tile_text
from bench.kernels.grouped_products import MODELS, experts_of
from bench.kernels.timing import milliseconds
from bench.shared.rows import Rows

RANK = 16  # columns of an adapter


class Map:
    """The operands of one product.

    Args:
        model: name in MODELS.
        role: "gate_up" or "down".
        turned: whether it is the input's gradient.
        tokens: number of tokens.
    """

    def __init__(self, model: str, role: str, *, turned: bool, tokens: int) -> None:
        experts, slots, hidden, both, kind, _ = MODELS[model]
        rows, columns = (both, hidden) if role == "gate_up" else (hidden, both // 2)
        self.shape, self.turned, self.by_token = (rows, columns), turned, (role == "gate_up") != turned
        self.outputs, self.reduction = (columns, rows) if turned else (rows, columns)
        self.order = sort_by_expert(experts_of(tokens, slots, experts, "even"), experts)
        self.x = torch.randn(tokens if self.by_token else tokens * slots, self.reduction, device="cuda").bfloat16()
        self.weight = random_stack(kind, experts, rows, columns, "cuda")
        self.scale_E = expert_scales(self.weight)
        self.narrow = torch.randn(tokens * slots, RANK, device="cuda").bfloat16()
        self.adapter = torch.randn(experts, self.outputs, RANK, device="cuda").bfloat16()
        self.out = self.x.new_empty(tokens * slots, self.outputs)
        self.rows = quantize_rows(self.x)
        self.codes = torch.empty(experts, self.outputs, self.reduction, dtype=CODES, device="cuda")
        self.flops = 2 * len(self.out) * rows * columns
        self.unpack()

    def given(self) -> dict[str, Any]:
        """Return what products in 8 and in 16 bits have in common."""
        adapter = {"narrow_PR": self.narrow, "adapter_ENR": self.adapter, "out": self.out}
        return adapter | {"by_token": self.by_token, "transposed": self.turned}

    def unpack(self) -> torch.Tensor:
        """Make the codes of all experts."""
        return unpack_codes(self.weight, self.scale_E, 0, len(self.codes), transposed=self.turned, out=self.codes)

    def product(self, tile: EightBitTile) -> None:
        """Multiply codes that are there."""
        launch_grouped_codes(
            x=self.rows,
            codes_GNC=self.codes,
            scale_E=self.scale_E,
            narrow_PR=self.narrow,
            adapter_ENR=self.adapter,
            bias_EN=None,
            out_PN=self.out,
            order=self.order,
            by_token=self.by_token,
            first_expert=0,
            tile=tile,
        )

    def error(self) -> float:
        """Return the relative error of the last expert's rows in `out`, to codes in double precision."""
        begin, end = self.order.offsets[-2:].tolist()
        sorted_rows = torch.arange(begin, min(end, begin + 64), device="cuda")
        read = self.order.order[sorted_rows].long() // self.order.slots if self.by_token else sorted_rows
        exact = self.rows.codes[read].double() @ self.codes[-1].double().t()
        exact *= (self.rows.scale[read].double() * self.scale_E[-1].double())[:, None]
        exact += self.narrow[sorted_rows].double() @ self.adapter[-1].double().t()
        return float((self.out[sorted_rows].double() - exact).norm() / exact.norm())

    def works(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """Yield what is timed, by name; products of codes alone have their tile's name."""
        yield "rows quantized", partial(quantize_rows, self.x, out=self.rows)
        yield "codes made", self.unpack
        shapes = [self.shape]
        scratch = torch.empty(scratch_elements(shapes, 1), dtype=CODES, device="cuda")

        def whole() -> None:
            grouped_codes(quantize_rows(self.x), self.weight, self.scale_E, self.order, **self.given(), scratch=scratch)

        yield "whole in FP8", whole
        room = torch.empty(scratch_elements(shapes, 2), dtype=torch.bfloat16, device="cuda")
        room_GNK = room[: len(room) // (self.shape[0] * self.shape[1]) * self.shape[0] * self.shape[1]]
        room_GNK = room_GNK.view(-1, *self.shape)
        yield (
            "whole in bf16",
            lambda: grouped_linear(self.x, self.weight, self.order, **self.given(), scratch_GNK=room_GNK),
        )


def measure(one: Map, rows: Rows, words: dict[str, Any]) -> None:
    """Time one product in every way."""
    for name, run in one.works():
        ms = milliseconds(run)
        rate = {"tflops": round(one.flops / ms / 1e9, 1)} if name.startswith("whole") else {}
        rows.add(**words, what=name, ms=round(ms, 4), **rate)
    found = device_of(one.x.device)
    hopper = found is not None and found.capability in HOPPERS
    for tile in HOPPER_CANDIDATES if hopper else (choose_tile(one.x.device),):
        text = tile_text(tile)
        try:
            ms = milliseconds(partial(one.product, tile))
        except Exception as problem:  # noqa: BLE001  a tile that does not run is a finding
            rows.add(**words, what=text, error_text=f"{type(problem).__name__}: {problem}"[:160])
            continue
        error = float(f"{one.error():.2e}")
        rows.add(**words, what=text, ms=round(ms, 4), tflops=round(one.flops / ms / 1e9, 1), relative_error=error)


def main() -> int:
    """Measure; return 1 where a result is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["qwen3-30b-a3b"], choices=MODELS)
    parser.add_argument("--tokens", nargs="+", type=int, default=[16384, 4096])
    parser.add_argument("--seconds", type=float, default=170.0, help="no new product is begun after")
    parser.add_argument("--out", type=Path, help="file that JSON lines are added to")
    options = parser.parse_args()
    deadline, rows = time.perf_counter() + options.seconds, Rows(options.out)
    for model in options.models:
        for tokens in options.tokens:
            for role, turned in (("gate_up", False), ("gate_up", True), ("down", False), ("down", True)):
                if time.perf_counter() < deadline:
                    words = {"model": model, "tokens": tokens, "map": role, "product": "dx" if turned else "forward"}
                    measure(Map(model, role, turned=turned, tokens=tokens), rows, words)
    return int(any(row.get("relative_error", 0.0) > 2.0**-8 for row in rows))


if __name__ == "__main__":
    sys.exit(main())
