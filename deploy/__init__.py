"""The hardware-adapter layer: find what this machine can run models on, compile a model for it, run it.

`open_model` makes a model version answer; `targets` tells what is there; `bench` measures; another
package adds hardware by an `Adapter` in the entry-point group ``graphbox.adapters``. Loads neither torch
nor the native core.
"""

from __future__ import annotations

if __name__ != "graphbox.deploy":
    raise ImportError(
        "import this package as `graphbox.deploy`, not as `deploy`: two copies of it would not share state"
    )

from graphbox.deploy.click import DeployedClick, Predictions
from graphbox.deploy.encoder import DeployedEncoder
from graphbox.deploy.fastest import Choice, open_program
from graphbox.deploy.knowledge_graph import Answers, DeployedKnowledgeGraph
from graphbox.deploy.model import DeployedModel
from graphbox.deploy.opening import open_click, open_encoder, open_knowledge_graph, open_model
from graphbox.deploy.program import CheckedProgram, compile_model
from graphbox.deploy.protocol import (
    Adapter,
    Device,
    Effective,
    Options,
    Package,
    Program,
    Support,
    TensorSpec,
    VersionBundler,
)
from graphbox.deploy.registry import adapter_names, load_adapter
from graphbox.deploy.row_updates import RowUpdater, RowUpdates, list_row_updates, roll_back_rows, update_rows
from graphbox.deploy.select import Target, choose, targets
from graphbox.deploy.tensors import DeployedTensors
from graphbox.deploy.unseen import UnseenNode

__all__ = [
    "Adapter",
    "Answers",
    "CheckedProgram",
    "Choice",
    "DeployedClick",
    "DeployedEncoder",
    "DeployedKnowledgeGraph",
    "DeployedModel",
    "DeployedTensors",
    "Device",
    "Effective",
    "Options",
    "Package",
    "Predictions",
    "Program",
    "RowUpdater",
    "RowUpdates",
    "Support",
    "Target",
    "TensorSpec",
    "UnseenNode",
    "VersionBundler",
    "adapter_names",
    "choose",
    "compile_model",
    "list_row_updates",
    "load_adapter",
    "open_click",
    "open_encoder",
    "open_knowledge_graph",
    "open_model",
    "open_program",
    "roll_back_rows",
    "targets",
    "update_rows",
]
