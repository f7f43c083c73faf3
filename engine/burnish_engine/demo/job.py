"""Run the demo's stages, from the embedded model to the report."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from burnish_engine.contract.errors import BurnishError, ExitCode, NoSpaceError, UsageError
from burnish_engine.contract.facts.facts import FidelityReport
from burnish_engine.contract.files import cannot_write, write_atomic
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.run.events import Event
from burnish_engine.contract.run.fold import RunState
from burnish_engine.contract.units import file_size
from burnish_engine.demo.report import DemoReport, ReplyScores, render
from burnish_engine.demo.tasks import BENCH_NOTES, DemoTask
from burnish_engine.models.checkpoint.source import ModelSource, open_model
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.models.generation.sampling import GeneratedReply, Sampling
from burnish_engine.runs.events_file import read_run
from burnish_engine.runs.store import create_run, read_recipe

_EXAMPLES = 3
_NEEDED_BYTES = 1_500_000_000  # the unpacked model, the staged files and the finished ones

Progress = Callable[[str, float], None]
Say = Callable[[str], None]


def run_demo(
    out: Path,
    task: DemoTask = BENCH_NOTES,
    *,
    tokens: int,
    say: Say,
    listener: Callable[[Event], None],
    progress: Progress,
    stopping: Callable[[], None] | None = None,
    force: bool = False,
) -> DemoReport:
    """Train, talk, export, verify, report.

    Args:
        out: new folder for run, adapter, files and report.
        task: what is taught.
        tokens: limit on the tokens to train on.
        say: callback given a sentence on each stage.
        listener: callback given the run's events.
        progress: callback given the export's activity and share done.
        stopping: callback called at once when a signal asks the training to stop.
        force: whether to use the device even where another run holds it.

    Raises:
        UsageError: The folder is not empty.
        BurnishError: Any stage failed.
    """
    seconds: dict[str, float] = {}
    _take_folder(out)
    with _timed(seconds, "unpack the model"):
        say("Opening the embedded model")
        source = open_model("embedded")
    with _timed(seconds, "train"):
        say("Training")
        paths = _train(out, task.recipe(tokens), listener, stopping, force=force)
    problems = task.prompts()
    prompts = [[{"role": "user", "content": problem}] for problem in problems]
    with _timed(seconds, "reply before and after"):
        say(f"Answering {len(prompts)} held-out problems with the base and the tuned model")
        replies = _torch_replies(source, paths, prompts, task.reply_tokens)
    files_dir = out / "gguf"
    with _timed(seconds, "export and verify"):
        say("Writing GGUF files and verifying them against the trained model")
        fidelity = _export(source, paths, files_dir, f"{source.name}-{task.dataset}", progress)
    best = fidelity.files[0]
    with _timed(seconds, "reply with the GGUF"):
        say(f"Answering the same problems with {best.file}")
        replies[best.quant] = _gguf_replies(files_dir / best.file, prompts, task.reply_tokens, progress)
    shutil.copytree(paths.adapter, out / "adapter")
    report = _report(
        source,
        task,
        read_run(paths.events),
        replies=replies,
        problems=problems,
        fidelity=fidelity,
        seconds=seconds,
        out=out,
    )
    write_atomic(out / "replies.json", json.dumps(_as_json(replies), indent=1, ensure_ascii=False) + "\n")
    write_atomic(out / "report.json", report.model_dump_json(indent=2) + "\n")
    write_atomic(out / "report.html", render(report))
    return report


def _take_folder(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} already holds something.", "Give another folder with --out, or delete that one.")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(out, error) from error
    free = shutil.disk_usage(out).free
    if free < _NEEDED_BYTES:
        raise NoSpaceError(
            f"The demo needs {file_size(_NEEDED_BYTES)} in {out}; {file_size(free)} are free.",
            "Free some space or give --out.",
        )


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    seconds[stage] = round(time.perf_counter() - began, 1)


def _train(
    out: Path, recipe: Recipe, listener: Callable[[Event], None], stopping: Callable[[], None] | None, *, force: bool
) -> RunPaths:
    from burnish_engine.train.run import run_training

    paths = create_run(recipe, out / "run")
    outcome = run_training(paths, listener=listener, stopping=stopping, force=force)
    if outcome.exit_code is not ExitCode.DONE:
        error = BurnishError(outcome.message, f"The run is in {paths.root}; `burnish runs resume` continues with it.")
        error.exit_code = outcome.exit_code  # type: ignore[misc]  # this failure has the run's own code
        raise error
    return paths


def _torch_replies(
    source: ModelSource, paths: RunPaths, prompts: list[list[dict[str, str]]], reply_tokens: int
) -> dict[str, list[GeneratedReply]]:
    from burnish_engine.models.device.device import choose_device, choose_precision
    from burnish_engine.models.generation.generate import generate_replies
    from burnish_engine.models.transformers_path import plain

    device = choose_device(read_recipe(paths).devices)
    tokenizer = load_tokenizer(source)
    base = plain.load_base(source, choose_precision("auto", device), device)
    model: Any = plain.load_adapter(base, paths.adapter).eval()
    tuned = generate_replies(model, tokenizer, prompts, max_new_tokens=reply_tokens, batch_size=len(prompts))
    with model.disable_adapter():
        before = generate_replies(model, tokenizer, prompts, max_new_tokens=reply_tokens, batch_size=len(prompts))
    return {"base": before, "tuned": tuned}


def _export(source: ModelSource, paths: RunPaths, folder: Path, name: str, progress: Progress) -> FidelityReport:
    from burnish_engine.export.job import export_gguf
    from burnish_engine.export.run_rows import export_rows, reference_options
    from burnish_engine.export.verify.reference import ExportedModel
    from burnish_engine.models.device.device import choose_device

    recipe = read_recipe(paths)
    rows = export_rows(paths, recipe, source)
    model = ExportedModel(
        source,
        paths.adapter,
        rows.held_out,
        rows.chats[:3],
        reference_options(paths, recipe, source, rows, importance=recipe.export.importance),
        choose_device(recipe.devices),
    )
    return export_gguf(model, folder, name, recipe.export.quants, progress=progress)


def _gguf_replies(
    file: Path, prompts: list[list[dict[str, str]]], reply_tokens: int, progress: Progress
) -> list[GeneratedReply]:
    from burnish_engine.chat.gguf_chat import GgufChat

    replies = []
    with closing(GgufChat(file)) as backend:
        for number, prompt in enumerate(prompts):
            progress(f"Reply {number + 1} of {len(prompts)}", number / len(prompts))
            replies.append(backend.stream(prompt, Sampling(max_tokens=reply_tokens)).finish())
    return replies


def _as_json(replies: dict[str, list[GeneratedReply]]) -> dict[str, list[dict[str, object]]]:
    return {
        model: [{"reply": reply.text, "stopped": reply.stopped} for reply in given] for model, given in replies.items()
    }


def _report(
    source: ModelSource,
    task: DemoTask,
    run: RunState,
    *,
    replies: dict[str, list[GeneratedReply]],
    problems: list[str],
    fidelity: FidelityReport,
    seconds: dict[str, float],
    out: Path,
) -> DemoReport:
    assert run.started is not None
    assert run.data is not None
    assert run.result is not None
    steps, before, after = run.steps, run.evaluations.loss.values()[0], run.result[1]
    tokens = sum(steps.tokens.values())
    counts = {model: task.count(entries) for model, entries in _as_json(replies).items()}
    quants = {quant: counts[quant] for quant in counts if quant not in ("base", "tuned")}
    best = fidelity.files[0]
    return DemoReport(
        model=source.name,
        note=source.note,
        dataset=task.dataset,
        title=task.title,
        train_rows=run.data.train_rows,
        held_out_rows=run.data.validation_rows,
        device=run.started.device,
        precision=run.started.precision,
        steps=len(steps),
        trained_tokens=tokens,
        tokens_per_s=tokens / sum(steps.step_s.values()),
        peak_memory_bytes=run.highest_bytes,
        losses=list(zip(steps.step.values(), steps.loss.values(), strict=True)),
        held_out_loss_base=before,
        held_out_loss_tuned=after,
        held_out_improvement=1 - after / before,
        scores=ReplyScores(prompts=len(problems), base=counts["base"], tuned=counts["tuned"], gguf=quants),
        behavior=task.behavior,
        preferred=run.of_result(run.evaluations.accuracy),
        forgetting=run.forgetting,
        fidelity=fidelity,
        files={
            file.relative_to(out).as_posix(): file.stat().st_size
            for folder, pattern in (("gguf", "*.gguf"), ("adapter", "*.safetensors"))
            for file in sorted((out / folder).glob(pattern))
        },
        examples=[
            {"prompt": problem, "base": replies["base"][i].text, "tuned": replies["tuned"][i].text}
            for i, problem in enumerate(problems[:_EXAMPLES])
        ],
        gguf_chat={"file": best.file, "prompt": problems[_EXAMPLES], "reply": replies[best.quant][_EXAMPLES].text},
        seconds=seconds,
        versions=run.started.versions,
    )
