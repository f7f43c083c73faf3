"""A tokenizer splits text as its own tokenizer.json does, and never yields an id that the model has no row for."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from burnish_engine.contract.errors import SetupError
from burnish_engine.export.verify.probe_strings import PROBE_STRINGS
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.models.checkpoint.tokenizer_file import check_token_ids

from support.models.export import edit_json
from support.models.sentencepiece import KINDS, save_sentencepiece


def source(folder, rows=0, model_type="llama", **more):
    return ModelSource(folder, "x", {"model_type": model_type}, None, rows=rows, **more)


@pytest.mark.full
@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_those_of_the_folders_own_file(tmp_path, kind, legacy):
    save_sentencepiece(tmp_path, kind, legacy=legacy, tokenizer_class="LlamaTokenizer")
    own, loaded = Tokenizer.from_file(str(tmp_path / "tokenizer.json")), load_tokenizer(source(tmp_path))
    for text in (*PROBE_STRINGS, "[INST] Hi[/INST] there", "</s> a", "a [INST]b"):
        ids = own.encode(text, add_special_tokens=False).ids
        assert loaded(text, add_special_tokens=False)["input_ids"] == ids, text
        assert loaded(text)["input_ids"] == [loaded.bos_token_id, *ids]
        assert loaded.backend_tokenizer.decode(ids) == own.decode(ids)


def test_a_space_in_front_is_a_token_of_its_own_where_the_file_prepends_one(tmp_path):
    save_sentencepiece(tmp_path, "llama")
    assert load_tokenizer(source(tmp_path)).tokenize(" Hello")[0] in {"▁", "▁▁"}


def refused(tmp_path, rows, **more):
    """What both checks say: the one by the file alone, and the one on the loaded tokenizer."""
    for check in (check_token_ids, load_tokenizer):
        with pytest.raises(SetupError, match=f"has {rows} rows") as caught:
            check(source(tmp_path, rows, **more))
    return str(caught.value)


def test_a_larger_models_tokenizer_is_refused_with_both_numbers(tmp_path):
    size = save_sentencepiece(tmp_path)
    assert f"ids up to {size - 1} " in refused(tmp_path, size - 10)
    check_token_ids(source(tmp_path, size))
    load_tokenizer(source(tmp_path, size))


def test_a_number_that_the_library_would_change_is_refused_by_both(tmp_path):
    """Added tokens are numbered without gaps on loading, whatever the file says."""
    size = save_sentencepiece(tmp_path, extra=("<tool>",), eos_token="<tool>")
    raw = json.loads((tmp_path / "tokenizer.json").read_text())
    raw["added_tokens"][-1]["id"] = size + 200
    (tmp_path / "tokenizer.json").write_text(json.dumps(raw))
    assert f"ids up to {size + 200} " in refused(tmp_path, size + 3)


def test_an_added_token_that_text_or_template_yields_is_refused(tmp_path):
    size = save_sentencepiece(tmp_path, extra=("<tool>",))
    assert "'<tool>'" in refused(tmp_path, size, chat_template="<tool>{{ messages }}")
    edit_json(tmp_path / "tokenizer_config.json", eos_token="<tool>")
    assert "'<tool>'" in refused(tmp_path, size)
    raw = json.loads((tmp_path / "tokenizer.json").read_text())
    raw["added_tokens"][-1]["special"] = False
    save_sentencepiece(tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps(raw))
    assert "'<tool>'" in refused(tmp_path, size)


def test_a_token_for_images_beyond_the_embedding_is_plain_text(tmp_path):
    """As in google/gemma-3-1b-it, whose tokenizer has <image_soft_token> = 262144 and whose embedding 262144 rows."""
    size = save_sentencepiece(tmp_path, "gemma", extra=("<image_soft_token>",), image_token="<image_soft_token>")
    check_token_ids(source(tmp_path, size))
    ids = load_tokenizer(source(tmp_path, size))("a<image_soft_token>b", add_special_tokens=False)["input_ids"]
    assert len(ids) > 3
    assert max(ids) < size
    assert load_tokenizer(source(tmp_path))("<image_soft_token>", add_special_tokens=False)["input_ids"] == [size]


@pytest.mark.parametrize("text", ["{", "[]", '{"model": 3}', '{"model": {"vocab": {"a": "b"}}}', "[" * 100_000])
def test_a_damaged_file_is_told(tmp_path, text):
    save_sentencepiece(tmp_path)
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(SetupError, match=r"tokenizer\.json is damaged"):
        check_token_ids(source(tmp_path, 100))


def test_a_file_without_permission_is_not_called_damaged(tmp_path, monkeypatch):
    save_sentencepiece(tmp_path)

    def denied(path, **_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_text", denied)
    with pytest.raises(SetupError, match=r"tokenizer\.json cannot be read: Permission denied\.") as refused:
        check_token_ids(source(tmp_path, 100))
    assert "permissions" in refused.value.remedy
