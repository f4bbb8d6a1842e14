"""Arguments of the constructor of a user's own module: types, sizes, and rows of tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from graphbox.errors import UsageError, did_you_mean
from graphbox.graph.schema import EdgeType
from graphbox.table import EmbeddingTable, Table, TableEmbedding


@dataclass(frozen=True)
class TableRequest:
    """Rows that a module asked for.

    Attributes:
        rows: number of nodes of the type.
        dim: length of a row.
    """

    rows: int
    dim: int


@dataclass(frozen=True, eq=False)
class ModuleInputs:
    """Types and sizes of the graph, and table rows for its nodes.

    Attributes:
        node_types: node types that batches can have, as in PyTorch Geometric's ``HeteroData.metadata()``.
        edge_types: edge types along which neighbours are drawn.
        num_nodes: number of nodes by node type.
        features: number of columns of each feature by node type and name; 0 for one number or category of a
            node, which is one-dimensional in batches.
        num_categories: number of categories of categorical features by node type and name.
        node_type: type of the seeds of ``classify``, or of the sources of links.
        target_type: type of the targets of links; None for ``classify``.
        num_classes: number of classes of ``classify``, else None.
    """

    node_types: Sequence[str]
    edge_types: Sequence[EdgeType]
    num_nodes: Mapping[str, int]
    features: Mapping[str, Mapping[str, int]]
    num_categories: Mapping[str, Mapping[str, int]]
    node_type: str
    target_type: str | None = None
    num_classes: int | None = None
    _new_table: Callable[[str, TableRequest], Table] = field(
        default=lambda _name, request: EmbeddingTable(request.dim), repr=False
    )
    _requests: dict[str, TableRequest] = field(default_factory=dict, repr=False)
    _made: dict[str, TableEmbedding] = field(default_factory=dict, repr=False)

    def rows(self, node_type: str, dim: int) -> TableEmbedding:
        """Return a module that looks up a trained row for each node of a type.

        It is called with node indices (``batch[node_type].n_id``) and returns float32 [n, dim]. Rows are in a
        table under the run file's ``memory.tables``, on a GPU or in several processes as the run file says.

        Args:
            node_type: one of :attr:`node_types`.
            dim: length of a row.

        Raises:
            UsageError: no such node type, or it has rows already.
        """
        if node_type not in self.num_nodes:
            raise UsageError(
                f"expected one of the node types {', '.join(self.num_nodes)}, received `{node_type}`",
                where="ModuleInputs.rows",
                hint=did_you_mean(node_type, self.num_nodes),
            )
        if node_type in self._requests:
            raise UsageError(
                f"expected one call of rows() for `{node_type}`, received a second",
                where="ModuleInputs.rows",
                hint="keep the module that the first call returned",
            )
        request = TableRequest(self.num_nodes[node_type], dim)
        self._requests[node_type] = request
        self._made[node_type] = TableEmbedding(self._new_table(node_type, request))
        return self._made[node_type]

    @property
    def requests(self) -> Mapping[str, TableRequest]:
        """Rows that were asked for, by node type."""
        return self._requests

    @property
    def made(self) -> Mapping[str, TableEmbedding]:
        """Modules that :meth:`rows` returned, by node type."""
        return self._made
