"""Export an adapter as a GGUF, called done only after llama.cpp has added it to the very file it was trained from.

The trained model's probabilities come from the file's decoded weights and the adapter in fp32 (`verify.reference`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from burnish_engine.contract.errors import FidelityError
from burnish_engine.contract.wording.tables import EXPORT_STAGES
from burnish_engine.export.base.losses import token_kl
from burnish_engine.export.base.staging import Canceled, never, stop_if
from burnish_engine.export.gguf.adapter_file import export_adapter_gguf
from burnish_engine.export.verify.fidelity import log_softmax
from burnish_engine.export.verify.limits import KlStatistics
from burnish_engine.export.verify.probe_strings import PROBE_CHATS
from burnish_engine.export.verify.reference import choose_documents, document_log_probs, render_probes, require_model
from burnish_engine.export.weights.folders import Progress, no_progress
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.gguf.gguf_runtime import GgufModel

if TYPE_CHECKING:
    import torch

_TIMES, _LEAST = 2.0, 1e-3
"""Mean KL divergence, nats, that is allowed: so many times that of the file alone to its decoded weights, as llama.cpp
rounds what is multiplied with blocks to eight bits, and this much more."""


def export_proven_adapter(
    source: ModelSource,
    adapter: Path,
    out: Path,
    name: str,
    base: Path,
    *,
    held_out: Sequence[Sequence[int]] = (),
    device: torch.device | None = None,
    threads: int = 0,
    progress: Progress = no_progress,
    canceled: Canceled = never,
) -> tuple[Path, KlStatistics]:
    """Write the adapter, and compare llama.cpp with it on its base with the trained model before it gets its name.

    Args:
        source: model of the base.
        adapter: folder of the PEFT adapter.
        out: folder of the file.
        name: name of the model.
        base: GGUF that the adapter was trained from.
        held_out: token ids of rendered held-out rows to compare on; without them, rendered chats are compared.
        device: device of the trained model; by default the CPU.
        threads: number of llama.cpp's threads; 0: as many as there are cores.
        progress: callback given the current activity and the share done, 0 to 1.
        canceled: callback polled between rows; after a stop nothing is left.

    Returns:
        Path of the file, and its figures beside the trained model.

    Raises:
        UsageError: llama.cpp cannot represent the adapter, or there is nothing to compare on.
        SetupError: A file is missing or damaged, or llama.cpp cannot add the adapter.
        DoesNotFitError: Too little memory is free to run the models.
        NoSpaceError: The file does not fit the disk.
        FidelityError: llama.cpp computes another model; nothing of the file is left.
        StoppedError: Canceled.
    """
    import torch

    from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
    from burnish_engine.models.transformers_path.plain import load_adapter, load_base

    found: list[KlStatistics] = []

    def check(file: Path) -> None:
        there = device or torch.device("cpu")
        require_model(source, there)
        model = load_adapter(load_base(source, "fp32", there), adapter)
        probes = [] if held_out else render_probes(load_tokenizer(source), PROBE_CHATS)
        width = model.get_output_embeddings().weight.shape[0]
        documents = [ids for ids, _ in choose_documents(held_out, (), probes, width)]
        run = partial(_against, documents=documents, threads=threads, canceled=canceled)
        with model.disable_adapter():
            truth = document_log_probs(model, documents, lambda what, share: progress(what, 0.3 * share), canceled)
        alone = run(base, truth)
        truth = document_log_probs(model, documents, lambda what, share: progress(what, 0.4 + 0.3 * share), canceled)
        del model
        progress(EXPORT_STAGES["compare"], 0.7)
        found.append(run(base, truth, adapter=file))
        limit = _TIMES * alone.mean_kl + _LEAST
        if not found[0].mean_kl <= limit:
            raise FidelityError(
                f"The adapter on {base.name} is not the trained model in llama.cpp: mean KL divergence "
                f"{found[0].mean_kl:.3g}, limit {limit:.3g}; without the adapter it is {alone.mean_kl:.3g}.",
                "Please report this with the model's name; the adapter itself works (--to adapter).",
            )

    return export_adapter_gguf(source, adapter, out, name, check), found[0]


def _against(
    base: Path,
    truth: Sequence[npt.NDArray[np.float32]],
    *,
    documents: Sequence[Sequence[int]],
    threads: int,
    canceled: Canceled,
    adapter: Path | None = None,
) -> KlStatistics:
    """Compare llama.cpp on a file, perhaps with an adapter, with log-probabilities [T, V] of each document."""
    all_kl, same = [], 0
    context = max(map(len, documents))
    with GgufModel(base, exact=True, threads=threads, context=context, adapter=adapter) as opened:
        for ids, wanted in zip(documents, truth, strict=True):
            stop_if(canceled, "The verification")
            theirs = log_softmax(opened.logits(ids))
            all_kl.append(token_kl(wanted, theirs))
            same += int((wanted.argmax(-1) == theirs.argmax(-1)).sum())
    kl = np.concatenate(all_kl)
    return KlStatistics(len(kl), float(kl.mean()), float(np.percentile(kl, 99)), same / len(kl))
