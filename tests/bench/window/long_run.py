"""Writes the folder of a run with very many steps, from recordings of real ones.

The loss, gradient norm, speed and texts are those of the example that ships, stretched to the wanted length; the
hardware's samples are those that were recorded on an H100, repeated.
"""

import json

from burnish_engine.contract.paths import RunPaths

from bench import ROOT

EXAMPLE = ROOT / "assets" / "example-runs" / "example-fixes-at-home"
SAMPLES = ROOT / "tests" / "golden" / "hardware" / "h100.jsonl"
EVALUATIONS, CHECKPOINTS = 200, 40
_STEP_S = 0.1


def write_long_run(folder, steps):
    """Write the run folder of a finished run of this many steps."""
    paths = RunPaths(folder)
    folder.mkdir(parents=True)
    recorded = [json.loads(line) for line in (EXAMPLE / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    first = next(place for place, event in enumerate(recorded) if event["type"] == "step")
    one_step, evaluation, checkpoint, sample = (
        [event for event in recorded if event["type"] == kind]
        for kind in ("step", "evaluation", "checkpoint", "sample")
    )
    events = [*recorded[:first]]
    for event in events:
        if event["type"] == "run_started":
            event["total_steps"] = steps
    for step in range(1, steps + 1):
        events.append(_step(one_step, step, steps))
        if step % (steps // EVALUATIONS) == 0:
            share = step / steps
            at = _between([one["loss"] for one in evaluation], share)
            events.append({**evaluation[-1], "step": step, "loss": at})
        if step % (steps // CHECKPOINTS) == 0:
            events += [
                {**checkpoint[0], "step": step, "path": f"checkpoints/step-{step:06d}"},
                {**sample[-1], "step": step},
            ]
    events.append({**recorded[-1], "step": steps, "seconds": steps * _STEP_S})
    begun = recorded[0]["t"]
    with paths.events.open("w", encoding="utf-8") as file:
        for seq, event in enumerate(events):
            file.write(json.dumps({**event, "seq": seq, "t": begun + seq * _STEP_S}) + "\n")
    state = json.loads((EXAMPLE / "state.json").read_text(encoding="utf-8"))
    named = {"run": folder.name, "name": "a long run", "step": steps, "total_steps": steps}
    paths.state.write_text(json.dumps({**state, **named}), encoding="utf-8")
    for name in ("recipe.toml", "card.json"):
        (folder / name).write_bytes((EXAMPLE / name).read_bytes())
    _write_hardware(paths.hardware, begun, steps * _STEP_S)


def _step(recorded, step, steps):
    """Make a step: the recorded curve stretched over the run, with the deviation of a recorded step from its mean."""
    real = recorded[step % len(recorded)]
    losses = [one["loss"] for one in recorded]
    near = losses[max(0, step % len(losses) - 4) : step % len(losses) + 5]
    loss = _between(losses, step / steps) + real["loss"] - sum(near) / len(near)
    rate = _between([one["learning_rate"] for one in recorded], step / steps)
    return {
        **real,
        "step": step,
        "loss": loss,
        "learning_rate": rate,
        "step_s": _STEP_S,
        "eta_s": (steps - step) * _STEP_S,
    }


def _between(values, share):
    """Return the value at a share of a list, between its neighbors."""
    at = share * (len(values) - 1)
    low = min(int(at), len(values) - 2)
    return values[low] + (at - low) * (values[low + 1] - values[low])


def _write_hardware(path, begun, seconds):
    start, *lines = [json.loads(line) for line in SAMPLES.read_text(encoding="utf-8").splitlines()]
    began, lasted = start["t"], lines[-1]["t"] - start["t"]
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps({**start, "t": begun}) + "\n")
        for turn in range(int(seconds / lasted)):
            for line in lines:
                file.write(json.dumps({**line, "t": begun + turn * lasted + line["t"] - began}) + "\n")
