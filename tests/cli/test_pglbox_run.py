"""A PGLBox run, from part files and YAML to embeddings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphbox.graph import EdgeSource, Graph, GraphSource, NodeSource
from graphbox.graph.delta import append
from graphbox.graph.ingest import import_graph
from tests.cli.conftest import Call
from tests.graph.source.pglbox_files import shard_edges, shard_nodes, write_parts
from tests.pglbox.presets import PRESETS, pgl, yaml_text

PARTS = 8
LARGEST = 2**64 - 1


def write_graph(root: Path) -> tuple[dict[str, dict[str, list[int]]], dict[str, list[str]]]:
    """Write part files of users and items with slots, sharded as PGLBox does; return what they hold."""
    generator = np.random.default_rng(5)
    # Users have ids beyond int64, items small ones with 0 among them.
    ids = {"u": [str(LARGEST - 3 * n) for n in range(60)], "t": [str(n) for n in range(40)]}
    slots: dict[str, dict[str, list[int]]] = {"u": {}, "t": {}}
    lines = []
    for kind, names in ids.items():
        for number, name in enumerate(names):
            values = generator.integers(0, 1000, number % 4).tolist()
            slots[kind][name] = values
            lines.append("\t".join([kind, name, *(f"11:{value}" for value in values), "9109:0.5,1,-2"]))
    write_parts(root / "node_types", shard_nodes(lines, PARTS))
    pairs = sorted({(int(u), int(t)) for u, t in generator.integers(0, [60, 40], (700, 2)).tolist()})
    likes = [f"{ids['u'][u]}\t{ids['t'][t]}\t{1 + t}" for u, t in pairs]
    follows = [f"{ids['u'][n]}\t{ids['u'][(n + step) % 60]}\t1" for n in range(60) for step in (0, 8, 1)]
    write_parts(root / "likes", shard_edges(likes, PARTS, symmetry=True))
    write_parts(root / "follows", shard_edges(follows, PARTS, symmetry=True))
    return slots, {"likes": likes, "follows": follows}


def test_from_part_files_to_embeddings(folder: Path, graphbox: Call) -> None:
    slots, edges = write_graph(folder / "data")
    values = pgl(
        etype2files="u2likes2t:likes,u2follows2u:follows",
        ntype2files="u:node_types,t:node_types",
        meta_path="u2likes2t-t2likes2u;u2follows2u",
        slots=["11", "21"],
        float_slots=["9109"],
        float_slots_len={"9109": 3},
        weighted_sample=True,
        walk_len=5,
        walk_times=1,
        batch_size=500,
        emb_size=8,
    )
    (folder / "config.yaml").write_text(yaml_text(values))
    assert graphbox("convert-pglbox", "config.yaml").code == 0
    checked = graphbox("check", "graphbox.yaml")
    assert checked.code == 0, checked.err
    imported = graphbox("import", "graphbox.yaml", "--strict", "--json", "-q")
    assert imported.code == 0, imported.err

    described = graphbox("describe", "config", "--json").json
    nodes = {each["name"]: each for each in described["node_types"]}
    assert {name: each["nodes"] for name, each in nodes.items()} == {"u": 60, "t": 40}
    for kind, each in nodes.items():
        feature = next(feature for feature in each["features"] if feature["name"] == "slot_11")
        assert feature["values"] == sum(map(len, slots[kind].values()))
    edge_types = {
        f"{each['source']} {each['relation']} {each['target']}": each for each in described["edge_types"]
    }
    assert {name: each["edges"] for name, each in edge_types.items()} == {
        "u likes t": len(edges["likes"]),
        "t rev_likes u": len(edges["likes"]),
        "u follows u": len(edges["follows"]),
        "u rev_follows u": len(edges["follows"]),
    }
    # Each edge is stored twice, self loops once.
    assert edge_types["u likes t"]["imported"]["skipped"] == {"second copies": len(edges["likes"])}
    assert edge_types["u follows u"]["imported"]["skipped"] == {"second copies": 120}
    assert edge_types["u follows u"]["imported"]["rows"] == len(edges["follows"])
    text = graphbox("describe", "config").out
    assert f"{len(edges['likes'])} second copies passed over" in text
    assert "rows were skipped" not in text, "nothing is wrong with the rows"

    graph = Graph.open(folder / "workspace" / "graphs" / "config")
    assert (graph.id_type("u"), graph.id_type("t")) == ("string", "int64")
    for kind in ("u", "t"):
        names = [str(name) for name in graph.ids(kind)]
        assert sorted(names) == sorted(slots[kind]), "ids come back as they were written"
        column = graph.node_table(kind).features["slot_11"]
        assert column.offsets is not None
        lists = np.split(column.values, column.offsets[1:-1])
        assert {name: found.tolist() for name, found in zip(names, lists, strict=True)} == slots[kind]
        assert not len(graph.node_table(kind).features["slot_21"].values)
        np.testing.assert_array_equal(graph.feature(kind, "float_slot_9109_3"), [[0.5, 1, -2]] * len(names))
    csc = graph.csc(("u", "likes", "t"))
    source, target = csc.coo()
    assert csc.weight is not None
    found = [
        f"{graph.ids('u')[s]}\t{graph.ids('t')[t]}\t{weight:.0f}"
        for s, t, weight in zip(source, target, csc.weight, strict=True)
    ]
    assert sorted(found) == sorted(edges["likes"])

    run = graphbox("run", "graphbox.yaml", "-q")
    assert run.code == 0, run.err
    assert graphbox("embed", "export", "last", "--format", "npy").code == 0
    assert np.load(folder / "embeddings" / "u.npy").shape == (60, 8)


@pytest.mark.parametrize("preset", ["walk_only", "lightgcn", "degree_norm_lightgcn"])
def test_shipped_configurations_convert_and_train(preset: str, folder: Path, graphbox: Call) -> None:
    """Their keys as they are; only the walks from a node are fewer, so that the test is short."""
    generator = np.random.default_rng(3)
    kinds = {"u": 30, "t": 20, "f": 5}
    nodes = [f"{kind}\t{number}" for kind, count in kinds.items() for number in range(count)]
    edges = [f"{u}\t{t}" for u in range(30) for t in generator.choice(20, 4, replace=False)]
    write_parts(folder / "data" / "node_types", shard_nodes(nodes, PARTS))
    write_parts(folder / "data" / "u2t", shard_edges(edges, PARTS, symmetry=True))
    (folder / "config.yaml").write_text(yaml_text({**PRESETS[preset], "walk_times": 1}))
    assert graphbox("convert-pglbox", "config.yaml").code == 0
    trained = graphbox("train", "graphbox.yaml", "threads=1", "--json", "-q")
    assert trained.code == 0, trained.err
    assert trained.json["training"]["walk"]["steps"] > 0
    assert graphbox("embed", "export", "last", "--format", "npy").code == 0
    for kind in ("u", "t"):
        vectors = np.load(folder / "embeddings" / f"{kind}.npy")
        assert vectors.shape == (kinds[kind], 64)
        assert np.isfinite(vectors).all()
        assert vectors.any(axis=1).all()


def test_append_part_files(tmp_path: Path) -> None:
    write_parts(tmp_path / "node_types", [["u\t1\t11:5", "t\t2"], ["u\t3"]])
    write_parts(tmp_path / "likes", [["1\t2"]])
    write_parts(tmp_path / "more", [["t\t4", "u\t5\t11:6,7"], ["t\t6"]])
    write_parts(tmp_path / "more_likes", [["5\t4", "3\t6"]])

    def source(nodes: str, edges: str) -> GraphSource:
        return GraphSource(
            "liked",
            {
                "u": NodeSource(tmp_path / nodes, format="pglbox", features={"slot_11": "slots"}),
                "t": NodeSource(tmp_path / nodes, format="pglbox"),
            },
            (EdgeSource(("u", "likes", "t"), tmp_path / edges, format="pglbox"),),
        )

    import_graph(source("node_types", "likes"), tmp_path / "graph")
    append(tmp_path / "graph", source("more", "more_likes"))
    graph = Graph.open(tmp_path / "graph")
    assert [list(graph.ids(kind)) for kind in ("u", "t")] == [[1, 3, 5], [2, 4, 6]]
    assert graph.num_edges(("u", "likes", "t")) == 3
