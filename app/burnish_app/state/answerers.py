"""Who can answer on the page Try it: the models of a run, its exported files, and other runs. No Qt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from burnish_app.look.language import tr
from burnish_app.state.run_folder import RunFolder
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.serve.replies import RunSummary

Variant = Literal["tuned", "base", "start", "exported"]
_MOST_RUNS = 12


@dataclass(frozen=True)
class Answerer:
    """A model that may answer.

    Attributes:
        key: what tells it apart, and what votes call it.
        label: name for people.
        target: target of a `ChatRequest`.
        variant: variant of a `ChatRequest`.
        able: whether it can answer now.
        hint: what it is, in a sentence; may be empty.
        where: other machine whose engine answers, as the recipe names it; empty: this one.
    """

    key: str
    label: str
    target: str
    variant: Variant
    able: bool = True
    hint: str = ""
    where: str = ""


def answerers(run: str, model_path: str, folder: RunFolder, runs: Sequence[RunSummary]) -> list[Answerer]:
    """List who may answer.

    Args:
        run: path of the run; empty: none yet, so that only the chosen model can answer.
        model_path: path or name of the chosen model.
        folder: contents of the run's folder.
        runs: all runs, newest first; those with a step may answer too.
    """
    target = run or model_path
    found = [Answerer("base", tr("Base model"), target, "base", hint=tr("The model as it was before training."))]
    if folder.starts_from_adapter:
        found.append(Answerer("start", tr("Start (before this run)"), target, "start"))
    hint = tr("The model as this run trained it.")
    found.append(Answerer("tuned", tr("Tuned model"), target, "tuned", folder.trained, hint))
    if folder.where:  # where its base model lies, which may be too large for this machine
        where = folder.where.removeprefix("ssh:")
        base, tuned = (text.format(where=where) for text in (tr("Base, at {where}"), tr("Tuned, at {where}")))
        found.append(Answerer("base-there", base, folder.there, "base", where=folder.where))
        found.append(Answerer("tuned-there", tuned, folder.there, "tuned", where=folder.where))
    if len(folder.exported) < 2:
        found.append(Answerer("exported", tr("Exported file"), target, "exported", bool(folder.exported)))
    for name in folder.exported if len(folder.exported) > 1 else ():
        path = RunPaths(Path(run)).export / name
        label = tr("File {type}").format(type=path.stem.rpartition("-")[2])
        found.append(Answerer(name, label, str(path), "exported"))
    others = [one for one in runs if one.state.step and (not run or Path(one.folder) != Path(run))]
    for other in others[:_MOST_RUNS]:
        name = other.state.name or other.state.run
        found.append(Answerer(f"run {other.state.run}", tr("Run {name}").format(name=name), other.folder, "tuned"))
    return found
