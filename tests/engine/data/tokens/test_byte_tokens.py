"""Where tokens of byte-level vocabularies lie is computed as the tokenizer says it."""

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers

from burnish_engine.data.templates.spans import RenderedRow
from burnish_engine.data.tokens.byte_tokens import ByteTokens
from burnish_engine.data.tokens.tokenize import Encoder, TokenizerParts

TEXTS = [
    "", "Hello world, hello!", "  two  spaces\n\n\ttab 12345", "Gr\u00fc\u00dfe", "\U0001f9ff\U0001f9ff a \U0001f680",
    "\u65e5\u672c\u8a9e", "a\u0301 is not composed", "\u0000\x7f\ufffd", "",
]  # fmt: skip


def bare(tokenizer):
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.post_processor = None
    return backend


def test_ids_and_offsets_are_the_tokenizers_own(make_tokenizer):
    tokenizer = make_tokenizer()
    tokenizer.add_tokens([AddedToken("<\uff5cend\uff5c>", special=True), AddedToken("\u00fcber")])
    backend = bare(tokenizer)
    texts = [*TEXTS, f"{tokenizer.eos_token}\u00fc{tokenizer.eos_token} x", "\u00e4<\uff5cend\uff5c>\u00fcber\u00e4"]
    assert ByteTokens.is_lossless(backend)
    placed, right = ByteTokens(backend).place(texts), backend.encode_batch(texts, add_special_tokens=False)
    assert placed.counts == [len(one) for one in right]
    assert placed.ids.tolist() == [token for one in right for token in one.ids]
    assert placed.offsets.tolist() == [list(pair) for one in right for pair in one.offsets]


@pytest.mark.parametrize("normalizer", [None, normalizers.NFC()])
def test_flags_are_right_whether_a_text_is_composed_or_not(make_tokenizer, normalizer):
    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizer
    for text in TEXTS[1:-1]:
        row = RenderedRow(text, ((1, len(text) - 1),))
        [(ids, supervised)] = Encoder(TokenizerParts.of(tokenizer)).encode([row])
        right = bare(tokenizer).encode(text, add_special_tokens=False)
        assert ids.tolist() == right.ids
        inside = [end > 1 and begin < len(text) - 1 for begin, end in right.offsets]
        assert supervised.tolist() == [False, *inside[1:]]


def test_a_text_that_the_tokenizer_changes_is_not_placed(make_tokenizer):
    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.NFC()
    placed = ByteTokens(bare(tokenizer))
    assert placed.place(["a", "e\u0301"]) is None
    assert placed.place(["a", "q\u0307\u0323"]) is None  # two marks change places, and no byte is added or lost
    assert placed.place(["a", "\u00e9"]) is not None


def test_tokens_of_another_length_are_not_placed(make_tokenizer):
    """As where a pre-tokenizer takes something away."""
    backend = bare(make_tokenizer())
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(" ", "removed"), backend.pre_tokenizer])
    assert ByteTokens(backend).place(["ab", "a b"]) is None


def test_other_kinds_of_tokenizers_are_asked_for_offsets(make_tokenizer):
    swallowing, lower, spaced, words = (make_tokenizer() for _ in range(4))
    swallowing.add_tokens([AddedToken("<|bot|>", rstrip=True, special=True)])
    lower.backend_tokenizer.normalizer = normalizers.Lowercase()
    spaced.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), whole])
    assert not any(ByteTokens.is_lossless(bare(one)) for one in (swallowing, lower, spaced, words))


def test_nothing_to_tokenize(make_tokenizer):
    placed = ByteTokens(bare(make_tokenizer())).place([])
    assert (placed.counts, len(placed.ids), placed.offsets.shape) == ([], 0, (0, 2))
    assert placed.ids.dtype == np.int32
