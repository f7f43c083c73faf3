"""Constructed facts for tests and screenshots of pages; facts of machines are in `machine_facts`."""

import random
import re

from burnish_engine.contract.facts.advice import (
    CatalogModel,
    MemoryPart,
    ModelFacts,
    RankedModel,
    RunPlan,
    SettingChoice,
    Suggestion,
)
from burnish_engine.contract.facts.data_report import (
    ColumnReading,
    DatasetReport,
    FileColumns,
    FileStatus,
    Finding,
    RowLine,
    RowPage,
    RowPlace,
    Setting,
    TemplateFacts,
)
from burnish_engine.contract.facts.export_forecast import ExportForecast, ExportStage, TypeForecast
from burnish_engine.contract.facts.facts import (
    DatasetFacts,
    DecoderSpec,
    FidelityReport,
    LayerSpec,
    LengthStats,
    QuantFidelity,
)
from burnish_engine.contract.facts.task_score import TaskChange, TaskScore
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import dump_recipe
from burnish_engine.contract.serve.replies import ExportJob, Preview

GIB = 2**30
QUESTION = "<|im_start|>user\nMy parcel has not moved for six days. What can I do?<|im_end|>\n<|im_start|>assistant\n"
ANSWER = (
    "Cause: It waits at the depot for a customs paper.\nFix: Send the invoice to the carrier and ask for a trace.\n"
    "Check: The status changes within one working day.<|im_end|>"
)


def spec(hidden=1024, layers=28):
    return DecoderSpec(
        family="qwen3",
        vocab_size=151936,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_heads=16,
        num_kv_heads=8,
        head_dim=128,
        layers=[LayerSpec()] * layers,
        max_context=40960,
        tied_embeddings=True,
    )


def model_facts(**changes):
    fields = {
        "path": "Qwen/Qwen3-0.6B",
        "name": "Qwen3 0.6B",
        "folder": "/home/ada/burnish/models/Qwen--Qwen3-0.6B",
        "family": "qwen3",
        "parameters": 596_049_920,
        "spec": spec(),
        "bytes": 1_503_300_328,
        "max_context": 40960,
        "chat": True,
        "license": "Apache-2.0",
        "file_bytes": {
            "F16": 1_198_000_000,
            "Q8_0": 639_000_000,
            "Q6_K": 495_000_000,
            "Q4_K_M": 397_000_000,
            "Q4_0": 375_000_000,
            "IQ4_NL": 380_000_000,
        },
    }
    return ModelFacts(**{**fields, **changes})


_CATALOG = (
    ("Qwen/Qwen3-1.7B", "Qwen3 1.7B", "Qwen3", 1_720_000_000, "Apache-2.0", False, "good", True),
    ("Qwen/Qwen3-0.6B", "Qwen3 0.6B", "Qwen3", 596_000_000, "Apache-2.0", False, "good", False),
    ("meta-llama/Llama-3.2-1B-Instruct", "Llama 3.2 1B", "Llama", 1_236_000_000, "Llama 3.2", True, "good", False),
    (
        "HuggingFaceTB/SmolLM2-360M-Instruct",
        "SmolLM2 360M",
        "SmolLM2",
        361_800_000,
        "Apache-2.0",
        False,
        "small",
        False,
    ),
    ("HuggingFaceTB/SmolLM3-3B", "SmolLM3 3B", "SmolLM3", 3_075_000_000, "Apache-2.0", False, "tight", False),
    (
        "Qwen/Qwen3-4B-Instruct-2507",
        "Qwen3 4B 2507",
        "Qwen3",
        4_022_000_000,
        "Apache-2.0",
        False,
        "too_big_for_target",
        False,
    ),
    (
        "mistralai/Mistral-7B-Instruct-v0.3",
        "Mistral 7B v0.3",
        "Mistral",
        7_248_000_000,
        "Apache-2.0",
        False,
        "too_big_for_target",
        False,
    ),
    ("Qwen/Qwen3-32B", "Qwen3 32B", "Qwen3", 32_760_000_000, "Apache-2.0", False, "too_big_to_train", False),
)
_REASONS = {
    "good": "It trains comfortably on the RTX 4090 and runs at about 24 tokens/s on a laptop of 16 GiB.",
    "tight": "It trains, but fills nine tenths of the memory that is free now.",
    "small": "It runs anywhere; a larger one would learn more from the same data.",
    "too_big_for_target": "Its file and context need more than a laptop of 16 GiB leaves free.",
    "too_big_to_train": "Training it needs about 71 GiB; 21.9 GiB are free on the RTX 4090.",
}


def ranked(row):
    name, title, family, parameters, license_, gated, verdict, here = row
    model = CatalogModel(
        name=name,
        title=title,
        family=family,
        kind="chat",
        parameters=parameters,
        spec=spec(),
        license=license_,
        license_note="Asks for attribution and limits very large services." if gated else "",
        gated=gated,
        good_for="General chat in many languages; follows instructions well for its size.",
        released="2025-04",
        exports=True,
    )
    return RankedModel(
        model=model,
        verdict=verdict,
        reason=_REASONS[verdict],
        here=here,
        path=name if here else "",
        train_bytes=int(parameters * 3.1),
        tokens_per_s=4.4e13 / parameters,
        file_bytes=int(parameters * 1.07),
        run_bytes=int(parameters * 1.3),
        quant="Q8_0",
        download_bytes=parameters * 2,
    )


def catalog():
    return [ranked(row) for row in _CATALOG]


DATA_FILE = "/home/ada/data/support.jsonl"


def places(*rows, file=DATA_FILE):
    return [RowPlace(file=file, row=row) for row in rows]


def dataset(**changes):
    histogram = [(64, 40), (128, 210), (192, 420), (256, 260), (384, 120), (512, 61), (768, 30), (1024, 12), (2048, 7)]
    fields = {
        "files": [DATA_FILE],
        "format": "jsonl",
        "shape": "messages",
        "columns": ["messages"],
        "rows": 1204,
        "train_rows": 1102,
        "validation_rows": 58,
        "dropped": {"the assistant's reply is empty": 40, "not valid JSON": 4},
        "dropped_examples": {
            "the assistant's reply is empty": places(17, 93, 141, 288, 301, 412),
            "not valid JSON": places(601),
        },
        "truncated_rows": 7,
        "tokens": 231_480,
        "supervised_tokens": 143_300,
        "lengths": LengthStats(mean=199.5, median=171, p95=488, longest=1604, histogram=histogram),
        "micro_batches": 124,
        "fill": 0.91,
        "example": [
            (QUESTION, False),
            (ANSWER, True),
            ("\n", False),
        ],
        "warnings": [
            '38 rows are the same as an earlier row (rows 44, 45). data.duplicates = "drop" keeps the first.',
            "The chat template writes today's date; all rows are trained with 21 Nov 2026, so that the run can be "
            "repeated.",
        ],
        "report": dataset_report(),
    }
    return DatasetFacts(**{**fields, **changes})


def pairs():
    """Return the facts of a dataset of preference pairs."""
    says = (
        "The chosen reply is the longer one in 83.0% of the pairs, in the median by a factor of 1.6: the model will "
        "learn that length is good or bad."
    )
    longer = Setting(key="preference.objective", value="simpo", says="compares replies by their means")
    smooth = Setting(key="preference.label_smoothing", value=0.011, says="expects that share of swapped labels")
    swapped = "26 pairs contradict others: the same two replies to the same prompt, the other way around."
    findings = [
        Finding(kind="length_bias", says=says, rows=963, first=places(1, 2, 4, 5, 7), actions=[longer]),
        Finding(kind="contradictions", says=swapped, rows=26, first=places(44, 45, 102), actions=[smooth]),
    ]
    columns = ["prompt", "chosen", "rejected"]
    return dataset(
        shape="preference", columns=columns, warnings=[], dropped={}, dropped_examples={},
        report=dataset_report(findings=findings),
    )  # fmt: skip


def tokens():
    """Yield the example row split into words, which stand for tokens, each with whether it is supervised."""
    for text, supervised in ((QUESTION, False), (ANSWER, True), ("\n", False)):
        yield from ((piece, supervised) for piece in re.findall(r"<\|\w+\|>|\s?\w+|\s|[^\w\s]", text))


def dataset_report(**changes):
    def setting(key, value):
        return Setting(key=f"data.{key}", value=value, says="leaves such rows out")

    pairs = {"conversation": "messages", "system": "system_prompt"}
    example = {
        "conversation": "user: My parcel has not moved for six days. What can I do? | assistant: Cause: It ...",
        "system": "You answer for a parcel service.",
    }
    findings = [
        Finding(
            kind="duplicates", says="38 rows are the same as an earlier row.", rows=38,
            first=places(44, 45, 102, 103, 230, 231, 340, 341, 342), actions=[setting("duplicates", "drop")],
        ),
        Finding(
            kind="overlong", says="7 rows are cut to 1024 tokens.", rows=7,
            first=places(9, 71, 230, 406, 777, 802, 1100),
            actions=[setting("overlong", "drop"), setting("overlong", "split")],
        ),
        Finding(
            kind="secrets", says="2 rows hold what looks like an API key (sk-...).", rows=2, first=places(512, 803),
            actions=[setting("secrets", "drop")],
        ),
        Finding(kind="addresses", says="11 rows hold an e-mail address.", rows=11, first=places(3, 18, 20), actions=[]),
    ]  # fmt: skip
    fields = {
        "used_rows": 1160,
        "readings": [
            ColumnReading(shape="messages", columns=pairs, confidence=0.98, says="chats in messages", example=example),
        ],
        "template": TemplateFacts(
            name="auto", takes_system=True, takes_two_users=False, has_prompt=True, prompt_fits=True,
            turn_end="<|im_end|>", ends_with_eos=True, writes_calls=True, writes_tools=True, writes_thoughts=False,
        ),
        "files": [FileStatus(file=DATA_FILE, entry=0, rows=1204)],
        "length_steps": length_steps(),
        "supervised_share": 0.62,
        "tokens_lost": 2210,
        "called_rows": 12,
        "findings": findings,
    }  # fmt: skip
    return DatasetReport(**{**fields, **changes})


def length_steps():
    """Return steps of row lengths: most rows have about 170 tokens, the longest 1,604."""
    usual = [min(int(random.Random(n).lognormvariate(5.15, 0.5)), 1000) for n in range(1153)]
    lengths = [*usual, 1150, 1200, 1224, 1300, 1400, 1500, 1604]
    steps = [*range(0, 1604, 16), 1604]
    return [(step, sum(one > step for one in lengths), sum(max(one - step, 0) for one in lengths)) for step in steps]


CHAT_CELL = (
    "user: My parcel has not moved for six days. What can I do?  |  assistant: Cause: It waits at the depot for a "
    "customs paper. Fix: Send the invoice to the carrier and ask for a trace."
)


def chat_columns(**changes):
    """Return the columns of the file of conversations, which are recognized."""
    columns = {"conversation": "messages", "system": "system_prompt"}
    reading = ColumnReading(shape="messages", columns=columns, confidence=0.98, says="chats in messages")
    shown = {"messages": CHAT_CELL, "system_prompt": "You answer for a parcel service.", "ticket": "4711"}
    fields = {"file": DATA_FILE, "columns": shown, "readings": [reading], "question": ""}
    return file_columns(**{**fields, **changes})


def row_page(start=0, count=100, total=1204, *, file=DATA_FILE, cells=None):
    """Return a page of rows as the engine reads them."""
    chat = {"messages": CHAT_CELL, "system_prompt": "You answer for a parcel service."}
    lines = [
        RowLine(file=file, row=at + 1, index=at, cells=cells or {**chat, "ticket": str(4711 + at)})
        for at in range(start, min(start + count, total))
    ]
    return RowPage(rows=lines, total=total, exact=True)


def preview(**changes):
    """Return the first row as the model reads it."""
    pieces = list(tokens())
    fields = {
        "file": DATA_FILE, "row": 1, "tokens": len(pieces), "pieces": pieces,
        "supervised_tokens": sum(learned for _, learned in pieces),
    }  # fmt: skip
    return Preview(**{**fields, **changes})


def file_columns(**changes):
    """Return the columns of a file that can be read in two ways."""

    def reading(asked):
        columns = {"prompt": asked, "completion": "answer"}
        return ColumnReading(
            shape="prompt_completion", columns=columns, confidence=0.92, says=f"{asked} asked, answer replied"
        )

    fields = {
        "file": "/home/ada/data/faq.csv",
        "columns": {
            "id": "17",
            "question": "My parcel has not moved for six days. What can I do?",
            "prompt": "Explain to the customer what to do about a parcel that does not move.",
            "answer": "Cause: It waits at the depot for a customs paper. Fix: Send the invoice to the carrier.",
        },
        "readings": [reading("question"), reading("prompt")],
        "question": "The columns of faq.csv can be read in 2 ways.",
    }  # fmt: skip
    return FileColumns(**{**fields, **changes})


def plan(*, fits=True, **changes):
    scale = 1.0 if fits else 14.0
    parts = [
        MemoryPart(name="base weights", bytes=int(1.2e9 * scale), note="596 M weights, bf16"),
        MemoryPart(name="adapter", bytes=40_370_176, note="10,092,544 weights, fp32"),
        MemoryPart(name="gradients", bytes=40_370_176, note="fp32"),
        MemoryPart(name="optimizer", bytes=80_740_352, note="AdamW, two moments, fp32"),
        MemoryPart(name="activations", bytes=int(1.5e9 * scale), note="kept by 28 layers: products"),
        MemoryPart(name="head and loss", bytes=int(0.6e9 * scale), note="2,048 learned tokens at once"),
        MemoryPart(name="workspace", bytes=int(0.2e9 * scale), note="of a layer's two passes"),
        MemoryPart(name="graph pools", bytes=80_000_000, note="captured passes, cuBLAS workspace"),
        MemoryPart(name="fragmentation", bytes=60_000_000, note="of the allocator"),
        MemoryPart(name="CUDA context", bytes=460_000_000, note="driver, kernels, graphs"),
    ]
    fields = {
        "device": "NVIDIA GeForce RTX 4090",
        "memory": parts,
        "memory_bytes": sum(part.bytes for part in parts),
        "memory_free_bytes": int(21.9 * GIB),
        "memory_total_bytes": 24 * GIB,
        "host_bytes": 3 * GIB,
        "host_free_bytes": 48 * GIB,
        "disk_bytes": int(1.9 * GIB),
        "disk_free_bytes": 412 * GIB,
        "fits": fits,
        "problems": [] if fits else ["It needs 46.4 GiB and 21.9 GiB are free. train.recompute brings it to 19 GiB."],
        "trainable_parameters": 10_092_544,
        "steps": 248,
        "tokens": 462_960,
        "tokens_per_s": 18_400.0,
        "seconds": 31.0 if fits else 700.0,
        "speed_source": "estimated",
    }
    return RunPlan(**{**fields, **changes})


def suggestion(recipe=None, **changes):
    recipe = recipe or Recipe.model_validate(
        {
            "train": {"epochs": 3.0, "learning_rate": 1e-4, "micro_batch_tokens": 4096},
            "adapter": {"rank": 32, "alpha": 64.0},
            "data": {"max_length": 768},
            "task": {"metric": "json"},
        }
    )
    fields = {
        "recipe": dump_recipe(recipe),
        "model": recipe.model.path,
        "plan": plan(),
        "choices": [
            SettingChoice(
                key="train.epochs", value="3", reason="About a thousand rows are learned well in three passes."
            ),
            SettingChoice(
                key="train.learning_rate", value="0.0001", reason="Usual for a LoRA of rank 32 on a model below 1 B."
            ),
            SettingChoice(key="adapter.rank", value="32", reason="143 k learned tokens give enough to fill rank 32."),
            SettingChoice(
                key="task.metric",
                value="json",
                reason="The rows' replies are JSON. So replies to 50 held-out rows can be scored.",
            ),
            SettingChoice(key="data.max_length", value="768", reason="99 % of the rows are shorter."),
            SettingChoice(key="train.micro_batch_tokens", value="4096", reason="Fills the GPU and leaves memory free."),
            SettingChoice(
                key="export.quants", value="Q8_0", reason="Practically lossless, and small enough for a laptop."
            ),
        ],
    }
    return Suggestion(**{**fields, **changes})


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
        problem = "Its mean KL divergence from the trained model is 1.31 nats, above 1 (IQ4_XS)."
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
        "what": "Checking Q8_0 against the trained model",
        "share": 0.42,
    }
    return ExportJob(**{**fields, **changes})
