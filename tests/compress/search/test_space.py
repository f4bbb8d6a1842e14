"""The space of a search: every combination has one recipe, the ladder goes from large to small."""

from __future__ import annotations

import itertools

import pytest

from graphbox.compress.recipe import Recipe
from graphbox.compress.search import Space, ladder

SPACE = Space(
    tables={"user": ("float32", "int8", "int4"), "item": ("float32", "int8")},
    dense=("float32", "int8"),
    layers=("first", "second"),
    kept_neurons=(1.0, 0.5),
)


def test_values_and_recipes_belong_together() -> None:
    names = list(SPACE.parameters)
    for chosen in itertools.product(*SPACE.parameters.values()):
        recipe = SPACE.recipe(dict(zip(names, chosen, strict=True)))
        assert SPACE.recipe(SPACE.values(recipe)) == recipe
        assert Recipe.of_dict(recipe.as_dict()) == recipe


def test_float_layers_mean_nothing_without_quantization() -> None:
    assert SPACE.recipe({"dense": "float32", "float_layers": 2}) == Recipe()


def test_the_ladder_begins_with_the_original_and_repeats_nothing() -> None:
    recipes = list(ladder(SPACE))
    assert recipes[0] == Recipe()
    assert len({recipe.key for recipe in recipes}) == len(recipes)
    assert Recipe("int8", {"user": "int4", "item": "int8"}) in recipes
    assert all(recipe.kept_neurons == 1 and not recipe.float_layers for recipe in recipes)


def test_recipes_of_other_spaces_have_no_values() -> None:
    with pytest.raises(KeyError, match="dense"):
        SPACE.values(Recipe("float16"))


def test_a_part_with_one_method_is_no_parameter() -> None:
    space = Space(tables={"user": ("int8",)})
    assert space.parameters == {}
    assert list(ladder(space)) == [Recipe(tables={"user": "int8"})]
