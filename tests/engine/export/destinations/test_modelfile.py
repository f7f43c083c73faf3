"""The strict reader of Modelfiles, and that what is written is what Ollama would read."""

import pytest

from burnish_engine.contract.errors import UsageError
from burnish_engine.export.destinations.modelfile import check_template, read_modelfile
from burnish_engine.export.destinations.ollama import export_ollama, model_sampling, quoted, usual_sampling

from support.models.export import write_16_bit


def read(text):
    return [(one.word, one.key, one.value) for one in read_modelfile(text)]


def test_the_documented_forms_are_read():
    text = (
        '# a comment\nFROM ./x.gguf\n\nparameter temperature 0.7\nPARAMETER stop "AI assistant:"\n'
        'PARAMETER stop """<|im_end|>"""\n'
        'TEMPLATE """{{ if .System }}<|s|>{{ .System }}{{ end }}\n\nUser: {{ .Prompt }}\n'
        '"""\nSYSTEM You are Mario.\nMESSAGE user Is it?\nADAPTER ./a.gguf\nLICENSE """\nfree\n"""\n'
    )
    assert read(text) == [
        ("from", "", "./x.gguf"), ("parameter", "temperature", "0.7"), ("parameter", "stop", "AI assistant:"),
        ("parameter", "stop", "<|im_end|>"),
        ("template", "", "{{ if .System }}<|s|>{{ .System }}{{ end }}\n\nUser: {{ .Prompt }}\n"),
        ("system", "", "You are Mario."), ("message", "user", "Is it?"), ("adapter", "", "./a.gguf"),
        ("license", "", "\nfree\n"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "0 FROM lines"),
        ("FROM a\nFROM b", "2 FROM lines"),
        ("FROM a\nRUN rm", "Line 2 of the Modelfile: 'RUN' is no instruction"),
        ("FROM", "FROM has no value"),
        ('FROM a\nTEMPLATE """{{ .System }}', "Line 2 of the Modelfile: its quotes are never closed"),
        ("FROM a\nPARAMETER heat 1", "the parameter 'heat' is unknown"),
        ("FROM a\nPARAMETER num_ctx 4k", "num_ctx is '4k', not a whole number"),
        (f"FROM a\nPARAMETER num_ctx {'9' * 400}", f"num_ctx is '{'9' * 40}', not a whole number"),
        ("FROM a\nPARAMETER top_p much", "top_p is 'much', not a number"),
        ("FROM a\nMESSAGE robot hi", "the role 'robot' is unknown"),
        ('FROM a\nPARAMETER stop """a\u200bb"""', "Ollama drops the character '\\\\u200b'"),
        ("FROM a\nTEMPLATE x\nTEMPLATE y", "2 TEMPLATEs"),
        ("FROM a\nTEMPLATE {{ if .System }}x", "never ends its {{ if }}"),
    ],
)
def test_what_ollama_would_not_take_is_refused_with_its_line(text, words):
    with pytest.raises(UsageError) as caught:
        read_modelfile(text)
    assert words.replace("\\\\", "\\") in str(caught.value)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ .System ", "not closed"),
        ("{{ end }}", "belongs to nothing"),
        ("{{ range .Messages }}{{ if .Role }}{{ end }}", "never ends its {{ range }}"),
        ("{{ .Sytem }}", "uses .Sytem, which Ollama does not have"),
    ],
)
def test_templates_that_go_would_not_run_are_refused(template, words):
    with pytest.raises(UsageError, match=words.replace("{", r"\{").replace("}", r"\}")):
        check_template(template)


def test_what_is_written_is_what_ollama_reads(wide, tmp_path):
    path = write_16_bit(wide, None, tmp_path)
    made = export_ollama(path, tmp_path / "o", sampling=usual_sampling({"temperature": 0.6, "top_k": 50_000.0}))
    found = read(made.modelfile.read_text(encoding="utf-8"))
    assert found[0] == ("from", "", "./tiny-F16.gguf")
    assert ("parameter", "temperature", "0.6") in found
    assert ("parameter", "top_k", "50000") in found
    assert [value for word, key, value in found if key == "stop"]
    assert "{{ .Content }}" in next(value for word, _, value in found if word == "template")


def test_only_sampling_that_ollama_knows_goes_along():
    config = {"temperature": 0.7, "repetition_penalty": 1.05, "do_sample": True, "eos_token_id": 2, "top_p": True}
    assert usual_sampling(config) == {"temperature": 0.7, "repeat_penalty": 1.05}
    assert usual_sampling({"top_k": 40.5}) == {}


@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 400, "-1", "1e300", '"0.7"', "null", "[]", "true", "{}"]
)
@pytest.mark.parametrize("key", ["temperature", "top_p", "top_k", "min_p", "repetition_penalty"])
def test_odd_sampling_never_reaches_a_modelfile(tmp_path, key, number):
    (tmp_path / "generation_config.json").write_text(f'{{"{key}": {number}}}')
    assert model_sampling(tmp_path) == {}


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e999", "infinity"])
def test_no_number_of_a_modelfile_is_infinite(value):
    with pytest.raises(UsageError, match="temperature"):
        read_modelfile(f"FROM ./a.gguf\nPARAMETER temperature {value}\n")


def test_texts_with_triple_quotes_cannot_be_written():
    with pytest.raises(UsageError, match="cannot hold the text"):
        quoted('a"""b')
