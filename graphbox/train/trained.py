"""A trained model on disk: what evaluation, export and users take from a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

from graphbox.artifact.arrays import write_array
from graphbox.durable import write_atomically
from graphbox.errors import FormatError, NotFoundError, UsageError
from graphbox.graph import Graph
from graphbox.graph.ids import make_ids
from graphbox.graph.live_nodes import LiveIds
from graphbox.graph.schema import IdType, edge_type_from_text, edge_type_text
from graphbox.graph.tables import NodeTable
from graphbox.models.features import FeatureSizes
from graphbox.models.sage import TwoTowerSAGE
from graphbox.train.click.model import ClickModel, load_click_model, save_click_model
from graphbox.train.completion.triple_rows import TripleRows
from graphbox.train.network.network_files import load_network, save_network
from graphbox.train.network.trained_network import TrainedNetwork
from graphbox.train.recommendation.sage_encoder import SageEncoder
from graphbox.train.scores import cosine_scores, largest_products
from graphbox.train.sequences.encoder import SequenceEncoder
from graphbox.train.storage import save_tensors

_FORMAT = "graphbox-trained"
_FORMAT_VERSION = 1


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """Result of a training: rows, vectors and networks.

    Attributes:
        name: name of the model.
        kind: ``embedding``: rows alone; ``encoder``: a network over rows; ``two_tower``: vectors of queries,
            and of candidates to rank by their inner product with them; ``click``: a network over the
            features of rows; ``knowledge_graph``: rows of entities, and of the relations between them.
        task: name of the task it was trained for, None for none.
        node_type: the task's node type; without a task the first that was learnt.
        embeddings: float32 [nodes, dim] by node type; of encoders and two towers the query vectors, of models
            that give a query n vectors all of them, one after the other: [nodes, n * dim].
        encoder: the encoder, of kind ``encoder``.
        target_type: node type of candidates, of kind ``two_tower``.
        target: float32 [candidates, dim], their vectors, of kind ``two_tower``.
        logits: float32 [nodes, classes] of the task's node type, of models that classify nodes themselves.
        link_scores: float32 [edges + negatives of the test part], of models that learn on through time: what
            each scored before it was known.
        click: the model, of kind ``click``.
        triples: the rows of relations, of kind ``knowledge_graph``.
        network: network and statistics to embed and classify nodes added after training, of graph networks.
        sequence: network that encodes histories, over the rows in ``target``, of models of sequences.
    """

    name: str
    kind: Literal["embedding", "encoder", "two_tower", "click", "knowledge_graph"]
    task: str | None
    node_type: str
    embeddings: dict[str, NDArray[np.float32]]
    encoder: SageEncoder | None = None
    target_type: str | None = None
    target: NDArray[np.float32] | None = None
    logits: NDArray[np.float32] | None = None
    link_scores: NDArray[np.float32] | None = None
    click: ClickModel | None = None
    triples: TripleRows | None = None
    network: TrainedNetwork | None = None
    sequence: SequenceEncoder | None = None

    @classmethod
    def of_towers(
        cls,
        name: str,
        task: str | None,
        ends: tuple[str, str],
        queries: Tensor,
        targets: Tensor,
        network: TrainedNetwork | None = None,
        sequence: SequenceEncoder | None = None,
    ) -> Self:
        """Return a model of kind ``two_tower``.

        Args:
            name: of the model.
            task: of the model.
            ends: node types of queries and of candidates.
            queries: float32 [queries, dim], wherever they are.
            targets: float32 [candidates, dim].
            network: see the attributes.
            sequence: see the attributes.
        """
        return cls(
            name,
            "two_tower",
            task,
            ends[0],
            {ends[0]: queries.cpu().numpy()},
            target_type=ends[1],
            target=targets.cpu().numpy(),
            network=network,
            sequence=sequence,
        )

    @property
    def query_types(self) -> list[str]:
        """Node types that have vectors, the task's first: those that :meth:`score` takes."""
        first = [self.node_type] if self.node_type in self.embeddings else []
        last = [] if self.target_type is None else [self.target_type]
        return list(dict.fromkeys([*first, *self.embeddings, *last]))

    def score(self, queries: NDArray[np.int64], node_type: str | None = None) -> NDArray[np.float32]:
        """Return the scores of all candidates: float32 [queries, candidates].

        The inner product with the targets' vectors for encoders and two towers, of a query of several vectors
        the largest; the cosine for embeddings.
        Nodes of another type than the task's are scored by the cosine with nodes of their own type.

        Args:
            queries: int64 [queries], node indices.
            node_type: their type, one of :attr:`query_types`; None: the task's.
        """
        if node_type is not None and node_type != self.node_type:
            vectors = self.embeddings.get(node_type, self.target)
            assert vectors is not None  # noqa: S101 - for the type checker
            return cosine_scores(vectors)(queries)
        if self.encoder is not None:
            return self.encoder.score(queries)
        if self.target is not None:
            return largest_products(self.embeddings[self.node_type][queries], self.target)
        return cosine_scores(self.embeddings[self.node_type])(queries)

    def over(
        self, graph: Graph, nodes: Mapping[str, NDArray[np.int64]] | None = None, threads: int | None = None
    ) -> TrainedModel:
        """Return the model with what its network makes of a graph as it is now; see :class:`TrainedNetwork`.

        Args:
            graph: the graph that it was trained on, with what came since, or another with the same types.
            nodes: of which vectors are asked for, by node type; None: all. Those of others are no use.
            threads: threads of the sampler.

        Raises:
            UsageError: the model is no graph network, or does not fit the graph.
        """
        found = self.inductive_network().over(graph, nodes, threads)
        return replace(self, embeddings=found.embeddings, target=found.target, logits=found.logits)

    def inductive_network(self) -> TrainedNetwork:
        """Return the network that embeds nodes which came after training.

        Raises:
            UsageError: the model has none.
        """
        if self.network is None:
            raise UsageError(
                f"expected a graph network (kind gnn), received `{self.name}`, which embeds the nodes of its "
                "training alone",
                hint="run the run file again: it trains on the graph as it is now",
            )
        return self.network

    def score_triples(
        self, nodes: NDArray[np.int64], relations: NDArray[np.int64], *, to_heads: bool = False
    ) -> NDArray[np.float32]:
        """Return the scores of all tails for heads, or heads for tails; see :meth:`TripleRows.scores`.

        Raises:
            UsageError: the model is none of a knowledge graph.
        """
        if self.triples is None:
            raise UsageError(f"expected a model that scores triples, received `{self.name}`, which does not")
        return self.triples.scores(self.embeddings, nodes, relations, to_heads=to_heads)


def save_trained(trained: TrainedModel, graph: Graph, run_folder: Path) -> None:
    """Write a trained model into the folder of a run; ``trained.json`` comes last and makes it whole.

    ``embeddings/<model>/<node_type>.npy`` and ``.ids.txt`` are for any program; of encoders and two towers
    there is also ``target/<node_type>.npy``, of models of knowledge graphs ``relations/relations.npy``.
    ``trained/<model>/`` holds the rest of an encoder. Removed nodes have no row in the first three.
    """
    folder = _folder(run_folder, trained.name)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trained.json").unlink(missing_ok=True)
    public = run_folder / "embeddings" / trained.name
    for node_type, vectors in trained.embeddings.items():
        _save_vectors(graph, node_type, vectors, public)
    header: dict[str, Any] = {
        "format": _FORMAT,
        "version": _FORMAT_VERSION,
        "kind": trained.kind,
        "task": trained.task,
        "node_type": trained.node_type,
        "node_types": list(trained.embeddings),
        "id_types": {name: graph.id_type(name) for name in _public_types(trained)},
        "removed": {
            name: graph.removed_nodes(name).tolist()
            for name in _public_types(trained)
            if graph.num_removed(name)
        },
    }
    if trained.target is not None and trained.target_type is not None:
        header["target_type"] = trained.target_type
        _save_vectors(graph, trained.target_type, trained.target, public / "target")
    header["logits"] = trained.logits is not None
    if trained.logits is not None:
        _save_array(folder / "logits.npy", trained.logits)
    header["link_scores"] = trained.link_scores is not None
    if trained.link_scores is not None:
        _save_array(folder / "link_scores.npy", trained.link_scores)
    if trained.click is not None:
        save_click_model(trained.click, folder)
    header["network"] = trained.network is not None
    if trained.network is not None:
        save_network(trained.network, folder / "network")
    if trained.sequence is not None:
        section = trained.sequence.config
        header["sequence"] = {"kind": section.kind, "settings": section.model_dump(mode="json")}
        save_tensors(trained.sequence.network.state_dict(), folder / "sequence.safetensors")
    if trained.triples is not None:
        _save_triples(trained.triples, header, public)
    if trained.encoder is not None:
        encoder = trained.encoder
        _save_vectors(graph, trained.node_type, encoder.target, public / "target")
        model = encoder.model
        header["relations"] = [edge_type_text(relation) for relation in model.relations]
        header["features"] = {name: asdict(sizes) for name, sizes in encoder.features.items()}
        header["inputs"] = list(encoder.inputs)
        for node_type, rows in encoder.inputs.items():
            _save_array(folder / f"inputs.{node_type}.npy", rows)
        for number, relation in enumerate(model.relations):
            _save_array(folder / f"neighbors.{number}.npy", encoder.neighbors[relation])
        save_tensors(model.state_dict(), folder / "model.safetensors")
    with write_atomically(folder / "trained.json") as stream:
        stream.write(json.dumps(header, indent=1).encode())


def load_trained(run_folder: Path, name: str) -> TrainedModel:
    """Read what :func:`save_trained` wrote; arrays are memory-mapped where they are large.

    Raises:
        NotFoundError: the run has no such trained model.
        FormatError: a file is damaged, missing or of another version.
    """
    folder = _folder(run_folder, name)
    place = folder / "trained.json"
    if not place.exists():
        raise NotFoundError(
            f"there is no trained model `{name}` in this run", where=str(run_folder), hint="train it first"
        )
    try:
        header = json.loads(place.read_text())
        if (header["format"], header["version"]) != (_FORMAT, _FORMAT_VERSION):
            raise ValueError(f"{header['format']} version {header['version']}")
        public = run_folder / "embeddings" / name
        embeddings = {name: _load_vectors(header, name, public) for name in header["node_types"]}
        encoder = _load_encoder(header, folder, public) if header["kind"] == "encoder" else None
        target_type = header.get("target_type")
        target = None if target_type is None else _load_vectors(header, target_type, public / "target")
        about = (name, header["kind"], header["task"], header["node_type"])
        logits = _load_array(folder / "logits.npy") if header["logits"] else None
        link_scores = _load_array(folder / "link_scores.npy") if header["link_scores"] else None
        click = load_click_model(folder) if header["kind"] == "click" else None
        triples = _load_triples(header, public) if header["kind"] == "knowledge_graph" else None
        network = load_network(folder / "network", may_import=True) if header["network"] else None
        sequence = _load_sequence(header["sequence"], folder) if "sequence" in header else None
        return TrainedModel(
            *about,
            embeddings,
            encoder,
            target_type,
            target,
            logits=logits,
            link_scores=link_scores,
            click=click,
            triples=triples,
            network=network,
            sequence=sequence,
        )
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise FormatError(
            f"expected a trained model of version {_FORMAT_VERSION}, received unreadable files: {error}",
            where=str(folder),
            hint="run the stage `train` again: it goes on from the last checkpoint",
        ) from error


def _public_types(trained: TrainedModel) -> list[str]:
    """Return the node types of which vectors are written with their ids."""
    return list(dict.fromkeys([*trained.embeddings, trained.target_type or trained.node_type]))


def load_nodes(run_folder: Path, trained: TrainedModel) -> Graph:
    """Return the nodes whose vectors a run wrote, with their ids, as a graph without edges and features.

    Raises:
        FormatError: a file is damaged or missing.
    """
    folder = _folder(run_folder, trained.name)
    public = run_folder / "embeddings" / trained.name
    try:
        header = json.loads((folder / "trained.json").read_text())
        nodes = {}
        for name in _public_types(trained):
            place = public if name in trained.embeddings else public / "target"
            texts = (place / f"{name}.ids.txt").read_text(encoding="utf-8").splitlines()
            kind = header.get("id_types", {}).get(name, "string")
            nodes[name] = _nodes_of_ids(texts, kind, header["removed"].get(name, []))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FormatError(
            f"expected the ids of a trained model, received unreadable files: {error}",
            where=str(public),
            hint="run the stage `train` again: it is resumed from the last checkpoint",
        ) from error
    return Graph(trained.name, nodes, {})


def nodes_without(graph: Graph, nodes: Mapping[str, NDArray[np.int64]]) -> Graph:
    """Return nodes as :func:`load_nodes` does, some of them removed.

    Args:
        graph: the nodes.
        nodes: indices of the nodes to remove, by node type.
    """
    found = {}
    for node_type in graph.node_types:
        removed = np.union1d(graph.removed_nodes(node_type), nodes.get(node_type, []))
        live = np.delete(np.arange(graph.num_nodes(node_type)), removed.astype(np.int64))
        texts = graph.arrow_ids(node_type).take(pa.array(live)).cast(pa.large_string()).to_pylist()
        found[node_type] = _nodes_of_ids(texts, graph.id_type(node_type), removed.astype(int).tolist())
    return Graph(graph.name, found, {})


def _nodes_of_ids(texts: list[str], kind: IdType, removed: list[int]) -> NodeTable:
    """Return nodes by the ids of the live ones, with holes where nodes were removed."""
    # No id has a line break: removed nodes have ids here that nobody can ask for.
    live = np.delete(np.arange(len(texts) + len(removed)), removed)
    if kind == "int64":
        numbers = np.array(texts, np.int64)
        values = np.zeros(len(texts) + len(removed), np.int64)
        values[live] = numbers
        free = np.setdiff1d(np.arange(len(values) + 1), numbers)
        values[removed] = free[: len(removed)]
        ids = make_ids(pa.array(values), "nodes of a run")
    else:
        every = [f"\n{number}" for number in range(len(texts) + len(removed))]
        for number, text in zip(live.tolist(), texts, strict=True):
            every[number] = text
        ids = make_ids(pa.array(every, pa.large_string()), "nodes of a run")
    holes = np.array(removed, np.int64)
    return NodeTable(LiveIds(kind, [(0, ids)], holes) if removed else ids, {}, holes)


def _save_vectors(graph: Graph, node_type: str, vectors: NDArray[np.float32], folder: Path) -> None:
    """Write the vectors of the nodes that are there."""
    ids = graph.arrow_ids(node_type)
    if graph.num_removed(node_type):
        there = np.delete(np.arange(len(ids)), graph.removed_nodes(node_type))
        ids, vectors = ids.take(there), vectors[there]
    _export(ids, vectors, folder, node_type)


def _export(ids: pa.Array, vectors: NDArray[np.float32], folder: Path, name: str) -> None:
    from graphbox.export import export_embeddings  # which the processes that only train need not load

    export_embeddings(ids, vectors, folder, name, formats=["npy"])


def _load_vectors(header: dict[str, Any], node_type: str, folder: Path) -> NDArray[np.float32]:
    """Return the vectors of all nodes by their index, zeros of removed ones."""
    vectors = _load_array(folder / f"{node_type}.npy")
    removed = header["removed"].get(node_type, [])
    if not removed:
        return vectors
    found = np.zeros((len(vectors) + len(removed), vectors.shape[1]), np.float32)
    found[np.delete(np.arange(len(found)), removed)] = vectors
    return found


def _save_triples(triples: TripleRows, header: dict[str, Any], public: Path) -> None:
    names = pa.array(triples.row_names())
    _export(names, triples.rows, public / "relations", "relations")
    header["triples"] = {
        "kind": triples.kind,
        "distance": triples.distance,
        "reciprocal": triples.reciprocal,
        "relations": list(triples.relations),
        "node_types": list(triples.node_types),
        "relation_ends": triples.relation_ends.tolist(),
    }


def _load_triples(header: dict[str, Any], public: Path) -> TripleRows:
    about = header["triples"]
    return TripleRows(
        kind=about["kind"],
        distance=about["distance"],
        reciprocal=about["reciprocal"],
        relations=tuple(about["relations"]),
        node_types=tuple(about["node_types"]),
        relation_ends=np.array(about["relation_ends"], dtype=np.int64).reshape(-1, 2),
        rows=np.load(public / "relations" / "relations.npy", allow_pickle=False),
    )


def _load_sequence(about: dict[str, Any], folder: Path) -> SequenceEncoder:
    state = load_file(folder / "sequence.safetensors")
    return SequenceEncoder.of_state(about["kind"], about["settings"], state)


def _load_encoder(header: dict[str, Any], folder: Path, public: Path) -> SageEncoder:
    relations = tuple(edge_type_from_text(text) for text in header["relations"])
    target = _load_vectors(header, header["node_type"], public / "target")
    features = {
        name: FeatureSizes(tuple(sizes["categories"]), sizes["numbers"])
        for name, sizes in header["features"].items()
    }
    model = TwoTowerSAGE(header["node_type"], relations, target.shape[1], features)
    model.load_state_dict(load_file(folder / "model.safetensors"))
    return SageEncoder(
        model=model.eval(),
        features=features,
        # Not mapped: torch takes only memory that may be written.
        inputs={name: np.load(folder / f"inputs.{name}.npy") for name in header["inputs"]},
        neighbors={
            relation: _load_array(folder / f"neighbors.{number}.npy")
            for number, relation in enumerate(relations)
        },
        query=_load_vectors(header, header["node_type"], public),
        target=target,
    )


def _folder(run_folder: Path, name: str) -> Path:
    return run_folder / "trained" / name


def _save_array(path: Path, array: NDArray[Any]) -> None:
    with write_atomically(path) as stream:
        write_array(stream, array)


def _load_array(path: Path) -> NDArray[Any]:
    array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return array
