"""How a run's fixed prompts are asked."""

from types import SimpleNamespace

from burnish_engine.contract.recipe.recipe_file import parse_recipe
from burnish_engine.models.generation.sampling import GeneratedReply
from burnish_engine.train.lifecycle.validator import Validator


def asked(recipe):
    """The messages of each prompt, and the events that tell of the replies."""
    rendered, told = [], []

    def render(messages, *, add_generation_prompt):
        assert add_generation_prompt
        rendered.append(messages)
        return messages[-1]["content"]

    inputs = SimpleNamespace(
        data=SimpleNamespace(template=SimpleNamespace(render=render)),
        tokenizer=lambda text, add_special_tokens: {"input_ids": [len(text)]},
    )
    engine = SimpleNamespace(
        replies=lambda prompts, most: [GeneratedReply(f"{ids} of {most}", stopped=True, tokens=1) for ids in prompts]
    )
    Validator(recipe, inputs, SimpleNamespace(emit=told.append)).samples(engine, 7)
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
