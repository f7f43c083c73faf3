import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken
from transformers.convert_slow_tokenizer import bytes_to_unicode

from burnish_engine.data.rows.conversation import Conversation, Message
from burnish_engine.data.templates.spans import ChatRenderer, RenderedRow
from burnish_engine.data.templates.template import chat_template
from burnish_engine.data.tokens.tokenize import Document, Encoder, TokenizerParts, covered_tokens

TO_BYTE = {character: byte for byte, character in bytes_to_unicode().items()}
CHAT = [
    ("user", "Say  it \n in many ways."),
    ("assistant", "   Größe 😀👍🏽\n\n\n    你好 e\u0301  "),
    ("user", " again "),
    ("assistant", "ok"),
]


def rendered_chat(tokenizer, messages=CHAT):
    added = [token.content for token in tokenizer.added_tokens_decoder.values()]
    chat = Conversation(tuple(Message(*message) for message in messages), None, 1, "file")
    return ChatRenderer(chat_template(tokenizer), tokenizer.eos_token, added).render(chat)


def expected_by_bytes(tokenizer, ids, row):
    """Learned flags of a byte-level tokenizer, from the bytes that its tokens spell, without any offsets."""
    wanted = np.zeros(len(row.text.encode()), dtype=bool)
    for start, end in row.spans:
        wanted[len(row.text[:start].encode()) : len(row.text[:end].encode())] = True
    special = set(tokenizer.added_tokens_encoder)
    flags, at = [], 0
    for token in tokenizer.convert_ids_to_tokens(ids):
        size = len(token.encode()) if token in special else len([TO_BYTE[character] for character in token])
        flags.append(bool(wanted[at : at + size].any()))
        at += size
    assert at == len(wanted)
    return [False, *flags[1:]]


@st.composite
def spanned_texts(draw):
    pieces = draw(
        st.lists(
            st.sampled_from(
                ["a", "the ", " ", "   ", "\n", "\n\n", "é", "😀", "你", "e\u0301", "<|im_end|>", "</s>", "x1"]
            ),
            min_size=1,
            max_size=15,
        )
    )
    cuts = sorted(draw(st.sets(st.integers(0, len(pieces)), max_size=4)))
    ends = np.cumsum([0, *map(len, pieces)])
    spans = [(int(ends[a]), int(ends[b])) for a, b in zip(cuts[::2], cuts[1::2], strict=False)]
    return RenderedRow("".join(pieces), tuple(spans))


@pytest.mark.full
@pytest.mark.parametrize("backend", ["bytes", "bytes-trimmed"])
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(row=spanned_texts())
def test_tokens_are_learned_by_the_bytes_they_spell(make_tokenizer, backend, row):
    tokenizer = make_tokenizer(backend=backend)
    [(ids, supervised)] = Encoder(TokenizerParts.of(tokenizer)).encode([row])
    assert supervised.tolist() == expected_by_bytes(tokenizer, ids, row)


@pytest.mark.parametrize("name", ["chatml", "llama3", "zephyr", "mistral"])
def test_learned_tokens_spell_the_replies(make_tokenizer, backend, name):
    tokenizer = make_tokenizer(name, backend)
    row = rendered_chat(tokenizer)
    [(ids, supervised)] = Encoder(TokenizerParts.of(tokenizer)).encode([row])
    runs = np.split(ids, np.flatnonzero(np.diff(supervised)) + 1)
    texts = [tokenizer.decode(run, clean_up_tokenization_spaces=False) for run in runs[1::2]]
    assert [text.strip() for text in texts] == [row.text[start:end].strip() for start, end in row.spans]


def test_ids_are_those_of_the_tokenizer(make_tokenizer, backend):
    tokenizer = make_tokenizer(backend=backend)
    row = rendered_chat(tokenizer)
    [(ids, _)] = Encoder(TokenizerParts.of(tokenizer)).encode([row])
    assert ids.tolist() == tokenizer(row.text, add_special_tokens=False)["input_ids"]


def test_the_tokenizer_is_left_as_it_was(make_tokenizer):
    tokenizer = make_tokenizer(backend="bytes-trimmed", adds_bos=True)
    before = tokenizer.backend_tokenizer.to_str()
    Encoder(TokenizerParts.of(tokenizer)).encode([RenderedRow("a b", ())])
    assert tokenizer.backend_tokenizer.to_str() == before


def test_every_token_of_a_split_character_is_learned(make_tokenizer, backend):
    tokenizer = make_tokenizer(backend=backend)
    [(ids, supervised)] = Encoder(TokenizerParts.of(tokenizer)).encode([RenderedRow("aa\U0001f9ffaa", ((2, 3),))])
    assert supervised.sum() >= 3
    assert tokenizer.decode(ids[supervised]) == "\U0001f9ff"


def test_padding_that_is_the_end_token_does_not_hide_it(make_tokenizer, template_name):
    tokenizer = make_tokenizer(template_name)
    row = rendered_chat(tokenizer)
    [(plain_ids, plain)] = Encoder(TokenizerParts.of(tokenizer)).encode([row])
    tokenizer.pad_token = tokenizer.eos_token
    assert tokenizer.pad_token_id == tokenizer.eos_token_id
    [(ids, supervised)] = Encoder(TokenizerParts.of(tokenizer)).encode([row])
    assert supervised.tolist() == plain.tolist()
    end = tokenizer.convert_tokens_to_ids(row.turn_end)
    assert supervised[ids == end].sum() == 2
    assert ids[np.flatnonzero(supervised)[-1]] == end
    assert ids.tolist() == plain_ids.tolist()


@pytest.mark.parametrize("name", ["llama3", "mistral", "gemma"])
def test_a_template_that_writes_bos_gets_no_second_one(make_tokenizer, name):
    tokenizer = make_tokenizer(name, adds_bos=True)
    encoder = Encoder(TokenizerParts.of(tokenizer))
    assert encoder.adds_bos
    [(ids, _)] = encoder.encode([rendered_chat(tokenizer)])
    assert ids.tolist().count(tokenizer.bos_token_id) == 1
    assert ids[0] == tokenizer.bos_token_id


def test_a_text_that_holds_its_bos_gets_no_second_one(make_tokenizer):
    """As rows of chats that another program rendered."""
    tokenizer = make_tokenizer("llama3", adds_bos=True)
    text = f"{tokenizer.bos_token}Hello world"
    [(ids, supervised)] = Encoder(TokenizerParts.of(tokenizer)).encode(
        [RenderedRow(text, ((0, len(text)),), add_bos=True)]
    )
    assert ids.tolist() == tokenizer("Hello world")["input_ids"]
    assert supervised.tolist() == [False] + [True] * (len(ids) - 1)


def test_plain_text_gets_bos_if_the_tokenizer_adds_it_and_a_learned_end(make_tokenizer, backend):
    for adds_bos in (True, False):
        tokenizer = make_tokenizer("zephyr", backend, adds_bos=adds_bos)
        encoder = Encoder(TokenizerParts.of(tokenizer))
        row = RenderedRow("Hello world", ((0, 11),), add_bos=encoder.adds_bos, add_eos=True)
        [(ids, supervised)] = encoder.encode([row])
        assert ids.tolist() == [*tokenizer("Hello world")["input_ids"], tokenizer.eos_token_id]
        assert supervised.tolist() == [False] + [True] * (len(ids) - 1)


def test_tokens_that_swallow_white_space_do_not_become_learned(make_tokenizer):
    tokenizer = make_tokenizer()
    tokenizer.add_tokens([AddedToken("<|bot|>", rstrip=True, special=True)])
    text = "hi<|bot|>  ok"
    [(ids, supervised)] = Encoder(TokenizerParts.of(tokenizer)).encode([RenderedRow(text, ((9, len(text)),))])
    at = ids.tolist().index(tokenizer.convert_tokens_to_ids("<|bot|>"))
    assert not supervised[at]
    assert supervised[at + 1 :].all()


def test_a_made_up_token_counts_as_the_character_it_stands_before():
    offsets = np.array([[0, 2], [2, 2], [2, 4], [4, 4], [4, 6], [6, 6]])
    assert covered_tokens(offsets, [(2, 4)], 6).tolist() == [False, True, True, False, False, False]


def test_nothing_is_a_target_in_first_place(make_tokenizer):
    [(_, supervised), (empty, _)] = Encoder(TokenizerParts.of(make_tokenizer())).encode(
        [RenderedRow("abc", ((0, 3),)), RenderedRow("", ())]
    )
    assert not supervised[0]
    assert len(empty) == 0


def test_cutting_keeps_the_beginning():
    document = Document(np.arange(5, dtype=np.int32), np.array([0, 0, 1, 1, 1], dtype=bool), 3, "file")
    cut = document.cut(3)
    assert (cut.input_ids.tolist(), cut.supervised.tolist(), cut.truncated) == ([0, 1, 2], [False, False, True], True)
    assert (cut.row, cut.file, cut.supervised_tokens) == (3, "file", 1)
    assert document.cut(5) is document
