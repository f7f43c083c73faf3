"""What an extension has to be listed in, as the guide's architecture page says: the lists agree with each other."""

from typing import get_args

from gguf import LlamaFileType

from burnish_app.widgets.basic.drop import DATA_ENDINGS
from burnish_engine.advise.facts.trained_bytes import OptimizerBytes
from burnish_engine.advise.predict.plain.whole_model_memory import optimizer_note
from burnish_engine.contract.recipe.eight_bit_use import EIGHT_BITS
from burnish_engine.contract.recipe.recipe import Recipe, setting_of
from burnish_engine.contract.recipe.recipe_export import GGUF_TYPES, GgufType
from burnish_engine.contract.recipe.recipe_train import Optimizer, TrainSection
from burnish_engine.data.files.file_kinds import FORMATS
from burnish_engine.data.files.formats import READERS
from burnish_engine.export.checks.rounding_error import is_judged
from burnish_engine.models.decoder.frozen.code_formats import CODE_FORMATS
from burnish_engine.models.decoder.frozen.format_choice import CARDS
from burnish_engine.models.families import FAMILIES
from burnish_engine.train.optimizers.flat_step import LIBRARY_STEPS

from support.models.tiny_models import MIXTURES, SHAPES
from support.runs.shelf import OPTIMIZERS


def test_every_optimizer_has_its_settings_words_and_comparison():
    names = set(get_args(Optimizer))
    assert set(OPTIMIZERS) == names
    assert set(setting_of("train.optimizer").choices) == names
    assert set(LIBRARY_STEPS) == names - {"adamw"}
    recipes = [Recipe.model_validate({"train": {"optimizer": name}}) for name in names]
    assert all(optimizer_note(recipe, OptimizerBytes(0)) for recipe in recipes)


def test_every_format_of_8_bit_products_has_its_setting_cards_codes_and_words():
    names = set(EIGHT_BITS)
    assert set(get_args(TrainSection.model_fields["products"].annotation)) == names | {"auto", "16"}
    assert set(CARDS) == names
    assert set(CODE_FORMATS) == names
    assert set(setting_of("train.products").choices) == names | {"auto", "16"}


def test_every_gguf_type_is_one_of_llama_cpp_and_has_words():
    assert list(GGUF_TYPES) == list(get_args(GgufType))
    for name, facts in GGUF_TYPES.items():
        assert LlamaFileType(facts.number).name == f"MOSTLY_{name}"
        assert is_judged(facts.tensors)
        assert facts.text


def test_every_data_format_has_a_reader_and_may_be_dropped_on_the_window():
    assert set(READERS) == set(FORMATS.values())
    assert set(FORMATS) <= set(DATA_ENDINGS)


def test_every_family_of_the_fast_engine_is_tried_on_a_tiny_checkpoint():
    tried = {model_type for model_type, _ in (SHAPES | MIXTURES).values()}
    assert tried == FAMILIES.keys()
