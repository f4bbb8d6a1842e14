"""The configurations PGLBox ships, as YAML: all keys of its two variants, and what each preset sets."""

from __future__ import annotations

from typing import Any

__all__ = ["PRESETS", "pgl", "yaml_text"]

Values = dict[str, Any]

_BOTH: Values = {
    "graph_data_local_path": "./data",
    "etype2files": "u2t:u2t",
    "ntype2files": "u:node_types,t:node_types,f:node_types",
    "excluded_train_pair": "",
    "infer_node_type": "",
    "hadoop_shard": True,
    "num_part": 1000,
    "symmetry": True,
    "meta_path": "u2t-t2u;t2u-u2t",
    "win_size": 3,
    "neg_num": 5,
    "walk_len": 24,
    "walk_times": 10,
    "nodeid_slot": 9008,
    "slots": [],
    "slot_pool_type": "sum",
    "max_slot_value_size": 100,
    "feature_mode": "sum",
    "working_root": "./output",
    "warm_start_from": None,
    "load_binary_mode": False,
    "model_type": "GNNModel",
    "emb_size": 64,
    "sparse_type": "adagrad_v2",
    "sparse_lr": 0.05,
    "dense_lr": 0.000005,
    "slot_feature_lr": 0.001,
    "init_range": 0.1,
    "loss_type": "nce",
    "margin": 2.0,
    "softsign": False,
    "gcl_loss": "simgcl_loss",
    "weighted_sample": False,
    "return_weight": False,
    "sage_mode": False,
    "sage_layer_type": "LightGCN",
    "sage_alpha": 0.9,
    "samples": [5],
    "infer_samples": [100],
    "sage_act": "relu",
    "need_train": True,
    "need_inference": True,
    "dump_node_name": "src_node___id",
    "dump_node_emb_name": "src_node___emb",
    "epochs": 1,
    "save_model_interval": 10,
    "batch_size": 80000,
    "infer_batch_size": 80000,
    "chunk_num": 1,
    "save_cache_frequency": 4,
    "mem_cache_passid_num": 4,
    "save_binary_mode": False,
    "train_storage_mode": "MEM_EMBEDDING",
    "debug_mode": 0,
    "train_mode": "train",
    "start_time": "20230217/00",
    "time_delta": 24,
    "graph_data_hdfs_path": "",
    "graph_data_fs_name": "",
    "graph_data_fs_ugi": "",
}

_PGL: Values = {
    "train_start_nodes": "",
    "infer_nodes": "",
    "hcl": False,
    "use_degree_norm": False,
    "sample_times_one_chunk": 5,
    "gpups_memory_allocated_rate": 0.60,
    "hadoop_home": "",
    "output_fs_name": "",
    "output_fs_ugi": "",
}

_PADDLEREC: Values = {
    "job_name": "pglbox",
    "group_name": None,
    "image_addr": None,
    "k8s_priority": "high",
    "wall_time": "240000:00:00",
    "gpus": [0, 1, 2, 3, 4, 5, 6, 7],
    "pair_label": "",
    "auto_shard": False,
    "float_slots": [],
    "float_slots_len": {},
    "fs_name": "",
    "fs_ugi": "",
    "pdc_info_output_path": None,
    "need_dump_walk": False,
    "metapath_split_opt": False,
    "version": "v_refactor_0104",
    "need_shrink": False,
    "eval_recall": 1,
}


def pgl(**changes: Any) -> Values:
    """Return a configuration of PGL's variant."""
    return {**_BOTH, **_PGL, **changes}


def paddlerec(**changes: Any) -> Values:
    """Return a configuration of PaddleRec's variant."""
    return {**_BOTH, **_PADDLEREC, **changes}


_KINDS = ("query", "clip", "film", "news")

PRESETS: dict[str, Values] = {
    "walk_only": pgl(),
    "lightgcn": pgl(
        sage_mode=True,
        hcl=True,
        batch_size=20000,
        infer_batch_size=20000,
        walk_len=4,
        win_size=2,
        neg_num=10,
        sparse_lr=0.1,
        gpups_memory_allocated_rate=0.10,
    ),
    "degree_norm_lightgcn": pgl(
        sage_mode=True,
        hcl=True,
        use_degree_norm=True,
        sage_alpha=0.4,
        batch_size=10000,
        infer_batch_size=10000,
        walk_len=4,
        win_size=2,
        neg_num=10,
        sparse_lr=0.1,
    ),
    "transformer_conv": paddlerec(
        sage_mode=True,
        sage_layer_type="TransformerConv",
        use_degree_norm=True,
        batch_size=8000,
        infer_batch_size=1000,
        slots=["11", "21"],
        float_slots=["9109"],
        float_slots_len={"9109": 3},
    ),
    "deepwalk_million": paddlerec(
        emb_size=8,
        num_part=500,
        save_model_interval=1,
        etype2files=",".join(f"user2{kind}:user2{kind}" for kind in _KINDS),
        ntype2files=",".join(f"{kind}:node_types" for kind in ("user", *_KINDS)),
        meta_path=";".join(
            [
                *(f"user2{kind}-{kind}2user" for kind in _KINDS),
                *(f"{one}2user-user2{other}" for one in _KINDS for other in _KINDS if one != other),
            ]
        ),
    ),
}
"""The shipped presets by name, with node and edge types of our own."""


def yaml_text(values: Values) -> str:
    """Return a configuration as its YAML file, in the style of the shipped ones."""
    return "".join(f"{key}: {_scalar(value)}\n" for key, value in values.items())


def _scalar(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value)
        case str():
            return f'"{value}"'
        case dict():
            return "{" + ", ".join(f'"{key}": {_scalar(item)}' for key, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_scalar, value)) + "]"
    return str(value)
