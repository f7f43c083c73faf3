"""A text in slices gives the ids, flags and places of the whole; one that repeats a letter stays bounded."""

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from burnish_engine.data.templates.spans import RenderedRow
from burnish_engine.data.tokens import slices
from burnish_engine.data.tokens.tokenize import Encoder, TokenizerParts

LETTERS = "abcdefghijklmnopqrstuvwxyz"
KINDS = {
    "words": lambda draw: " ".join(draw(["hello", "world", "quick", "brown", "the", "Größe", "\n\n", "  "], 900)),
    "one word": lambda draw: "".join(draw(list(LETTERS), 6000)),
    "base64": lambda draw: "".join(draw([*LETTERS, *LETTERS.upper(), *"0123456789+/"], 6000)),
    "Chinese": lambda draw: "".join(draw(list("的一是不了人我在有他这为之大来以个中上们，。你好世界"), 4000)),
    "emoji": lambda draw: "".join(draw(["😀", "👍🏽", "e\u0301", "a", " "], 3000)),
    "control tokens": lambda draw: "".join(draw(["<|im_end|>", "hello", " ", "x", "<|im"], 3000)),
}


@pytest.fixture
def small_slices(monkeypatch):
    monkeypatch.setattr(slices, "SLICE_CHARS", 700)
    monkeypatch.setattr(slices, "OVERLAP_CHARS", 128)


def located(tokenizer, text, spans):
    return Encoder(TokenizerParts.of(tokenizer)).encode_with_offsets(
        [RenderedRow(text, spans, add_bos=True, add_eos=True)]
    )[0]


@pytest.mark.parametrize("kind", KINDS)
def test_slices_give_what_the_whole_gives(make_tokenizer, backend, kind, monkeypatch):
    random = np.random.RandomState(len(kind))
    text = KINDS[kind](lambda items, count: [items[index] for index in random.randint(len(items), size=count)])
    spans = ((10, 900), (905, 910), (1500, len(text) - 7))
    tokenizer = make_tokenizer(backend=backend, adds_bos=True)
    whole = located(tokenizer, text, spans)
    monkeypatch.setattr(slices, "SLICE_CHARS", 700)
    monkeypatch.setattr(slices, "OVERLAP_CHARS", 128)
    assert len(list(slices.tokenize_slices(tokenizer.backend_tokenizer.encode, text))) > 3
    for ours, theirs in zip(located(tokenizer, text, spans), whole, strict=True):
        assert ours.tolist() == theirs.tolist()


def merging(letters, normalizer=None):
    """A tokenizer that knows 2, 4 and 8 of a letter as tokens, and the mark of a space."""
    tokens = [*letters, "▁", *(letter * size for letter in letters for size in (2, 4, 8))]
    merges = [(letter * size, letter * size) for size in (1, 2, 4) for letter in letters]
    tokenizer = Tokenizer(models.BPE({token: index for index, token in enumerate(tokens)}, merges))
    tokenizer.normalizer = normalizer
    return tokenizer


@pytest.mark.parametrize("count", [5003, 6000, 6001])
def test_one_letter_again_and_again(small_slices, count):
    tokenizer, text = merging("ab"), "a" * count
    found = list(slices.tokenize_slices(tokenizer.encode, text))
    assert np.concatenate([part.ids for part in found]).tolist() == tokenizer.encode(text).ids
    assert [part.begin for part in found[1:]] == [part.end for part in found[:-1]]


def test_a_mark_that_is_put_before_every_text_comes_once(small_slices):
    """As SentencePiece's tokenizers do it, whose whole text is one word."""
    llama = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer = merging("abc", llama)
    random = np.random.RandomState(0)
    text = "".join("abc "[index] for index in random.randint(4, size=5000))
    found = list(slices.tokenize_slices(tokenizer.encode, text))
    assert np.concatenate([part.ids for part in found]).tolist() == tokenizer.encode(text).ids


def test_text_of_which_nothing_is_known_is_one_token_a_slice(small_slices):
    unknown = Tokenizer(models.BPE({"<unk>": 0, "a": 1}, [], unk_token="<unk>", fuse_unk=True))
    found = list(slices.tokenize_slices(unknown.encode, "x" * 5000))
    assert all(part.ids.tolist() in ([0], []) for part in found)


@pytest.mark.full
def test_no_more_than_a_slice_is_tokenized_at_once(small_slices):
    tokenizer, sizes = merging("ab"), []
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()

    def encode(text):
        sizes.append(len(text))
        return tokenizer.encode(text)

    for text in ("a" * 20_000, "ab" * 10_000, "a b" * 7000):
        list(slices.tokenize_slices(encode, text))
        assert max(sizes) <= 700 + 2 * 128
        assert sum(sizes) < 2.5 * len(text)
        sizes.clear()
