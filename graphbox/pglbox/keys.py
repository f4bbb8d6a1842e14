"""Every key of a PGLBox YAML file, in PGL's and in PaddleRec's variant, and what becomes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Literal

Kind = Literal["text", "integer", "number", "flag", "names", "integers", "mapping", "any"]


class Fate(StrEnum):
    """What becomes of a key."""

    MAPPED = "mapped"
    """It says the same in the run file."""
    IGNORED = "ignored"
    """Nothing is lost: it is dead there, of their environment, or asks for nothing."""
    UNSUPPORTED = "unsupported"
    """The run file goes without it: graphbox cannot do it yet."""
    REFUSED = "refused"
    """No run file is written: it is wrong, or the run would be another one without it."""


@dataclass(frozen=True)
class Key:
    """A key of a PGLBox YAML file.

    Attributes:
        name: as PGLBox spells it.
        group: part of the file it belongs to.
        kind: what its value is; "any" where nothing reads it.
        fate: what becomes of it when it asks for something.
        target: key of the run file that says it, or beside which the note stands.
        note: what is different or why; the text of the guide's table and of the comment.
        off: values that ask for nothing, besides an empty one.
        only_sage: it is read with ``sage_mode: True`` alone.
    """

    name: str
    group: str
    kind: Kind
    fate: Fate
    target: str = ""
    note: str = ""
    off: tuple[object, ...] = ()
    only_sage: bool = False


def _data() -> Iterator[Key]:
    group, mapped, ignored = "Data", Fate.MAPPED, Fate.IGNORED
    yield Key(
        "graph_data_local_path",
        group,
        "text",
        mapped,
        "graph.root",
        "relative to this file; PGLBox took it from the folder it was started in. `--data` names "
        "another folder",
    )
    yield Key(
        "graph_data_hdfs_path",
        group,
        "text",
        Fate.REFUSED,
        "graph.root",
        "used when there is no local path and it names a local folder; `hdfs:` and `afs:` are "
        "refused: fetch the "
        "data and give `--data FOLDER`",
    )
    yield Key(
        "etype2files",
        group,
        "text",
        mapped,
        "graph.edges",
        "`a2b` becomes [a, to, b], `a2r2b` becomes [a, r, b]; id 0 is legal here",
    )
    yield Key(
        "ntype2files",
        group,
        "text",
        mapped,
        "graph.nodes",
        "several types may share a folder: each reads its own lines",
    )
    yield Key(
        "symmetry",
        group,
        "flag",
        mapped,
        "graph.edges.*.reverse",
        "adds the reverse edge type [b, rev_r, a] to each edge type; of `a2a` PGLBox mixed both "
        "directions in "
        "one type, here they are two. Files in which each edge is stored twice are recognised and read once",
    )
    yield Key(
        "slots",
        group,
        "names",
        mapped,
        "graph.nodes.*.features",
        "each slot becomes the feature `slot_<n>`; the skip-gram model does not read features "
        "yet, PGLBox added "
        "the sum of the slots' embeddings to the id's",
    )
    yield Key(
        "float_slots",
        group,
        "names",
        mapped,
        "graph.nodes.*.features",
        "each becomes the vector feature `float_slot_<n>_<length>`, zeros where a node has none; the "
        "skip-gram model does not read features yet",
    )
    yield Key(
        "float_slots_len",
        group,
        "mapping",
        mapped,
        "graph.nodes.*.features",
        "the length stands in the feature's name",
    )
    yield Key(
        "nodeid_slot",
        group,
        "integer",
        ignored,
        note="ids and slots have separate tables, so no slot is reserved for the ids",
    )
    yield Key("hadoop_shard", group, "any", ignored, note="nothing reads it, in PGLBox either")
    yield Key("auto_shard", group, "any", ignored, note="data are read sharded or not")
    yield Key("num_part", group, "any", ignored, note="all part files of a folder are read")
    yield Key("max_slot_value_size", group, "any", ignored, note="nothing reads it, in PGLBox either")
    yield Key("feature_mode", group, "any", ignored, note="nothing reads it, in PGLBox either")
    yield Key(
        "slot_pool_type",
        group,
        "text",
        Fate.UNSUPPORTED,
        "graph.nodes.*.features",
        "no model of a run file pools slots yet",
        off=("sum",),
    )


def _walks() -> Iterator[Key]:
    group, mapped = "Walks and pairs", Fate.MAPPED
    yield Key(
        "meta_path",
        group,
        "text",
        mapped,
        "models.walk.metapaths",
        "a metapath that does not return to its first type is continued by its way back (PGLBox's walk ended "
        "there); the groups of PaddleRec's `[p;p,p]` are joined into one list",
    )
    yield Key(
        "walk_len",
        group,
        "integer",
        mapped,
        "models.walk.walk_length",
        "PGLBox counts the nodes of a walk, `walk_length` its steps: one less",
    )
    yield Key(
        "walk_times",
        group,
        "integer",
        mapped,
        "models.walk.walks_per_node",
        "walks from a node are independent; PGLBox drew their first neighbours without "
        "replacement, so a node with "
        "fewer neighbours got fewer walks",
    )
    yield Key("win_size", group, "integer", mapped, "models.walk.window", "")
    yield Key(
        "neg_num",
        group,
        "integer",
        mapped,
        "models.walk.negative_weight",
        "each pair is contrasted with `negatives` nodes that the batch shares, weighted as this "
        "many; PGLBox took "
        "other nodes of the batch, the pair's own context among them",
    )
    yield Key(
        "excluded_train_pair",
        group,
        "text",
        Fate.UNSUPPORTED,
        "models.walk.metapaths",
        "pairs of all node types within the window are trained; leaving types out is not possible yet",
    )
    yield Key(
        "pair_label",
        group,
        "text",
        Fate.IGNORED,
        note="PGLBox feeds the labels, but its model does not use them",
    )
    yield Key(
        "train_start_nodes",
        group,
        "text",
        Fate.UNSUPPORTED,
        "models.walk.metapaths",
        "walks start at every node of the metapath's first type; choosing them is not possible yet",
    )
    yield Key(
        "weighted_sample",
        group,
        "flag",
        Fate.MAPPED,
        "graph.edges.*.weight, models.walk.weighted",
        "walks take edges in proportion to their weights",
    )
    yield Key(
        "return_weight",
        group,
        "flag",
        Fate.IGNORED,
        note="no layer of PGLBox reads the weights it returns",
        off=(False,),
    )
    yield Key(
        "metapath_split_opt",
        group,
        "flag",
        Fate.IGNORED,
        note="the graph is read in tiers, so metapaths need not be loaded one by one (PGLBox "
        "stops with a NameError "
        "when it is on)",
        off=(False,),
    )


_NO_GNN = (
    "a GNN over walk pairs is not possible yet: the run file trains the walks' embeddings alone. Its model "
    "`sage` learns to find held-out edges of a task of kind `recommend` instead: add both by hand"
)


def _model() -> Iterator[Key]:
    group, mapped, missing, ignored = "Model", Fate.MAPPED, Fate.UNSUPPORTED, Fate.IGNORED
    yield Key(
        "model_type",
        group,
        "text",
        mapped,
        "models.walk.kind",
        "`GNNModel`, PGLBox's only one; others are refused",
    )
    yield Key("emb_size", group, "integer", mapped, "models.walk.dim", "")
    yield Key(
        "loss_type",
        group,
        "text",
        missing,
        "models.walk.kind",
        "the loss is the logistic one of skip-gram, `sigmoid` there, and the mean of a batch "
        "where PGLBox took the "
        "sum; `nce`, `hinge` and the softmax losses are not possible yet",
        off=("sigmoid",),
    )
    yield Key("margin", group, "number", ignored, note="of the hinge loss alone")
    yield Key(
        "gcl_loss",
        group,
        "text",
        missing,
        "models.walk.kind",
        "the contrastive loss of SimGCL is not possible yet",
    )
    yield Key("softsign", group, "flag", missing, "models.walk.kind", "not possible yet", off=(False,))
    yield Key("sage_mode", group, "flag", missing, "models.walk.kind", _NO_GNN, off=(False,))
    for name, kind, what in (
        ("sage_layer_type", "text", "layer"),
        ("sage_alpha", "number", "residual"),
        ("sage_act", "text", "activation"),
        ("samples", "integers", "neighbours drawn in training (`num_neighbors` of a model `sage`)"),
        ("infer_samples", "integers", "neighbours drawn in inference"),
        ("hcl", "flag", "contrast along sampled edges"),
        ("use_degree_norm", "flag", "normalisation by degree"),
    ):
        yield Key(
            name,
            group,
            kind,  # type: ignore[arg-type]
            missing,
            "models.walk.kind",
            f"{what} of the GNN, which is not possible yet",
            off=(False,),
            only_sage=True,
        )
    for name, kind in (
        ("token_slot", "text"),
        ("pretrained_model", "text"),
        ("sharding", "any"),
        ("amp", "any"),
        ("accumulate_num", "integer"),
    ):
        yield Key(
            name,
            group,
            kind,  # type: ignore[arg-type]
            missing,
            "models.walk.kind",
            "of PaddleRec's text tower, whose model was never published; not possible here",
            off=(False,),
        )


def _training() -> Iterator[Key]:
    group, mapped, missing, ignored = "Training", Fate.MAPPED, Fate.UNSUPPORTED, Fate.IGNORED
    yield Key("epochs", group, "integer", mapped, "models.walk.epochs", "")
    yield Key(
        "batch_size",
        group,
        "integer",
        mapped,
        "models.walk.batch_size",
        "PGLBox counts pairs, a run file the walks of each metapath: as many walks as make about "
        "as many pairs",
    )
    yield Key(
        "sparse_lr",
        group,
        "number",
        mapped,
        "models.walk.learning_rate",
        "the loss is a batch's mean, PGLBox's its sum: search for the best value again",
    )
    yield Key(
        "sparse_type",
        group,
        "text",
        missing,
        "models.walk.learning_rate",
        "rows learn by row-wise Adagrad, which `adagrad` and `adagrad_v2` are too; other rules "
        "are not possible in "
        "a run file yet",
        off=("adagrad", "adagrad_v2"),
    )
    yield Key(
        "slot_feature_lr", group, "number", ignored, note="of the slots' embeddings, which no model has yet"
    )
    yield Key("dense_lr", group, "number", ignored, note="of the GNN's weights; skip-gram has none")
    yield Key(
        "init_range",
        group,
        "number",
        ignored,
        note="new rows are uniform within ±0.5/√dim; PGLBox's GPU code drew positive values only",
    )
    yield Key(
        "infer_batch_size",
        group,
        "any",
        ignored,
        note="the embeddings are read from the table, without batches",
    )
    yield Key(
        "max_steps",
        group,
        "integer",
        missing,
        "models.walk.epochs",
        "training ends after `epochs` (PGLBox stops with a NameError when it is set)",
        off=(0,),
    )
    for name in (
        "chunk_num",
        "sample_times_one_chunk",
        "batch_node_size",
        "train_pass_cap",
        "infer_pass_cap",
        "save_cache_frequency",
        "mem_cache_passid_num",
    ):
        yield Key(name, group, "any", ignored, note="of PGLBox's passes over GPU memory; nothing to set here")
    yield Key(
        "train_storage_mode",
        group,
        "text",
        ignored,
        "memory",
        "the section `memory` has a budget for rows in host memory (`memory: {tables: 8GiB}`, the others are "
        "on SSD) and one for those on the GPU (`memory.hbm.tables`); `graphbox plan` says what fits",
        off=("WHOLE_HBM", "MEM_EMBEDDING"),
    )
    yield Key(
        "gpups_memory_allocated_rate",
        group,
        "any",
        ignored,
        note="`memory.hbm.tables` is the budget for rows on the GPU, in bytes; without it all that fits",
    )
    yield Key("debug_mode", group, "any", ignored, note="`--log-level debug` on the command line")
    yield Key(
        "need_train", group, "flag", mapped, "models", "`False` is refused: a PGLBox model cannot be read"
    )
    yield Key(
        "need_inference",
        group,
        "flag",
        ignored,
        note="`graphbox embed export RUN` writes the embeddings, whenever you like",
    )


def _output() -> Iterator[Key]:
    group, missing, ignored = "Output, warm start, routine training", Fate.UNSUPPORTED, Fate.IGNORED
    yield Key("working_root", group, "text", ignored, note="`-C/--workspace` says where runs are kept")
    yield Key(
        "warm_start_from",
        group,
        "text",
        missing,
        "models.walk.epochs",
        "training starts afresh: a PGLBox model cannot be read",
    )
    yield Key("load_binary_mode", group, "any", ignored, note="of PGLBox's model files")
    yield Key("save_binary_mode", group, "any", ignored, note="of PGLBox's model files")
    yield Key(
        "save_model_interval",
        group,
        "any",
        ignored,
        note="checkpoints are written as training goes; a stopped run goes on where it was",
    )
    yield Key(
        "need_shrink", group, "flag", missing, "models.walk.epochs", "rows are not dropped yet", off=(False,)
    )
    for name in ("load_filter_slots", "save_filter_slots"):
        yield Key(name, group, "any", ignored, note="of PGLBox's model files")
    for name in ("dump_node_name", "dump_node_emb_name"):
        yield Key(name, group, "any", ignored, note="name of a variable inside PGLBox")
    yield Key(
        "infer_node_type",
        group,
        "text",
        ignored,
        note="`graphbox embed export RUN` writes a file for each node type: take those you need",
    )
    yield Key(
        "infer_nodes",
        group,
        "text",
        ignored,
        "models.walk.kind",
        "`graphbox embed export RUN --nodes FILE --type TYPE` writes the embeddings of some nodes",
    )
    for name in ("need_dump_walk", "need_dump_neighbors"):
        yield Key(
            name,
            group,
            "flag",
            missing,
            "models.walk.metapaths",
            "`graphbox.random_walk` in Python gives the walks; a run does not write them",
            off=(False,),
        )
    yield Key(
        "train_mode",
        group,
        "text",
        Fate.REFUSED,
        "graph.root",
        "`online_train` is refused without `--data`: convert it for the folder of one hour or day",
        off=("train",),
    )
    for name in ("start_time", "time_delta"):
        yield Key(name, group, "any", ignored, note="of routine training")
    yield Key("eval_recall", group, "any", ignored, note="nothing reads it, in PGLBox either; see `tasks`")


def _environment() -> Iterator[Key]:
    group = "Their cluster"
    for name in ("hadoop_home", "graph_data_fs_name", "output_fs_name", "fs_name"):
        yield Key(name, group, "any", Fate.IGNORED, note="of their Hadoop cluster")
    for name in ("graph_data_fs_ugi", "output_fs_ugi", "fs_ugi"):
        yield Key(
            name, group, "any", Fate.IGNORED, note="user and password of their Hadoop cluster; not copied"
        )
    for name in (
        "job_name",
        "group_name",
        "image_addr",
        "k8s_priority",
        "wall_time",
        "pdc_info_output_path",
        "version",
    ):
        yield Key(name, group, "any", Fate.IGNORED, note="of their job scheduler")
    yield Key("gpus", group, "any", Fate.IGNORED, note="one GPU is used where there is one; `device` chooses")


KEYS: dict[str, Key] = {
    key.name: key
    for section in (_data, _walks, _model, _training, _output, _environment)
    for key in section()
}
"""Every known key by name, grouped as in the file."""


def key_table() -> str:
    """Return the table of all keys in Markdown, as the guide shows it."""
    parts = []
    for group, keys in groupby(KEYS.values(), key=lambda key: key.group):
        rows = [f"| `{key.name}` | {key.fate} | {_code(key.target)} | {key.note} |" for key in keys]
        parts.append(
            "\n".join(
                [f"### {group}", "", "| key | fate | in the run file | note |", "|---|---|---|---|", *rows]
            )
        )
    return "\n\n".join(parts) + "\n"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""
