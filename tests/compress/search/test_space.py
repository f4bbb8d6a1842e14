"""The space of a search: every combination has one recipe, the ladder goes from large to small."""

from __future__ import annotations

import itertools

import pytest

from graphbox.compress.recipe import Recipe
from graphbox.compress.search import Space, ladder
from graphbox.compress.search.space import neighbor_probes, parts_alone, probes

SPACE = Space(
    tables={"user": ("float32", "int8", "int4"), "item": ("float32", "int8")},
    dense=("float32", "int8"),
    layers=("first", "second"),
    kept_neurons=(1.0, 0.5),
    max_neighbors=(None, 8, 4),
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


def test_names_of_recipes_say_which_tables_stay_as_they_are() -> None:
    values = {"dense": "int8", "table.user": "float32", "table.item": "int8"}
    assert str(SPACE.recipe(values)) == "dense int8; tables item int8, user float32"
    assert str(SPACE.recipe({**values, "table.user": "int8"})) == "dense int8; tables int8"
    assert str(SPACE.recipe({"dense": "int8"})) == "dense int8; tables as they are"
    recipe = SPACE.recipe(values)
    assert str(Recipe.of_dict(recipe.as_dict())) == str(recipe)
    assert recipe == Recipe("int8", {"item": "int8"})
    assert recipe.key == Recipe("int8", {"item": "int8"}).key


def test_probes_are_each_table_alone_in_its_smallest_codec() -> None:
    assert probes(SPACE) == {
        "user": Recipe("int8", {"user": "int4"}),
        "item": Recipe("int8", {"item": "int8"}),
    }
    assert probes(Space(tables={"user": ("float32", "int8")})) == {}
    alone = list(parts_alone(SPACE))
    assert Recipe("int8") in alone
    assert Recipe("int8", kept_neurons=0.5, by_layer=True) in alone


TUNABLE = Space(
    tables={"user": ("float32", "int8")},
    dense=("float32", "int8", "int8_static", "int4_weights"),
    kept_neurons=(1.0, 0.5),
    can_tune=True,
)


def test_only_what_is_pruned_or_coarsely_rounded_is_fine_tuned() -> None:
    recipes = {
        (dense, kept): TUNABLE.recipe({"dense": dense, "kept_neurons": kept, "tuned": True})
        for dense in TUNABLE.dense
        for kept in TUNABLE.kept_neurons
    }
    assert {name for name, recipe in recipes.items() if not recipe.tuned} == {("float32", 1.0), ("int8", 1.0)}
    for recipe in recipes.values():
        assert TUNABLE.recipe(TUNABLE.values(recipe)) == recipe
        assert TUNABLE.tuned(recipe) is None
    recipe = Recipe("int4_weights", {"user": "int8"})
    assert TUNABLE.tuned(recipe) == Recipe("int4_weights", {"user": "int8"}, tuned=True)
    assert str(TUNABLE.tuned(recipe)) == "dense int4_weights; tables int8; fine-tuned"
    assert TUNABLE.tuned(Recipe("int8")) is None
    fixed = Space(tables={}, dense=("int8_static",), can_tune=True)
    assert fixed.tuned(Recipe("int8_static")) == Recipe("int8_static", tuned=True)
    assert fixed.tuned(Recipe("int4_weights")) is None, "it is outside of the space"


def test_fine_tuning_is_no_parameter_where_it_cannot_help() -> None:
    assert "tuned" not in SPACE.parameters
    assert "tuned" not in Space(tables={}, dense=("float32", "int8"), can_tune=True).parameters
    assert TUNABLE.parameters["tuned"] == (False, True)
    assert not any(recipe.tuned for recipe in (*ladder(TUNABLE), *parts_alone(TUNABLE)))


def test_keys_are_those_of_before_where_nothing_is_fine_tuned() -> None:
    """They are in the lineage of versions."""
    assert Recipe("int8", {"user": "int4"}, ("a",), 0.5).key == "17397418ab6cc407"
    assert Recipe("int8", tuned=True).key != Recipe("int8").key


def test_bounds_of_neighbors_are_probed_alone() -> None:
    assert neighbor_probes(SPACE) == {8: Recipe("int8", max_neighbors=8), 4: Recipe("int8", max_neighbors=4)}
    assert neighbor_probes(Space(tables={}, max_neighbors=(8,))) == {}
    assert set(neighbor_probes(Space(tables={}, max_neighbors=(None, 12, 8, 6, 4)))) == {12, 8, 6}
    recipes = list(ladder(SPACE))
    assert all(recipe in recipes for recipe in neighbor_probes(SPACE).values())
    fixed = Space(tables={"user": ("float32", "int8")}, max_neighbors=(8,))
    assert {recipe.max_neighbors for recipe in ladder(fixed)} == {8}


def test_recipes_of_before_there_was_a_bound_of_neighbors_are_the_same() -> None:
    recipe = Recipe("int8", {"item": "int4"}, ("first",), 0.5)
    before = {name: value for name, value in recipe.as_dict().items() if name != "max_neighbors"}
    assert Recipe.of_dict(before) == recipe
    assert recipe.key == "7c7d6c95d099bfea"  # by which versions that were written then are found
    assert Recipe("int8", {"item": "int4"}, ("first",), 0.5, max_neighbors=8).key != recipe.key
    assert str(Recipe(max_neighbors=8)) == "dense float32; tables as they are; at most 8 neighbours"


def test_recipes_of_before_layers_differed_are_read_and_left_alone() -> None:
    """Their trials are shown; a search does not continue with them, as it narrows by layer."""
    before = {
        key: value for key, value in Recipe("int8", kept_neurons=0.5).as_dict().items() if key != "by_layer"
    }
    recipe = Recipe.of_dict(before)
    assert recipe == Recipe("int8", kept_neurons=0.5)
    assert recipe not in SPACE
    by_layer = SPACE.recipe({"dense": "int8", "kept_neurons": 0.5})
    assert by_layer == Recipe("int8", kept_neurons=0.5, by_layer=True)
    assert by_layer.key != recipe.key
    assert str(recipe) == "dense int8; tables as they are; 50 % of the neurons"
    assert str(by_layer) == "dense int8; tables as they are; 50 % of the neurons by layer"
    assert not SPACE.recipe({"dense": "int8"}).by_layer
    tuned = Recipe("int8", {"user": "int4"}, kept_neurons=0.5, by_layer=True, tuned=True, max_neighbors=4)
    assert tuned.dense_part == by_layer
