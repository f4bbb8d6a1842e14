"""Choices of a search: the methods that each part of a model may be compressed by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from graphbox.compress.dense import dense_method
from graphbox.compress.recipe import UNCHANGED, Recipe
from graphbox.compress.tables import CODEC_OF_PRECISION

__all__ = [
    "Choice",
    "CodecCost",
    "Space",
    "dense_alone",
    "first_method",
    "ladder",
    "neighbor_probes",
    "parts_alone",
    "probes",
    "smallest_uniform",
    "tables_alone",
]

_MOST_FLOAT_LAYERS = 3
_TABLES_TO_COMPARE = 2
_BOUNDS_TO_COMPARE = 3

_ALL_NEIGHBORS = 0

Choice = str | int | float
"""Value of one parameter."""


@dataclass(frozen=True)
class CodecCost:
    """Size and error of a table with a codec.

    Attributes:
        nbytes: size of the table.
        error: relative error of the rows.
    """

    nbytes: int
    error: float


@dataclass(frozen=True)
class Space:
    """Methods that may be combined.

    Attributes:
        tables: codecs of each table, the largest first.
        dense: methods of the ONNX part, the most precise first; only ``float32`` where there is none.
        layers: quantizable products of the ONNX part, the most sensitive first.
        kept_neurons: fractions of the hidden neurons, divided among the layers.
        can_tune: whether the ONNX part can be fine-tuned.
        max_neighbors: most neighbours that are kept of a node in a relation, None first: all of them.
        base: method of the ONNX part beside which the other parts are tried; None: the first that converts
            it.
        costs: of codecs, by table, where proposals are to follow from them; see `best_guess`.
    """

    tables: Mapping[str, tuple[str, ...]]
    dense: tuple[str, ...] = (UNCHANGED,)
    layers: tuple[str, ...] = ()
    kept_neurons: tuple[float, ...] = (1.0,)
    can_tune: bool = False
    max_neighbors: tuple[int | None, ...] = (None,)
    base: str | None = None
    costs: Mapping[str, Mapping[str, CodecCost]] = field(default_factory=dict)

    @property
    def parameters(self) -> dict[str, tuple[Choice, ...]]:
        """Values of each parameter that has more than one."""
        return {name: values for name, values in self._choices.items() if len(values) > 1}

    @property
    def _choices(self) -> dict[str, tuple[Choice, ...]]:
        return {
            "dense": self.dense,
            "float_layers": tuple(range(min(len(self.layers), _MOST_FLOAT_LAYERS) + 1)),
            "kept_neurons": self.kept_neurons,
            "tuned": (False, True) if self._can_gain() else (False,),
            "max_neighbors": tuple(most or _ALL_NEIGHBORS for most in self.max_neighbors),
            **{f"table.{name}": codecs for name, codecs in self.tables.items()},
        }

    def recipe(self, values: Mapping[str, Choice]) -> Recipe:
        """Return the recipe of chosen values; parameters that are left out have their only value."""
        dense = str(values.get("dense", self.dense[0]))
        float_layers = int(values.get("float_layers", 0)) if dense != UNCHANGED else 0
        codecs = {name: str(values.get(f"table.{name}", known[0])) for name, known in self.tables.items()}
        kept = float(values.get("kept_neurons", self.kept_neurons[0]))
        return Recipe(
            dense=dense,
            tables={name: codec for name, codec in codecs.items() if codec != UNCHANGED},
            float_layers=tuple(sorted(self.layers[:float_layers])),
            kept_neurons=kept,
            by_layer=kept < 1,
            max_neighbors=int(values.get("max_neighbors", self.max_neighbors[0] or _ALL_NEIGHBORS)) or None,
            tuned=bool(values.get("tuned", False)) and self._gains(dense, kept),
            unchanged=tuple(name for name, codec in codecs.items() if codec == UNCHANGED),
        )

    def values(self, recipe: Recipe) -> dict[str, Choice]:
        """Return the values that `recipe` makes a recipe of.

        Raises:
            KeyError: the recipe is outside of the space.
        """
        found: dict[str, Choice] = {
            "dense": recipe.dense,
            "float_layers": len(recipe.float_layers),
            "kept_neurons": recipe.kept_neurons,
            "tuned": recipe.tuned,
            "max_neighbors": recipe.max_neighbors or _ALL_NEIGHBORS,
            **{f"table.{name}": recipe.tables.get(name, UNCHANGED) for name in self.tables},
        }
        for name, known in self._choices.items():
            if found[name] not in known:
                raise KeyError(name)
        if self.recipe(found) != recipe:
            raise KeyError("recipe")
        return {name: found[name] for name in self.parameters}

    def __contains__(self, recipe: Recipe) -> bool:
        """Return whether a recipe combines methods of the space, and is not of a search with others."""
        try:
            self.values(recipe)
        except KeyError:
            return False
        return True

    def tuned(self, recipe: Recipe) -> Recipe | None:
        """Return the recipe with fine-tuning; None where it has that, where that cannot help, or outside."""
        if recipe.tuned or not self._gains(recipe.dense, recipe.kept_neurons):
            return None
        tuned = replace(recipe, tuned=True)
        return tuned if tuned in self else None

    def _gains(self, dense: str, kept_neurons: float) -> bool:
        """Return whether fine-tuning can help: of what is pruned or coarsely rounded."""
        is_coarse = dense != UNCHANGED and dense_method(dense).is_coarse
        return self.can_tune and (kept_neurons < 1 or is_coarse)

    def _can_gain(self) -> bool:
        return any(self._gains(dense, kept) for dense in self.dense for kept in self.kept_neurons)


def ladder(space: Space) -> Iterator[Recipe]:
    """Give the recipes that a search tries first, from large to small: the same codec for all tables.

    The original; each codec with the first method of the ONNX part; each table alone in its smallest codec,
    which shows the tables that quality depends on; and the largest bounds of neighbours alone.
    """
    both = [{**rows, **first_method(space)} for rows in _uniform(space)]
    yield from _distinct(space, [*_uniform(space)[:1], *both])
    yield from probes(space).values()
    yield from neighbor_probes(space).values()


def probes(space: Space) -> dict[str, Recipe]:
    """Return by table the recipe in which it alone is in its smallest codec; none of a single table."""
    names = [name for name, known in space.tables.items() if len(known) > 1]
    if len(names) < _TABLES_TO_COMPARE:
        return {}
    alone = [{f"table.{name}": space.tables[name][-1], **first_method(space)} for name in names]
    return dict(zip(names, _distinct(space, alone), strict=True))


def smallest_uniform(space: Space) -> Recipe:
    """Return the recipe of each table's smallest codec with the first method of the ONNX part."""
    return space.recipe(_complete(space, {**_uniform(space)[-1], **first_method(space)}))


def first_method(space: Space) -> dict[str, Choice]:
    """Return the values of the method beside which the others are tried; the other values are their first."""
    return {"dense": space.base or space.dense[:2][-1]}


def neighbor_probes(space: Space) -> dict[int, Recipe]:
    """Return the recipes of the largest three bounds of neighbours alone, by the bound."""
    return {
        most: space.recipe({"max_neighbors": most, **first_method(space)})
        for most in space.max_neighbors[1 : 1 + _BOUNDS_TO_COMPARE]
        if most is not None
    }


def tables_alone(space: Space) -> list[Recipe]:
    """Return the recipes of the ladder without the same codec for all tables: what a part alone changes."""
    return [space.recipe(first_method(space)), *probes(space).values(), *neighbor_probes(space).values()]


def parts_alone(space: Space) -> Iterator[Recipe]:
    """Give the recipes of each method of the ONNX part alone, and of each fraction of neurons.

    With the ladder they tell of each method what it changes; combinations are left to the proposals.
    """
    pruned: list[dict[str, Choice]] = [
        {"kept_neurons": kept, **first_method(space)} for kept in space.kept_neurons
    ]
    yield from dense_alone(space).values()
    yield from _distinct(space, pruned)


def dense_alone(space: Space) -> dict[str, Recipe]:
    """Return by method of the ONNX part the recipe of it alone."""
    return {method: space.recipe(_complete(space, {"dense": method})) for method in space.dense}


def _uniform(space: Space) -> list[dict[str, Choice]]:
    """Return the same codec for all tables; for those that it does not suit, the next more precise one."""
    order = list(CODEC_OF_PRECISION)
    codecs = sorted({codec for known in space.tables.values() for codec in known}, key=order.index)

    def suited(codec: str, known: tuple[str, ...]) -> str:
        return [each for each in known if order.index(each) <= order.index(codec) or each == known[0]][-1]

    return [
        {f"table.{name}": suited(codec, known) for name, known in space.tables.items()} for codec in codecs
    ] or [{}]


def _distinct(space: Space, steps: list[dict[str, Choice]]) -> Iterable[Recipe]:
    recipes = [space.recipe(_complete(space, values)) for values in steps]
    return {recipe.key: recipe for recipe in recipes}.values()


def _complete(space: Space, values: dict[str, Choice]) -> dict[str, Choice]:
    """Add the first value, the most precise one, of what was not chosen."""
    return {**{name: known[0] for name, known in space.parameters.items()}, **values}
