"""The demo with preferences, on the embedded model: from pairs to a changed behavior and a verified file."""

import pytest

from burnish_engine.demo.job import run_demo
from burnish_engine.demo.tasks import MOST_TOKENS, ONE_SENTENCE


@pytest.mark.long
def test_the_embedded_model_learns_to_answer_in_one_sentence(tmp_path):
    report = run_demo(
        tmp_path / "demo",
        ONE_SENTENCE,
        tokens=MOST_TOKENS,
        say=lambda _sentence: None,
        listener=lambda _event: None,
        progress=lambda _what, _share: None,
        force=True,
    )
    scores = report.scores
    assert scores.base <= scores.prompts // 4
    assert scores.tuned >= scores.prompts * 3 // 4
    assert scores.gguf["Q8_0"] >= scores.prompts * 3 // 4
    assert report.preferred >= 0.9
    assert not report.forgetting.is_marked
    assert report.fidelity.passed
