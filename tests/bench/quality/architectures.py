"""Which causal architectures of the installed transformers attend by our kernels on the plain engine, and are right.

    python tests/bench architectures [NAME ...]

Builds each with a few small layers and random weights, as far as its config lets itself be made small, and has the
plain engine choose a layout as it would on a GPU. Where that is "documents", prints how far logits of packed documents,
longer than the window, are from those of each document alone, as a share of the largest; more than 1e-3 is WRONG, and
makes the exit code 1. Runs on the CPU in fp32, where our attention is the kernels' reference.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from burnish_engine.models.transformers_path import packed_attention
from burnish_engine.radar.small_model import VOCABULARY, small_model
from burnish_engine.train.plain.layout_choice import choose_layout

CPU = torch.device("cpu")
BOUNDARIES = np.array([0, 40, 70, 75])
MOST_OFF = 1e-3


@torch.no_grad()
def off(model: Any) -> float:
    """How far packed documents are from each one alone, as a share of the largest logit."""
    ids = torch.randint(3, VOCABULARY["vocab_size"], (1, int(BOUNDARIES[-1])))
    positions = torch.cat([torch.arange(n) for n in np.diff(BOUNDARIES)])[None]
    alone = torch.cat([model(input_ids=ids[:, a:b], use_cache=False).logits[0] for a, b in pairwise(BOUNDARIES)])
    with packed_attention.within(BOUNDARIES):
        together = model(input_ids=ids, position_ids=positions, use_cache=False).logits[0]
    return float((together - alone).abs().max() / alone.abs().max())


def look(name: str) -> tuple[str, str]:
    """Try an architecture; return its verdict and a detail."""
    try:
        model = small_model(name)
        if not packed_attention.can_attend(model, CPU):
            return "keeps its own", ""
        layout, note = choose_layout(model, VOCABULARY["vocab_size"], CPU, pack=True)
        if layout != "documents":
            return layout, note
        far = off(model)
        return ("WRONG" if far > MOST_OFF else "documents"), f"{far:.1e}"
    except Exception as error:  # noqa: BLE001  what fails is told, and the others are looked at
        return "failed", f"{type(error).__name__}: {error}".splitlines()[0][:120]


def main() -> None:
    """Look at all, or at those named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="model_type; all there are")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    real = packed_attention.can_attend
    packed_attention.can_attend = lambda model, _: real(model, torch.device("cuda"))
    packed_attention.device_problem = lambda _device: ""
    counts: Counter[str] = Counter()
    for name in options.names or sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        found, more = look(name)
        counts[found] += 1
        print(f"{name}: {found}" + (f", {more}" if more else ""), flush=True)
    print(f"transformers {transformers.__version__}:", dict(counts))
    sys.exit(1 if counts["WRONG"] else 0)


if __name__ == "__main__":
    main()
