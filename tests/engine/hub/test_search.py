"""A search of the hub: what is found is judged for this machine, and what cannot be trained says why."""

import json

import pytest

from burnish_engine.contract.errors import SetupError
from burnish_engine.hub.search import search_hub

from support.hubs.fetching import NAME
from support.machines.advice import CPU_16, LAPTOP

COUNTS = {"safetensors": {"parameters": {"BF16": 1_000_000, "F32": 500}, "total": 1_000_500}}


def found(query="bench", **options):
    return {model.name: model for model in search_hub(query, CPU_16, LAPTOP, **options)}


def test_a_model_is_judged_by_its_config(hub, tiny):
    hub.host(NAME, tiny, found=COUNTS)
    hub.host("Else/Where", tiny)
    (one,) = found().values()
    assert (one.name, one.verdict, one.license, one.here) == (NAME, "good", "apache-2.0", False)
    assert one.tokens_per_s > 0
    assert one.train_bytes > 0
    assert (one.parameters, one.download_bytes) == (1_000_500, 2_002_000)
    assert one.downloads == 7
    assert hub.sent("model.safetensors") == 0


def test_what_cannot_be_trained_says_why_and_comes_last(hub, tiny):
    hub.host("Bench/A-Converted", tiny, found={"tags": ["gguf"]})
    packed = hub.host("Bench/B-Packed", tiny)
    packed.files["config.json"] = json.dumps(
        {**json.loads(packed.files["config.json"]), "quantization_config": {"quant_method": "awq"}}
    ).encode()
    hub.host("Bench/C-Gated", tiny, gated="auto")
    broken = hub.host("Bench/D-Broken", tiny)
    broken.files["config.json"] = b'{"model_type": "llama", "hidden_size": -1}'
    strange = hub.host("Bench/E-Strange", tiny)
    strange.files["config.json"] = b'{"model_type": "of_tomorrow"}'
    hub.host("Bench/F-Fine", tiny)
    hub.host("Bench/G-Speech", tiny, found={"pipeline_tag": "automatic-speech-recognition"})
    models = found()
    assert next(iter(models)) == "Bench/F-Fine"
    verdicts = {name[6]: model.verdict for name, model in models.items()}
    assert verdicts == {
        "A": "unusable", "B": "unknown", "C": "unknown", "D": "unusable", "E": "unknown", "F": "good", "G": "unusable",
    }  # fmt: skip
    assert "terms" in models["Bench/C-Gated"].reason
    assert "hidden_size" in models["Bench/D-Broken"].reason


def test_a_model_far_too_big_says_so(hub, tiny):
    big = hub.host("Bench/Big", tiny)
    config = json.loads(big.files["config.json"])
    big.files["config.json"] = json.dumps(
        {**config, "hidden_size": 16384, "intermediate_size": 65536, "num_hidden_layers": 120}
    ).encode()
    assert found()["Bench/Big"].verdict == "too_big"


def test_nothing_found_is_no_error(hub):
    assert found("nothing of this name") == {}


def test_without_a_network_it_is_said(hub, tiny, monkeypatch):
    monkeypatch.setenv("BURNISH_OFFLINE", "1")
    with pytest.raises(SetupError, match="no network"):
        found()
    assert not hub.requests
    monkeypatch.setenv("BURNISH_OFFLINE", "0")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(SetupError, match="could not be reached"):
        found()


@pytest.mark.full
def test_names_that_are_none_are_left_out(hub, tiny):
    hub.host("Bench/ok", tiny)
    hub.models["Bench/../../etc"] = hub.models["Bench/ok"]
    assert list(found()) == ["Bench/ok"]
