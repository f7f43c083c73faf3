"""Replies of torch models: streamed and batched alike, stopping where they should, training left as it was."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.models.decoder.decoder_load import DecoderOptions, load_decoder
from burnish_engine.models.generation.generate import (
    PieceDecoder,
    generate_replies,
    generate_stream,
    model_stop_ids,
    stop_token_ids,
)
from burnish_engine.models.generation.load_fast import load_for_generation
from burnish_engine.models.generation.sampling import ReplyStream, Sampling, pick_token
from burnish_engine.models.generation.transformers_generate import _can_drop_rows, evaluating
from burnish_engine.models.transformers_path.plain import attach_adapter, load_base

from support.models.export import CPU, make_talking
from support.models.tiny import conversations, make_llama, make_tokenizer, randomize

pytestmark = pytest.mark.usefixtures("one_thread")

CHATS = [[{"role": "user", "content": text}] for text in ("Hi", "My lamp number 3 is broken again?", "x " * 40, "Why?")]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return open_model(str(make_llama(tmp_path_factory.mktemp("generate") / "base")))


@pytest.fixture(scope="module")
def tokenizer(source):
    return load_tokenizer(source)


@pytest.fixture(scope="module")
def model(source):
    return load_base(source, "fp32", CPU)


@pytest.fixture(scope="module")
def reference(model, tokenizer):
    """transformers' own greedy generation."""

    def generate(chat, tokens):
        ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt")["input_ids"]
        made = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=tokens, use_cache=True,
            pad_token_id=0, eos_token_id=model_stop_ids(model, tokenizer),
        )  # fmt: skip
        return made[0, ids.shape[1] :].tolist()

    return generate


@pytest.mark.full
def test_streaming_is_transformers_greedy_generation(model, tokenizer, reference):
    for chat in CHATS:
        stream = generate_stream(model, tokenizer, chat, Sampling(max_tokens=12))
        text = "".join(stream)
        wanted = reference(chat, 12)
        assert text == tokenizer.decode(wanted, skip_special_tokens=True)
        assert stream.tokens == len(wanted) - stream.stopped


@pytest.mark.full
def test_batched_replies_equal_single_ones(model, tokenizer):
    single = [generate_stream(model, tokenizer, chat, Sampling(max_tokens=15)).finish() for chat in CHATS]
    for batch_size in (1, 3, 16):
        assert generate_replies(model, tokenizer, CHATS, 15, batch_size=batch_size) == single
    assert generate_replies(model, tokenizer, [], 5) == []


def biased(model, token, strength):
    """A hook that makes one token more likely, as a trained model would."""

    def hook(_module, _args, output):
        output.logits[..., token] += strength
        return output

    return model.register_forward_hook(hook)


@pytest.mark.full
def test_replies_that_end_at_different_times_leave_the_batch(tmp_path):
    source = make_talking(tmp_path / "base")
    model, tokenizer = load_base(source, "fp32", CPU), load_tokenizer(source)
    chats = [row["messages"][:1] for row in conversations(6, offset=5)]
    whole = [generate_stream(model, tokenizer, chat, Sampling(max_tokens=60)).finish() for chat in chats]
    assert all(reply.stopped for reply in whole)
    limit = max(reply.tokens for reply in whole)  # the longest is cut just before its end
    single = [generate_stream(model, tokenizer, chat, Sampling(max_tokens=limit)).finish() for chat in chats]
    assert {reply.stopped for reply in single} == {True, False}
    assert len({reply.tokens for reply in single}) > 2
    assert generate_replies(model, tokenizer, chats, limit) == single
    assert generate_replies(model, tokenizer, chats, limit, batch_size=4) == single


@pytest.mark.full
def test_our_decoder_says_what_the_plain_model_says(tmp_path):
    source = make_talking(tmp_path / "base")
    tokenizer, plain = load_tokenizer(source), load_base(source, "fp32", CPU)
    fast, reason = load_for_generation(source, None, "fp32", CPU)
    assert reason == ""
    chats = [row["messages"][:1] for row in conversations(6, offset=5)]
    limit = max(reply.tokens for reply in generate_replies(plain, tokenizer, chats, 60))
    wanted = generate_replies(plain, tokenizer, chats, limit, batch_size=4)
    assert {reply.stopped for reply in wanted} == {True, False}
    assert generate_replies(fast, tokenizer, chats, limit, batch_size=4) == wanted
    assert [generate_stream(fast, tokenizer, chat, Sampling(max_tokens=limit)).finish() for chat in chats] == wanted
    drawing = Sampling(max_tokens=12, temperature=0.8, top_p=0.9, seed=3)
    assert (
        generate_stream(fast, tokenizer, chats[0], drawing).finish()
        == generate_stream(plain, tokenizer, chats[0], drawing).finish()
    )
    assert model_stop_ids(fast, tokenizer) == model_stop_ids(plain, tokenizer)
    decoder = load_decoder(source, DecoderOptions(torch.float32, CPU, 64)).decoder
    assert generate_replies(decoder, tokenizer, chats, limit) == wanted


@pytest.fixture(scope="module")
def lfm2(tokenizer):
    """A tiny hybrid of short convolutions and attention, with weights large enough that context matters."""
    from transformers import Lfm2Config, Lfm2ForCausalLM

    torch.manual_seed(0)
    config = Lfm2Config(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, layer_types=["conv", "conv", "full_attention", "conv"], block_auto_adjust_ff_dim=False,
        pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    model = Lfm2ForCausalLM(config).eval()
    randomize(model)
    with torch.no_grad():
        for value in model.parameters():
            if value.ndim > 1:
                value.normal_(std=0.2)
    return model


def test_short_convolutions_see_no_padding(lfm2, tokenizer):
    prompts = [[5], [7, 9], [11, 40, 60, 80], [300, 20], [8] * 9, list(range(30, 50))]
    single = [generate_stream(lfm2, tokenizer, prompt, Sampling(max_tokens=12)).finish() for prompt in prompts]
    assert len({reply.text for reply in single}) == len(prompts)
    for batch_size in (2, 16):
        assert generate_replies(lfm2, tokenizer, prompts, 12, batch_size=batch_size) == single


@pytest.mark.full
def test_hybrid_caches_keep_finished_rows(lfm2, tokenizer):
    """Their convolution states cannot drop rows; what finished rows continue to say is not in the replies."""
    prompts = [[5], [7, 9], [11, 40, 60, 80], [300, 20], [8] * 9, list(range(30, 50))]
    whole = [_ids_of(lfm2, prompt, 12) for prompt in prompts]
    lfm2.generation_config.eos_token_id = [whole[0][2], whole[3][6]]  # some rows end, at different times
    try:
        single = [generate_stream(lfm2, tokenizer, prompt, Sampling(max_tokens=12)).finish() for prompt in prompts]
        assert {reply.stopped for reply in single} == {True, False}
        assert len({reply.tokens for reply in single}) > 2
        assert generate_replies(lfm2, tokenizer, prompts, 12) == single
    finally:
        lfm2.generation_config.eos_token_id = 2


def _ids_of(model, prompt, tokens):
    """Greedy tokens without any cache."""
    ids = list(prompt)
    with torch.no_grad():
        for _ in range(tokens):
            ids.append(int(model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
    return ids[len(prompt) :]


def test_only_caches_whose_every_state_can_drop_rows_do():
    from transformers import cache_utils

    def of(*layers):
        return SimpleNamespace(layers=list(layers))

    plain, sliding = cache_utils.DynamicLayer(), cache_utils.DynamicSlidingWindowLayer(sliding_window=8)
    assert _can_drop_rows(of(plain, sliding))
    assert not _can_drop_rows(of(plain, cache_utils.LinearAttentionLayer()))
    # It inherits a method that forgets rows of its keys and values, and not of its other states.
    assert not _can_drop_rows(of(plain, cache_utils.LinearAttentionAndFullAttentionLayer()))
    assert not _can_drop_rows(of())
    assert not _can_drop_rows(object())


@pytest.mark.parametrize("name", ["<|im_end|>", "<|endoftext|>"])
def test_every_end_token_stops(model, tokenizer, name):
    hook = biased(model, tokenizer.convert_tokens_to_ids(name), 100.0)
    try:
        stream = generate_stream(model, tokenizer, CHATS[0], Sampling(max_tokens=5))
        assert list(stream) == []
        assert stream.stopped
        assert stream.tokens == 0
        assert generate_replies(model, tokenizer, CHATS[:1], 5)[0].stopped
    finally:
        hook.remove()


def test_stop_tokens_come_from_everywhere(tokenizer, model, tmp_path):
    eos = tokenizer.eos_token_id
    assert stop_token_ids(tokenizer, [7, 9], None, 7) == [7, 9, eos, 0]  # 0: <|endoftext|>
    harmony = make_tokenizer(tmp_path)
    harmony.add_special_tokens({"additional_special_tokens": ["<|end|>", "<|return|>"]})
    ends = stop_token_ids(harmony)
    assert harmony.convert_tokens_to_ids("<|return|>") in ends
    assert harmony.convert_tokens_to_ids("<|end|>") not in ends
    model.generation_config.eos_token_id = [5, eos]
    assert set(model_stop_ids(model, tokenizer)) >= {5, eos}
    model.generation_config.eos_token_id = eos


@pytest.mark.full
def test_training_goes_on_as_if_nothing_had_been_generated(source, tokenizer):
    def steps(disturb):
        tuned = attach_adapter(load_base(source, "fp32", CPU), AdapterSection(rank=4, dropout=0.2, method="dora"), 0)
        tuned.train()
        tuned.base_model.model.model.layers[0].eval()  # an odd state must survive too
        optimizer = torch.optim.SGD([value for value in tuned.parameters() if value.requires_grad], lr=0.1)
        torch.manual_seed(5)
        losses = []
        for step in range(3):
            ids = torch.randint(0, 300, (2, 20))
            loss = tuned(input_ids=ids, labels=ids).loss
            if disturb and step == 1:
                state = [module.training for module in tuned.modules()], tuned.config.use_cache, torch.get_rng_state()
                stream = generate_stream(tuned, tokenizer, CHATS[0], Sampling(max_tokens=4, temperature=1.0))
                next(stream)  # left open in the middle
                assert [module.training for module in tuned.modules()] == state[0]
                assert torch.is_grad_enabled()
                generate_replies(tuned, tokenizer, CHATS, 4)
                now = [module.training for module in tuned.modules()], tuned.config.use_cache
                assert now == state[:2]
                assert torch.equal(torch.get_rng_state(), state[2])
                assert not any(value.grad is not None and value.grad.isnan().any() for value in tuned.parameters())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses

    assert steps(disturb=True) == steps(disturb=False)


def test_modes_come_back_after_an_error(model):
    model.train()
    with pytest.raises(ZeroDivisionError), evaluating(model):
        assert not model.training
        assert not torch.is_grad_enabled()
        raise ZeroDivisionError
    assert model.training
    assert torch.is_grad_enabled()
    model.eval()


@pytest.mark.full
@settings(max_examples=40, deadline=None)
@given(st.text(max_size=40))
def test_pieces_are_whole_characters_and_add_up(text):
    tokenizer = _byte_tokenizer()
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    decoder = PieceDecoder(tokenizer)
    pieces = [decoder.push(token) for token in ids]
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in pieces)
    assert "".join(pieces) + decoder.flush() == tokenizer.decode(ids, clean_up_tokenization_spaces=False)


def test_an_emoji_comes_in_one_piece():
    tokenizer = _byte_tokenizer()
    ids = tokenizer("a😀b", add_special_tokens=False)["input_ids"]
    decoder = PieceDecoder(tokenizer)
    pieces = [decoder.push(token) for token in ids]
    assert len(ids) == 6
    assert [piece for piece in pieces if piece] == ["a", "😀", "b"]
    cut = PieceDecoder(tokenizer)
    assert [cut.push(token) for token in ids[:3]] == ["a", "", ""]
    assert cut.flush() == "\ufffd"


_made = {}


def _byte_tokenizer():
    """Every byte is a token: nothing is longer than a character."""
    if not _made:
        import tempfile

        _made["tokenizer"] = make_tokenizer(tempfile.mkdtemp(), vocab_size=259)
    return _made["tokenizer"]


def test_picking_tokens():
    logits = np.array([1.0, 3.0, 2.0, -np.inf], dtype=np.float32)
    random = np.random.default_rng(0)
    assert pick_token(logits, Sampling(), random) == 1
    drawn = [pick_token(logits, Sampling(temperature=1.0), random) for _ in range(4000)]
    shares = np.bincount(drawn, minlength=4) / 4000
    wanted = np.exp(logits) / np.exp(logits[:3]).sum()
    np.testing.assert_allclose(shares, wanted, atol=0.03)
    kept = {pick_token(logits, Sampling(temperature=1.0, top_p=0.7), random) for _ in range(300)}
    assert kept == {1, 2}
    assert {pick_token(logits, Sampling(temperature=1.0, top_p=0.1), random) for _ in range(50)} == {1}
    for bounds in ({"top_k": 2}, {"min_p": 0.3}, {"top_k": 3, "top_p": 0.7}):
        assert {pick_token(logits, Sampling(temperature=1.0, **bounds), random) for _ in range(300)} == {1, 2}
    assert {pick_token(logits, Sampling(temperature=1.0, top_k=1, min_p=0.01), random) for _ in range(50)} == {1}


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_tokens": 0},
        {"temperature": -1.0},
        {"top_p": 0.0},
        {"top_p": 1.5},
        {"top_k": -1},
        {"min_p": 1.5},
        {"min_p": -0.1},
    ],
)
def test_impossible_options_are_told(wrong):
    with pytest.raises(UsageError):
        Sampling(**wrong)


def test_empty_prompts_are_told(model, tokenizer):
    for prompt in ([], ()):
        with pytest.raises(UsageError, match="prompt is empty"):
            generate_stream(model, tokenizer, prompt)


def test_a_missing_template_is_told(model, tmp_path):
    bare = make_tokenizer(tmp_path)
    bare.chat_template = None
    with pytest.raises(UsageError, match="no chat template"):
        generate_replies(model, bare, CHATS, 3)
    assert generate_replies(model, bare, [[5, 6, 7]], 3)[0].tokens == 3


def test_a_stream_counts_and_closes():
    def make(stream):
        for text in "abc":
            stream.tokens += 1
            yield text
        stream.stopped = True

    stream = ReplyStream(make)
    assert next(stream) == "a"
    assert (stream.finish().text, stream.stopped, stream.tokens) == ("bc", True, 3)
    stream.close()
