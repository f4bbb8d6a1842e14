"""Names in a run file that must exist elsewhere in it, or in the graph that it names.

The checks read the plain data, so that they also speak when other parts of the file are wrong; what has
the wrong type is the schema's to report and is passed over here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from graphbox.config.earlier_models import mistakes_of_earlier_models
from graphbox.config.edge_features import mistakes_of_edge_features
from graphbox.config.exports import mistakes_of_compression, mistakes_of_export
from graphbox.config.graph_schema import (
    EdgeTypeSchema,
    GraphSchema,
    SchemaOf,
    names_stored_graph,
    schema_of_tables,
)
from graphbox.config.kinds import budget_refusal, kinds_that, section_of
from graphbox.config.models.section import ModelSection
from graphbox.config.problem import Problem
from graphbox.config.processes import ONE_PROCESS_FOLLOWS, refusal_of_processes
from graphbox.config.source import KeyPath, Source
from graphbox.config.stream import StreamConfig
from graphbox.config.tasks import TASK_KINDS
from graphbox.errors import GraphboxError, did_you_mean

Edge = tuple[str, str, str]


def check_references(
    source: Source, *, complete: bool = True, stored_schema: SchemaOf | None = None
) -> list[Problem]:
    """Return a problem for every name in ``source`` that refers to nothing.

    Args:
        source: the run file.
        complete: the section `graph` is a whole graph; else it changes one, which has the types.
        stored_schema: returns the types of a stored graph; None: names of a stored graph are not checked.
    """
    if not names_stored_graph(source.data):
        checker = _Checker(source, schema_of_tables(source.data) if "graph" in source.data else None)
        return [*(checker.table_problems() if complete else ()), *checker.problems()]
    schema, found = None, []
    if stored_schema is not None:
        try:
            schema = stored_schema(str(source.data["graph"]["name"]))
        except GraphboxError as error:
            key = ("graph", "name")
            override = source.overridden.get(key)
            found = [Problem(key, error.message, error.hint, source.line(key), override)]
    checker = _Checker(source, schema)
    return [*found, *checker.stored_graph_problems(), *checker.problems()]


class _Checker:
    """Checks one run file.

    Args:
        source: the run file.
        schema: the types of its graph; None: they are unknown, and names of them are not checked.
    """

    def __init__(self, source: Source, schema: GraphSchema | None) -> None:
        self._source = source
        self._schema = schema
        self._node_types = None if schema is None else schema.nodes
        self._edges: tuple[EdgeTypeSchema, ...] = () if schema is None else schema.edges
        self._edge_types = None if schema is None else schema.edge_types
        self._tasks = _mapping(source.data, "tasks")
        self._models = _mapping(source.data, "models")
        self._exports = _mapping(source.data, "export")

    def stored_graph_problems(self) -> Iterator[Problem]:
        """Yield what a run of a stored graph cannot do."""
        # A dumped config names the defaults of a section that the run file did not have.
        defaults = StreamConfig().model_dump(mode="json")
        stream = _mapping(self._source.data, "stream")
        if any(key not in defaults or value != defaults[key] for key, value in stream.items()):
            yield self._problem(
                ("stream",),
                "expected the tables that chunks bring, received a graph that is stored already",
                "list them under `graph.nodes` and `graph.edges`, or leave `stream` out",
            )

    def table_problems(self) -> Iterator[Problem]:
        """Yield what keeps the tables of the section `graph` from being a whole graph."""
        graph = self._source.data.get("graph")
        if isinstance(graph, dict) and not graph.get("nodes"):
            yield self._problem(
                ("graph", "nodes") if "nodes" in graph else ("graph",),
                "expected at least one node type under `nodes`, received none",
                "`graphbox check --schema` has every key",
            )
        yield from self._check_nodes()
        for edge in self._edges:
            for name in (edge.type[0], edge.type[2]):
                yield from self._check_name((*(edge.key or ()), "type"), name, self._node_types, "node type")

    def problems(self) -> Iterator[Problem]:
        """Yield the names that refer to nothing, and what is given twice."""
        if self._schema is not None and self._schema.origin is None:
            yield from self._check_edges(self._schema)
        for name, task in self._tasks.items():
            if isinstance(task, dict):
                yield from self._check_task(("tasks", name), task)
        for name, model in self._models.items():
            if isinstance(model, dict):
                yield from self._check_model(("models", name), model)
        for name, export in self._exports.items():
            if isinstance(export, dict):
                yield from self._check_export(name, export)
        for name in _mapping(self._source.data, "compress"):
            yield from self._check_name(
                ("compress", name), name, self._exports, "artifact", " under `export`"
            )
            yield from self._check_compressed(name)
        yield from self._check_memory()
        yield from self._check_processes()

    def _check_memory(self) -> Iterator[Problem]:
        """Yield the budgets that nothing would keep to."""
        memory = {
            key: value for key, value in _mapping(self._source.data, "memory").items() if value is not None
        }
        if memory.pop("hbm", None) and self._source.data.get("device") == "cpu":
            yield self._problem(
                ("memory", "hbm"),
                "expected a training on a GPU, received budgets of its memory beside `device: cpu`",
                "leave `device` out, or the budgets",
            )
        if "passes" in memory and not {"topology", "features"} & set(memory):
            yield self._problem(
                ("memory", "passes"),
                "expected a graph on disk that batches are sampled from, received a budget of what is "
                "sampled ahead of them alone",
                "it counts beside `topology` or `features`: give one of these, or leave it out",
            )
        # A dumped config names the defaults of a section that the run file did not have.
        if memory and _mapping(self._source.data, "stream").get("folder") is not None:
            yield self._problem(
                ("memory",),
                "expected a stream whose models are in memory, received budgets of what is read from disk",
                "leave `memory` out, or `stream`",
            )
            return
        for budget in ("topology", "features", "tables"):
            for name, model in self._models.items() if budget in memory else ():
                kind = str(model.get("kind")) if isinstance(model, dict) else ""
                section = section_of(kind)
                if section is None:
                    continue
                refusal = budget_refusal(section, kind, budget, name, model)
                if refusal is not None:
                    yield self._problem(("memory", budget), *refusal)

    def _check_processes(self) -> Iterator[Problem]:
        """Yield what only one process can train, where there are to be several."""
        processes = self._source.data.get("processes", 1)
        if not isinstance(processes, int) or processes <= 1 or not self._models:
            return
        if _mapping(self._source.data, "stream").get("folder") is not None:
            yield self._problem(
                ("processes",), f"{ONE_PROCESS_FOLLOWS}, received {processes}", "leave `processes` out"
            )
            return
        for name, model in self._models.items():
            section = section_of(model.get("kind")) if isinstance(model, dict) else None
            if section is None:
                continue
            refusal = refusal_of_processes(name, section, self._task_kind(model), model)
            if refusal is not None:
                yield self._problem(("processes",), *refusal)

    def _task_kind(self, model: Mapping[str, Any]) -> str | None:
        """Return the kind of a model's task; None: it has none, or one that is not known."""
        task = self._tasks.get(str(model.get("task")))
        return task.get("kind") if isinstance(task, dict) else None

    def _check_export(self, name: str, export: Mapping[str, Any]) -> Iterator[Problem]:
        yield from self._check_name(("export", name, "model"), export.get("model"), self._models, "model")
        for mistake in mistakes_of_export(name, export, self._models.get(str(export.get("model")))):
            yield self._problem(*mistake)

    def _check_compressed(self, name: str) -> Iterator[Problem]:
        for mistake in mistakes_of_compression(name, self._exports.get(name), self._models):
            yield self._problem(*mistake)

    def _check_nodes(self) -> Iterator[Problem]:
        at_an_end = {name for edge in self._edges for name in (edge.type[0], edge.type[2])}
        for name, section in _mapping(self._source.data, "graph", "nodes").items():
            has_table = isinstance(section, dict) and section.get("path") is not None
            if (section is None or isinstance(section, dict)) and not has_table and name not in at_an_end:
                yield self._problem(
                    ("graph", "nodes", name),
                    f"the node type `{name}` has no table, and no edge type starts or ends at it",
                    "give the `path` of its table, or remove it",
                )

    def _check_edges(self, schema: GraphSchema) -> Iterator[Problem]:
        seen: dict[Edge, KeyPath] = {}
        for key, edge in schema.named_edge_types():
            if edge in seen:
                line = self._source.line(seen[edge])
                yield self._problem(
                    key,
                    f"the edge type [{', '.join(edge)}] is given twice, first on line {line}",
                    "give the relation another name",
                )
            seen.setdefault(edge, key)

    def _check_task(self, key: KeyPath, task: dict[str, Any]) -> Iterator[Problem]:
        if task.get("kind") == "complete":
            yield from self._check_complete(key, task)
            return
        node_type = task.get("node_type")
        yield from self._check_name((*key, "node_type"), node_type, self._node_types, "node type")
        node_type = node_type if isinstance(node_type, str) else ""
        label_kind = "boolean" if task.get("kind") == "click" else "integer"
        for name, kinds in (
            ("label", ("categorical", label_kind)),
            ("category", ("categorical",)),
            ("group", ("categorical", "integer")),
            ("labels", ("slots",)),
        ):
            feature = task.get(name)
            if isinstance(feature, str):
                yield from self._check_node_feature((*key, name), feature, node_type, kinds=kinds)
        for index, feature in enumerate(_labels(task)[1:]):
            if isinstance(feature, str):
                place = (*key, "also", index, "label")
                yield from self._check_node_feature(
                    place, feature, node_type, kinds=("categorical", "boolean")
                )
        yield from self._check_edge_type((*key, "group"), task.get("group"), starts_at=node_type)
        yield from self._check_edge_type((*key, "memberships"), task.get("memberships"), starts_at=node_type)
        target_type = task.get("target_type", node_type)
        yield from self._check_name((*key, "target_type"), target_type, self._node_types, "node type")
        ends = (node_type, target_type)
        relations = (
            None
            if self._edge_types is None
            else {edge[1] for edge in self._edge_types if (edge[0], edge[2]) == ends}
        )
        split = _mapping(task, "split")
        given: dict[str, KeyPath] = {}
        for place, names in (
            ((*key, "relations"), task.get("relations")),
            ((*key, "exclude_relations"), task.get("exclude_relations")),
            ((*key, "negative_relations"), task.get("negative_relations")),
            ((*key, "split", "validation_relations"), split.get("validation_relations")),
            ((*key, "split", "test_relations"), split.get("test_relations")),
        ):
            for index, relation in enumerate(_items(names)):
                suffix = f" from `{node_type}` to `{target_type}`"
                yield from self._check_name((*place, index), relation, relations, "relation", suffix)
                first = given.setdefault(str(relation), place)
                if first is not place or _items(names).index(relation) != index:
                    yield self._problem(
                        (*place, index),
                        f"the relation `{relation}` is named already, in `{'.'.join(map(str, first[2:]))}`",
                        "its edges are to be told, hidden, or negatives: name it once",
                    )
        yield from self._check_split(key, task, ends)

    def _check_complete(self, key: KeyPath, task: dict[str, Any]) -> Iterator[Problem]:
        """Yield what the edge types and columns of a complete task are not."""
        for index, edge in enumerate(_items(task.get("relations"))):
            yield from self._check_edge_type((*key, "relations", index), edge)
        split = _mapping(task, "split")
        names = None if self._edge_types is None else {edge[1] for edge in self._edge_types}
        held_out: set[str] = set()
        for part in ("validation_relations", "test_relations"):
            for index, relation in enumerate(_items(split.get(part))):
                yield from self._check_name((*key, "split", part, index), relation, names, "relation")
                held_out.add(str(relation))
        named = {edge for edge in map(_edge, _items(task.get("relations"))) if edge is not None}
        for edge in self._edges:
            if named and edge.type not in named and edge.type[1] not in held_out:
                continue
            columns = [((*key, "relation_feature"), task.get("relation_feature"))]
            if edge.type[1] not in held_out:
                columns.append(((*key, "split", "feature"), split.get("feature")))
            for column_key, feature in columns:
                if _text(feature):
                    yield from self._check_edge_feature(column_key, str(feature), edge)
            if _text(task.get("relation_feature")) and not edge.keeps_duplicates:
                yield self._problem(
                    (*key, "relation_feature"),
                    f"[{', '.join(edge.type)}] keeps one edge of each pair, so one relation of those that "
                    "have several",
                    self._change("keep_duplicates: true", f"line {self._line(edge)}"),
                )

    def _check_split(self, key: KeyPath, task: dict[str, Any], ends: tuple[Any, Any]) -> Iterator[Problem]:
        """Yield what the columns that the split needs are not."""
        split = _mapping(task, "split")
        feature = str(split.get("feature") or "")
        in_order = task.get("kind") == "next"
        by_time = in_order or split.get("kind") in {"time", "leave_last_out"}
        if task.get("kind") in {"classify", "click"} and feature:
            kinds = ("integer", "number") if by_time else ("categorical",)
            yield from self._check_node_feature((*key, "split", "feature"), feature, ends[0], kinds=kinds)
        if task.get("kind") not in {"recommend", "predict_links", "next"} or not (feature or by_time):
            return
        named = [*_items(task.get("relations")), *_items(task.get("negative_relations"))]
        relations = [relation for relation in named if _text(relation)]
        asked = {(ends[0], relation, ends[1]) for relation in relations}
        for edge in self._edges:
            if edge.type not in asked:
                continue
            if by_time and not edge.has_timestamp:
                yield self._problem(
                    (*key, "relations" if in_order else "split"),
                    ("a task of kind next" if in_order else f"a split of kind {split['kind']}")
                    + f" needs the times of edges, but [{', '.join(edge.type)}] has none",
                    self._change("timestamp: ...", f"line {self._line(edge)}", "name its column:"),
                )
            elif feature:
                yield from self._check_edge_feature((*key, "split", "feature"), feature, edge)

    def _check_node_feature(
        self, key: KeyPath, feature: str, node_type: Any, *, kinds: tuple[str, ...] = ("categorical",)
    ) -> Iterator[Problem]:
        features = self._features_of(node_type)
        if features is not None:
            where = f"graph.nodes.{node_type}.features"
            yield from self._check_feature(key, feature, features, str(node_type), where, kinds)

    def _check_edge_feature(self, key: KeyPath, feature: str, edge: EdgeTypeSchema) -> Iterator[Problem]:
        where = f"line {self._line(edge)}, under `features`"
        yield from self._check_feature(key, feature, edge.features, " ".join(edge.type), where)

    def _features_of(self, node_type: Any) -> Mapping[str, str] | None:
        """Return the features of a node type; None where it is unknown."""
        return (self._node_types or {}).get(node_type) if _text(node_type) else None

    def _line(self, edge: EdgeTypeSchema) -> int | None:
        return None if edge.key is None else self._source.line((*edge.key, "type"))

    def _change(self, setting: str, where: str, verb: str = "write") -> str:
        """Return how to give the graph another setting."""
        if self._schema is None or self._schema.origin is None:
            return f"{verb} `{setting}` ({where})"
        return f"{self._schema.origin} has it otherwise; import it with `{setting}`"

    def _in_graph(self) -> str:
        """Return where a name of the graph was looked for, if not in the run file."""
        origin = None if self._schema is None else self._schema.origin
        return "" if origin is None else f" in {origin}"

    def _check_feature(
        self,
        key: KeyPath,
        feature: str,
        features: Mapping[str, str],
        owner: str,
        where: str,
        kinds: tuple[str, ...] = ("categorical",),
    ) -> Iterator[Problem]:
        yield from self._check_name(key, feature, features, "feature", f" of `{owner}`")
        if features.get(feature, kinds[0]) not in kinds:
            article = "an" if kinds[0][0] in "aeiou" else "a"
            yield self._problem(
                key,
                f"expected {article} {' or '.join(kinds)} feature, received `{feature}` "
                f"({features[feature]})",
                self._change(f"{feature}: {kinds[0]}", where),
            )

    def _check_model(self, key: KeyPath, model: dict[str, Any]) -> Iterator[Problem]:
        yield from self._check_name((*key, "task"), model.get("task"), self._tasks, "task")
        yield from self._check_start(key, model)
        yield from self._check_earlier(key, model)
        for name in ("relations", "edge_types"):
            for index, edge in enumerate(_items(model.get(name))):
                yield from self._check_edge_type((*key, name, index), edge)
        pretrain = model.get("pretrain")
        for place, section in ((key, model), ((*key, "pretrain"), pretrain)):
            for index, metapath in enumerate(_items(_mapping({"": section}, "").get("metapaths"))):
                yield from self._check_metapath((*place, "metapaths", index), metapath)
        task = self._tasks.get(model["task"]) if _text(model.get("task")) else None
        yield from self._check_task_kind(key, model, task)
        yield from self._check_features_of_rows(key, model, task)
        yield from self._check_features_of_types(key, model)
        for mistake in mistakes_of_edge_features(str(key[-1]), model, self._edges) if self._schema else ():
            yield self._problem(*mistake)
        for name in _mapping(model, "loss_weights") if isinstance(task, dict) else ():
            labels = list(dict.fromkeys(each for each in _labels(task) if isinstance(each, str)))
            yield from self._check_name((*key, "loss_weights", name), name, labels, "label")
        for index, name in enumerate(_items(model.get("embeddings"))):
            yield from self._check_name((*key, "embeddings", index), name, self._node_types, "node type")
        yield from self._check_inputs(key, model, task)

    def _check_features_of_rows(self, key: KeyPath, model: dict[str, Any], task: Any) -> Iterator[Problem]:
        """Yield what `features` and `crosses` name that the rows of a task do not have."""
        node_type = task.get("node_type") if isinstance(task, dict) else None
        features = self._features_of(node_type)
        if features is None:
            return
        named = [
            ((*key, "features", index), each) for index, each in enumerate(_items(model.get("features")))
        ]
        for number, cross in enumerate(_items(model.get("crosses"))):
            named += [((*key, "crosses", number, index), each) for index, each in enumerate(_items(cross))]
        labels = _labels(task) if task.get("kind") == "click" else []
        for place, feature in named:
            yield from self._check_name(place, feature, features, "feature", f" of `{node_type}`")
            if isinstance(feature, str) and feature in labels:
                yield self._problem(
                    place,
                    f"expected a feature that the task does not predict, received its label `{feature}`",
                    "leave it out: models of the task read no label",
                )

    def _check_features_of_types(self, key: KeyPath, model: dict[str, Any]) -> Iterator[Problem]:
        """Yield what `features` names, by node type, that there is not."""
        for node_type, names in _mapping(model, "features").items():
            place = (*key, "features", node_type)
            yield from self._check_name(place, node_type, self._node_types, "node type")
            known, suffix = self._features_of(node_type), f" of `{node_type}`"
            for index, feature in enumerate(_items(names)):
                yield from self._check_name((*place, index), feature, known, "feature", suffix)

    def _check_inputs(self, key: KeyPath, model: dict[str, Any], task: Any) -> Iterator[Problem]:
        """Yield that the nodes of a type that a model encodes have no inputs."""
        section = section_of(model.get("kind"))
        if section is None or not isinstance(task, dict):
            return
        ends = (task.get("node_type"), task.get("target_type", task.get("node_type")))
        for node_type in dict.fromkeys(ends):
            known, chosen = self._features_of(node_type), _mapping(model, "features")
            if known is None:
                continue
            read = known if model.get("features") is None else chosen.get(str(node_type))
            refusal = section.input_refusal(str(node_type), bool(read), model.get("embeddings"))
            if refusal is not None:
                yield self._problem(key, *refusal)

    def _check_start(self, key: KeyPath, model: dict[str, Any]) -> Iterator[Problem]:
        """Yield why a model cannot start from an earlier run."""
        section = section_of(model.get("kind"))
        if model.get("start_from") is None or section is None:
            return
        if not section.WARM_STARTS:
            able = kinds_that(lambda other: other.WARM_STARTS)
            yield self._problem(
                (*key, "start_from"),
                f"expected a kind of model that can start from an earlier run, received `{model['kind']}`, "
                "which always trains anew",
                f"leave it out; these can: {', '.join(able)}",
            )
        elif _mapping(self._source.data, "stream").get("folder") is not None:
            yield self._problem(
                (*key, "start_from"),
                "expected a model that is trained on a whole graph, received one that follows a stream",
                "leave it out: a stream resumes at the chunk after the last one that it learnt",
            )

    def _check_earlier(self, key: KeyPath, model: dict[str, Any]) -> Iterator[Problem]:
        """Yield why a model cannot take from others what it is to."""
        yield from self._check_name((*key, "positions"), model.get("positions"), self._models, "model")
        for index, name in enumerate(_items(_mapping(model, "distil").get("teachers"))):
            yield from self._check_name((*key, "distil", "teachers", index), name, self._models, "model")
        for mistake in mistakes_of_earlier_models(str(key[-1]), self._models, self._tasks):
            yield self._problem(*mistake)
        if (
            model.get("distil") is not None
            and _mapping(self._source.data, "stream").get("folder") is not None
        ):
            yield self._problem(
                (*key, "distil"),
                "expected a model that is trained on a whole graph, received one that follows a stream",
                "leave it out: teachers rank the answers of a whole graph",
            )

    def _check_task_kind(self, key: KeyPath, model: dict[str, Any], task: Any) -> Iterator[Problem]:
        section = section_of(model.get("kind"))
        task_kind = task.get("kind") if isinstance(task, dict) else None
        if section is None or task_kind not in TASK_KINDS:
            return
        if task_kind in section.TASK_KINDS:
            split = _mapping(task, "split").get("kind", "random")
            if section.PARTS_IN_TIME and split in {"random", "leave_last_out"}:
                yield self._problem(
                    (*key, "task"),
                    "expected a task whose parts follow one another in time, received "
                    f"`{model['task']}` with a split of kind {split}",
                    "a model of streams learns in the order of time: write `split: {kind: time}` in the task",
                )
            yield from self._check_ranked_type(key, model, task, section)
            return
        able = kinds_that(lambda other: task_kind in other.TASK_KINDS)
        yield self._problem(
            (*key, "task"),
            f"expected a task of kind {' or '.join(section.TASK_KINDS)}, received `{model['task']}` of kind "
            f"{task_kind}",
            f"tasks of kind {task_kind} are done by models of kind {', '.join(able)}",
        )

    def _check_ranked_type(
        self, key: KeyPath, model: dict[str, Any], task: Mapping[str, Any], section: type[ModelSection]
    ) -> Iterator[Problem]:
        """Yield that a model cannot rank nodes of another type, where its task asks for these."""
        ends = (task.get("node_type"), task.get("target_type", task.get("node_type")))
        if task.get("kind") != "recommend" or section.RANKS_OTHER_TYPES or ends[0] == ends[1]:
            return
        able = kinds_that(lambda other: "recommend" in other.TASK_KINDS and other.RANKS_OTHER_TYPES)
        yield self._problem(
            (*key, "task"),
            f"expected a task within one node type for a model of kind {model['kind']}, received "
            f"`{model['task']}` from {ends[0]} to {ends[1]}",
            f"nodes of another type are ranked by models of kind {', '.join(able)}",
        )

    def _check_metapath(self, key: KeyPath, metapath: Any) -> Iterator[Problem]:
        steps = []
        for index, step in enumerate(_items(metapath)):
            wrong = list(self._check_edge_type((*key, index), step))
            yield from wrong
            if wrong or _edge(step) is None:
                return
            steps.append(_edge(step))
        known = [step for step in steps if step is not None]
        for index, (step, following) in enumerate(zip(known, [*known[1:], *known[:1]], strict=True)):
            if step[2] != following[0]:
                again = " when the metapath starts again" if index == len(known) - 1 else ""
                yield self._problem(
                    (*key, index),
                    f"the metapath does not connect: [{', '.join(step)}] arrives at `{step[2]}`, but the "
                    f"next step [{', '.join(following)}] leaves from `{following[0]}`{again}",
                    "each step must leave from the node type where the one before arrives, "
                    "and the first from where the last arrives",
                )
                return

    def _check_edge_type(self, key: KeyPath, value: Any, starts_at: Any = None) -> Iterator[Problem]:
        edge = _edge(value)
        if edge is None or self._edge_types is None:
            return
        if edge not in self._edge_types:
            texts = {" ".join(known): known for known in self._edge_types}
            close = did_you_mean(" ".join(edge), texts)
            hint = close or f"edge types: {', '.join(sorted(texts))}"
            yield self._problem(key, f"there is no edge type [{', '.join(edge)}]{self._in_graph()}", hint)
        elif _text(starts_at) and edge[0] != starts_at:
            yield self._problem(
                key,
                f"expected an edge type that leaves from `{starts_at}`, received [{', '.join(edge)}]",
                None,
            )

    def _check_name(
        self, key: KeyPath, name: Any, known: Iterable[str] | None, what: str, suffix: str = ""
    ) -> Iterator[Problem]:
        """Yield a problem where ``name`` is not among ``known``; None: these are unknown."""
        if known is None:
            return
        names = sorted(str(item) for item in known)
        if what in {"node type", "relation", "feature"}:
            suffix += self._in_graph()
        if _text(name) and name not in names:
            there = f"there are: {', '.join(names)}" if names else "there are none"
            yield self._problem(
                key, f"there is no {what} `{name}`{suffix}", did_you_mean(name, names) or there
            )

    def _problem(self, key: KeyPath, message: str, hint: str | None) -> Problem:
        override = self._source.overridden.get(key)
        return Problem(key=key, message=message, hint=hint, line=self._source.line(key), override=override)


def _mapping(value: Any, *keys: str) -> dict[str, Any]:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _labels(task: Any) -> list[Any]:
    """Return the labels of a task: what stands there, be it a name or not."""
    given = _mapping({"": task}, "")
    return [_mapping({"": each}, "").get("label") for each in (given, *_items(given.get("also")))]


def _edge(value: Any) -> Edge | None:
    if isinstance(value, list) and len(value) == 3 and all(isinstance(part, str) for part in value):
        return (value[0], value[1], value[2])
    return None


def _text(value: Any) -> bool:
    return isinstance(value, str)
