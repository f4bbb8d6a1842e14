"""The run file: a YAML description of a whole pipeline, parsed strictly.

``load_config`` reads one; every mistake in it is reported at once, with file, line and a suggestion.
"""

from __future__ import annotations

from graphbox.config.byte_size import parse_byte_size
from graphbox.config.compression import CompressConfig, MaxDrop, SearchConfig, parse_max_drop
from graphbox.config.graph import EdgesConfig, GraphConfig, NodesConfig
from graphbox.config.kinds import ModelConfig, budget_refusal, kinds_that, model_kind, model_kinds
from graphbox.config.load import (
    config_digest,
    config_schema,
    dump_config,
    evaluation_settings,
    load_config,
    place_in_file,
    result_settings,
    training_settings,
)
from graphbox.config.memory import HbmConfig, MemoryConfig
from graphbox.config.model_kind import ModelKind
from graphbox.config.models import (
    ClickModelSection,
    ComplExConfig,
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
    ModelSection,
    Node2VecConfig,
    OwnModuleConfig,
    RotatEConfig,
    SageConfig,
    SkipGramSection,
    TemporalConfig,
    TransEConfig,
    WideAndDeepConfig,
)
from graphbox.config.schema import (
    BenchConfig,
    ExportConfig,
    PromotionRule,
    RunConfig,
    ServeConfig,
)
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
    "BenchConfig",
    "ClassifyTaskConfig",
    "ClickModelSection",
    "ClickTaskConfig",
    "ComplExConfig",
    "CompleteTaskConfig",
    "CompressConfig",
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
    "MaxDrop",
    "MemoryConfig",
    "Metapath2VecConfig",
    "ModelConfig",
    "ModelKind",
    "ModelSection",
    "Node2VecConfig",
    "NodesConfig",
    "OwnModuleConfig",
    "PredictLinksTaskConfig",
    "PromotionRule",
    "RandomSplitConfig",
    "RecommendTaskConfig",
    "RotatEConfig",
    "RowTimeSplitConfig",
    "RunConfig",
    "SageConfig",
    "SearchConfig",
    "ServeConfig",
    "SkipGramSection",
    "StreamConfig",
    "TaskConfig",
    "TemporalConfig",
    "TimeSplitConfig",
    "TrackConfig",
    "TransEConfig",
    "WideAndDeepConfig",
    "budget_refusal",
    "config_digest",
    "config_schema",
    "dump_config",
    "evaluation_settings",
    "kinds_that",
    "load_config",
    "model_kind",
    "model_kinds",
    "parse_byte_size",
    "parse_max_drop",
    "place_in_file",
    "result_settings",
    "training_settings",
]
