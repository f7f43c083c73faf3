"""An evaluation asks the engine for the held-out loss, tells its progress and records the answer."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from burnish_engine.advise.plan.run_time import whole_samples
from burnish_engine.contract.facts.advice import SamplePlan
from burnish_engine.contract.recipe.recipe_file import parse_recipe
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.models.generation.sampling import GeneratedReply
from burnish_engine.train.evaluation.validator import Validator
from burnish_engine.train.lifecycle.inputs import RunInputs

NONE = SamplePlan(prompts=0, tokens=1)


def asked(recipe, samples=None):
    """The messages of each prompt, and the events that tell of the replies."""
    rendered, told = [], []

    def render(messages, *, add_generation_prompt):
        assert add_generation_prompt
        rendered.append(messages)
        return messages[-1]["content"]

    inputs = SimpleNamespace(
        data=SimpleNamespace(template=SimpleNamespace(formed=SimpleNamespace(render=render))),
        tokenizer=lambda text, add_special_tokens: {"input_ids": [len(text)]},
    )
    inputs.prompt_ids = partial(RunInputs.prompt_ids, inputs)
    engine = SimpleNamespace(
        replies=lambda prompts, most: [GeneratedReply(f"{ids} of {most}", stopped=True, tokens=1) for ids in prompts]
    )
    Validator(recipe, inputs, SimpleNamespace(emit=told.append), samples or whole_samples(recipe)).samples(engine, 7)
    return rendered, [(event.step, event.prompt, event.reply) for event in told]


def test_prompts_are_asked_with_the_system_prompt_that_rows_are_trained_with():
    watched = '[evaluation]\nprompts = ["a", "abc"]\nsample_tokens = 5\n'
    rendered, told = asked(parse_recipe(f'[data]\nsystem_prompt = "Be brief."\n{watched}'))
    assert rendered == [
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": prompt}] for prompt in ("a", "abc")
    ]
    assert told == [(7, "a", "[1] of 5"), (7, "abc", "[3] of 5")]
    assert asked(parse_recipe(watched))[0][0] == [{"role": "user", "content": "a"}]
    assert asked(parse_recipe("")) == ([], [])
    assert asked(parse_recipe(watched), SamplePlan(prompts=1, tokens=3))[1] == [(7, "a", "[1] of 3")]


def test_the_held_out_rows_are_evaluated_in_passes_of_the_recipe_and_their_tokens_counted():
    asked, told, state, counts = [], [], {}, []

    def held_out_loss(request):
        asked.append((request.documents, request.budget))
        request.progress(1)
        return 2.5, 70

    recipe = parse_recipe("[train]\nmicro_batch_tokens = 2048\n")
    engine = SimpleNamespace(held_out_loss=held_out_loss)
    recorder = SimpleNamespace(
        emit=told.append, update=state.update, progress=lambda done, total: counts.append((done, total))
    )
    inputs = SimpleNamespace(held_out=["a row", "another"], data=SimpleNamespace(train=["not this one"]))
    assert Validator(recipe, inputs, recorder, NONE).held_out_loss(engine, 7) == 2.5
    assert asked == [(["a row", "another"], 2048)]
    assert [(event.step, event.loss, event.tokens) for event in told] == [(7, 2.5, 70)]
    assert state == {"evaluation_loss": 2.5}
    assert counts == [(1, 2)]
    assert Validator(recipe, SimpleNamespace(held_out=[]), recorder, NONE).held_out_loss(engine, 8) is None
    assert len(asked) == 1


@pytest.mark.parametrize(("patience", "tells_more"), [(0, [7]), (3, [6, 7])])
def test_held_out_pairs_are_read_once_and_each_step_that_may_be_the_result_tells_more(patience, tells_more):
    asked, told = [], []

    def log_probs(request):
        asked.append(len(request.documents))
        request.progress(len(request.documents))
        return np.array([[-3.0, -4.0], [-5.0, -2.0]], dtype=np.float32)

    supervised = np.array([False, True, True, False, True])
    pairs = [Document(np.arange(5, dtype=np.int32), supervised, row, "", rejected_from=3) for row in (1, 2)]
    engine = SimpleNamespace(log_probs=log_probs, kl_to_base=lambda _request: 0.5)
    recorder = SimpleNamespace(emit=told.append, update=lambda **_: None, progress=lambda *_: None)
    inputs = SimpleNamespace(
        held_out=pairs, held_out_mismatched=None, stream=SimpleNamespace(references=None),
        budget=SimpleNamespace(steps=7),
    )  # fmt: skip
    early = f"[evaluation]\nevery = 1\npatience = {patience}\n"
    validator = Validator(parse_recipe(f'[preference]\nobjective = "orpo"\n{early}'), inputs, recorder, NONE)
    for step in (0, 6, 7):
        validator.held_out_loss(engine, step)
    assert asked == [2, 2, 2]
    assert [event.step for event in told if event.type == "evaluation"] == [0, 6, 7]
    assert [event.step for event in told if event.type == "held_out_pairs"] == tells_more
    assert (told[-1].pairs, told[-1].accuracy, told[-1].chosen_loss) == (2, 0.5, 2.0)
