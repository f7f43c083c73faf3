"""How far off are the predictions of `burnish plan`? Real runs of the real engine, measured from outside.

    python tests/bench plan_accuracy --device cuda --out results.json [--only NAME ...]

Models have the published shapes and random weights, made on the spot; text is synthetic. A GPU's peak is NVML's figure
for the whole process (driver context included), read every 20 ms beside torch's own; the CPU's is the process's largest
resident memory as the kernel counts it. Predictions are made before the run, from the same recipe, dataset and machine,
and know of no run before: what a run took would correct those of the next.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import psutil

from burnish_engine.hardware.host.peak_memory import peak_bytes

from bench.shared.chats import write_chats
from bench.shared.commands import BURNISH
from bench.shared.gpus import memory_reader, visible_gpus
from bench.shared.random_models import make_models

# name: model, tokens a pass, adapter, train options beside them. An adapter with PEFT's own options is begun with PEFT.
CONFIGS = {
    "cuda": {
        "0.6B-2k": ("qwen3-0.6b", 2048, {"rank": 16}, {}),
        "0.6B-8k": ("qwen3-0.6b", 8192, {"rank": 16}, {}),
        "0.6B-8k-recompute": ("qwen3-0.6b", 8192, {"rank": 16}, {"recompute": True}),
        "1B-4k": ("llama-3.2-1b", 4096, {"rank": 16}, {}),
        "1B-16k-recompute": ("llama-3.2-1b", 16384, {"rank": 16}, {"recompute": True}),
        "1.5B-4k-r64": ("qwen2.5-1.5b", 4096, {"rank": 64, "method": "rslora"}, {}),
        "4B-4k": ("qwen3-4b", 4096, {"rank": 16}, {}),
        "4B-4k-recompute": ("qwen3-4b", 4096, {"rank": 16}, {"recompute": True}),
        "8B-2k": ("llama-3.1-8b", 2048, {"rank": 16}, {}),
        "135M-2k-fp32": ("smollm2-135m", 2048, {"rank": 16}, {"precision": "fp32"}),
        # Not used to fit anything:
        "360M-4k-r32": ("smollm2-360m", 4096, {"rank": 32}, {}),
        "1B-8k-dora-recompute": ("llama-3.2-1b", 8192, {"rank": 16, "method": "dora"}, {"recompute": True}),
        "8B-2k-recompute": ("llama-3.1-8b", 2048, {"rank": 16}, {"recompute": True}),
    },
    "cpu": {
        "135M-512-fp32": ("smollm2-135m", 512, {"rank": 16}, {"precision": "fp32"}),
        "135M-1k-bf16": ("smollm2-135m", 1024, {"rank": 16}, {"precision": "bf16"}),
        "135M-2k-fp32": ("smollm2-135m", 2048, {"rank": 16}, {"precision": "fp32"}),
        "135M-2k-recompute": ("smollm2-135m", 2048, {"rank": 16}, {"precision": "fp32", "recompute": True}),
        "360M-512-bf16": ("smollm2-360m", 512, {"rank": 8}, {"precision": "bf16"}),
        "55M-1k-fp32": ("llama-55m", 1024, {"rank": 16}, {"precision": "fp32"}),
        "55M-2k-bf16": ("llama-55m", 2048, {"rank": 16}, {"precision": "bf16"}),
        "135M-1k-embedding": ("smollm2-135m", 1024, {"modules_to_save": ["embed_tokens"]}, {"precision": "fp32"}),
        "135M-1k-rows": ("smollm2-135m", 1024, {"trainable_token_indices": [1, 2, 3]}, {"precision": "fp32"}),
        "55M-1k-head-bf16": ("llama-55m", 1024, {"modules_to_save": ["lm_head"]}, {"precision": "bf16"}),
        "55M-1k-tables-lora": ("llama-55m", 1024, {"target_modules": ["q_proj", "embed_tokens", "lm_head"]}, {}),
    },
}


def measure(work: Path, device: str, name: str, steps: int, engine: str) -> dict[str, object]:
    """Plan and run one configuration."""
    model, tokens, adapter, train = CONFIGS[device][name]
    folder = work / "models" / model
    make_models(folder.parent, [model])
    if adapter.keys() & {"modules_to_save", "trainable_token_indices", "target_modules"}:
        adapter = {"start": str(begin_adapter(folder, work / "adapters" / name, adapter))}
    data = work / "data.jsonl"
    if not data.is_file():
        write_chats(data, 1500)
    recipe = work / f"{name}.toml"
    train = {"engine": engine, **train}
    recipe.write_text(recipe_text(folder, data, device, tokens, adapter, train, steps), encoding="utf-8")
    home = work / "home"
    shutil.rmtree(home, ignore_errors=True)
    environment = os.environ | {"BURNISH_HOME": str(home)}
    planned = subprocess.run(
        [*BURNISH, "plan", str(recipe), "--json"], env=environment, capture_output=True, text=True, check=False
    )
    if not planned.stdout:
        return {"name": name, "error": planned.stderr[-1500:]}
    plan = json.loads(planned.stdout)
    run = work / "runs" / name
    shutil.rmtree(run, ignore_errors=True)
    process = subprocess.Popen([*BURNISH, "train", str(recipe), "--run-dir", str(run), "--anyway"], env=environment,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)  # fmt: skip
    peak = watch(process, device)
    if process.returncode:
        return {"name": name, "error": process.stderr.read()[-1500:] if process.stderr else ""}
    events = [json.loads(line) for line in (run / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    done = [event for event in events if event["type"] == "step"]
    speed = statistics.median(event["tokens_per_s"] for event in done[len(done) // 3 :])
    return {
        "name": name,
        "engine": next(event["engine"] for event in events if event["type"] == "run_started"),
        "predicted_bytes": plan["memory_bytes"],
        "measured_bytes": peak,
        "error_share": plan["memory_bytes"] / peak - 1,
        "torch_peak_bytes": max(event["memory_bytes"] for event in done),
        "predicted_tokens_per_s": plan["tokens_per_s"],
        "measured_tokens_per_s": speed,
        "speed_error_share": plan["tokens_per_s"] / speed - 1,
        "median_step_s": statistics.median(event["step_s"] for event in done),
        "supervised": max(event["supervised_tokens"] for event in done),
        "parts": {part["name"]: part["bytes"] for part in plan["memory"]},
    }


def begin_adapter(model: Path, folder: Path, options: dict) -> Path:
    """Save an adapter that PEFT makes of a model with its own options; returns its folder."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(model)
    config = LoraConfig(task_type="CAUSAL_LM", r=16, lora_alpha=32, **{"target_modules": ["q_proj"], **options})
    get_peft_model(base, config).save_pretrained(folder)
    return folder


def recipe_text(folder: Path, data: Path, device: str, tokens: int, adapter: dict, train: dict, steps: int) -> str:
    """The recipe of one configuration."""
    lines = [
        f"[model]\npath = {json.dumps(str(folder))}",
        f"[data]\nfiles = [{json.dumps(str(data))}]\nmax_length = 512",
    ]
    lines.append("[adapter]\n" + "\n".join(f"{key} = {json.dumps(value)}" for key, value in adapter.items()))
    options = {"micro_batch_tokens": tokens, "max_steps": steps, "checkpoint_every": 0, **train}
    lines.append("[train]\n" + "\n".join(f"{key} = {json.dumps(value)}" for key, value in options.items()))
    lines.append(f"[evaluation]\nmax_rows = 20\n[devices]\nkind = {json.dumps(device)}")
    return "\n".join(lines) + "\n"


def watch(process: subprocess.Popen[str], device: str) -> int:
    """The process's peak until it ends: device memory by NVML (all of the device where it names no process), or RSS."""
    own, memory, before = psutil.Process(process.pid), None, 0
    if device == "cuda":
        memory = memory_reader(visible_gpus()[0])
        before = memory().used
    peak = 0
    while process.poll() is None:
        try:
            peak = max(peak, memory().used - before if memory else held(own))
        except psutil.NoSuchProcess:
            break
        time.sleep(0.02)
    process.wait()
    return peak


def held(process: psutil.Process) -> int:
    """The largest resident memory that the kernel has seen of a process; what it has now where it does not say."""
    status, memory = Path(f"/proc/{process.pid}/status"), process.memory_info()
    return (peak_bytes(status) if status.exists() else None) or int(getattr(memory, "peak_wset", memory.rss))


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--engine", choices=["auto", "fast", "plain"], default="auto")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--work", type=Path)
    options = parser.parse_args()
    work = options.work or Path(tempfile.mkdtemp(prefix="burnish-plan-"))
    work.mkdir(parents=True, exist_ok=True)
    results = []
    for name in options.only or CONFIGS[options.device]:
        result = measure(work, options.device, name, options.steps, options.engine)
        results.append(result)
        if "error" in result:
            print(f"{name}: {result['error']}", flush=True)
            continue
        predicted, measured = result["predicted_bytes"] / 2**30, result["measured_bytes"] / 2**30
        print(
            f"{name:20s} {result['engine']:5s} GiB {predicted:6.2f} predicted {measured:6.2f} measured "
            f"{result['error_share']:+.1%}   "
            f"tok/s {result['predicted_tokens_per_s']:8.0f} {result['measured_tokens_per_s']:8.0f} "
            f"{result['speed_error_share']:+.0%}",
            flush=True,
        )
        if options.out:
            options.out.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
