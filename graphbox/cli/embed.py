"""`graphbox embed`: the embeddings of a run, written for other programs or looked at."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphbox.cli.nodes import (
    NodesOption,
    chosen_nodes,
    find_node,
    nodes_to_embed,
    original_id,
    tell_left_out,
)
from graphbox.cli.runs import RunArgument
from graphbox.cli.session import Session, command
from graphbox.cli.text import table
from graphbox.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from graphbox.graph import Graph
    from graphbox.graph.schema import EdgeType
    from graphbox.pipeline.run_data import RunData
    from graphbox.train import TrainedModel

group = typer.Typer(help="Write embeddings for other programs, or look at neighbours.", no_args_is_help=True)

ModelOption = Annotated[
    str | None,
    typer.Option("--model", help="Model. (default: the best in the evaluation of the last one's task)"),
]

GraphOption = Annotated[
    str | None,
    typer.Option(
        "--graph",
        metavar="NAME",
        help="Embed the nodes of this graph of the workspace as it is now, those that came after training "
        "among them: with models of kind gnn. (default: what training left)",
    ),
]


def export_embeddings(
    session: Session,
    run: RunArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write into.")] = Path(
        "embeddings"
    ),
    model: ModelOption = None,
    formats: Annotated[
        str, typer.Option("--format", help="npy, parquet, safetensors; several separated by commas.")
    ] = "npy,parquet",
    node_type: Annotated[
        str | None, typer.Option("--type", help="Node type to write. (default: all that have embeddings)")
    ] = None,
    nodes: NodesOption = None,
    graph: GraphOption = None,
) -> None:
    """Write the embeddings of a model with the original ids, a file for each node type.

    Where queries and candidates have vectors of their own, those of candidates are in the folder `target`;
    those of a knowledge graph's relations are in `relations`.
    """
    import pyarrow as pa

    from graphbox.export import export_embeddings as write
    from graphbox.export.embeddings import FORMATS
    from graphbox.pipeline.run_data import RunData

    if output.suffix.removeprefix(".") in FORMATS and not output.is_dir():
        raise UsageError(
            f"expected a folder to write a file for each node type into, received `{output}`",
            where="--output",
            hint=f"--output {output.with_suffix('')} --format {output.suffix.removeprefix('.')}",
        )
    with session.workspace() as workspace:
        data = RunData.open(workspace, run, graph=graph)
        trained = _with_embeddings(_trained(data, model, graph))
        types = _types_of(trained, node_type)
        known = data.nodes(trained) if graph is None else data.graph
        if nodes is not None and len(types) > 1:
            raise UsageError(
                f"expected the node type of the ids in {nodes}, received none",
                where="--type",
                hint=f"the model has embeddings of: {', '.join(types)}",
            )
        chosen = {name: chosen_nodes(known, name, nodes) for name in types}
        left_out: dict[str, int] = {}
        if graph is not None:
            chosen, left_out = nodes_to_embed(
                trained.inductive_network(), data.graph, chosen, are_named=nodes is not None
            )
            trained = trained.over(data.graph, chosen, data.config.threads)
        parts = [(output, name, vectors) for name, vectors in trained.embeddings.items() if name in types]
        if trained.target is not None and trained.target_type in types:
            parts.append((output / "target", trained.target_type, trained.target))
        files: list[Path] = []
        shapes: dict[str, list[int]] = {}
        for folder, name, vectors in parts:
            files += _write(known, folder, name, vectors, chosen[name], formats)
            shapes.setdefault(name, [len(chosen[name]), vectors.shape[1]])
        if trained.triples is not None and node_type is None and nodes is None:
            names, rows = trained.triples.row_names(), trained.triples.rows
            files += write(pa.array(names), rows, output / "relations", "relations", formats.split(","))
    tell_left_out(session, left_out)
    document: dict[str, Any] = {"run": data.record.id, "model": trained.name, "node_types": shapes}
    document |= {"files": files, "left_out": left_out}
    text = "\n".join(str(file) for file in files)
    session.answer(document, lambda console: console.print(text, markup=False, soft_wrap=True))


def _types_of(trained: TrainedModel, node_type: str | None) -> list[str]:
    """Return the node types that are asked for, of those that have vectors."""
    known = trained.query_types
    if node_type is not None and node_type not in known:
        raise UsageError(
            f"the model has no embeddings of `{node_type}`",
            where="--type",
            hint=did_you_mean(node_type, known) or f"there are those of: {', '.join(known)}",
        )
    return known if node_type is None else [node_type]


def _write(
    graph: Graph,
    folder: Path,
    node_type: str,
    vectors: NDArray[np.float32],
    chosen: NDArray[np.int64],
    formats: str,
) -> list[Path]:
    import numpy as np

    from graphbox.export import export_embeddings as write

    ids = graph.arrow_ids(node_type)
    if len(chosen) < len(ids) or not np.array_equal(chosen, np.arange(len(ids))):
        ids, vectors = ids.take(chosen), vectors[chosen]
    return write(ids, vectors, folder, node_type, formats.split(","))


def show_neighbors(
    session: Session,
    run: RunArgument,
    id: Annotated[str, typer.Argument(help="Original id of a node.")],  # noqa: A002 (the user's word)
    model: ModelOption = None,
    k: Annotated[int, typer.Option("--k", "-k", help="How many.")] = 10,
    not_linked: Annotated[
        bool, typer.Option("--not-linked", help="Leave out what a link joins to the node already.")
    ] = False,
    node_type: Annotated[
        str | None, typer.Option("--type", help="Node type of the id. (default: the one that has it)")
    ] = None,
    graph: GraphOption = None,
) -> None:
    """Show the nodes that a model finds nearest to one node.

    Near a node of the type that the model's task ranks for are its best candidates; near any other node are
    nodes of its own type.
    """
    import numpy as np

    from graphbox.export import linked_nodes
    from graphbox.metrics import top_k
    from graphbox.pipeline.run_data import RunData

    with session.workspace() as workspace:
        data = RunData.open(workspace, run, graph=graph)
        trained = _with_embeddings(_trained(data, model, graph))
        types = _types_of(trained, node_type)
        known = data.nodes(trained) if graph is None else data.graph
        node_type, query = find_node(known, types, id, node_type)
        target_type = trained.target_type or node_type
        if node_type != trained.node_type:
            target_type = node_type
        count = known.num_nodes(target_type)
        if not 1 <= k < count:
            raise UsageError(f"expected k from 1 to {count - 1}, received {k}", where="-k")
        wanted = known.ids(node_type, query).tolist()[0]
        if graph is not None:
            nodes_to_embed(trained.inductive_network(), data.graph, {node_type: query}, are_named=True)
            is_known = trained.inductive_network().is_known(data.graph, target_type)
            trained = trained.over(data.graph, threads=data.config.threads)
            scores = np.where(is_known, trained.score(query, node_type), -np.inf)
        else:
            scores = trained.score(query, node_type)
        scores[0, known.removed_nodes(target_type)] = -np.inf
        if target_type == node_type:
            scores[0, query[0]] = -np.inf
        if not_linked:
            negatives = _negatives(data, trained)
            scores[0, linked_nodes(data.graph, node_type, int(query[0]), target_type, negatives)] = -np.inf
        best = top_k(scores, k)[0]
        best = best[np.isfinite(scores[0, best])]
        ids = known.ids(target_type, best).tolist()
    neighbors = [
        {"id": name, "type": target_type, "score": float(scores[0, index])}
        for name, index in zip(ids, best.tolist(), strict=True)
    ]
    document = {"run": data.record.id, "model": trained.name, "query": {"id": wanted, "type": node_type}}
    rows = [(str(each["id"]), f"{each['score']:.4f}") for each in neighbors]
    title = f"Nearest to {id} by {trained.name}"
    session.answer(
        {**document, "neighbors": neighbors},
        lambda console: console.print(table(title, (target_type, "score"), rows, ("score",))),
    )


def _negatives(data: RunData, trained: TrainedModel) -> Collection[EdgeType]:
    """Return the edge types that hold what is no link."""
    from graphbox.train import LinkSplit

    split = None if trained.task is None else data.split(trained.task)
    return split.negative_edge_types() if isinstance(split, LinkSplit) else ()


def show_answers(
    session: Session,
    run: RunArgument,
    relation: Annotated[str, typer.Argument(help="Name of a relation.")],
    head: Annotated[str | None, typer.Option("--head", help="Original id; its tails are found.")] = None,
    tail: Annotated[str | None, typer.Option("--tail", help="Original id; its heads are found.")] = None,
    model: ModelOption = None,
    k: Annotated[int, typer.Option("--k", "-k", help="How many.")] = 10,
    with_known: Annotated[
        bool, typer.Option("--with-known", help="Show what the task's data has already, too.")
    ] = False,
) -> None:
    """Show the likeliest tails of a head, or heads of a tail, that a knowledge graph lacks."""
    from graphbox.pipeline.run_data import RunData
    from graphbox.train import CompleteSplit, likely_answers

    with session.workspace() as workspace:
        data = RunData.open(workspace, run)
        trained = data.trained(model, task_kind="complete")
        split = None if trained.task is None else data.split(trained.task)
        if trained.triples is None or not isinstance(split, CompleteSplit):
            raise UsageError(
                f"expected a model of a task of kind complete, received `{trained.name}`",
                hint="`graphbox embed neighbors` shows what other models find near to a node",
            )
        known = data.nodes(trained)
        head_type, tail_type = trained.triples.end_types(trained.triples.relation(relation))
        found = likely_answers(
            known,
            split,
            trained,
            relation,
            head=None if head is None else original_id(known, head_type, head, "--head"),
            tail=None if tail is None else original_id(known, tail_type, tail, "--tail"),
            k=k,
            with_known=with_known,
        )
    question = {"head": head, "relation": relation, "tail": tail}
    document = {"run": data.record.id, "model": trained.name, "query": question}
    columns: tuple[str, ...] = (tail_type if tail is None else head_type, "score")
    rows: list[tuple[str, ...]] = [(str(each.id), f"{each.score:.4f}") for each in found]
    if with_known:
        columns = (*columns, "known")
        rows = [(*row, "yes" if each.known else "no") for row, each in zip(rows, found, strict=True)]
    title = f"{head or '?'} {relation} {tail or '?'} by {trained.name}"
    session.answer(
        {**document, "answers": [asdict(each) for each in found]},
        lambda console: console.print(table(title, columns, rows, ("score",))),
    )


command(group, "export")(export_embeddings)
command(group, "neighbors")(show_neighbors)
command(group, "answers")(show_answers)


def _trained(data: RunData, model: str | None, graph: str | None) -> TrainedModel:
    """Return the model to embed with: if another graph is named, by default one that can embed it."""
    if graph is None:
        return data.trained(model)
    return data.trained(model, can=lambda section: section.EMBEDS_OTHER_GRAPHS)


def _with_embeddings(trained: TrainedModel) -> TrainedModel:
    """Return the model, which must have vectors of nodes.

    Raises:
        UsageError: it has none.
    """
    if not trained.embeddings:
        raise UsageError(
            f"expected a model with vectors of nodes, received `{trained.name}` of kind {trained.kind}",
            hint="`graphbox predict` gives the probabilities of rows",
        )
    return trained


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.add_typer(group, name="embed")
