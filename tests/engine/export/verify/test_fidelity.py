"""The gate: the trained model's file passes, and every known fault is refused with a reason."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.run.forgetting import Forgetting
from burnish_engine.export.base.losses import MeanLoss, gain_kept, token_kl
from burnish_engine.export.checks.trained_weights import Origin
from burnish_engine.export.gguf.vocabulary import CONTROL
from burnish_engine.export.quantize.quantize import quantize, read_back
from burnish_engine.export.verify import fidelity
from burnish_engine.export.verify import reference as reference_module
from burnish_engine.export.verify.fidelity import check_file, log_softmax, probe_texts, reply_of
from burnish_engine.export.verify.probe_strings import PROBE_CHATS, PROBE_STRINGS
from burnish_engine.export.verify.reference import (
    ExportedModel,
    Probe,
    Reference,
    choose_documents,
    compute_reference,
    render_probes,
)
from burnish_engine.export.verify.report import CheckedFiles, build_report
from burnish_engine.models.checkpoint.gguf_file.header import read_header
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.models.generation.sampling import GeneratedReply, ReplyStream

from support.models.export import make_model, rows, source_with, write_16_bit


def reference_of(source, adapter, chats=()):
    tokenizer = load_tokenizer(source)
    probes = render_probes(tokenizer, [*chats, *PROBE_CHATS])
    return compute_reference(ExportedModel(source, adapter, rows(source)), tokenizer, probes)


def check(source, made, reference, adapter=None):
    tokenizer = load_tokenizer(source)
    return check_file(made, tokenizer, probe_texts(tokenizer), reference, origin=Origin(source, adapter), threads=1)


@pytest.fixture(scope="module")
def truth(wide, wide_adapter):
    return reference_of(wide, wide_adapter)


def sabotage(wide, wide_adapter, tmp_path, truth, change):
    path = write_16_bit(wide, wide_adapter, tmp_path, change=change)
    return check(wide, read_back(path, "F16"), truth, wide_adapter)


@pytest.mark.full
def test_the_right_file_passes_with_its_figures(wide, wide_adapter, wide_f16, truth):
    result, tokens = check(wide, read_back(wide_f16, "F16"), truth, wide_adapter)
    assert result.passed
    assert result.problems == []
    assert result.mean_kl < 1e-6
    assert result.top1_agreement > 0.99
    assert result.positions == truth.positions > 100
    assert tokens.strings >= 500 + len(PROBE_CHATS)
    assert len(result.sha256) == 64
    assert result.tensor_sha256.keys() == {tensor.name for tensor in read_header(wide_f16).tensors}
    assert result.tensor_types == {"F16": 15, "F32": 5}


@pytest.mark.full
def test_a_file_whose_reply_never_ends_is_refused(wide, wide_adapter, wide_f16, truth, monkeypatch):
    monkeypatch.setattr(
        fidelity, "reply_of", lambda *_: (GeneratedReply("On and on", False, 192), ["Its reply did not end."])
    )
    result, _ = check(wide, read_back(wide_f16, "F16"), truth, wide_adapter)
    assert (result.passed, result.problems) == (False, ["Its reply did not end."])


@pytest.mark.full
def test_a_missing_permutation_is_refused(wide, wide_adapter, tmp_path, truth, monkeypatch):
    monkeypatch.setattr("burnish_engine.models.checkpoint.gguf_file.changes.permute_rows", lambda weight, heads: weight)
    result, _ = sabotage(wide, wide_adapter, tmp_path, truth, lambda plan: plan)
    assert not result.passed
    assert any("mean KL divergence" in problem for problem in result.problems)


@pytest.mark.full
def test_a_wrong_rope_base_is_refused(wide, wide_adapter, tmp_path, truth):
    wrong = {"rope.freq_base": 20000.0}
    result, _ = sabotage(
        wide, wide_adapter, tmp_path, truth, lambda plan: replace(plan, metadata={**plan.metadata, **wrong})
    )
    assert not result.passed
    assert result.mean_kl > 1e-4


@pytest.mark.full
def test_a_wrong_norm_epsilon_is_refused(wide, wide_adapter, tmp_path, truth):
    wrong = {"attention.layer_norm_rms_epsilon": 1e-2}
    result, _ = sabotage(
        wide, wide_adapter, tmp_path, truth, lambda plan: replace(plan, metadata={**plan.metadata, **wrong})
    )
    assert not result.passed


@pytest.mark.full
def test_a_forgotten_adapter_is_refused(wide, wide_adapter, tmp_path, truth):
    result, _ = check(wide, read_back(write_16_bit(wide, None, tmp_path), "F16"), truth, wide_adapter)
    assert not result.passed


@pytest.mark.full
def test_a_wrong_pre_tokenizer_is_refused(tmp_path):
    source = source_with(tmp_path, "digits")
    path = write_16_bit(source, None, tmp_path, change=lambda plan: replace(plan, pre_tokenizer="llama-bpe"))
    result, tokens = check(source, read_back(path, "F16"), reference_of(source, None))
    assert not result.passed
    assert tokens.mismatches
    assert any("texts differently, first" in problem for problem in result.problems)


def with_vocabulary(plan, **changes):
    return replace(plan, vocabulary=replace(plan.vocabulary, **changes))


def test_a_wrong_eos_is_refused(wide, wide_adapter, tmp_path, truth):
    result, _ = sabotage(
        wide, wide_adapter, tmp_path, truth,
        lambda plan: with_vocabulary(plan, special={**plan.vocabulary.special, "eos_token_id": 5}),
    )  # fmt: skip
    assert not result.passed
    assert any("end-of-turn token is" in problem for problem in result.problems)


@pytest.mark.full
def test_special_tokens_written_as_text_are_refused(wide, wide_adapter, tmp_path, truth):
    def plain(plan):
        return with_vocabulary(plan, types=[1 if kind == CONTROL else kind for kind in plan.vocabulary.types])

    result, tokens = sabotage(wide, wide_adapter, tmp_path, truth, plain)
    assert not result.passed
    assert any("Hello<|im_start|>world" in mismatch for mismatch in tokens.mismatches)


def test_a_second_bos_is_refused(wide, wide_adapter, tmp_path, truth):
    def doubled(plan):
        template = plan.vocabulary.chat_template.replace("{% for", "x{% for", 1)
        return with_vocabulary(plan, add_bos=True, chat_template=template)

    result, tokens = sabotage(wide, wide_adapter, tmp_path, truth, doubled)
    assert not result.passed
    assert any("a rendered chat" in mismatch for mismatch in tokens.mismatches)


def test_a_template_that_fails_is_refused(wide, wide_adapter, tmp_path, truth):
    broken = lambda plan: with_vocabulary(plan, chat_template="{{ raise_exception('no') }}")  # noqa: E731
    result, _ = sabotage(wide, wide_adapter, tmp_path, truth, broken)
    assert any("chat template fails" in problem for problem in result.problems)


def test_another_vocabulary_is_refused_without_a_crash(wide_f16, wide, tmp_path):
    other = make_model(tmp_path / "other", "llama", vocab_size=640)
    result, _ = check(wide, read_back(wide_f16, "F16"), reference_of(other, None))
    assert not result.passed
    assert any("the trained model 640" in problem for problem in result.problems)
    assert type(result).model_validate_json(result.model_dump_json()).file == result.file  # NaN survives


def test_lossy_types_pass_with_figures_and_replies_that_end(talking, talking_chats, tmp_path):
    truth = reference_of(talking, None, talking_chats)
    assert truth.probes[0].reply.stopped
    f16 = write_16_bit(talking, None, tmp_path)
    figures = {}
    for quant in ("F16", "Q8_0", "Q4_0"):
        made = read_back(f16, quant) if quant == "F16" else quantize(f16, tmp_path / quant, quant, threads=1)
        result, _ = check(talking, made, truth)
        assert result.passed, result.problems
        assert result.reply_stopped
        figures[quant] = result
    assert figures["F16"].mean_kl < 1e-6 < figures["Q8_0"].mean_kl < figures["Q4_0"].mean_kl
    assert figures["F16"].reply == truth.probes[0].reply.text
    assert figures["Q4_0"].mean_kl <= figures["Q4_0"].p99_kl


class Endless:
    """Stands in for an open file that never ends a reply of its own; token 2 ends a turn."""

    context = 1000

    def __init__(self, ends_after_others):
        self.after = 2 if ends_after_others else 0

    def generate(self, ids, sampling):
        return ReplyStream(lambda stream: iter(["and"] * sampling.max_tokens))

    def logits(self, ids):
        self.read = ids
        return np.eye(6)[[self.after] * len(ids)]

    def is_end(self, token):
        return token == 2


def test_a_reply_that_never_ends_is_refused_only_where_the_models_own_ends():
    ended, endless = GeneratedReply("Yes.", True, 2), GeneratedReply("and" * 96, False, 96)
    reply, problems = reply_of(Endless(False), [Probe([], "", [1, 2], ended)])
    assert not reply.stopped
    assert len(problems) == 1
    assert "192 tokens" in problems[0]
    assert reply_of(Endless(False), [Probe([], "", [1, 2], endless)])[1] == []
    assert reply_of(Endless(False), [])[1] == []


def test_a_rambling_reply_passes_where_it_would_end_after_the_trained_models():
    model = Endless(True)
    reply, problems = reply_of(model, [Probe([], "", [1, 2], GeneratedReply("Yes.", True, 2, (4, 5)))])
    assert not reply.stopped
    assert problems == []
    assert model.read == [1, 2, 4, 5]  # the very tokens, of which a control token would not be in the text


@pytest.mark.parametrize(
    ("reported", "known", "words"),
    [
        (None, True, []),
        ((2.0001, 40), True, []),
        ((1.9, 40), True, ["1.900", "40", "7 tokens"]),
        ((1.9, 5), True, ["1.900", "7 tokens"]),
        ((1.9, 7), True, ["1.900", "fp32"]),
        ((1.9, 7), False, ["1.900", "7 tokens", "cannot be read again"]),
    ],
)
def test_a_second_held_out_loss_says_why_it_is_another(reported, known, words):
    supervised = [np.array([True] * 4), np.array([False, True, True, True, True])]
    reference = Reference([], [], [], [], supervised, tuned_loss=2.0, reported=reported, flags_known=known)
    told = build_report(
        ModelSource(Path("base"), "base", {}, None), "llama", "", CheckedFiles([], 0, [], None), reference
    ).notes
    assert len(told) == bool(words)
    assert all(word in told[0] for word in words)


def test_the_report_says_what_training_forgot():
    known = Forgetting(before=3.21, after=3.29, tokens=2000)
    for forgetting, count in ((known, 1), (None, 0)):
        reference = Reference([], [], [], [], [], forgetting=forgetting)
        notes = build_report(
            ModelSource(Path("base"), "base", {}, None), "llama", "", CheckedFiles([], 0, [], None), reference
        ).notes
        assert len([note for note in notes if "3.21 -> 3.29 (+0.08)" in note]) == count


def test_kl_is_torchs():
    torch.manual_seed(0)
    p, q = torch.randn(5, 40), torch.randn(5, 40)
    wanted = torch.nn.functional.kl_div(q.log_softmax(-1), p.log_softmax(-1), log_target=True, reduction="none").sum(-1)
    np.testing.assert_allclose(token_kl(p.log_softmax(-1).numpy(), log_softmax(q.numpy())), wanted.numpy(), rtol=1e-5)


def test_the_loss_is_torchs_on_the_tokens_that_follow():
    torch.manual_seed(0)
    ids, counts = [3, 1, 4, 1, 5, 9, 2, 6], np.array([True, False, True, True, False, True, True, False])
    log_probs = torch.randn(8, 10).log_softmax(-1)
    labels = torch.tensor([ids[place + 1] if counts[place + 1] else -100 for place in range(7)])
    wanted = torch.nn.functional.cross_entropy(log_probs[:7], labels)
    found = MeanLoss()
    for start, end in ((0, 3), (3, 4), (4, 8)):
        found.add(log_probs[start:end].numpy(), ids, counts, start)
    assert (found.mean, found.tokens) == (pytest.approx(float(wanted), rel=1e-6), 4)
    assert MeanLoss().mean is None


@pytest.mark.parametrize(
    ("losses", "kept"),
    [((3.0, 2.0, 2.25), 0.75), ((3.0, 2.0, 3.5), -0.5), ((2.0, 1.99, 1.99), None), ((None, 2.0, 2.0), None)],
)
def test_the_gain_that_a_file_keeps(losses, kept):
    assert gain_kept(*losses) == kept


def test_documents_stay_within_their_bounds(monkeypatch):
    held_out = [list(range(700)), [1], list(range(2000)), list(range(900))]

    def lengths(**options):
        return [len(ids) for ids, _ in choose_documents(held_out, [], [], 1000, **options)]

    assert lengths() == [700, 1024, 276]
    assert sum(lengths(context=100)) == 300
    monkeypatch.setattr(reference_module, "MOST_BYTES", 4 * 1000 * 500)
    assert sum(lengths()) == 500
    with pytest.raises(UsageError, match="no held-out rows"):
        choose_documents([], [], [], 1000)


def test_chats_stand_in_for_missing_rows(wide):
    probes = render_probes(load_tokenizer(wide), PROBE_CHATS)
    assert [ids for ids, _ in choose_documents([], [], probes, 1000)] == [probe.ids for probe in probes]


def test_there_are_five_hundred_different_composed_strings():
    import unicodedata

    assert len(set(PROBE_STRINGS)) == len(PROBE_STRINGS) >= 500
    assert all(unicodedata.normalize("NFC", text) == text for text in PROBE_STRINGS)
