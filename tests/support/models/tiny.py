"""Tiny models with real architectures, random weights and a real byte-BPE tokenizer: whole runs in seconds."""

import json
from pathlib import Path

import torch

CHATML = (
    "{% for message in messages %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TOPICS = ("lamp", "bike", "door", "soup", "phone", "garden", "printer", "chair", "kettle", "jacket")


def conversations(count, *, offset=0):
    """Short chats of varying length with a rule to learn, as rows of the messages shape."""
    rows = []
    for n in range(offset, offset + count):
        topic = TOPICS[n % len(TOPICS)]
        question = f"My {topic} number {n} is broken" + " again and again" * (n % 4) + "?"
        answer = f"Cause: the {topic} is worn.\nFix: replace part {n}." + " Take your time." * (n % 3)
        rows.append({"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]})
    return rows


def write_jsonl(path, rows):
    """Write rows as JSON Lines and return the path."""
    Path(path).write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return Path(path)


def make_tokenizer(folder, vocab_size=600, template=CHATML):
    """Train and save a byte-BPE tokenizer with ChatML tokens; pad is eos, as often in the wild."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [message["content"] for row in conversations(60) for message in row["messages"]] + ["user assistant system"]
    tokenizer.train_from_iterator(texts, trainer)
    for token in ("<|endoftext|>", "<|im_start|>", "<|im_end|>"):
        tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        unk_token="<|endoftext|>",
    )
    fast.chat_template = template
    fast.save_pretrained(folder)
    return fast


def make_llama(folder, *, seed=0, **changes):
    """A tiny Llama with randomized norms in `folder`, with tokenizer; returns the folder."""
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = Path(folder)
    tokenizer = make_tokenizer(folder)
    settings = {
        "vocab_size": len(tokenizer),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    torch.manual_seed(seed)
    model = LlamaForCausalLM(LlamaConfig(**{**settings, **changes}))
    randomize(model)
    model.save_pretrained(folder)
    return folder


def randomize(model):
    """Give norms and biases values that matter: their usual start at 1 and 0 hides mistakes."""
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.ndim == 1:
                value.copy_(1.0 + 0.2 * torch.randn_like(value) if "norm" in name else 0.1 * torch.randn_like(value))
