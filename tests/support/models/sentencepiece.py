"""Tokenizers as SentencePiece's are converted: BPE with byte fallback, spaces as ▁."""

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from burnish_engine.export.verify.probe_strings import PROBE_STRINGS

KINDS = ("llama", "phi3", "gemma", "first")
"""A space before every text (Llama 2, TinyLlama), the same with tokens that swallow white space behind them (Phi-3), a
space before no text (Gemma), before the first only (Mistral v0.3)."""
SPECIALS = ("<unk>", "<s>", "</s>", "[INST]", "[/INST]")
PHI3_SPECIALS = ("<unk>", "<s>", "</s>", "<|endoftext|>", "<|assistant|>", "<|system|>", "<|end|>", "<|user|>")
PHI3_TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"
)
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }}[/INST]"
    "{% elif m.role == 'system' %}[INST] {{ m.content }}[/INST]"
    "{% else %} {{ m.content }}</s>{% endif %}{% endfor %}"
)


def save_sentencepiece(folder, kind="llama", *, extra=(), **settings):
    """Train and save such a tokenizer as the hub's files have it: tokenizer.json and tokenizer_config.json.

    Args:
        folder: Where.
        kind: Of `KINDS`.
        extra: Texts of further special tokens, numbered behind all others.
        settings: More keys of tokenizer_config.json.

    Returns:
        The number of tokens, `extra` left out.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    spaces = normalizers.Replace(" ", "▁")
    if kind in {"llama", "phi3"}:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces])
    elif kind == "gemma":
        tokenizer.normalizer = spaces
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", "first", split=False)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(steps if kind == "gemma" else [*steps, decoders.Strip(" ", 1, 0)])
    names = PHI3_SPECIALS if kind == "phi3" else SPECIALS
    specials = [*names, *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=specials, show_progress=False, max_token_length=12)
    words = [word for text in PROBE_STRINGS[:120] for word in text.split()]
    tokenizer.train_from_iterator([*words, *["the cat sat on the mat"] * 9], trainer)
    raw = json.loads(tokenizer.to_str())
    size = len(raw["model"]["vocab"])
    raw["added_tokens"] = [token for token in raw["added_tokens"] if not token["content"].startswith("<0x")]
    raw["added_tokens"] += [
        {**raw["added_tokens"][0], "id": size + place, "content": text} for place, text in enumerate(extra)
    ]
    for token in raw["added_tokens"]:
        token["rstrip"] = kind == "phi3" and token["content"] not in {"<unk>", "<s>", "<|endoftext|>"}
    bos = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    raw["post_processor"] = {
        "type": "TemplateProcessing", "single": [bos, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [bos, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
    }  # fmt: skip
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(raw), encoding="utf-8")
    named = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "chat_template": TEMPLATE}
    if kind == "phi3":
        named |= {"eos_token": "<|endoftext|>", "chat_template": PHI3_TEMPLATE}
    usual = {"tokenizer_class": "GemmaTokenizer" if kind == "gemma" else "LlamaTokenizer", "legacy": False}
    (folder / "tokenizer_config.json").write_text(json.dumps({**named, **usual, **settings}), encoding="utf-8")
    return size
