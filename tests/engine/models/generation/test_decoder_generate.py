"""Replies of our decoder: transformers' greedy replies token by token, whatever family, batch and length."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.checkpoint.spec import decoder_spec
from burnish_engine.models.decoder.decoder_load import DecoderOptions, load_decoder
from burnish_engine.models.decoder.frozen.head import Head
from burnish_engine.models.decoder.layer_types import SequenceMetadata
from burnish_engine.models.decoder.lora_adapter import plan_adapter
from burnish_engine.models.decoder.mixers.attention.cache import CachedAttention
from burnish_engine.models.decoder.mixers.attention.kv_cache import KVCache
from burnish_engine.models.decoder.mixers.attention.mixer import AttentionMixer, AttentionShape
from burnish_engine.models.families import family
from burnish_engine.models.generation import decoder_generate, packed_prompts
from burnish_engine.models.generation.decoder_generate import DecoderGenerator
from burnish_engine.models.generation.load_fast import declared_ends, load_for_generation
from burnish_engine.train.fast.fast_model import make_trainable
from burnish_kernels.attention import op as attention
from burnish_kernels.attention.documents import Documents

from support.models import tiny_models

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = torch.device("cpu")
LENGTHS = (25, 3, 41)  # with WINDOW 16 and ORIGINAL_CONTEXT 32: the first one becomes long on the way
STEPS = 12


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Folder of a tiny checkpoint by its shape, made when it is first asked for."""
    root, made = tmp_path_factory.mktemp("generate"), {}

    def folder(shape):
        if shape not in made:
            made[shape] = tiny_models.make(shape, root / shape)
        return made[shape]

    return folder


def source_of(folder):
    """A model source without a tokenizer."""
    import json

    config = json.loads((folder / "config.json").read_text())
    return ModelSource(folder, folder.name, config, decoder_spec(config))


def speaker_of(folder, adapter=None, precision="fp32"):
    speaker, reason = load_for_generation(source_of(folder), adapter, precision, CPU)
    assert reason == ""
    return speaker


def prompts_of(lengths, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(3, 384, (length,), generator=generator).tolist() for length in lengths]


def logits_after(model, ids):
    """transformers' logits after a text, without any cache."""
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1]


def greedy(speaker, prompts, steps, reserve=None):
    """Tokens of each reply."""
    with speaker.inference():
        state, logits = speaker.start(prompts, steps if reserve is None else reserve)
        made = [logits.argmax(-1).tolist()]
        for _ in range(steps - 1):
            made.append(speaker.advance(state, made[-1]).argmax(-1).tolist())
    return [list(row) for row in zip(*made, strict=True)]


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("shape", [*tiny_models.SHAPES, *tiny_models.MIXTURES])
def test_logits_of_every_step_are_those_of_a_full_pass(folders, shape):
    model, speaker = tiny_models.load(folders(shape)), speaker_of(folders(shape))
    texts = prompts_of(LENGTHS)
    rows = [0, 1, 2]
    with speaker.inference():
        state, logits = speaker.start(texts, STEPS)
        for step in range(STEPS):
            assert logits.dtype == torch.float32
            if step == 8:
                rows = [2, 0]
                assert speaker.keep(state, rows)
                logits = logits[rows]
            for place, row in enumerate(rows):
                torch.testing.assert_close(logits[place], logits_after(model, texts[row]), atol=2e-4, rtol=2e-4)
            chosen = logits.argmax(-1).tolist()
            for place, row in enumerate(rows):
                texts[row].append(chosen[place])
            logits = speaker.advance(state, chosen)


@pytest.mark.parametrize(
    "shape", ["llama", "qwen3", "gemma3", "gemma4", "gemma4-lent", "phi3", "lfm2", "qwen3-5", "qwen3-moe", "gpt-oss"]
)
def test_greedy_replies_are_those_of_transformers_alone_and_in_company(folders, shape):
    model, speaker = tiny_models.load(folders(shape)), speaker_of(folders(shape))
    prompts = prompts_of((2, 30, 17, 30, 1), seed=1)
    wanted = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        made = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=10, eos_token_id=None,
            pad_token_id=0,
        )  # fmt: skip
        wanted.append(made[0, len(prompt) :].tolist())
    assert greedy(speaker, prompts, 10) == wanted
    assert [greedy(speaker, [prompt], 10)[0] for prompt in prompts] == wanted


def test_long_prompts_are_read_in_groups(folders, monkeypatch):
    speaker = speaker_of(folders("gemma3"))
    prompts = prompts_of((9, 8, 30, 1, 1))
    wanted = greedy(speaker, prompts, 6)
    monkeypatch.setattr(packed_prompts, "PROMPT_TOKENS", 10)
    assert greedy(speaker, prompts, 6) == wanted


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("shape", ["llama3", "gemma3", "phi3"])
def test_texts_outgrow_the_rope_table(folders, shape, monkeypatch):
    monkeypatch.setattr(decoder_generate, "_POSITIONS_STEP", 8)
    model = tiny_models.load(folders(shape))
    loaded = load_decoder(source_of(folders(shape)), DecoderOptions(torch.float32, CPU, 16))
    decoder = loaded.decoder
    tables = [layer.mixer.table_PR for layer in decoder.layers]
    before = [(table.data_ptr(), table.clone()) for table in tables]
    (prompt,) = prompts_of((20,))
    (reply,) = greedy(DecoderGenerator(decoder), [prompt], 24, reserve=2)  # many more than was said
    text = list(prompt)
    for token in reply:
        assert token == int(logits_after(model, text).argmax())
        text.append(token)
    assert [layer.mixer.table_PR for layer in decoder.layers] == tables  # the same objects
    assert all(
        table.data_ptr() == at and torch.equal(table, old) for table, (at, old) in zip(tables, before, strict=True)
    )


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ("qwen2", {"rslora": True}),
        ("llama", {"dora": True}),
        *((shape, {}) for shape in ("llama", "qwen2", "gemma3", "gemma4-lent", "phi3", "lfm2-bias", "qwen3-5")),
        *((shape, {"dora": True}) for shape in ("gemma3", "lfm2-bias")),
    ],
)
def test_adapters_speak_as_in_peft_and_can_be_silent(folders, tmp_path, shape, options):
    from peft import PeftModel

    folder = folders(shape)
    adapter = tiny_models.lora(folder, tmp_path / "adapter", rank=5, **options)
    tuned, base = PeftModel.from_pretrained(tiny_models.load(folder), str(adapter)).eval(), tiny_models.load(folder)
    speaker = speaker_of(folder, adapter)
    prompts = prompts_of((18, 5))
    for model, use in ((tuned, True), (base, False), (tuned, True)):
        speaker.use_adapter(use)
        texts = [list(prompt) for prompt in prompts]
        with speaker.inference():
            state, logits = speaker.start(texts, 4)
            for _ in range(4):
                for row, text in enumerate(texts):
                    torch.testing.assert_close(logits[row], logits_after(model, text), atol=3e-4, rtol=3e-4)
                chosen = logits.argmax(-1).tolist()
                texts = [[*text, token] for text, token in zip(texts, chosen, strict=True)]
                logits = speaker.advance(state, chosen)
    assert greedy(speaker, prompts, 8) != greedy(speaker_of(folder), prompts, 8)


def test_a_decoder_in_training_is_left_as_it_is(folders):
    source = source_of(folders("qwen3"))
    section = AdapterSection(rank=4, dropout=0.5)
    plan = plan_adapter(section, family("qwen3").modules(source.spec))
    loaded = load_decoder(source, DecoderOptions(torch.float32, CPU, 64, plan))
    model = make_trainable(loaded)
    model.adapter.initialize(0)
    for matrix in model.adapter.tensors:
        matrix.add_(0.02)
    model.optimizer.write_compute_copies()
    model.optimizer.grad.fill_(3.0)
    tensors = [loaded.compute_buffer, model.optimizer.param, model.optimizer.grad, model.dropout_seed]
    before = [tensor.clone() for tensor in tensors]
    drops = [stack.drop for layer in loaded.decoder.layers for stack in layer.stacks]
    assert all(drops)
    prompts = prompts_of((5, 9))
    speaker = DecoderGenerator(loaded.decoder)
    first = greedy(speaker, prompts, 5)
    with speaker.inference():
        _, logits = speaker.start(prompts[:1], 1)
    assert all(torch.equal(*pair) for pair in zip(tensors, before, strict=True))
    assert [stack.drop for layer in loaded.decoder.layers for stack in layer.stacks] == drops
    # There was no dropout: the packed pass of training agrees once it has none either.
    for layer in loaded.decoder.layers:
        for stack in layer.stacks:
            stack.drop = None
    documents = Documents.from_boundaries(np.array([0, 5]), 5, 32, CPU)
    pack = SequenceMetadata(torch.arange(5, dtype=torch.int32), documents)
    hidden_TH = loaded.decoder.forward(torch.tensor(prompts[0]), pack).hidden_TH
    torch.testing.assert_close(logits, loaded.decoder.logits(hidden_TH[-1:]))
    # What is trained between two replies is heard in the second.
    model.adapter.tensors[1].add_(1.0)
    model.optimizer.write_compute_copies()
    assert greedy(speaker, prompts, 5) != first


class DoubledHead(Head):
    def logits(self, hidden):
        return 2 * super().logits(hidden)


def test_replies_have_the_head_of_training(folders):
    decoder = load_decoder(source_of(folders("llama")), DecoderOptions(torch.float32, CPU, 64)).decoder
    found = []
    for head in (decoder.head, DoubledHead(decoder.head.matrix_VH, CPU)):
        decoder.head = head
        speaker = DecoderGenerator(decoder)
        with speaker.inference():
            found.append(speaker.start(prompts_of((9,)), 1)[1])
    assert torch.equal(found[1], 2 * found[0])


def test_quantized_weights_speak_with_and_without_their_adapter(folders):
    source = source_of(folders("llama"))
    modules = family("llama").modules(source.spec)
    plan = plan_adapter(AdapterSection(rank=4), modules)
    options = DecoderOptions(torch.float32, CPU, 64, quantize=True)
    bare = load_decoder(source, options)
    loaded = load_decoder(source, replace(options, plan=plan))
    model = make_trainable(loaded)
    for matrix in model.adapter.tensors:
        matrix.normal_(0.0, 0.1)
    model.optimizer.write_compute_copies()
    prompts = prompts_of((12, 7))
    speaker = DecoderGenerator(loaded.decoder)
    tuned = greedy(speaker, prompts, 6)
    speaker.use_adapter(False)
    base = greedy(speaker, prompts, 6)
    assert base == greedy(DecoderGenerator(bare.decoder), prompts, 6)
    assert tuned != base
    speaker.use_adapter(True)
    assert greedy(speaker, prompts, 6) == tuned


def test_16_bit_precisions_stay_close(folders):
    prompts = prompts_of((20, 4))
    wanted = None
    for precision, tolerance in (("fp32", 0.0), ("bf16", 0.05), ("fp16", 0.01)):
        speaker = speaker_of(folders("qwen3"), precision=precision)
        with speaker.inference():
            state, _ = speaker.start(prompts, 2)
            logits = speaker.advance(state, [7, 8])
        wanted = logits if wanted is None else wanted
        assert float((logits - wanted).norm() / wanted.norm()) <= tolerance


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("softcap", [None, 2.0])
def test_attention_over_the_cache_is_attention_within_documents(folders, window, softcap):
    spec = source_of(folders("llama")).spec
    mixer = AttentionMixer(0, AttentionShape(4, 2, spec.head_dim, window, 0.3, softcap))
    lengths, steps = [9, 2, 5], 4
    torch.manual_seed(0)
    q, k, v = (torch.randn(sum(lengths) + 3 * steps, heads, spec.head_dim) for heads in (4, 2, 2))
    edges = np.cumsum([0, *(length + steps for length in lengths)])
    wanted, _ = attention.forward(
        q, k, v, Documents.from_boundaries(edges, len(q), 32, CPU), scale=0.3, window=window, softcap=softcap
    )
    cache = KVCache(spec, lengths, steps, torch.float32, CPU)
    for row, length in enumerate(lengths):
        own = slice(edges[row], edges[row] + length)
        columns = torch.arange(length) + cache.pads[row]
        cache.write(0, k[own], v[own], row_T=torch.full((length,), row), column_T=columns)
    for step in range(steps):
        cache.add_column()
        newest = torch.tensor([edges[row] + length + step for row, length in enumerate(lengths)])
        out = torch.empty(3, 4, spec.head_dim)
        CachedAttention(cache)(mixer, (q[newest], k[newest], v[newest]), out.flatten(1))
        torch.testing.assert_close(out, wanted[newest])


def test_ends_are_those_that_transformers_reads(folders, tmp_path):
    import json
    import shutil

    folder = shutil.copytree(folders("llama"), tmp_path / "model")
    assert declared_ends(source_of(folder)) == [2]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 7, 9]}))
    assert declared_ends(source_of(folder)) == [2, 7, 9]
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "eos_token_id": None}))
    assert declared_ends(source_of(folder)) == [2, 7, 9]
    (folder / "generation_config.json").unlink()
    assert declared_ends(source_of(folder)) == []


def test_what_only_the_plain_path_does_is_told(folders, tmp_path):
    folder = folders("llama")
    source = source_of(folder)
    for changed, adapter, word in (
        (replace(source, config={**source.config, "quantization_config": {"bits": 4}}), None, "stored quantized"),
        (replace(source, spec=None), None, "settings"),
        (source, tiny_models.lora(folder, tmp_path / "head", targets=["lm_head"]), "lm_head"),
        (source, tmp_path, "holds no adapter"),
    ):
        speaker, reason = load_for_generation(changed, adapter, "fp32", CPU)
        assert speaker is None
        assert word in reason
