"""llama.cpp behind our own interface: logits, text, replies, and files that are not what they seem."""

import numpy as np
import pytest
import torch

from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.models.generation.sampling import Sampling
from burnish_engine.models.gguf.gguf_library import take_warnings
from burnish_engine.models.gguf.gguf_runtime import GgufModel
from burnish_engine.models.transformers_path.plain import load_base

from support.models.export import CPU, write_16_bit
from support.models.tiny import make_llama

TEXT = "<|im_start|>user\nMy lamp 12 costs 345 €: 中文 😀 naïve<|im_end|>\n"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return open_model(str(make_llama(tmp_path_factory.mktemp("runtime") / "base")))


@pytest.fixture(scope="module")
def path(source, tmp_path_factory):
    return write_16_bit(source, None, tmp_path_factory.mktemp("runtime-gguf"))


@pytest.fixture
def model(path):
    with GgufModel(path, exact=True, threads=1) as opened:
        yield opened


@pytest.mark.full
def test_logits_are_the_models(model, source):
    ids = load_tokenizer(source)(TEXT)["input_ids"]
    with torch.no_grad():
        wanted = load_base(source, "fp32", CPU)(torch.tensor([ids])).logits[0].numpy()
    got = model.logits(ids)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, wanted, atol=0.02)
    np.testing.assert_array_equal(model.logits(ids), got)  # asking again starts afresh


def test_long_texts_come_in_blocks(path):
    ids = list(range(3, 350))
    with GgufModel(path, context=512, threads=1, exact=True) as model:
        blocks = list(model.logit_blocks(ids))
        assert [len(block) for block in blocks] == [256, 91]
        np.testing.assert_allclose(blocks[0][:50], model.logits(ids[:50]), atol=1e-4)


def test_text_and_tokens(model, source):
    tokenizer = load_tokenizer(source)
    ids = model.tokenize(TEXT)
    assert ids == tokenizer(TEXT)["input_ids"]
    assert b"".join(model.piece(token) for token in ids).decode() == TEXT.replace("<|im_start|>", "").replace(
        "<|im_end|>", ""
    )
    assert len(model.tokenize(TEXT, special=False)) > len(ids)
    assert model.tokenize("") == []
    assert model.vocab_size == len(tokenizer)
    assert model.token_text(model.eos) == "<|im_end|>"
    assert model.is_end(model.eos)
    assert model.eos in model.end_tokens()
    assert model.architecture == "llama"
    assert model.chat_template == tokenizer.chat_template
    assert model.token_text(-1) == ""


def test_greedy_replies_repeat_and_are_the_logits_first_choice(model):
    ids = model.tokenize(TEXT)
    first = model.generate(ids, Sampling(max_tokens=12)).finish()
    again = model.generate(ids, Sampling(max_tokens=12)).finish()
    assert first == again
    assert first.tokens == 12
    assert not first.stopped
    tokens = []
    for _ in range(3):
        tokens.append(int(model.logits([*ids, *tokens])[-1].argmax()))
    pieces = b"".join(model.piece(token) for token in tokens).decode("utf-8", "ignore")
    assert first.text.startswith(pieces)


def test_a_growing_chat_reads_only_what_is_new_and_answers_the_same(path):
    with GgufModel(path, threads=1, exact=True) as one, GgufModel(path, threads=1, exact=True) as other:
        ids = one.tokenize(TEXT)
        one.generate(ids, Sampling(max_tokens=5)).finish()
        longer = [*ids, *one.tokenize("<|im_start|>assistant\nwell then")]
        read = []
        real = one._decode
        one._decode = lambda ids, *, every: read.append(len(ids)) or real(ids, every=every)
        reply = one.generate(longer, Sampling(max_tokens=8)).finish()
        assert reply == other.generate(longer, Sampling(max_tokens=8)).finish()
        assert read[0] <= len(longer) - len(ids) + 1


def test_a_stream_can_be_left_in_the_middle(model):
    ids = model.tokenize(TEXT)
    stream = model.generate(ids, Sampling(max_tokens=50))
    next(stream)
    stream.close()
    assert list(stream) == []
    assert model.generate(ids, Sampling(max_tokens=3)).finish().tokens == 3


def test_sampling_is_repeatable_and_differs_by_seed(model):
    ids = model.tokenize(TEXT)
    replies = {
        seed: model.generate(ids, Sampling(max_tokens=10, temperature=1.0, top_p=0.9, seed=seed)).finish().text
        for seed in (1, 2, 3)
    }
    assert len(set(replies.values())) > 1
    again = model.generate(ids, Sampling(max_tokens=10, temperature=1.0, top_p=0.9, seed=2)).finish().text
    assert again == replies[2]


def test_what_does_not_fit_is_told(path):
    with GgufModel(path, context=64, threads=1) as model:
        with pytest.raises(UsageError, match="70 tokens do not fit the context of 64"):
            model.logits([5] * 70)
        with pytest.raises(UsageError, match="70 tokens do not fit"):
            model.generate([5] * 70)
        assert model.generate([5] * 60, Sampling(max_tokens=100)).finish().tokens <= 5
        with pytest.raises(UsageError, match="prompt is empty"):
            model.generate([])
        with pytest.raises(UsageError, match="not in a vocabulary"):
            model.logits([10**6])


def test_vocabulary_only_and_overrides(path):
    with GgufModel(path, vocab_only=True, overrides={"tokenizer.ggml.pre": "gpt-2"}) as model:
        assert model.tokenize("a1") == model.tokenize("a1")
    with pytest.raises(SetupError, match="unknown pre-tokenizer type: 'nonsense'"):
        GgufModel(path, vocab_only=True, overrides={"tokenizer.ggml.pre": "nonsense"})


def test_missing_foreign_and_damaged_files(path, tmp_path):
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        GgufModel(tmp_path / "missing.gguf")
    (tmp_path / "x.gguf").write_text("hello")
    with pytest.raises(UsageError, match="is not a GGUF file"):
        GgufModel(tmp_path / "x.gguf")
    whole = path.read_bytes()
    for end in (10, 300, len(whole) - 1000):
        (tmp_path / "x.gguf").write_bytes(whole[:end])
        with pytest.raises(SetupError, match="may be damaged") as caught:
            GgufModel(tmp_path / "x.gguf")
        assert "llama" in str(caught.value) or "gguf" in str(caught.value)


def test_weights_that_are_no_numbers_are_noticed(path, tmp_path):
    whole = bytearray(path.read_bytes())
    whole[-2000:] = b"\xff" * 2000  # NaN in every 16-bit number
    (tmp_path / "x.gguf").write_bytes(whole)
    with pytest.raises(SetupError, match="cannot load"):
        GgufModel(tmp_path / "x.gguf", exact=True)


def test_nothing_is_printed(path, tmp_path, capfd):
    with GgufModel(path, threads=1) as model:
        model.generate([5, 6], Sampling(max_tokens=2)).finish()
    (tmp_path / "x.gguf").write_bytes(path.read_bytes()[:500])
    with pytest.raises(SetupError):
        GgufModel(tmp_path / "x.gguf")
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""
    assert isinstance(take_warnings(), list)


def test_closing_twice_is_fine(path):
    model = GgufModel(path, threads=1)
    model.close()
    model.close()
