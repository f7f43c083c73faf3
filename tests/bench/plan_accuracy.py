"""How far off are the predictions of `burnish plan`? Real runs of the real engine, measured from outside.

    python tests/bench/plan_accuracy.py --device cuda --out results.json [--only NAME ...]

Models have the published shapes and random weights, made on the spot; text is synthetic. A GPU's peak is NVML's figure
for the whole process (driver context included), read every 20 ms beside torch's own; the CPU's is the process's largest
resident memory. Predictions are made before the run, from the same recipe, dataset and machine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in ("engine", "kernels", "tests")]

QWEN3 = {"model_type": "qwen3", "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960}
LLAMA = {"model_type": "llama", "vocab_size": 128256, "max_position_embeddings": 131072}
# Shapes as in the models' published config.json.
MODELS = {
    "qwen3-0.6b": QWEN3 | {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
                           "num_attention_heads": 16, "num_key_value_heads": 8, "tie_word_embeddings": True},
    "qwen3-4b": QWEN3 | {"hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36,
                         "num_attention_heads": 32, "num_key_value_heads": 8, "tie_word_embeddings": True},
    "qwen2.5-1.5b": {"model_type": "qwen2", "vocab_size": 151936, "hidden_size": 1536, "intermediate_size": 8960,
                     "num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2,
                     "tie_word_embeddings": True, "max_position_embeddings": 32768},
    "llama-3.2-1b": LLAMA | {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
                             "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
                             "tie_word_embeddings": True},
    "llama-3.1-8b": LLAMA | {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
                             "num_attention_heads": 32, "num_key_value_heads": 8, "tie_word_embeddings": False},
    "smollm2-135m": {"model_type": "llama", "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536,
                     "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
                     "tie_word_embeddings": True, "max_position_embeddings": 8192},
    "smollm2-360m": {"model_type": "llama", "vocab_size": 49152, "hidden_size": 960, "intermediate_size": 2560,
                     "num_hidden_layers": 32, "num_attention_heads": 15, "num_key_value_heads": 5,
                     "tie_word_embeddings": True, "max_position_embeddings": 8192},
}  # fmt: skip
# name: model, tokens a pass, adapter, train options beside them
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
    },
}


def make_model(folder: Path, config: dict[str, object]) -> None:
    """A model folder of that shape with random bf16 weights and a small tokenizer."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from support.models.tiny import make_tokenizer

    if (folder / "config.json").is_file():
        return
    folder.mkdir(parents=True, exist_ok=True)
    make_tokenizer(folder)
    values = dict(config)
    settings = AutoConfig.for_model(values.pop("model_type"), **values)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForCausalLM.from_config(settings)
    torch.set_default_dtype(before)
    model.to(torch.bfloat16).save_pretrained(folder, max_shard_size="2GB")


def make_data(path: Path, rows: int, seed: int = 0) -> None:
    """Chats with replies of widely varying length."""
    random.seed(seed)
    words = ["cause", "fix", "check", "lamp", "bike", "door", "soup", "garden", "the", "of", "and", "again", "worn"]
    with path.open("w", encoding="utf-8") as file:
        for _ in range(rows):
            said = [" ".join(random.choices(words, k=max(4, int(random.lognormvariate(mu, 0.8))))) for mu in (2.8, 3.8)]
            turns = [{"role": role, "content": text} for role, text in zip(("user", "assistant"), said, strict=True)]
            file.write(json.dumps({"messages": turns}) + "\n")


def measure(work: Path, device: str, name: str, steps: int) -> dict[str, object]:
    """Plan and run one configuration."""
    model, tokens, adapter, train = CONFIGS[device][name]
    folder = work / "models" / model
    make_in_child(folder, MODELS[model])
    data = work / "data.jsonl"
    if not data.is_file():
        make_data(data, 1500)
    recipe = work / f"{name}.toml"
    recipe.write_text(recipe_text(folder, data, device, tokens, adapter, train, steps), encoding="utf-8")
    paths = [*sys.path[:3], os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"BURNISH_HOME": str(work / "home"), "PYTHONPATH": os.pathsep.join(paths)}
    burnish = [sys.executable, "-m", "burnish_engine.cli.main"]
    planned = subprocess.run(
        [*burnish, "plan", str(recipe), "--json"], env=environment, capture_output=True, text=True, check=False
    )
    if not planned.stdout:
        return {"name": name, "error": planned.stderr[-1500:]}
    plan = json.loads(planned.stdout)
    run = work / "runs" / name
    shutil.rmtree(run, ignore_errors=True)
    process = subprocess.Popen([*burnish, "train", str(recipe), "--run-dir", str(run), "--anyway"], env=environment,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)  # fmt: skip
    peak = watch(process, device)
    if process.returncode:
        return {"name": name, "error": process.stderr.read()[-1500:] if process.stderr else ""}
    events = [json.loads(line) for line in (run / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    done = [event for event in events if event["type"] == "step"]
    speed = statistics.median(event["tokens_per_s"] for event in done[len(done) // 3 :])
    return {
        "name": name,
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


def make_in_child(folder: Path, config: dict[str, object]) -> None:
    """Make the model in a process of its own: this one must never hold a CUDA context."""
    if not (folder / "config.json").is_file():
        subprocess.run([sys.executable, __file__, "--make", str(folder), json.dumps(config)], check=True)


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
    seen = psutil.Process(process.pid)
    nvml, handle, before = None, None, 0
    if device == "cuda":
        import pynvml as nvml

        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByIndex(0)
        before = nvml.nvmlDeviceGetMemoryInfo(handle).used
    peak = 0
    while process.poll() is None:
        try:
            if nvml is not None:
                peak = max(peak, nvml.nvmlDeviceGetMemoryInfo(handle).used - before)
            else:
                peak = max(peak, seen.memory_info().rss)
        except psutil.NoSuchProcess:
            break
        time.sleep(0.02)
    process.wait()
    return peak


def main() -> None:
    """Measure and print a table."""
    if sys.argv[1:2] == ["--make"]:
        make_model(Path(sys.argv[2]), json.loads(sys.argv[3]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--work", type=Path)
    options = parser.parse_args()
    work = options.work or Path(tempfile.mkdtemp(prefix="burnish-plan-"))
    work.mkdir(parents=True, exist_ok=True)
    results = []
    for name in options.only or CONFIGS[options.device]:
        result = measure(work, options.device, name, options.steps)
        results.append(result)
        if "error" in result:
            print(f"{name}: {result['error']}", flush=True)
            continue
        predicted, measured = result["predicted_bytes"] / 2**30, result["measured_bytes"] / 2**30
        print(
            f"{name:20s} GiB {predicted:6.2f} predicted {measured:6.2f} measured {result['error_share']:+.1%}   "
            f"tok/s {result['predicted_tokens_per_s']:8.0f} {result['measured_tokens_per_s']:8.0f} "
            f"{result['speed_error_share']:+.0%}",
            flush=True,
        )
        if options.out:
            options.out.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
