"""Write a folder for `ollama create`: the GGUF and a Modelfile with template, stop words, context and license."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from burnish_engine.chat.prompt import gguf_template
from burnish_engine.contract.errors import BurnishError, UsageError
from burnish_engine.contract.files import read_plain, write_atomic
from burnish_engine.contract.paths import safe_name
from burnish_engine.export.destinations.lm_studio import link_or_copy
from burnish_engine.export.destinations.modelfile import PARAMETERS, read_modelfile
from burnish_engine.export.destinations.ollama_template import TurnPieces, derive_pieces
from burnish_engine.models.gguf.gguf_runtime import GgufModel

_USUAL_CONTEXT = 4096
_MOST_SAMPLING = 100_000  # more than any vocabulary that top_k cuts; what is larger is a damaged file's


@dataclass(frozen=True)
class OllamaFolder:
    """Files of a written Ollama folder."""

    modelfile: Path  # path of the Modelfile
    gguf: Path  # path of the file that it names
    notes: list[str] = field(default_factory=list)  # remarks for the person


def export_ollama(gguf: Path, out: Path, *, sampling: Mapping[str, float] | None = None) -> OllamaFolder:
    """Write a folder for `ollama create NAME -f Modelfile`, with the license that the file names.

    Conversations have 4,096 tokens, or as many as the model was made for where those are fewer.

    Args:
        gguf: finished, verified file; it is hard-linked where the disk allows it, else copied.
        out: folder to write; created if missing, its Modelfile is replaced.
        sampling: Ollama parameters such as `temperature`; see `model_sampling`.

    Raises:
        UsageError: The file is no GGUF, or Ollama cannot represent its template or a stop word.
        SetupError: The file is damaged.
        NoSpaceError: The file does not fit the disk.
    """
    with GgufModel(gguf, vocab_only=True) as model:
        pieces = _pieces(model)
        stops = [model.token_text(token) for token in model.end_tokens()]
        license_text = model.metadata.get("general.license", "")
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
    link_or_copy(gguf, target)
    wanted = [("from", "", f"./{target.name}")]
    if pieces is not None:
        wanted.append(("template", "", pieces.go_template()))
        if pieces.default_system:
            wanted.append(("system", "", pieces.default_system))
    wanted += [("parameter", "stop", stop) for stop in stops]
    wanted.append(("parameter", "num_ctx", str(min(_USUAL_CONTEXT, trained))))
    wanted += [("parameter", name, f"{value:.6g}") for name, value in (sampling or {}).items()]
    if license_text.strip():
        wanted.append(("license", "", license_text.strip()))
    text = "".join(f"{_line(word, key, value)}\n" for word, key, value in wanted)
    _check_read(text, wanted)
    write_atomic(out / "Modelfile", text)
    return OllamaFolder(out / "Modelfile", target, notes)


def model_sampling(model: Path) -> dict[str, float]:
    """Return Ollama's parameters for how a model's folder recommends to sample in generation_config.json, if so."""
    try:
        settings = json.loads(read_plain(model / "generation_config.json"))
    except (OSError, ValueError, RecursionError):  # it only recommends: a damaged one is no reason to give no file
        return {}
    return usual_sampling(settings) if isinstance(settings, dict) else {}


def usual_sampling(generation_config: Mapping[str, object]) -> dict[str, float]:
    """Translate a model's generation_config.json into Ollama's parameters."""
    names = {"repetition_penalty": "repeat_penalty"}
    found = {names.get(name, name): value for name, value in generation_config.items()}
    return {
        name: value
        for name, value in found.items()
        if name in {"temperature", "top_p", "top_k", "min_p", "repeat_penalty"}
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and 0 <= value <= _MOST_SAMPLING  # NaN is not
        and (PARAMETERS[name] is float or value == int(value))
    }


def _line(word: str, key: str, value: str) -> str:
    plain = word == "from" or (word == "parameter" and key != "stop")
    return " ".join(part for part in (word.upper(), key, value if plain else quoted(value)) if part)


def _check_read(text: str, wanted: list[tuple[str, str, str]]) -> None:
    """Check that Ollama reads the Modelfile as intended."""
    read = [(one.word, one.key, one.value) for one in read_modelfile(text)]
    for meant, found in zip(wanted, read, strict=True):
        if meant != found:
            raise UsageError(f"Ollama would read the {meant[0]} {meant[2][:60]!r} as {found[2][:60]!r}.", "Change it.")


def quoted(text: str) -> str:
    """Quote a Modelfile string; the format has no escapes inside its triple quotes.

    Raises:
        UsageError: The text contains triple quotes, or begins or ends with a quote.
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
