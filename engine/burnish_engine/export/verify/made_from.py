"""Find out whether a file was made from the trained model or from another one that its rounding cannot be told from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.facts.facts import QuantFidelity
from burnish_engine.export.base.staging import Canceled, never
from burnish_engine.export.checks.checksums import CHECKSUMS, recorded_checksum
from burnish_engine.export.checks.trained_change import HeldChange, held_change
from burnish_engine.export.checks.trained_weights import Origin
from burnish_engine.export.verify.provenance import Provenance
from burnish_engine.models.checkpoint.gguf_file.header import ADAPTER_DIGEST, MODEL_DIGEST, GgufHeader

_EXACT = {"F32", "F16", "BF16"}
"""Types whose every number is compared with the trained model's, so that nothing is hidden."""


def record_problems(
    gguf: Path, metadata: Mapping[str, object], sha256: str, digest: str, known: Provenance
) -> list[str]:
    """Compare a file with what its export recorded in it and beside it; empty where nothing contradicts.

    Args:
        gguf: path of the file.
        metadata: settings in the file's header.
        sha256: SHA-256 of the file.
        digest: SHA-256 of the trained weights; empty where there are none.
        known: what the reports of the run's exports say of it.
    """
    problems = []
    made_from = _recorded_weights(metadata)
    if made_from not in (None, digest):
        problems.append(
            f"It was made from other trained weights: it names those with the SHA-256 {made_from}, and the run has "
            f"{digest or 'none'}."
        )
    recorded = recorded_checksum(gguf)
    if known.problem:
        problems.append(known.problem)
    elif recorded not in (None, sha256):
        problems.append(
            f"It changed after its export: its SHA-256 is {sha256}, and {CHECKSUMS} beside it says {recorded}."
        )
    return problems


def _recorded_weights(metadata: Mapping[str, object]) -> object:
    return metadata.get(ADAPTER_DIGEST, metadata.get(MODEL_DIGEST))


@dataclass(frozen=True)
class MadeFrom:
    """Evidence of what a file was made from."""

    change: HeldChange | None  # what the file holds of training's change of the weights; None where that cannot be told
    knows_base: bool  # whether the model before training is here
    is_recorded: bool  # whether an export of these trained weights wrote their SHA-256 into the file

    @classmethod
    def of(
        cls, gguf: Path, header: GgufHeader, trained: Origin, base: Origin | None, canceled: Canceled = never
    ) -> MadeFrom:
        """Gather the evidence of a file in which no other check found anything, its record among them.

        Args:
            gguf: path of the file.
            header: header of the file.
            trained: what the file claims to be made from.
            base: model before training; None where it is not here.
            canceled: callback polled between tensors; True stops the work.

        Raises:
            SetupError: A file is missing or damaged.
            StoppedError: Canceled.
        """
        change, is_recorded = None, _recorded_weights(header.metadata) is not None
        if base is not None:
            try:
                change = held_change(gguf, header, trained, base, canceled)
            except UsageError:  # the base of a whole model is stored in a way that no file is made from
                base = None
        return cls(change, base is not None, is_recorded)

    def judge(self, file: QuantFidelity) -> QuantFidelity:
        """Add the evidence to the figures of a file that passed all other checks: it is refused, proven or unproven."""
        change, found = self.change, dict[str, object]()
        if change is not None:
            found = {"change_held": change.share, "change_error": change.error}
            if change.is_refuted:
                problem = (
                    f"It was made from another model: of what training changed in the weights it holds {change.text}, "
                    "where a file of the trained model holds about 100% and one of the base nothing."
                )
                return file.model_copy(update={**found, "passed": False, "problems": [problem]})
        is_shown = change is not None and change.is_shown
        if not (is_shown or self.is_recorded or file.tensor_types.keys() <= _EXACT):
            found |= {"passed": False, "unproven": self._unproven(file)}
        return file.model_copy(update=found)

    def _unproven(self, file: QuantFidelity) -> str:
        """Say what was shown of a file, what was not, and why."""
        if not self.knows_base:
            why = "the model before training is not here to compare with"
        elif self.change is None:
            why = "training changed hardly any weights"
        else:
            why = f"the rounding of {file.quant} hides that change, of which it seems to hold {self.change.text}"
        return (
            "Shown: tokens, settings and, up to rounding, every tensor are the trained model's, and the predictions "
            f"are near it (mean KL {file.mean_kl:.2g}). Not shown: that it holds what training changed in the weights, "
            f"which a file of the base model does not; {why}, and no export wrote into it what it was made from."
        )
