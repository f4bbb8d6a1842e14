"""The run file: a YAML description of a whole pipeline, parsed strictly.

``load_config`` reads one; every mistake in it is reported at once, with file, line and a suggestion.
"""

from __future__ import annotations

from graphbox.config.byte_size import parse_byte_size
from graphbox.config.graph import EdgesConfig, GraphConfig, NodesConfig
from graphbox.config.load import config_digest, config_schema, dump_config, load_config, place_in_file
from graphbox.config.memory import HbmConfig, MemoryConfig
from graphbox.config.models import (
    MODEL_SECTIONS,
    ClickModelSection,
    ComplExConfig,
    CustomConfig,
    DCNConfig,
    DeepFMConfig,
    DeepWalkConfig,
    DistMultConfig,
    GraphNetworkConfig,
    KnowledgeGraphSection,
    LightGCNConfig,
    LineConfig,
    MatrixFactorizationConfig,
    Metapath2VecConfig,
    ModelConfig,
    ModelSection,
    Node2VecConfig,
    RotatEConfig,
    SageConfig,
    SkipGramSection,
    TemporalConfig,
    TransEConfig,
    WideAndDeepConfig,
)
from graphbox.config.schema import BenchConfig, CompressConfig, ExportConfig, RunConfig, ServeConfig
from graphbox.config.stream import StreamConfig
from graphbox.config.tasks import (
    ClassifyTaskConfig,
    ClickTaskConfig,
    CompleteTaskConfig,
    GivenSplitConfig,
    LeaveLastOutSplitConfig,
    PredictLinksTaskConfig,
    RandomSplitConfig,
    RecommendTaskConfig,
    RowTimeSplitConfig,
    TaskConfig,
    TimeSplitConfig,
)
from graphbox.config.track import TrackConfig

__all__ = [
    "MODEL_SECTIONS",
    "BenchConfig",
    "ClassifyTaskConfig",
    "ClickModelSection",
    "ClickTaskConfig",
    "ComplExConfig",
    "CompleteTaskConfig",
    "CompressConfig",
    "CustomConfig",
    "DCNConfig",
    "DeepFMConfig",
    "DeepWalkConfig",
    "DistMultConfig",
    "EdgesConfig",
    "ExportConfig",
    "GivenSplitConfig",
    "GraphConfig",
    "GraphNetworkConfig",
    "HbmConfig",
    "KnowledgeGraphSection",
    "LeaveLastOutSplitConfig",
    "LightGCNConfig",
    "LineConfig",
    "MatrixFactorizationConfig",
    "MemoryConfig",
    "Metapath2VecConfig",
    "ModelConfig",
    "ModelSection",
    "Node2VecConfig",
    "NodesConfig",
    "PredictLinksTaskConfig",
    "RandomSplitConfig",
    "RecommendTaskConfig",
    "RotatEConfig",
    "RowTimeSplitConfig",
    "RunConfig",
    "SageConfig",
    "ServeConfig",
    "SkipGramSection",
    "StreamConfig",
    "TaskConfig",
    "TemporalConfig",
    "TimeSplitConfig",
    "TrackConfig",
    "TransEConfig",
    "WideAndDeepConfig",
    "config_digest",
    "config_schema",
    "dump_config",
    "load_config",
    "parse_byte_size",
    "place_in_file",
]
