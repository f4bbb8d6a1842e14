"""Arguments of walks, checked and converted for the native core: walkers, and steps that they follow."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypedDict

import numpy as np
import numpy.typing as npt

from graphbox import _core
from graphbox.errors import UnsupportedError, UsageError
from graphbox.native import Int64Array, integer_array, thread_count
from graphbox.sample.adjacency import (
    Adjacency,
    EdgeType,
    GraphLike,
    as_arrays,
    edge_column,
    edge_type_name,
    lists_of,
    steps_of_metapath,
)
from graphbox.sample.derived import times_of, weights_of
from graphbox.sample.list_order import most_parallel_edges

TimeStrategy: TypeAlias = Literal["uniform", "linear"]
"""Distribution by which a temporal walk chooses among the edges that are late enough."""

NamedAdjacency: TypeAlias = tuple[Adjacency, str]
"""Adjacency that a step follows, and its name for messages."""

_LONGEST_WALK = 2**31 - 1
_OUT_OF_TIME = ("start_time", "strictly_later", "time_window", "temporal_strategy")


class WalkKeywords(TypedDict, total=False):
    """Keyword arguments of walks: see :class:`WalkOptions`."""

    metapaths: Sequence[Sequence[EdgeType]] | None
    metapath_of: npt.ArrayLike | None
    weighted: bool | Collection[EdgeType]
    second: Any | None
    restart_probability: float
    temporal: bool
    start_time: Any | None
    strictly_later: bool
    time_window: int | None
    temporal_strategy: TimeStrategy


@dataclass(frozen=True, eq=False)
class WalkOptions:
    """Options of random walks, wherever the graph is.

    Attributes:
        p: node2vec's return parameter, 1e-30 to 1e30: the higher, the rarer a walker goes straight back.
        q: node2vec's in-out parameter, 1e-30 to 1e30: the higher, the closer walkers stay to where they were.
            With ``p`` or ``q`` other than 1 the neighbours of each node must ascend, as those of a graph do;
            this is checked once for each CSR.
        metapath: edge types of the steps. ``rev_`` before a relation goes against its edges:
            ``(("package", "depends", "package"), ("package", "rev_depends", "package"))``. With ``p``,
            ``q`` or ``restart_probability`` it must be one edge type between nodes of one type.
        metapaths: several of them, in place of ``metapath``.
        metapath_of: integers [n], the number of the metapath of each walker.
        weighted: choose by the weights of all edges, or of those of some edge types of the metapaths.
        second: integers [n]: the node that each walker goes to first, from where it continues as from its
            first step. With ``start_time`` walks begin so with edges that have just come in; they need not be
            in the graph, and are not looked up.
        restart_probability: at least 0 and below 1, rounded to a multiple of 2^-32.
        temporal: let times not decrease along a walk. Not with ``weighted``, ``p``, ``q`` or
            ``restart_probability``.
        start_time: an integer, or integers [n]: no edge before it is taken. None: any edge may be the first.
        strictly_later: let times increase: of each edge, and of the first beyond ``start_time``.
        time_window: most time between one edge and the next, and between ``start_time`` and the first.
        temporal_strategy: ``uniform`` chooses among the edges that are late enough with equal probabilities;
            ``linear`` prefers those that come soon: of ``k`` edges by time the first has weight ``k``, the
            next ``k - 1``, the last 1.
    """

    p: float = 1.0
    q: float = 1.0
    metapath: Sequence[EdgeType] | None = None
    metapaths: Sequence[Sequence[EdgeType]] | None = None
    metapath_of: Any | None = None
    weighted: bool | Collection[EdgeType] = False
    second: Any | None = None
    restart_probability: float = 0.0
    temporal: bool = False
    start_time: Any | None = None
    strictly_later: bool = False
    time_window: int | None = None
    temporal_strategy: TimeStrategy = "uniform"

    @property
    def paths(self) -> list[Sequence[EdgeType] | None]:
        """The metapaths of walkers.

        Raises:
            UsageError: they are given in both ways, or there are none.
        """
        if self.metapaths is None:
            return [self.metapath]
        if self.metapath is not None:
            raise UsageError("expected metapath or metapaths, received both", where="metapaths")
        if not len(self.metapaths):
            raise UsageError("expected at least one metapath, received none", where="metapaths")
        return list(self.metapaths)

    def checked_bias(self) -> tuple[float, float, float]:
        """Return ``p``, ``q`` and ``restart_probability``.

        Raises:
            UsageError: a number out of its range, or several edge types where they need one.
        """
        p, q, restart = _bias(self.p, "p"), _bias(self.q, "q"), probability(self.restart_probability)
        if (p, q) != (1.0, 1.0) or restart > 0:
            _refuse_several_types(self.paths)
        return p, q, restart

    def refuse(self, names: Sequence[str], message: str, hint: str) -> None:
        """Reject options that are not supported somewhere.

        Args:
            names: of these options.
            message: of the error, with ``{name}``.
            hint: of the error.

        Raises:
            UnsupportedError: one of them has another value than its default.
        """
        for name in names:
            value, default = getattr(self, name), getattr(WalkOptions, name)
            if value is not default and (default is None or value != default):
                raise UnsupportedError(message.format(name=name), where=name, hint=hint)


@dataclass(frozen=True)
class Walkers:
    """Starts of the walkers.

    Attributes:
        start: int64 [n], start of each walker.
        second: int64 [n], node of its first step, or None: drawn.
        path_of: int64 [n], the number of its metapath; None where there is one.
        times: int64 [n], time of its start, or None.
    """

    start: Int64Array
    second: Int64Array | None
    path_of: Int64Array | None
    times: Int64Array | None

    def part(self, first: int, last: int) -> _core.Walkers:
        """Return walkers ``first`` to ``last - 1`` as the native core takes them."""
        second, path_of, times = (
            None if array is None else array[first:last] for array in (self.second, self.path_of, self.times)
        )
        return _core.Walkers(self.start[first:last], second, path_of, times, first)

    def all(self) -> _core.Walkers:
        """Return all walkers as the native core takes them."""
        return self.part(0, len(self.start))


@dataclass(frozen=True)
class WalkPlan:
    """Checked arguments of a walk.

    Attributes:
        native: the same as the native core takes it.
        length: number of steps.
        types: the node type of each column of a walk, for each metapath; None: unknown.
        num_paths: number of metapaths.
        walkers: starts of the walkers.
        threads: number of threads to use.
    """

    native: _core.WalkPlan
    length: int
    types: list[list[str]] | None
    num_paths: int
    walkers: Walkers
    threads: int


def plan_walk(
    graph: GraphLike | Adjacency,
    start: object,
    length: int,
    options: WalkOptions,
    threads: int | None,
) -> WalkPlan:
    """Check the arguments of :func:`graphbox.random_walk` and find what the walkers follow.

    Raises:
        UsageError: a wrong argument.
        UnsupportedError: arguments that do not go together.
        DataError: the adjacency is damaged.
    """
    length = step_count(length)
    p, q, restart_probability = options.checked_bias()
    looks_back = (p, q) != (1.0, 1.0)
    paths = options.paths
    rule = (options.strictly_later, options.time_window, options.temporal_strategy)
    if options.temporal:
        _refuse_other_choices(looks_back, restart_probability > 0, options.weighted)
        _check_rule(*rule)
    elif options.start_time is not None or rule != (False, None, "uniform"):
        raise UsageError(f"{', '.join(_OUT_OF_TIME)} need temporal=True", where="temporal")
    count = thread_count(threads)
    followed = [steps_to_follow(graph, path, length) for path in paths]
    check_weighted(options.weighted, [name for path in followed for _, name in path])
    steps = [plan_steps(path, options.weighted, options.temporal, count) for path in followed]
    parallel = 1
    if looks_back:
        ((adjacency, name),) = followed[0]
        parallel = most_parallel_edges(adjacency, as_arrays(adjacency, name), name, count)
    native = _core.WalkPlan(
        steps,
        length,
        p,
        q,
        restart_probability,
        parallel,
        options.strictly_later,
        None if options.time_window is None else int(options.time_window),
        options.temporal_strategy == "linear",
    )
    types = None
    if isinstance(graph, GraphLike):
        types = [column_types(graph, path, length) for path in paths]
    walkers = walkers_of(start, len(paths), length, options.second, options.metapath_of, options.start_time)
    return WalkPlan(native, length, types, len(paths), walkers, count)


def step_count(length: object) -> int:
    """Return a walk's number of steps.

    Raises:
        UsageError: not from 0 to 2^31 - 1.
    """
    return whole_number(length, "length", 0, _LONGEST_WALK, "a number of steps, 0 or more")


def walkers_of(
    start: object,
    num_paths: int = 1,
    length: int = 0,
    second: object | None = None,
    metapath_of: object | None = None,
    start_time: object | None = None,
) -> Walkers:
    """Check who walks.

    Raises:
        UsageError: a wrong argument.
    """
    nodes = integer_array(start, "start")
    if second is not None and length == 0:
        raise UsageError(
            "walks that are told where to go first need a step or more, received 0", where="length"
        )
    if start_time is not None and np.ndim(start_time) == 0:  # type: ignore[arg-type]
        start_time = np.full(len(nodes), integer_array(start_time, "start_time", dimensions=None))
    path_of = np.arange(len(nodes)) % num_paths if metapath_of is None else metapath_of
    paths = _one_each(path_of, len(nodes), "metapath_of")
    if paths is not None and len(paths) and not 0 <= paths.min() <= paths.max() < num_paths:
        raise UsageError(
            f"expected numbers of metapaths, 0 to {num_paths - 1}, received {paths.min()} to {paths.max()}",
            where="metapath_of",
        )
    return Walkers(
        nodes,
        _one_each(second, len(nodes), "second"),
        paths if num_paths > 1 else None,
        _one_each(start_time, len(nodes), "start_time"),
    )


def _one_each(values: object | None, walkers: int, where: str) -> Int64Array | None:
    if values is None:
        return None
    array = integer_array(values, where)
    if len(array) != walkers:
        raise UsageError(f"expected one for each of {walkers} walkers, received {len(array)}", where=where)
    return array


def steps_to_follow(
    graph: GraphLike | Adjacency, metapath: Sequence[EdgeType] | None, length: int
) -> list[NamedAdjacency]:
    """Return what each step of a walk follows.

    Raises:
        UsageError: a metapath is missing, or does not fit the graph, or there is one and no graph.
    """
    if not isinstance(graph, GraphLike):
        if metapath is not None:
            raise UsageError(
                "a metapath needs a graph, received a CSR",
                where="metapath",
                hint="Graph.from_coo makes a graph of arrays",
            )
        return [(graph, "csr")]
    if metapath is not None:
        return steps_of_metapath(graph, metapath, length)
    if len(graph.edge_types) == 1 and graph.edge_types[0][0] == graph.edge_types[0][2]:
        (edge_type,) = graph.edge_types
        return [(lists_of(graph, edge_type, "out"), edge_type_name(edge_type))]
    raise UsageError(
        f"expected a metapath, since the graph has {len(graph.edge_types)} edge types: "
        + ", ".join(map(edge_type_name, graph.edge_types)),
        where="metapath",
    )


def plan_steps(
    steps: Sequence[NamedAdjacency],
    weighted: bool | Collection[EdgeType],
    temporal: bool,
    threads: int,
) -> list[_core.WalkStep]:
    """Return steps as the native core takes them.

    Args:
        steps: what each follows, and its name.
        weighted: choose by the weights of all edges, or of those edge types of the steps.
        temporal: follow only edges that are late enough, where edges have timestamps; some must.
        threads: how many to use for what is derived.

    Raises:
        UsageError: no weights or timestamps where they are needed, or an adjacency of a wrong kind.
        DataError: a weight is not a positive number.
    """
    by_weight = weighted_steps(weighted, [name for _, name in steps])
    timed = [temporal and edge_column(adjacency, "timestamp", name) is not None for adjacency, name in steps]
    if temporal and not any(timed):
        raise UsageError(
            f"no edges of the walk have a timestamp: {', '.join(name for _, name in steps)}",
            where="temporal",
            hint="import them with a timestamp column",
        )
    return [
        walk_step(step, has_weight, has_time, threads)
        for step, has_weight, has_time in zip(steps, by_weight, timed, strict=True)
    ]


def walk_step(step: NamedAdjacency, weighted: bool, temporal: bool, threads: int) -> _core.WalkStep:
    """Return one step as the native core takes it, with the tables that its choices need."""
    adjacency, name = step
    arrays = as_arrays(adjacency, name)
    return _core.WalkStep(
        arrays.indptr,
        arrays.indices,
        name,
        arrays.overlay,
        *(weights_of(adjacency, name, threads) if weighted else (None, None)),
        *(times_of(adjacency, name, threads) if temporal else (None, None)),
    )


def check_weighted(weighted: object, names: Collection[str]) -> None:
    """Raise unless ``weighted`` is a boolean or some of the edge types that are walked along.

    Args:
        weighted: as users give it.
        names: of the edge types of all steps of all metapaths.

    Raises:
        UsageError: it is neither.
    """
    if isinstance(weighted, bool):
        return
    given: Any = weighted
    if (
        not isinstance(given, Collection)
        or isinstance(given, str)
        or any(not isinstance(each, tuple | list) or " ".join(map(str, each)) not in names for each in given)
    ):
        raise UsageError(
            f"expected True, False or edge types that are walked along: {', '.join(dict.fromkeys(names))}; "
            f"received {weighted!r}",
            where="weighted",
        )


def weighted_steps(weighted: bool | Collection[EdgeType], names: list[str]) -> list[bool]:
    """Return which of the steps with these names are chosen by weight."""
    if isinstance(weighted, bool):
        return [weighted] * len(names)
    wanted = {edge_type_name(edge_type) for edge_type in weighted}
    return [name in wanted for name in names]


def column_types(graph: GraphLike, metapath: Sequence[EdgeType] | None, length: int) -> list[str]:
    """Return the node type of each column of a walk of ``length`` steps."""
    path = graph.edge_types[:1] if metapath is None else metapath
    return [path[0][0], *(path[step % len(path)][-1] for step in range(length))]


def _refuse_several_types(paths: Sequence[Sequence[EdgeType] | None]) -> None:
    """Raise UsageError unless walkers stay among nodes of one type, along one edge type."""
    steps = [step for path in paths for step in path or ()]
    if len(paths) > 1 or len(steps) > 1 or any(step[0] != step[-1] for step in steps):
        raise UsageError(
            "p, q and restart_probability need one edge type between nodes of one type, received "
            + ", ".join(f"`{' '.join(step)}`" for step in steps),
            where="metapath",
            hint="leave them out along a metapath: each of its columns has nodes of one type, and whether a"
            " node is near the one before is known within one edge type alone",
        )


def _refuse_other_choices(looks_back: bool, restarts: bool, weighted: object) -> None:
    others = {"p and q": looks_back, "restart_probability": restarts, "weighted": bool(weighted)}
    given = [name for name, is_given in others.items() if is_given]
    if given:
        raise UnsupportedError(
            f"temporal walks choose among edges by time alone, not by {', '.join(given)}",
            where="temporal",
            hint="leave one of them out",
        )


def _check_rule(strictly_later: object, time_window: object, strategy: object) -> None:
    if not isinstance(strictly_later, bool):
        raise UsageError(f"expected True or False, received {strictly_later!r}", where="strictly_later")
    if strategy not in ("uniform", "linear"):
        raise UsageError(f"expected uniform or linear, received {strategy!r}", where="temporal_strategy")
    if time_window is not None:
        whole_number(time_window, "time_window", 0, 2**63 - 1, "a length of time, 0 or more, or None")


def _bias(value: object, name: str) -> float:
    """Return ``p`` or ``q``."""
    number = float(value) if _is_number(value) else 0.0  # type: ignore[arg-type]
    if not 1e-30 <= number <= 1e30:
        raise UsageError(f"expected a number from 1e-30 to 1e30, received {value!r}", where=name)
    return number


def probability(value: object) -> float:
    """Return a restart probability.

    Raises:
        UsageError: not from 0 to below 1.
    """
    number = float(value) if _is_number(value) else -1.0  # type: ignore[arg-type]
    if not 0 <= number < 1:
        raise UsageError(
            f"expected a probability, at least 0 and below 1, received {value!r}", where="restart_probability"
        )
    return number


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def whole_number(value: object, where: str, least: int, most: int, expected: str) -> int:
    """Return an integer from ``least`` to ``most``.

    Raises:
        UsageError: any other value: ``expected`` says what it is to be.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
        raise UsageError(f"expected {expected}, received {value!r}", where=where)
    return int(value)
