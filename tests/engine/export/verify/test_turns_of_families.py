"""Every family of the catalog that GGUF files are made of: BOS stands once, and replies end where the model's do."""

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from burnish_engine.advise.facts.catalog import catalog
from burnish_engine.advise.facts.gguf_rules import EXPORTED_FAMILIES
from burnish_engine.chat.prompt import chat_ids, gguf_chat_ids, gguf_template, render
from burnish_engine.export.gguf.write import plan_gguf, write_gguf
from burnish_engine.export.verify.fidelity import check_tokens, reply_of
from burnish_engine.export.verify.reference import ExportedModel, compute_reference, render_probes
from burnish_engine.export.weights.merge import MergedWeights
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.models.gguf.gguf_runtime import GgufModel
from burnish_engine.models.transformers_path.plain import load_base

from support.data.chat_templates import CHATML, SPECIAL, TEMPLATES
from support.models.export import CPU, byte_level
from support.models.small_families import PUBLISHED, make_small
from support.models.small_mixtures import PUBLISHED as MIXTURES
from support.models.small_mixtures import make_mixture
from support.models.tiny import conversations

LFM2 = "{{- bos_token -}}" + CHATML
HARMONY = (
    "{%- for m in messages %}"
    "{%- if m.role == 'assistant' %}"
    "{{- '<|start|>assistant<|channel|>final<|message|>' + m.content + ('<|return|>' if loop.last else '<|end|>') }}"
    "{%- else %}{{- '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}{%- endif %}"
    "{%- endfor %}{%- if add_generation_prompt %}{{- '<|start|>assistant<|channel|>final<|message|>' }}{%- endif %}"
)
"""gpt-oss's turns, without its rules for channels and tools."""
HARMONY_TOKENS = ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|return|>", "<|call|>")
GLM4 = (
    "[gMASK]<sop>{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""GLM-4's turns, without its rules for tools: a reply begins with a line break, and no token of its own ends it."""
GLM4_TOKENS = ("[gMASK]", "<sop>")
APERTUS = (
    "{{- bos_token }}{%- for m in messages %}"
    "{{- '<|' + m.role + '_start|>' + m.content + '<|' + m.role + '_end|>' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{- '<|assistant_start|>' }}{%- endif %}"
)
"""Apertus's turns, without its message of the developer."""
APERTUS_TOKENS = tuple(f"<|{role}_{end}|>" for role in ("user", "assistant") for end in ("start", "end"))
EXAONE = (
    "{% for m in messages %}{{ '[|' + m.role + '|]\\n' + m.content }}{{ '[|endofturn|]\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '[|assistant|]\\n' }}{% endif %}"
)
"""EXAONE 4's turns, without its rules for thoughts and tools."""
SEED = (
    "{% for m in messages %}{{ '<seed:bos>' + m.role + '\\n' + m.content + eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<seed:bos>assistant\\n' }}{% endif %}"
)
"""Seed-OSS's turns. Each begins with its BOS, which is no token of its own here: others' stand once."""
ERNIE = (
    "{{ '<|begin_of_sentence|>' }}{% for m in messages %}"
    "{{ ('User: ' if m.role == 'user' else 'Assistant: ') + m.content }}"
    "{{ '<|end_of_sentence|>' if m.role == 'assistant' else '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant: ' }}{% endif %}"
)
"""ERNIE 4.5's turns."""
HUNYUAN = (
    "{{ '<|bos|>' }}{% for m in messages %}"
    "{{ ('<|user|>' if m.role == 'user' else '<|assistant|>') + m.content }}"
    "{{ '<|eos|>' if m.role == 'assistant' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
"""Hunyuan's turns, without its rules for thoughts."""
LLAMA3 = TEMPLATES["llama3"][0]
TURNS = {
    # name: published configuration, template, BOS, EOS, whether the tokenizer adds BOS, token that ends a turn
    "SmolLM2": ("HuggingFaceTB/SmolLM2-135M", *TEMPLATES["smollm"], False, "<|im_end|>"),
    "SmolLM3": ("HuggingFaceTB/SmolLM3-3B", CHATML, None, "<|im_end|>", False, "<|im_end|>"),
    "Qwen2.5": ("Qwen/Qwen2.5-0.5B", *TEMPLATES["qwen2.5"], False, "<|im_end|>"),
    "Qwen3": ("Qwen/Qwen3-0.6B", *TEMPLATES["qwen3"], False, "<|im_end|>"),
    "Llama 3": ("meta-llama/Llama-3.2-1B", *TEMPLATES["llama3"], True, "<|eot_id|>"),
    "Llama 3, eom": (
        "meta-llama/Llama-3.2-1B", LLAMA3.replace("<|eot_id|>", "<|eom_id|>"), "<|begin_of_text|>",
        "<|end_of_text|>", True, "<|eom_id|>",
    ),
    "Mistral": ("mistralai/Mistral-7B-Instruct-v0.3", *TEMPLATES["mistral"], True, "</s>"),
    "Gemma 3": ("google/gemma-3-270m", *TEMPLATES["gemma"], True, "<end_of_turn>"),
    "Phi": ("microsoft/Phi-4-mini-instruct", *TEMPLATES["phi"], False, "<|end|>"),
    "LFM2": ("LiquidAI/LFM2-350M", LFM2, "<|startoftext|>", "<|im_end|>", True, "<|im_end|>"),
    "LFM2.5, thinking": ("LiquidAI/LFM2.5-350M", *TEMPLATES["lfm2.5"], True, "<|im_end|>"),
    "Granite 4": ("ibm-granite/granite-4.0-micro", *TEMPLATES["granite4"], False, "<|end_of_text|>"),
    "Ministral 3": ("mistralai/Ministral-3-3B, text", *TEMPLATES["ministral3"], True, "</s>"),
    "OLMo 2": ("allenai/OLMo-2-0425-1B-Instruct", *TEMPLATES["olmo2"], False, "<|endoftext|>"),
    "GLM-4": ("zai-org/glm-4-9b-chat-hf", GLM4, None, "<|endoftext|>", False, "<|endoftext|>"),
    "GLM-4-0414": ("zai-org/GLM-4-9B-0414", GLM4, None, "<|endoftext|>", False, "<|endoftext|>"),
    "Qwen3.5": ("Qwen/Qwen3.5-0.8B, text", *TEMPLATES["qwen3.5"], False, "<|im_end|>"),
    "Qwen3.5-MoE": ("Qwen/Qwen3.5-35B-A3B, text", *TEMPLATES["qwen3.5"], False, "<|im_end|>"),
    "Qwen3-MoE": ("Qwen/Qwen3-30B-A3B", *TEMPLATES["qwen3"], False, "<|im_end|>"),
    "Qwen2-MoE": ("Qwen/Qwen1.5-MoE-A2.7B", *TEMPLATES["qwen2.5"], False, "<|im_end|>"),
    "OLMoE": ("allenai/OLMoE-1B-7B-0924", *TEMPLATES["olmo2"], False, "<|endoftext|>"),
    "Mixtral": ("mistralai/Mixtral-8x7B-v0.1", *TEMPLATES["mistral"], True, "</s>"),
    "LFM2-MoE": ("LiquidAI/LFM2-8B-A1B", LFM2, "<|startoftext|>", "<|im_end|>", True, "<|im_end|>"),
    "Apertus": (
        "swiss-ai/Apertus-8B-Instruct-2509", APERTUS, "<s>", "<|assistant_end|>", True, "<|assistant_end|>",
    ),
    "Gemma": ("google/gemma-2b-it", *TEMPLATES["gemma"], True, "<end_of_turn>"),
    "Gemma 2": ("google/gemma-2-2b-it", *TEMPLATES["gemma"], True, "<end_of_turn>"),
    "EXAONE 4": ("LGAI-EXAONE/EXAONE-4.0-1.2B", EXAONE, "[BOS]", "[|endofturn|]", False, "[|endofturn|]"),
    "Seed-OSS": (
        "ByteDance-Seed/Seed-OSS-36B-Instruct", SEED, None, "<seed:eos>", False, "<seed:eos>",
    ),
    "ERNIE 4.5": (
        "baidu/ERNIE-4.5-0.3B-PT", ERNIE, "<|begin_of_sentence|>", "<|end_of_sentence|>", False,
        "<|end_of_sentence|>",
    ),
    "Hunyuan": ("tencent/Hunyuan-7B-Instruct", HUNYUAN, "<|bos|>", "<|eos|>", False, "<|eos|>"),
    "Granite 3 MoE": (
        "ibm-granite/granite-3.1-1b-a400m-instruct", *TEMPLATES["granite4"], False, "<|end_of_text|>",
    ),
    "Mellum 2": ("JetBrains/Mellum2-12B-A2.5B-Base", CHATML, None, "<|im_end|>", False, "<|im_end|>"),
    "gpt-oss": ("openai/gpt-oss-20b", HARMONY, "<|startoftext|>", "<|return|>", False, "<|return|>"),
    "DeepSeek distilled": ("Qwen/Qwen2.5-0.5B", *TEMPLATES["deepseek"], True, "<｜end▁of▁sentence｜>"),
}  # fmt: skip
CHAT = [{"role": "user", "content": "My lamp is broken?"}]
REPLY = "Fix the lamp."


def tokenizer_of(template, bos, eos, adds_bos):
    """Makes a byte-BPE tokenizer that knows the special tokens a template writes."""

    def make(folder):
        known = (*SPECIAL, "<|eom_id|>", *HARMONY_TOKENS, *GLM4_TOKENS)
        written = [token for token in known if token in template or token in (bos, eos)]
        written += APERTUS_TOKENS if template == APERTUS else ()
        specials = dict.fromkeys([*written, *filter(None, (bos, eos))])
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer, tokenizer.decoder = byte_level("digits"), decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
        tokenizer.train_from_iterator([m["content"] for row in conversations(9) for m in row["messages"]], trainer)
        tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in specials])
        if adds_bos:
            first = (bos, tokenizer.token_to_id(bos))
            tokenizer.post_processor = TemplateProcessing(single=f"{bos} $A", special_tokens=[first])
        fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=bos, eos_token=eos, pad_token=eos)
        fast.chat_template = template
        fast.save_pretrained(folder)
        return fast

    return make


def learn(source, ids):
    """Train until the row is known by heart; saved in place of the random weights."""
    model = load_base(source, "fp32", CPU)
    model.requires_grad_(True)
    optimizer, row = torch.optim.AdamW(model.parameters(), lr=3e-3), torch.tensor([ids])
    for _ in range(80):
        loss = model(input_ids=row, labels=row).loss
        if loss.item() < 0.05:
            break
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.to(torch.bfloat16).save_pretrained(source.folder)


def test_all_exported_families_of_the_catalog_are_here():
    families = {entry.spec.family for entry in catalog()} & EXPORTED_FAMILIES
    families -= {"gemma4_text", "gemma4_unified_text"}  # `test_catalog_models` sends them the whole way
    assert families <= {(PUBLISHED | MIXTURES)[case[0]]["model_type"] for case in TURNS.values()}


@pytest.mark.full
@pytest.mark.parametrize("name", TURNS)
def test_bos_stands_once_and_replies_end(name, tmp_path):
    published, template, bos, eos, adds_bos, turn_end = TURNS[name]
    make = make_mixture if published in MIXTURES else make_small
    source = make(published, tmp_path / "base", tokenizer=tokenizer_of(template, bos, eos, adds_bos))
    tokenizer = load_tokenizer(source)
    prompt = chat_ids(tokenizer, CHAT)
    if "bos_token" in template:
        assert prompt.count(tokenizer.bos_token_id) == 1
    said = tokenizer(REPLY + turn_end, add_special_tokens=False)["input_ids"]
    learn(source, [*prompt, *said])
    source = open_model(str(source.folder))
    probes = render_probes(tokenizer, [CHAT])
    reference = compute_reference(ExportedModel(source, None, [[*prompt, *said]]), tokenizer, probes)
    assert reference.probes[0].reply.stopped
    plan = plan_gguf(source, MergedWeights(source, None), tokenizer, "x", expected=[], scratch=tmp_path)
    write_gguf(plan, tmp_path / "x.gguf")
    with GgufModel(tmp_path / "x.gguf", context=256, threads=1) as model:
        assert gguf_chat_ids(model, render(gguf_template(model), CHAT)) == prompt
        assert model.token_text(model.eos) == turn_end
        checked = check_tokens(model, tokenizer, [], reference)
        assert (checked.mismatches, checked.problems) == ([], [])
        reply, problems = reply_of(model, reference.probes)
    assert (reply.text, reply.stopped, problems) == (reference.probes[0].reply.text, True, [])
