"""Export a merged model as safetensors, called done only after transformers has loaded it and it is the trained model.

The trained model's probabilities come from base and adapter in fp32 (`verify.reference`), so that a fault in merging
shows; those of the files from what a user would load.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from burnish_engine.contract.errors import FidelityError
from burnish_engine.contract.wording.tables import EXPORT_STAGES
from burnish_engine.export.base.losses import model_distance
from burnish_engine.export.base.staging import Canceled, never
from burnish_engine.export.verify.limits import KlStatistics, judge, least_limit
from burnish_engine.export.verify.probe_strings import PROBE_CHATS
from burnish_engine.export.verify.reference import choose_documents, document_log_probs, render_probes, require_model
from burnish_engine.export.weights.folders import Progress, export_safetensors, must_be_free, no_progress
from burnish_engine.export.weights.merge import MergedWeights
from burnish_engine.export.weights.nf4_merge import round_model
from burnish_engine.models.checkpoint.source import ModelSource, open_model

if TYPE_CHECKING:
    import torch

_TYPES = {"F64": "F32", "F32": "F32", "F16": "F16", "BF16": "BF16"}
_ASK, _WRITE = 0.4, 0.7  # shares of the work: up to the end of running the trained model, of writing


def export_proven_safetensors(
    source: ModelSource,
    adapter: Path | None,
    out: Path,
    *,
    held_out: Sequence[Sequence[int]] = (),
    rounded: Collection[str] = frozenset(),
    device: torch.device | None = None,
    progress: Progress = no_progress,
    canceled: Canceled = never,
) -> KlStatistics:
    """Write the merged model as a folder, and compare it with the trained model before it gets its name.

    Args:
        source: base model, or the trained one.
        adapter: folder of the PEFT adapter; None: all weights were trained.
        out: folder to make; must not exist or be empty.
        held_out: token ids of rendered held-out rows to compare on; without them, rendered chats are compared.
        rounded: names of base tensors that are rounded to NF4 and back before the adapter is added.
        device: device of both models; by default the CPU.
        progress: callback given the current activity and the share done, 0 to 1.
        canceled: callback polled often; after a stop nothing is left.

    Returns:
        Figures of the folder beside the trained model.

    Raises:
        UsageError: `out` is not empty, the base or adapter cannot be merged, or there is nothing to compare on.
        SetupError: A model file is missing or damaged.
        DoesNotFitError: Too little memory is free to run the models.
        NoSpaceError: The model does not fit the disk.
        FidelityError: The folder differs from the trained model; nothing of it is left.
        StoppedError: Canceled.
    """
    import torch

    from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
    from burnish_engine.models.transformers_path.plain import load_adapter, load_base

    must_be_free(out)
    device = device or torch.device("cpu")
    weights = MergedWeights(source, adapter, rounded)  # what cannot be merged is refused before anything runs
    kind = _coarsest(weights)
    probes = [] if held_out else render_probes(load_tokenizer(source), PROBE_CHATS)
    require_model(source, device)
    model = load_base(source, "fp32", device)
    round_model(model, rounded)
    if adapter is not None:
        model = load_adapter(model, adapter)
    width = model.get_output_embeddings().weight.shape[0]
    documents, flags = map(list, zip(*choose_documents(held_out, (), probes, width), strict=True))
    truth = document_log_probs(model, documents, lambda what, share: progress(what, _ASK * share), canceled)
    base = None
    if adapter is not None:
        with model.disable_adapter():
            base = model_distance(model, documents, truth, flags, canceled)
    del model
    found: list[KlStatistics] = []

    def check(folder: Path) -> None:
        progress(EXPORT_STAGES["compare"], _WRITE)
        merged = load_base(open_model(str(folder)), "fp32", device)
        one = model_distance(merged, documents, truth, flags, canceled)
        found.append(KlStatistics(sum(map(len, documents)), one.mean_kl, one.mean_kl, one.top1, one.loss))
        if problems := judge(kind, found[0], base, least=least_limit(source.spec)):
            raise FidelityError(
                f"The merged files are not the trained model. {problems[0]}",
                "Please report this with the model's name; the adapter itself works (--to adapter).",
            )

    export_safetensors(
        source,
        adapter,
        out,
        rounded=rounded,
        progress=lambda what, share: progress(what, _ASK + (_WRITE - _ASK) * share),
        canceled=canceled,
        check=check,
    )
    return found[0]


def _coarsest(weights: MergedWeights) -> str:
    """Return the type of the files' weights that rounds most, as a GGUF calls it."""
    held = {_TYPES.get(weights.base_dtype(name), "BF16") for name in weights.names}
    return next((kind for kind in ("BF16", "F16") if kind in held), "F32")
