"""Tiny models of every exported family, adapters, and GGUF files made of them."""

import json

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.export.base.losses import token_kl
from burnish_engine.export.gguf.write import plan_gguf, write_gguf
from burnish_engine.export.verify.fidelity import log_softmax, probe_texts
from burnish_engine.export.verify.probe_strings import PROBE_STRINGS
from burnish_engine.export.weights.merge import MergedWeights
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.models.gguf.gguf_runtime import GgufModel
from burnish_engine.models.transformers_path.plain import attach_adapter, load_adapter, load_base

from support.models.tiny import CHATML, conversations, make_llama, make_tokenizer, randomize

CHATML_SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CPU = torch.device("cpu")


def make_model(folder, family, **changes):
    """A tiny random model of a family, with tokenizer; returns the opened source."""
    from transformers import AutoConfig, AutoModelForCausalLM

    tokenizer = make_tokenizer(folder)
    settings = {
        "vocab_size": len(tokenizer), "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
        "bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }  # fmt: skip
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **{**settings, **changes}))
    randomize(model)
    model.save_pretrained(folder)
    return open_model(str(folder))


def make_adapter(source, folder, *, method="lora", seed=1, config=None, **section):
    """A PEFT adapter with random A and B; returns its folder."""
    if config is None:
        tuned = attach_adapter(load_base(source, "fp32", CPU), AdapterSection(method=method, rank=4, **section), seed)
    else:
        from peft import get_peft_model

        tuned = get_peft_model(load_base(source, "fp32", CPU), config)
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, value in tuned.named_parameters():
            if "lora_B" in name or "lora_embedding_B" in name:
                value.normal_(0, 0.05)
            elif "magnitude" in name:
                value.mul_(1.0 + 0.1 * torch.randn_like(value))
            elif value.requires_grad and "lora_" not in name:
                value.add_(0.05 * torch.randn_like(value))
    tuned.save_pretrained(folder)
    return folder


def tuned_model(source, adapter):
    """transformers + PEFT in fp32."""
    model = load_base(source, "fp32", CPU)
    return load_adapter(model, adapter).eval() if adapter is not None else model


def torch_log_probs(model, ids):
    """log-probabilities [T, V], fp32."""
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor([ids])).logits[0].float(), -1).numpy()


def write_16_bit(source, adapter, folder, name="tiny", kind="F16", change=lambda plan: plan):
    """Write a 16-bit GGUF, optionally with a fault put into its plan; returns the path."""
    tokenizer = load_tokenizer(source)
    weights = MergedWeights(source, adapter)
    expected = probe_texts(tokenizer)
    plan = change(plan_gguf(source, weights, tokenizer, name, expected=expected, scratch=folder))
    path = folder / f"{name}-{kind}.gguf"
    write_gguf(plan, path, kind)
    weights.check_all_used()
    return path


def kl_divergence(log_probs, logits):
    """KL(p || q) of each row, nats, from log p and unnormalized log q, both [T, V]."""
    return token_kl(log_probs, log_softmax(logits))


def gguf_kl(path, model, ids):
    """Mean KL(torch || file) over one row."""
    with GgufModel(path, exact=True, threads=1) as opened:
        return float(np.mean(kl_divergence(torch_log_probs(model, ids), opened.logits(ids))))


def with_adapter_kl(base, adapter, model, ids):
    """Mean KL(torch || llama.cpp with base and adapter) over one row."""
    with GgufModel(base, exact=True, threads=1, context=256, adapter=adapter) as opened:
        return float(np.mean(kl_divergence(torch_log_probs(model, ids), opened.logits(ids))))


def rows(source, count=4):
    """Rendered conversations as token ids."""
    tokenizer = load_tokenizer(source)
    return [
        tokenizer(tokenizer.apply_chat_template(row["messages"], tokenize=False), add_special_tokens=False)["input_ids"]
        for row in conversations(count, offset=5)
    ]


def make_talking(folder):
    """A tiny Llama trained for a second or two to answer and to stop; returns the opened source."""
    make_llama(folder, hidden_size=96, intermediate_size=192, num_attention_heads=4)
    source = open_model(str(folder))
    model, texts = load_base(source, "fp32", CPU), rows(source, 6)
    model.requires_grad_(True)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    longest, pad = max(map(len, texts)), load_tokenizer(source).pad_token_id
    ids = torch.tensor([text + [pad] * (longest - len(text)) for text in texts])
    labels = torch.tensor([text + [-100] * (longest - len(text)) for text in texts])
    torch.manual_seed(0)
    for _ in range(150):
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert loss.item() < 0.2
    model.eval().save_pretrained(folder)
    return source


def edit_json(path, **changes):
    """Change keys of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


GPT4 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN = GPT4.replace(r"\p{N}{1,3}", r"\p{N}")
BACKWARDS = r"[a-m]+|[n-z]+|."  # nobody's


def byte_level(split):
    """A byte-level pre-tokenizer that splits by a pattern, by digits, or as GPT-2."""
    parts = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split is None)]
    if split == "digits":
        parts = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    elif split:
        parts.insert(0, pre_tokenizers.Split(Regex(split), behavior="isolated"))
    return pre_tokenizers.Sequence(parts)


def save_tokenizer(folder, split, *, specials=CHATML_SPECIALS, template=CHATML, **names):
    """A byte-BPE tokenizer with a chosen way of splitting, rich in merges of digits and white space."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = byte_level(split)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1500, special_tokens=list(specials), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    texts = [message["content"] for row in conversations(40) for message in row["messages"]]
    numbers = [str(n * 37) for n in range(2000)]
    tokenizer.train_from_iterator([*texts, *numbers, *PROBE_STRINGS, *PROBE_STRINGS], trainer)
    names = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|im_end|>", **names}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
    fast.chat_template = template
    fast.save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


def source_with(tmp_path, split, **more):
    """A tiny Llama with such a tokenizer."""
    source = make_model(tmp_path / "base", "llama", vocab_size=1536)
    save_tokenizer(source.folder, split, **more)
    return open_model(str(source.folder))


def break_epsilon(path):
    """Change a GGUF so that llama.cpp ends its process over it: an assertion wants the epsilon not negative."""
    from gguf import GGUFReader

    reader = GGUFReader(path, "r+")
    field = reader.fields["llama.attention.layer_norm_rms_epsilon"]
    field.parts[field.data[0]][0] = -1.0
    reader.data.flush()
