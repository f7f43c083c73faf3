import pytest
from app.facts.export_facts import quant, report

from burnish_app.wording.fidelity_text import (
    closeness,
    file_text,
    gain_text,
    recommended_type,
    report_text,
    suggestion_text,
    training_text,
)
from burnish_engine.contract.recipe.recipe_export import TargetSection


def test_the_words_follow_the_measured_distances():
    # Measured on SmolLM2 with 2k tokens: Q8_0, Q6_K, Q4_K_M and Q4_0.
    words = [closeness(kl) for kl in (0.001, 0.0102, 0.0641, 0.2996, 1.0)]
    assert [word.split(" ")[0] for word in words] == ["practically", "very", "close", "noticeably", "far"]


def test_a_good_file_reads_as_a_sentence():
    text = file_text(quant())
    assert text.startswith("Q8_0 is practically identical")
    assert "99.1 % of 4,812 positions" in text


def test_a_refused_file_says_why():
    text = file_text(quant("Q4_0", passed=False, problems=["It is far off."]))
    assert text.startswith("Q4_0 was refused")
    assert text.endswith("It is far off.")
    assert "does not do what the trained model does" in file_text(quant(passed=False, problems=[]))


def test_the_report_concludes():
    assert report_text(report()).startswith("Q8_0 and Q4_K_M are proven")
    assert report_text(report(refused=True)).endswith("IQ4_XS was refused.")
    two = report(refused=True)
    two = two.model_copy(update={"files": [*two.files, quant("Q2_K", passed=False)]})
    assert report_text(two).endswith("IQ4_XS and Q2_K were refused.")
    assert "Do not ship" in report_text(report().model_copy(update={"token_mismatches": 2}))
    nothing = report().model_copy(update={"files": [quant(passed=False)]})
    assert "Nothing here should be shipped" in report_text(nothing)


@pytest.mark.parametrize(
    ("kind", "parameters", "fills", "wanted"),
    [
        ("phone", 135_000_000, False, "Q8_0"),
        ("phone", 1_200_000_000, True, "IQ4_NL"),
        ("laptop", 4_000_000_000, True, "Q4_K_M"),
        ("laptop", 4_000_000_000, False, "IQ4_NL"),
        ("server", 4_000_000_000, True, "Q8_0"),
    ],
)
def test_recommended_types(kind, parameters, fills, wanted):
    assert recommended_type(TargetSection(kind=kind), parameters, fills) == wanted


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        (0.963, " 96 %"),
        (0.999, " 99 %"),
        (1.02, " all "),
        (-0.1, " nothing "),
    ],
)
def test_the_gain_kept_is_told_in_plain_words(kept, words):
    text = gain_text(quant(gain_kept=kept))
    assert words in text
    assert "0.64 GB" in text
    assert gain_text(quant(gain_kept=kept, passed=False)) == gain_text(quant(gain_kept=None)) == ""


def test_what_training_gained_is_told_as_it_is():
    assert "from 2.610 to 1.186" in training_text(report())
    worse = report().model_copy(update={"tuned_loss": 3.0, "importance_tokens": 0})
    assert "gained nothing" in training_text(worse)
    scored = training_text(worse.model_copy(update={"base_loss": None}))
    assert scored.index("0 of 50") < scored.index("47 of 50")
    assert training_text(worse.model_copy(update={"base_loss": None, "task": None})) == ""


def test_the_suggestion_leaves_its_figures_to_the_table():
    why = "Best for 400 MB: a-Q4_K_M.gguf. Q4_K_M keeps 96% of the gain at 0.40 GB."
    assert suggestion_text("a-Q4_K_M.gguf", why) == "Best for 400 MB: a-Q4_K_M.gguf."
    none = "None of the files fits the target."
    assert suggestion_text("", none) == none
