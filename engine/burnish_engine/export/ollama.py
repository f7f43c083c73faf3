"""A folder that `ollama create` takes: the GGUF and a Modelfile with template, stop words, context and license."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from burnish_engine.chat.prompt import gguf_template
from burnish_engine.contract.errors import BurnishError, UsageError
from burnish_engine.contract.files import cannot_write, write_atomic
from burnish_engine.contract.paths import safe_name
from burnish_engine.export.aside import require_space
from burnish_engine.export.ollama_template import TurnPieces, derive_pieces
from burnish_engine.models.gguf_runtime import GgufModel

_USUAL_CONTEXT = 4096


@dataclass(frozen=True)
class OllamaFolder:
    """What was written.

    Attributes:
        modelfile: The Modelfile.
        gguf: The file it names.
        template_written: Whether the Modelfile carries a template.
        notes: What a person should know.
    """

    modelfile: Path
    gguf: Path
    template_written: bool
    notes: list[str] = field(default_factory=list)


def export_ollama(gguf: Path, out: Path, *, context: int = 0, license_text: str = "") -> OllamaFolder:
    """Write a folder for `ollama create NAME -f Modelfile`.

    Args:
        gguf: A finished, verified file; it is linked where the disk allows it, else copied.
        out: The folder; made if missing, its Modelfile is replaced.
        context: Tokens of a conversation; 0 is 4096, or what the model was made for if that is less.
        license_text: License to state; the one the file names where not given.

    Raises:
        UsageError: The file is no GGUF.
        SetupError: It is damaged.
        NoSpaceError: It does not fit the disk.
    """
    with GgufModel(gguf, vocab_only=True) as model:
        pieces = _pieces(model)
        stops = [model.token_text(token) for token in model.end_tokens()]
        license_text = license_text or model.metadata.get("general.license", "")
        trained = int(model.metadata.get(f"{model.architecture}.context_length", _USUAL_CONTEXT))
    notes = []
    if pieces is None:
        notes.append(
            "The chat template is of a kind that has no known Ollama form, so the Modelfile carries none: Ollama will "
            "try to recognize the one inside the file. Compare its answers before you rely on them."
        )
    elif pieces.system_open is None:
        notes.append("The chat template takes no system prompt; Ollama's SYSTEM has no effect on this model.")
    target = out / f"{safe_name(gguf.stem, 'model').replace(' ', '-')}.gguf"
    _place(gguf, target)
    lines = [f"FROM ./{target.name}"]
    if pieces is not None:
        lines.append(f"TEMPLATE {quoted(pieces.go_template())}")
        if pieces.default_system:
            lines.append(f"SYSTEM {quoted(pieces.default_system)}")
    lines += [f"PARAMETER stop {quoted(stop)}" for stop in stops]
    lines.append(f"PARAMETER num_ctx {min(context or _USUAL_CONTEXT, trained)}")
    if license_text.strip():
        lines.append(f"LICENSE {quoted(license_text.strip())}")
    write_atomic(out / "Modelfile", "\n".join(lines) + "\n")
    return OllamaFolder(out / "Modelfile", target, pieces is not None, notes)


def quoted(text: str) -> str:
    """A Modelfile string; the format has no escapes inside its triple quotes.

    Raises:
        UsageError: The text itself has triple quotes, or begins or ends with one.
    """
    if '"""' in text or text.startswith('"') or text.endswith('"'):
        raise UsageError(f"A Modelfile cannot hold the text {text[:60]!r}.", "Take the triple quotes out of it.")
    return f'"""{text}"""'


def _pieces(model: GgufModel) -> TurnPieces | None:
    try:
        template = gguf_template(model)
    except BurnishError:
        return None
    ends = [model.token_text(token) for token in model.end_tokens()]
    return derive_pieces(template, ends, model.token_text(model.bos) if model.adds_bos else "")


def _place(gguf: Path, target: Path) -> None:
    if target.exists() and target.samefile(gguf):
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = target.with_name(f".partial-{target.name}")
        aside.unlink(missing_ok=True)
        try:
            os.link(gguf, aside)
        except OSError:  # another disk, or a file system without links
            require_space(target.parent, gguf.stat().st_size, "The Ollama folder")
            shutil.copyfile(gguf, aside)
        aside.replace(target)
    except OSError as error:
        raise cannot_write(target, error) from error
