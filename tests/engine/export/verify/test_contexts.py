"""Rows of a longrope model are computed in the context whose factors the trained model takes for them."""

import numpy as np
import pytest

from burnish_engine.export.verify.contexts import plan_contexts
from burnish_engine.export.verify.reference import REPLY_TOKENS, ExportedModel, Probe, Reference
from burnish_engine.export.verify.verify import verify_file

from support.models.export import write_16_bit
from support.models.small_families import ORIGINAL_CONTEXT, make_small

LONGROPE = "microsoft/Phi-3.5-mini-instruct"


@pytest.fixture(scope="module")
def longrope(tmp_path_factory):
    source = make_small(LONGROPE, tmp_path_factory.mktemp("longrope") / "base")
    return source, write_16_bit(source, None, source.folder)


def test_rows_on_both_sides_of_the_original_context_pass(longrope):
    source, path = longrope
    rng = np.random.default_rng(3)
    held_out = [rng.integers(0, source.spec.vocab_size, n).tolist() for n in (ORIGINAL_CONTEXT - 30, 300)]
    report = verify_file(path, ExportedModel(source, None, held_out=held_out, threads=1))
    assert report.passed, report.files[0].problems
    assert report.files[0].positions == ORIGINAL_CONTEXT - 30 + 300
    assert any("One longer row" in note for note in report.notes)


def test_replies_that_would_cross_the_original_context_are_not_asked(longrope):
    source, _ = longrope
    probes = [Probe([], "", [1] * n) for n in (10, ORIGINAL_CONTEXT - 2 * REPLY_TOKENS + 1)]
    contexts = plan_contexts(source.spec, Reference([[1] * 20], [], [], probes))
    assert (contexts.asked, contexts.long_rows) == ([0], [])
    assert contexts.usual <= ORIGINAL_CONTEXT


def test_other_models_have_one_context(wide):
    contexts = plan_contexts(wide.spec, Reference([[1] * 300, [1] * 20], [], [], [Probe([], "", [1] * 9)]))
    assert (contexts.usual_rows, contexts.long_rows, contexts.asked) == ([0, 1], [], [0])
    assert contexts.usual >= 300
