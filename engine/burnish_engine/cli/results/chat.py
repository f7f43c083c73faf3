"""`burnish chat`: talk to a base model, a tuned model or an exported file."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import Annotated

import typer

from burnish_engine.chat.backend import ChatBackend
from burnish_engine.chat.target import FileTarget, Variant, find_target, names_run
from burnish_engine.cli.terminal import err, out, print_raw
from burnish_engine.contract.errors import ExitCode, UsageError
from burnish_engine.contract.recipe.recipe import DevicesSection
from burnish_engine.models.generation.sampling import Sampling


def chat(
    target: Annotated[
        str,
        typer.Argument(
            help='A run ("last" is the newest), a model ("embedded", a folder, a fetched name), or a .gguf file.'
        ),
    ],
    base: Annotated[bool, typer.Option("--base", help="Of a run: the model before training.")] = False,
    start: Annotated[bool, typer.Option("--start", help="Of a run: with the adapter that it continued from.")] = False,
    exported: Annotated[bool, typer.Option("--exported", help="Of a run: its newest exported GGUF.")] = False,
    prompt: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="Say this instead of asking you; may be repeated.")
    ] = None,
    system: Annotated[str, typer.Option(help="System message.")] = "",
    max_tokens: Annotated[int, typer.Option(help="Longest reply, tokens.")] = 512,
    temperature: Annotated[float, typer.Option(help="0 always takes the most likely token; 1 varies freely.")] = 0.0,
    top_p: Annotated[float, typer.Option(help="Draw from the most likely tokens up to this probability.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="Number of most likely tokens to draw from; 0: all.")] = 0,
    min_p: Annotated[
        float, typer.Option(help="Least probability of a drawn token, relative to the most likely one.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of the draw.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cuda or cpu.")] = "auto",
) -> int:
    """Talk to a model. An empty line or end of input ends the conversation."""
    options = Sampling(max_tokens, temperature, top_p, seed, top_k, min_p)
    with closing(open_chat(target, _variant(base=base, start=start, exported=exported), device)) as backend:
        messages = [{"role": "system", "content": system}] if system else []
        interactive = prompt is None and sys.stdin is not None and sys.stdin.isatty()
        if interactive:
            out.dim(f"{backend.name}. An empty line ends the conversation.")
        if backend.note:
            err.dim(backend.note)
        for said in prompt or _lines(interactive):
            messages.append({"role": "user", "content": said})
            reply = ""
            for piece in backend.stream(messages, options):
                print_raw(piece)
                reply += piece
            print_raw("\n")
            messages.append({"role": "assistant", "content": reply})
    return ExitCode.DONE


def open_chat(target: str, variant: Variant, device: str) -> ChatBackend:
    """Open the back end for `target`.

    Args:
        target: what the person named.
        variant: choice among a run's models; other targets take "tuned" only.
        device: "auto", "cuda" or "cpu".

    Raises:
        UsageError: The target names nothing to chat with.
        SetupError: The model cannot be loaded.
    """
    if device not in ("auto", "cuda", "cpu"):
        raise UsageError(f"--device is {device!r}.", "Give auto, cuda or cpu.")
    if variant != "tuned" and not names_run(target):
        option = f"--{variant}"
        raise UsageError(f"{option} chooses among the models of a run, and {target} is no run.", f"Leave out {option}.")
    found = find_target(target, variant)
    if isinstance(found, FileTarget):
        from burnish_engine.chat.gguf_chat import GgufChat
        from burnish_engine.models.gguf.gguf_trial import try_file

        try_file(found.path)
        return GgufChat(found.path)
    from burnish_engine.chat.torch_chat import TorchChat
    from burnish_engine.models.device.device import choose_device, choose_precision

    chosen = choose_device(DevicesSection.model_validate({"kind": device}))
    adapter = found.adapter if found.tuned else None
    precision = choose_precision("auto", chosen)
    return TorchChat(found.open(), adapter, precision=precision, device=chosen, label=found.label)


def _variant(*, base: bool, start: bool, exported: bool) -> Variant:
    options: dict[Variant, bool] = {"base": base, "start": start, "exported": exported}
    chosen = [variant for variant, given in options.items() if given]
    if len(chosen) > 1:
        names = " and ".join(f"--{variant}" for variant in chosen)
        raise UsageError(f"{names} name different models of the run.", "Give one of them.")
    return chosen[0] if chosen else "tuned"


def _lines(interactive: bool) -> list[str] | _Prompts:
    if interactive:
        return _Prompts()
    return [line for line in sys.stdin.read().splitlines() if line.strip()] if sys.stdin is not None else []


class _Prompts:
    """Yield lines from the terminal until an empty one."""

    def __iter__(self) -> _Prompts:
        return self

    def __next__(self) -> str:
        try:
            line = input("> ").strip()
        except EOFError:
            raise StopIteration from None
        if not line:
            raise StopIteration
        return line
