"""A small two-layer heterogeneous encoder in padded-block form, written by hand: its artifact and its oracle.

Two node types, `package` and `tag`. The oracle computes embeddings node by node from the neighbour
tables, without blocks, padding or unique nodes, so that it shares nothing with the code under test.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from graphbox.artifact import (
    Artifact,
    ArtifactWriter,
    LayerSpec,
    Lineage,
    LookupForm,
    PaddedBlockForm,
    RelationGroup,
    RowsSpec,
    TargetSpec,
    TensorSpec,
)
from graphbox.artifact.links import links_table
from graphbox.artifact.preprocess import NodeFeature, UnseenInputs

Float = npt.NDArray[np.float32]
EdgeType = tuple[str, str, str]

DEPENDS: EdgeType = ("package", "depends", "package")
SUGGESTS: EdgeType = ("package", "suggests", "package")
TAGS: EdgeType = ("tag", "tags", "package")
TAGGED: EdgeType = ("package", "tagged", "tag")
FAN_OUT = {DEPENDS: 4, SUGGESTS: 4, TAGS: 3, TAGGED: 5}
Group = tuple[EdgeType, ...]
PACKAGES: Group = (DEPENDS, SUGGESTS)
LAYERS: list[list[Group]] = [[PACKAGES, (TAGS,), (TAGGED,)], [PACKAGES, (TAGS,)]]
NORMALIZATION: dict[EdgeType, Literal["mean", "square_root", "table"]] = {
    DEPENDS: "mean",
    SUGGESTS: "mean",
    TAGS: "table",
    TAGGED: "square_root",
}
DIM = {"package": 6, "tag": 5}
HIDDEN, OUT = 8, 4


@dataclass
class SampleModel:
    """Weights, tables and ids of the encoder."""

    rows: dict[str, Float]
    ids: dict[str, list[Any]]
    neighbors: dict[EdgeType, npt.NDArray[np.int32]]
    fixed_weights: dict[EdgeType, Float]
    linear: list[dict[str, tuple[Float, Float]]] = field(default_factory=list)
    target: Float = field(default_factory=lambda: np.empty((0, OUT), np.float32))

    def encode(self, nodes: list[int]) -> Float:
        """Return the embeddings of packages, computed one node at a time."""
        return (
            np.stack([self._hidden(2, "package", node) for node in nodes])
            if nodes
            else np.empty((0, OUT), np.float32)
        )

    def _hidden(self, layer: int, node_type: str, node: int) -> Float:
        if layer == 0:
            row: Float = self.rows[node_type][node]
            return row
        parts = [self._hidden(layer - 1, node_type, node)]
        relations = [edge_type for edge_type in chain(*LAYERS[layer - 1]) if edge_type[2] == node_type]
        parts += [self._aggregate(layer - 1, edge_type, node) for edge_type in relations]
        weight, bias = self.linear[layer - 1][node_type]
        value: Float = np.concatenate(parts) @ weight + bias
        return np.maximum(value, 0) if layer < len(LAYERS) else value

    def _aggregate(self, layer: int, edge_type: EdgeType, node: int) -> Float:
        source = edge_type[0]
        slots = [slot for slot, neighbor in enumerate(self.neighbors[edge_type][node]) if neighbor >= 0]
        total = np.zeros(DIM[source] if layer == 0 else HIDDEN, np.float32)
        for slot in slots:
            fixed = self.fixed_weights.get(edge_type)
            power = 0.5 if NORMALIZATION[edge_type] == "square_root" else 1.0
            weight = fixed[node, slot] if fixed is not None else len(slots) ** -power
            total += weight * self._hidden(layer, source, int(self.neighbors[edge_type][node, slot]))
        return total


def make_model(packages: int = 40, tags: int = 7, seed: int = 0, id_kind: str = "string") -> SampleModel:
    """Make a random model; node 0 of each type has no neighbours at all."""
    random = np.random.default_rng(seed)
    count = {"package": packages, "tag": tags}
    neighbors = {}
    for edge_type, fan_out in FAN_OUT.items():
        table = random.integers(0, count[edge_type[0]], (count[edge_type[2]], fan_out), dtype=np.int32)
        table[random.random(table.shape) < 0.4] = -1
        table[0] = -1
        neighbors[edge_type] = table
    ids: dict[str, list[Any]] = {
        node_type: [
            f"{node_type}-{index:03d}" if id_kind == "string" else index * 7 - 3 for index in range(total)
        ]
        for node_type, total in count.items()
    }
    model = SampleModel(
        rows={name: random.standard_normal((count[name], DIM[name]), np.float32) for name in count},
        ids=ids,
        neighbors=neighbors,
        fixed_weights={TAGS: random.random(neighbors[TAGS].shape, np.float32)},
        target=random.standard_normal((packages, OUT), np.float32),
    )
    for layer, groups in enumerate(LAYERS):
        relations = list(chain(*groups))
        width = DIM if layer == 0 else {"package": HIDDEN, "tag": HIDDEN}
        out = HIDDEN if layer == 0 else OUT
        model.linear.append({})
        for node_type in sorted({edge_type[2] for edge_type in relations}):
            inputs = width[node_type] + sum(width[e[0]] for e in relations if e[2] == node_type)
            weight = random.standard_normal((inputs, out), np.float32) / np.float32(np.sqrt(inputs))
            model.linear[-1][node_type] = (weight, random.standard_normal(out, np.float32))
    return model


def preprocess_of(model: SampleModel) -> PaddedBlockForm:
    """Return the description that the serving side reads."""
    layers = []
    for layer, groups in enumerate(LAYERS):
        specs = tuple(
            RelationGroup(
                edge_types=group,
                counts=f"neighbors/{_name(group)}.counts.npy",
                neighbors=f"neighbors/{_name(group)}.npy",
                normalization=NORMALIZATION[group[0]],
                weights=f"weights/{_name(group)}.npy" if NORMALIZATION[group[0]] == "table" else None,
                neighbors_input=f"neighbors_{layer}_{_name(group)}",
                weights_input=f"weights_{layer}_{_name(group)}",
            )
            for group in groups
        )
        targets = sorted({group[0][2] for group in groups})
        layers.append(LayerSpec(groups=specs, self_inputs={name: f"self_{layer}_{name}" for name in targets}))
    rows = {name: RowsSpec(input=f"rows_{name}", tables=(name,)) for name in DIM}
    return PaddedBlockForm(node_type="package", rows=rows, layers=tuple(layers))


def onnx_of(model: SampleModel) -> tuple[bytes, list[TensorSpec], list[TensorSpec]]:
    """Return the dense part as ONNX, its inputs and its outputs."""
    nodes: list[Any] = []
    constants: list[Any] = [numpy_helper.from_array(np.array([2], np.int64), "two")]
    inputs = [TensorSpec(name=f"rows_{name}", datatype="FP32", shape=(-1, DIM[name])) for name in DIM]
    hidden = {name: f"rows_{name}" for name in DIM}
    width = DIM
    for layer, groups in enumerate(LAYERS):
        below, hidden = hidden, {}
        for node_type in sorted({group[0][2] for group in groups}):
            tag = f"{layer}_{node_type}"
            inputs.append(TensorSpec(name=f"self_{tag}", datatype="INT64", shape=(-1,)))
            nodes.append(helper.make_node("Gather", [below[node_type], f"self_{tag}"], [f"own_{tag}"]))
            parts = [f"own_{tag}"]
            for group in groups:
                if group[0][2] != node_type:
                    continue
                source, key = group[0][0], f"{layer}_{_name(group)}"
                shape = (-1, len(group), -1)
                inputs.append(TensorSpec(name=f"neighbors_{key}", datatype="INT64", shape=shape))
                inputs.append(TensorSpec(name=f"weights_{key}", datatype="FP32", shape=shape))
                flat = np.array([-1, len(group) * width[source]], np.int64)
                constants.append(numpy_helper.from_array(flat, f"flat_{key}"))
                nodes += [
                    helper.make_node("Gather", [below[source], f"neighbors_{key}"], [f"gathered_{key}"]),
                    helper.make_node("Unsqueeze", [f"weights_{key}", "two"], [f"wide_{key}"]),
                    helper.make_node("MatMul", [f"wide_{key}", f"gathered_{key}"], [f"product_{key}"]),
                    helper.make_node("Reshape", [f"product_{key}", f"flat_{key}"], [f"mean_{key}"]),
                ]
                parts.append(f"mean_{key}")
            last = layer == len(LAYERS) - 1
            for name, value in zip(
                (f"weight_{tag}", f"bias_{tag}"), model.linear[layer][node_type], strict=True
            ):
                constants.append(numpy_helper.from_array(value, name))
            nodes.append(helper.make_node("Concat", parts, [f"all_{tag}"], axis=1))
            result = "embedding" if last else f"linear_{tag}"
            nodes.append(helper.make_node("Gemm", [f"all_{tag}", f"weight_{tag}", f"bias_{tag}"], [result]))
            if not last:
                nodes.append(helper.make_node("Relu", [result], [f"hidden_{tag}"]))
            hidden[node_type] = f"hidden_{tag}"
        width = {"package": HIDDEN, "tag": HIDDEN}
    outputs = [TensorSpec(name="embedding", datatype="FP32", shape=(-1, OUT))]
    graph = helper.make_graph(
        nodes, "sample", [_info(t) for t in inputs], [_info(t) for t in outputs], constants
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.checker.check_model(proto, full_check=True)
    return proto.SerializeToString(), inputs, outputs


def write_encoder(
    path: Path, model: SampleModel, *, name: str = "sample", version: int = 1, unseen: bool = False
) -> Artifact:
    """Write the model as an artifact of kind `encoder`; ``unseen``: it encodes packages never seen, too."""
    content, inputs, outputs = onnx_of(model)
    with ArtifactWriter(path) as writer:
        for node_type, values in model.ids.items():
            writer.add_ids(node_type, values)
            writer.add_table(node_type, node_type, model.rows[node_type])
        writer.add_table("target", "package", model.target)
        for group in LAYERS[0]:
            table = np.stack([model.neighbors[edge_type] for edge_type in group], axis=1)
            counts = (table >= 0).sum(axis=2).astype(np.uint16)
            writer.add_array(f"neighbors/{_name(group)}.counts.npy", counts)
            writer.add_array(f"neighbors/{_name(group)}.npy", table[table >= 0])
        for edge_type, weights in model.fixed_weights.items():
            present = model.neighbors[edge_type] >= 0
            writer.add_array(f"weights/{_name((edge_type,))}.npy", weights[present])
        writer.set_onnx(content, opset=20, precision="float32", inputs=inputs, outputs=outputs)
        form = preprocess_of(model)
        writer.set_preprocess(_with_unseen(writer, form) if unseen else form)
        writer.set_links(sample_links(model))
        return writer.commit(
            name=name,
            version=version,
            kind="encoder",
            task="companion",
            dim=OUT,
            targets={"package": TargetSpec(table="target", score="inner_product")},
            metrics={"companion": {"recall@20": 0.5}},
            lineage=Lineage(run="run-1", graph="sample", steps=("export",)),
        )


def _with_unseen(writer: ArtifactWriter, form: PaddedBlockForm) -> PaddedBlockForm:
    """Return the form with features of packages that were never seen: a size and a section."""
    random = np.random.default_rng(1)
    for name, rows in {"bias": (), "size": (1,), "section": (3,)}.items():
        writer.add_array(f"unseen/{name}.npy", random.standard_normal((*rows, DIM["package"]), np.float32))
    features = (
        NodeFeature(name="size", kind="number", weights="unseen/size.npy"),
        NodeFeature(
            name="section", kind="categorical", categories=("net", "math"), weights="unseen/section.npy"
        ),
    )
    return form.model_copy(update={"unseen": UnseenInputs(bias="unseen/bias.npy", features=features)})


def write_embedding(path: Path, model: SampleModel, *, name: str = "vectors", version: int = 1) -> Artifact:
    """Write the rows alone as an artifact of kind `embedding`."""
    width = min(DIM.values())
    with ArtifactWriter(path) as writer:
        for node_type, values in model.ids.items():
            writer.add_ids(node_type, values)
            writer.add_table(node_type, node_type, np.ascontiguousarray(model.rows[node_type][:, :width]))
        writer.set_preprocess(LookupForm(node_type="package", tables={name: name for name in model.ids}))
        targets = {name: TargetSpec(table=name, score="cosine") for name in model.ids}
        return writer.commit(
            name=name, version=version, kind="embedding", task="section", dim=width, targets=targets
        )


def sample_links(model: SampleModel) -> Any:
    """Return each package's `depends` slots as known links, every third one held out."""
    source, slot = np.nonzero(model.neighbors[DEPENDS] >= 0)
    target = model.neighbors[DEPENDS][source, slot].astype(np.int64)
    return links_table(source.astype(np.int64), target, np.arange(len(source)) % 3 == 0, DEPENDS)


def _name(group: Group) -> str:
    return "_".join(relation for _, relation, _ in group)


def _info(tensor: TensorSpec) -> Any:
    element = TensorProto.FLOAT if tensor.datatype == "FP32" else TensorProto.INT64
    shape = [f"{tensor.name}_{axis}" if size < 0 else size for axis, size in enumerate(tensor.shape)]
    return helper.make_tensor_value_info(tensor.name, element, shape)
