"""The JSON of questions to models and of their answers; the rest is in `graphbox.server.schema`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from graphbox.server.schema import Answer

__all__ = [
    "EncodeInputs",
    "EncodeRequest",
    "EncodedNode",
    "EncodedNodes",
    "IdMatches",
    "LikelyAnswer",
    "LikelyAnswers",
    "Neighbor",
    "NeighborAnswer",
    "NeighborAnswers",
    "NeighborsRequest",
    "NodeId",
    "Prediction",
    "PredictionRequest",
    "Predictions",
    "RankedNode",
    "RankedNodes",
    "Relation",
    "Relations",
    "TrueLink",
    "UnseenExample",
    "UnseenFeature",
    "UnseenInputs",
    "UnseenRelation",
]

Id = str | int

_ROWS_SEQUENCE: Any = Field(
    default=None, description="number of the last row update that the answer has; null: none"
)


class NodeId(Answer):
    """An original id and the node type it belongs to."""

    id: Id
    type: str


class TrueLink(Answer):
    """A link of the graph between a query and one of its neighbours."""

    relation: str
    direction: Literal["out", "in"] = Field(description="out: from the query to the neighbour")
    held_out: bool = Field(description="the model did not see this link in training")


class RankedNode(NodeId):
    """A node near the query in the embedding space."""

    score: float = Field(
        description="cosine or inner product of the vectors of both, the largest where a query has several"
    )


class Neighbor(RankedNode):
    """A node near the query, with the links known between both."""

    links: list[TrueLink]


class NeighborAnswer(Answer):
    """The nearest nodes of one node, best first."""

    model: str
    version: int
    rows_sequence: int | None = _ROWS_SEQUENCE
    query: NodeId
    query_types: list[str] = Field(description="all node types that have this id")
    neighbors: list[Neighbor]


class NeighborsRequest(BaseModel):
    """Queries for nearest nodes."""

    model_config = ConfigDict(extra="forbid")

    queries: list[dict[str, Any]] = Field(
        description="each an object with `id`, the original id of a node, or `vector`, a list of numbers;"
        " `type`, the node type of the id or that the vector stands for; `allow`, the original ids that alone"
        " may be among the neighbours, all when left out; and `deny`, those that may not"
    )


class RankedNodes(Answer):
    """The nearest nodes of one query, best first."""

    neighbors: list[RankedNode]


class NeighborAnswers(Answer):
    """The nearest nodes of each query, in their order."""

    model: str
    version: int
    rows_sequence: int | None = _ROWS_SEQUENCE
    queries: list[RankedNodes]


class IdMatches(Answer):
    """Original ids with the asked prefix, in ascending order."""

    ids: list[NodeId]


class PredictionRequest(BaseModel):
    """Rows to predict."""

    model_config = ConfigDict(extra="forbid")

    rows: list[dict[str, Any]] = Field(
        description="each an object of column and value: a string, an integer or a boolean of a category, a"
        " number, a list of numbers of a vector, a list of strings and integers of slots; null is missing."
        " Columns that the model does not read are passed over"
    )


class EncodeRequest(BaseModel):
    """Nodes that the model was never given."""

    model_config = ConfigDict(extra="forbid")

    nodes: list[dict[str, Any]] = Field(
        description="each an object with `features`, the value of each feature that the model reads, as in a"
        " row of the nodes' table, null where it is missing; `neighbors`, by relation"
        " `source__relation__target` the original ids of the nodes whose edges arrive at it; `weights`,"
        " likewise, of these edges, 1 each when left out; and `edge_features`, likewise, an object of each of"
        " these edges, or null, with the values of the features that the model reads, missing when left out;"
        " or, of a model of sequences, with `history`, the original ids of its events in their order, the"
        " last one last"
    )


class UnseenFeature(Answer):
    """A feature that an encoder reads of unseen nodes, or of their edges."""

    name: str
    kind: Literal["number", "integer", "categorical", "boolean", "vector", "slots"]
    dim: int | None = Field(description="length of a vector, else null")
    categories: list[str] = Field(description="the first 1,000 of the categories that were learned")
    num_categories: int = Field(description="how many categories were learned")


class UnseenRelation(Answer):
    """A relation along which neighbours of unseen nodes are given."""

    name: str = Field(description="`source__relation__target`")
    node_type: str = Field(description="of the neighbours")
    integer_ids: bool = Field(description="whether the ids of the neighbours are integers, else strings")
    weighed: bool = Field(description="whether the model reads weights of the edges")
    edge_features: list[UnseenFeature] = Field(description="the features of the edges that the model reads")


class UnseenExample(Answer):
    """A node that can be encoded."""

    features: dict[str, Any]
    neighbors: dict[str, list[Id]]
    edge_features: dict[str, list[dict[str, Any]]] = Field(
        description="by relation, of each neighbour's edge; relations without are left out"
    )


class UnseenInputs(Answer):
    """Inputs of an encoder for nodes that it was never given."""

    node_type: str
    features: list[UnseenFeature]
    relations: list[UnseenRelation]
    classes: list[str] = Field(description="empty where the model does not classify nodes")
    target_type: str | None = Field(description="node type of the nearest nodes; null: the model ranks none")
    example: UnseenExample


class EncodeInputs(Answer):
    """Inputs of an encoder."""

    model: str
    version: int
    unseen: UnseenInputs | None = Field(description="null: it encodes the nodes of its graph alone")


class EncodedNode(Answer):
    """Embedding, class probabilities and nearest nodes of a node."""

    embedding: list[float]
    probabilities: dict[str, float] = Field(
        description="by class; empty where the model does not classify nodes"
    )
    neighbors: list[RankedNode] = Field(description="nearest first; empty where `k` is left out")


class EncodedNodes(Answer):
    """Embeddings of nodes, in their order."""

    model: str
    version: int
    rows_sequence: int | None = _ROWS_SEQUENCE
    nodes: list[EncodedNode]


class Prediction(Answer):
    """Prediction of a click model for a row."""

    probability: float = Field(description="of the first label, where the model has several")
    probabilities: dict[str, float] = Field(
        default_factory=dict, description="of each label by its name, where the model has several"
    )
    unseen: list[str] = Field(
        description="columns of whose value nothing was learnt, so that it counts as nothing"
    )


class Predictions(Answer):
    """The probabilities of rows, in their order."""

    model: str
    version: int
    rows_sequence: int | None = _ROWS_SEQUENCE
    predictions: list[Prediction]


class Relation(Answer):
    """A relation, and the node types of its heads and tails."""

    name: str
    head_type: str
    tail_type: str


class Relations(Answer):
    """The relations of a model of a knowledge graph."""

    relations: list[Relation]


class LikelyAnswer(NodeId):
    """A candidate for the missing end of a triple."""

    score: float = Field(description="comparable among the answers of one question")
    known: bool = Field(description="the data has this triple already")


class LikelyAnswers(Answer):
    """The likeliest answers to a question about triples, best first."""

    model: str
    version: int
    rows_sequence: int | None = _ROWS_SEQUENCE
    relation: str
    query: NodeId
    asked: Literal["head", "tail"] = Field(description="the end that the answers are")
    answers: list[LikelyAnswer]
