"""The real thing: the embedded model with an adapter, to files that are proven and can be talked to."""

import pytest
import torch

from burnish_engine.advise.facts.gguf_size import predicted_file_bytes
from burnish_engine.chat.gguf_chat import GgufChat
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.export.job import export_gguf
from burnish_engine.export.verify.reference import ExportedModel
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.models.generation.sampling import Sampling
from burnish_engine.models.transformers_path.plain import attach_adapter, load_base

from support.models.export import CPU

pytestmark = pytest.mark.slow

TEXTS = (
    "Photosynthesis is a process by which plants, algae and some bacteria convert light into chemical energy.",
    "To make bread, mix flour, water, salt and yeast, knead for 10 minutes, let it rise, and bake at 220 °C.",
    "The Roman Empire included territories around the Mediterranean and was ruled by emperors.",
)


@pytest.mark.full
def test_the_embedded_model_end_to_end(tmp_path, embedded_model):
    source = open_model("embedded")
    tokenizer = load_tokenizer(source)
    torch.manual_seed(0)
    tuned = attach_adapter(load_base(source, "fp32", CPU), AdapterSection(rank=8), 0)
    for name, value in tuned.named_parameters():
        if "lora_B" in name:
            value.data.normal_(0, 0.0005)
    tuned.save_pretrained(tmp_path / "adapter")
    del tuned
    chats = [[{"role": "user", "content": "Tell me something."}, {"role": "assistant", "content": t}] for t in TEXTS]
    rows = [tokenizer.apply_chat_template(chat)["input_ids"] for chat in chats]
    report = export_gguf(
        ExportedModel(
            source,
            tmp_path / "adapter",
            held_out=rows,
            probe_chats=[[{"role": "user", "content": "What is the capital of France?"}]],
        ),
        tmp_path / "export",
        "smol",
        ["Q8_0", "Q4_K_M"],
    )
    assert report.passed
    assert report.token_strings > 200
    assert report.token_mismatches == 0
    assert report.conversion_kl < 1e-4
    fine, coarse = report.files
    assert fine.mean_kl < 0.02
    assert coarse.mean_kl < 0.3
    assert fine.reply_stopped
    assert coarse.reply_stopped
    assert any("166 tensors became Q5_0 instead of Q4_K" in line for line in coarse.fallbacks)
    for file in report.files:
        assert abs(predicted_file_bytes(source.spec, file.quant) / file.bytes - 1) < 0.03
    chat = GgufChat(tmp_path / "export" / "smol-Q8_0.gguf")
    reply = chat.stream([{"role": "user", "content": "Hello! Who are you?"}], Sampling(max_tokens=60)).finish()
    assert "Hello" in reply.text or "I'm" in reply.text
    chat.close()
