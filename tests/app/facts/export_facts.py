"""Constructed facts about exports: forecasts, jobs and reports."""

from burnish_engine.contract.facts.export_forecast import ExportForecast, ExportStage, TypeForecast
from burnish_engine.contract.facts.facts import FidelityReport, QuantFidelity
from burnish_engine.contract.facts.task_score import TaskChange, TaskScore
from burnish_engine.contract.serve.replies import ExportJob
from burnish_engine.contract.wording.tables import EXPORT_STAGES

GIB = 2**30


def quant(name="Q8_0", *, passed=True, **changes):
    fields = {
        "file": f"support-desk-{name}.gguf",
        "quant": name,
        "bytes": 639_000_000,
        "sha256": "3f" * 32,
        "tensor_types": {name: 197, "F32": 113},
        "positions": 4812,
        "mean_kl": 0.0011,
        "p99_kl": 0.018,
        "top1_agreement": 0.991,
        "reply": "Cause: ...",
        "reply_stopped": True,
        "passed": passed,
    }
    return QuantFidelity(**{**fields, **changes})


def report(*, refused=False):
    files = [
        quant(
            gain_kept=0.998, held_out_loss=1.189, tokens_per_s=26.3,
            task=TaskScore(metric="json", passed=[True] * 47 + [False] * 3),
        ),
        quant(
            "Q4_K_M", bytes=397_000_000, mean_kl=0.041, p99_kl=0.52, top1_agreement=0.921, gain_kept=0.963,
            tokens_per_s=39.8, held_out_loss=1.239, importance=True,
            task=TaskScore(metric="json", passed=[True] * 41 + [False] * 9),
        ),
    ]  # fmt: skip
    if refused:
        problem = (
            "Its predictions differ from the trained model's by more than is allowed: mean KL divergence 1.31, limit 1 "
            "for IQ4_XS."
        )
        files.append(
            quant(
                "IQ4_XS",
                passed=False,
                bytes=351_000_000,
                mean_kl=1.31,
                p99_kl=6.2,
                top1_agreement=0.58,
                problems=[problem],
            )
        )
    return FidelityReport(
        model="Qwen3 0.6B",
        architecture="qwen3",
        token_strings=500,
        token_mismatches=0,
        files=files,
        passed=not refused,
        conversion_kl=3e-6,
        base_loss=2.61,
        tuned_loss=1.186,
        task=TaskChange(
            before=TaskScore(metric="json", passed=[False] * 50),
            after=TaskScore(metric="json", passed=[True] * 47 + [False] * 3),
        ),
        importance_tokens=16_384,
    )


_TYPES = (
    ("F16", 1_198_000_000, 0.0, 14), ("Q8_0", 639_446_688, 0.0014, 27), ("Q6_K", 495_000_000, 0.0055, 34),
    ("Q5_K_M", 444_000_000, 0.0108, 38), ("Q5_K_S", 437_000_000, 0.0166, 39), ("Q5_0", 437_000_000, 0.0222, 39),
    ("Q4_K_M", 397_000_000, 0.0282, 42), ("Q4_K_S", 383_000_000, 0.032, 43), ("Q4_1", 409_000_000, 0.0717, 41),
    ("Q4_0", 381_000_000, 0.0719, 44), ("IQ4_NL", 382_000_000, 0.0357, 44), ("IQ4_XS", 367_000_000, 0.0363, 45),
    ("Q3_K_M", 347_000_000, 0.0844, 47), ("Q3_K_S", 323_000_000, 0.1998, 50), ("IQ3_M", 336_000_000, 0.1025, 48),
    ("IQ3_XXS", 290_000_000, 0.1836, 54), ("Q2_K", 296_000_000, 0.3322, 53), ("IQ2_M", 262_000_000, 0.326, 59),
)  # fmt: skip


def type_forecasts(gain=1.424):
    """Return what each type of a 0.6B model would be."""
    return [
        TypeForecast(
            quant=quant, bytes=size, mean_kl=kl, gain_kept=1 - kl / gain if gain else None, tokens_per_s=float(speed)
        )
        for quant, size, kl, speed in _TYPES
    ]


def forecast(**changes):
    stages = [
        ExportStage(what="Writing F16", disk_bytes=1_198_000_000, memory_bytes=10**9, seconds=12.0),
        ExportStage(what="Running the trained model", disk_bytes=0, memory_bytes=1_600_000_000, seconds=500.0),
    ]
    fields = {
        "sizes": {"Q8_0": 639_446_688},
        "stages": stages,
        "disk_bytes": 2 * GIB,
        "disk_free_bytes": 412 * GIB,
        "memory_bytes": 1_600_000_000,
        "memory_free_bytes": 48 * GIB,
        "seconds": 700.0,
        "types": type_forecasts(),
        "target_bytes": 9 * GIB,
    }
    return ExportForecast(**{**fields, **changes})


def job(status="running", **changes):
    fields = {
        "status": status,
        "quants": ["Q8_0", "Q4_K_M"],
        "what": EXPORT_STAGES["check"].format(quant="Q8_0"),
        "share": 0.42,
    }
    return ExportJob(**{**fields, **changes})
