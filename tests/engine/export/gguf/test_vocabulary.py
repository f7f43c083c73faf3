"""Vocabularies: what becomes of a tokenizer's tokens, and llama.cpp splitting text the same way, or a refusal."""

from dataclasses import replace

import pytest
from tokenizers import AddedToken, Tokenizer, models
from transformers import PreTrainedTokenizerFast

from burnish_engine.chat.prompt import gguf_chat_ids, gguf_template, render, tokenizer_template
from burnish_engine.contract.errors import FidelityError, UsageError
from burnish_engine.export.gguf.pre_tokenizer import compare_tokens
from burnish_engine.export.gguf.vocabulary import CONTROL, USER_DEFINED, read_vocabulary, turn_end
from burnish_engine.export.gguf.write import plan_gguf
from burnish_engine.export.verify.fidelity import probe_texts
from burnish_engine.export.verify.probe_strings import PROBE_CHATS
from burnish_engine.export.weights.merge import MergedWeights
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.models.generation.generate import stop_token_ids
from burnish_engine.models.gguf.gguf_runtime import GgufModel

from support.models.export import (
    BACKWARDS,
    GPT4,
    QWEN,
    byte_level,
    make_model,
    save_tokenizer,
    source_with,
    write_16_bit,
)
from support.models.sentencepiece import KINDS, save_sentencepiece


@pytest.mark.full
@pytest.mark.parametrize(
    ("split", "names"),
    [("digits", {"smollm"}), (None, {"gpt-2"}), (GPT4, {"llama-bpe"}), (QWEN, {"llama-bpe", "qwen2"})],
    ids=["smollm", "gpt-2", "llama 3", "qwen"],  # without merges of digits, Llama 3's and Qwen's are the same
)
def test_the_pre_tokenizer_is_found_by_trying(tmp_path, split, names):
    source = source_with(tmp_path, split)
    tokenizer = load_tokenizer(source)
    expected = probe_texts(tokenizer)
    plan = plan_gguf(source, MergedWeights(source, None), tokenizer, "x", expected=expected, scratch=tmp_path)
    assert plan.pre_tokenizer in names
    assert not list(tmp_path.glob("*.gguf"))


@pytest.mark.full
def test_no_pre_tokenizer_that_splits_alike_is_a_refusal_with_examples(tmp_path):
    source = source_with(tmp_path, GPT4)
    tokenizer = load_tokenizer(source)
    tokenizer.backend_tokenizer.pre_tokenizer = byte_level(BACKWARDS)
    tokenizer.save_pretrained(source.folder)
    with pytest.raises(FidelityError, match=r"no pre-tokenizer.*differs on \d+ of \d+ texts: '") as caught:
        write_16_bit(source, None, tmp_path)
    assert caught.value.exit_code == 14
    assert "became" in str(caught.value)


@pytest.mark.full
def test_a_wrong_pre_tokenizer_is_noticed(tmp_path):
    source = source_with(tmp_path, "digits")
    path = write_16_bit(source, None, tmp_path, change=lambda plan: replace(plan, pre_tokenizer="llama-bpe"))
    with GgufModel(path, vocab_only=True) as model:
        assert len(compare_tokens(probe_texts(load_tokenizer(source)), model)) > 10


def test_added_tokens_get_their_types(tmp_path):
    tokenizer = save_tokenizer(tmp_path, "digits")
    tokenizer.add_tokens([AddedToken("<think>", special=False, normalized=False)])
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|tool|>"]})
    vocabulary = read_vocabulary(tokenizer, len(tokenizer) + 3)
    types = dict(zip(vocabulary.tokens, vocabulary.types, strict=True))
    assert types["<|im_end|>"] == types["<|tool|>"] == CONTROL
    assert types["<think>"] == USER_DEFINED
    assert vocabulary.tokens[-1] == f"[PAD{len(tokenizer) + 2}]"
    assert all(len(merge.split(" ")) == 2 for merge in vocabulary.merges)


def test_the_turn_end_becomes_eos_whatever_the_tokenizer_says(tmp_path):
    tokenizer = save_tokenizer(tmp_path, "digits", eos_token="<|endoftext|>", pad_token="<|endoftext|>")
    assert tokenizer.eos_token == "<|endoftext|>"
    vocabulary = read_vocabulary(tokenizer, len(tokenizer))
    assert vocabulary.special["eos_token_id"] == tokenizer.convert_tokens_to_ids("<|im_end|>")


@pytest.mark.full
def test_a_turn_that_ends_with_a_message_end_stops_there(tmp_path):
    """As of Llama 3.1's tool calls: the file's end of turn is the token that the model learned to end with."""
    source = make_model(tmp_path / "base", "llama", vocab_size=1536)
    template = LLAMA3_TEMPLATE.replace("<|eot_id|>", "<|eom_id|>")
    specials = (*LLAMA3_SPECIALS, "<|eom_id|>")
    save_tokenizer(
        source.folder, GPT4, specials=specials, template=template, bos_token="<|begin_of_text|>",
        eos_token="<|end_of_text|>", pad_token="<|end_of_text|>",
    )  # fmt: skip
    tokenizer = load_tokenizer(source)
    path = write_16_bit(open_model(str(source.folder)), None, tmp_path)
    with GgufModel(path, vocab_only=True) as model:
        assert model.token_text(model.eos) == "<|eom_id|>"
        assert all(model.is_end(stop) for stop in stop_token_ids(tokenizer))


def test_stops_that_no_program_knows_by_name_get_a_key(tmp_path):
    names = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<over>", "<out>")
    tokenizer = save_tokenizer(tmp_path, "digits", specials=names)
    over, out = tokenizer.convert_tokens_to_ids(["<over>", "<out>"])
    special = read_vocabulary(tokenizer, len(tokenizer), [over, out]).special
    assert (special["eot_token_id"], special["eom_token_id"]) == (over, out)


LLAMA3_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message.role }}<|end_header_id|>\n\n"
    "{{ message.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
LLAMA3_SPECIALS = (
    "<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
)  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("in_template", [True, False])
def test_bos_comes_once_whether_template_or_tokenizer_adds_it(tmp_path, in_template):
    from tokenizers.processors import TemplateProcessing

    template = LLAMA3_TEMPLATE if in_template else LLAMA3_TEMPLATE.removeprefix("{{ bos_token }}")
    source = make_model(tmp_path / "base", "llama", vocab_size=1536)
    tokenizer = save_tokenizer(
        source.folder, GPT4, specials=LLAMA3_SPECIALS, template=template,
        bos_token="<|begin_of_text|>", eos_token="<|end_of_text|>", pad_token="<|end_of_text|>",
    )  # fmt: skip
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", tokenizer.bos_token_id)]
    )
    tokenizer.save_pretrained(source.folder)
    tokenizer = load_tokenizer(source)
    path = write_16_bit(open_model(str(source.folder)), None, tmp_path)
    messages = [{"role": "user", "content": "Hello there"}]
    wanted = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True)["input_ids"]
    assert wanted.count(tokenizer.bos_token_id) == int(in_template)
    with GgufModel(path, vocab_only=True) as model:
        assert model.adds_bos is in_template
        assert gguf_chat_ids(model, render(gguf_template(model), messages)) == wanted
        assert model.token_text(model.eos) == "<|eot_id|>"
        assert model.is_end(tokenizer.convert_tokens_to_ids("<|end_of_text|>"))


@pytest.mark.full
def test_a_base_model_without_template_gets_the_one_it_was_trained_with(tmp_path):
    source = source_with(tmp_path, "digits", template=None)
    (source.folder / "chat_template.jinja").unlink()
    tokenizer = load_tokenizer(source)
    assert tokenizer.chat_template is None
    vocabulary = read_vocabulary(tokenizer, len(tokenizer))
    assert "### Assistant:" in vocabulary.chat_template
    assert vocabulary.special["eos_token_id"] == tokenizer.eos_token_id


@pytest.mark.full
def test_templates_without_an_end_token_keep_the_tokenizers(tmp_path):
    plain = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    tokenizer = save_tokenizer(tmp_path, "digits", template=plain)
    vocabulary = read_vocabulary(tokenizer, len(tokenizer))
    assert vocabulary.special["eos_token_id"] == tokenizer.eos_token_id
    assert turn_end(tokenizer, tokenizer_template(tokenizer)) is None


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("kind", KINDS)
def test_sentencepiece_style_tokenizers(tmp_path, kind):
    source = make_model(tmp_path / "base", "llama", vocab_size=1024)
    save_sentencepiece(source.folder, kind)
    source = open_model(str(source.folder))
    path = write_16_bit(source, None, tmp_path)
    tokenizer = load_tokenizer(source)
    with GgufModel(path, vocab_only=True) as model:
        assert model.metadata["tokenizer.ggml.model"] == "llama"
        assert model.metadata["tokenizer.ggml.add_space_prefix"] == str(kind in {"llama", "phi3"}).lower()
        texts = probe_texts(tokenizer)
        assert len(texts) >= 495
        found = compare_tokens(texts, model)
        assert not found, [str(one) for one in found[:8]]
        for chat in ([{"role": "user", "content": "Hello  you\n"}], [*PROBE_CHATS[2]], [*PROBE_CHATS[3]]):
            text = render(tokenizer_template(tokenizer), chat)
            assert gguf_chat_ids(model, text) == tokenizer(text, add_special_tokens=False)["input_ids"]


def test_other_kinds_are_refused(tmp_path):
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")
    with pytest.raises(UsageError, match="WordPiece"):
        read_vocabulary(fast, 10)
