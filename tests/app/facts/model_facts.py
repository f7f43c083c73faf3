"""Constructed facts about models of this machine and the hub, their downloads and adapters, for tests and pictures."""

from burnish_engine.contract.facts.advice import AdapterFacts, FoundOnHub, LocalModel, ModelIntegrity
from burnish_engine.contract.facts.downloads import Download


def local_models():
    return [
        LocalModel(
            name="Qwen/Qwen3-0.6B", place="hub_cache", folder="/home/ada/hub/models--Qwen--Qwen3-0.6B",
            bytes=1_503_000_000, verdict="good", tokens_per_s=18_400, train_bytes=4_300_000_000,
            reason="LoRA takes 4.0 GiB of 21.9 GiB free, at about 18,400 tokens/s.",
        ),
        LocalModel(
            name="Qwen/Qwen3-32B", place="hub_cache", folder="/home/ada/hub/models--Qwen--Qwen3-32B",
            bytes=65_500_000_000, verdict="too_big", reason="Not even its smallest pass fits into what is free here.",
        ),
        LocalModel(
            name="gemma3:4b", place="ollama", folder="/home/ada/.ollama/models", bytes=3_300_000_000,
            verdict="unusable", reason="Its weights are GGUF, rounded for running: training needs safetensors.",
        ),
    ]  # fmt: skip


def hub_models():
    return [
        FoundOnHub(
            name="Qwen/Qwen2.5-Coder-1.5B-Instruct", parameters=1_543_714_304, license="apache-2.0",
            downloads=1_204_331, download_bytes=3_087_428_608, verdict="good", train_bytes=6_100_000_000,
            tokens_per_s=9_200,
            reason="LoRA takes 5.7 GiB of 21.9 GiB free, at about 9,200 tokens/s.",
        ),
        FoundOnHub(
            name="someone/Qwen2.5-Coder-14B-Instruct-long-context-tuned-2026", parameters=14_770_033_664,
            download_bytes=29_540_067_328, verdict="tight", train_bytes=20_400_000_000, tokens_per_s=1_150, gated=True,
            reason="QLoRA takes 19.0 GiB of 21.9 GiB free, at about 1,150 tokens/s.",
        ),
        FoundOnHub(
            name="someone/Qwen2.5-Coder-7B-Instruct-AWQ", parameters=7_615_616_512, download_bytes=5_570_000_000,
            verdict="unusable",
            reason="Its weights were rounded or converted for running: train the model that it was made from.",
        ),
    ]  # fmt: skip


def downloads():
    return [
        Download(
            name="Qwen/Qwen3-0.6B", status="running", done=512 * 2**20, total=1_503_000_000, bytes_per_s=34_200_000,
            what="Downloading model.safetensors",
        ),
        Download(name="HuggingFaceTB/SmolLM3-3B", status="queued"),
        Download(
            name="meta-llama/Llama-3.2-1B-Instruct", status="paused", gated=True, done=800_000_000, total=2_471_000_000,
            message="It needs its access token again.", remedy="Give the token, then continue: it is never stored.",
        ),
        Download(
            name="mistralai/Mistral-7B-Instruct-v0.3", status="failed", done=3_100_000_000, total=14_500_000_000,
            message="huggingface.co could not be reached (timed out).",
            remedy="Check the network, then start it again.",
        ),
        Download(name="Qwen/Qwen3-1.7B", status="finished", done=4_060_000_000, total=4_060_000_000),
    ]  # fmt: skip


def adapter(**changes):
    fields = {
        "path": "/home/ada/burnish/runs/support-first", "folder": "/home/ada/burnish/runs/support-first/adapter",
        "base": "Qwen/Qwen3-0.6B", "base_path": "Qwen/Qwen3-0.6B", "method": "lora", "rank": 16, "alpha": 32.0,
        "targets": ["auto"], "bytes": 40_400_000, "sha256": "3b1f" * 16,
    }  # fmt: skip
    return AdapterFacts(**{**fields, **changes})


def integrity(**changes):
    return ModelIntegrity(**{"checked": 9, "bytes": 1_514_000_000, "unpublished": 1, **changes})
