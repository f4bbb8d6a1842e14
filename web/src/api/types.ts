import type { components } from "./schema";

type Schemas = components["schemas"];

export type Problem = Schemas["Problem"];
export type Overview = Schemas["Overview"];
export type GraphSummary = Schemas["GraphSummary"];
export type RunSummary = Schemas["RunSummary"];
export type RunDetail = Schemas["RunDetail"];
export type RunReport = Schemas["RunReport"];
export type RunState = RunSummary["state"];
export type StageSummary = Schemas["StageSummary"];
export type MetricSeries = Schemas["MetricSeries"];
export type RunMetrics = Schemas["RunMetrics"];
export type ModelSummary = Schemas["ModelSummary"];
export type ModelVersion = Schemas["ModelVersion"];
export type CanaryState = Schemas["CanaryState"];
export type ShadowState = Schemas["ShadowState"];
export type Compression = Schemas["Compression"];
export type CompressionSummary = Schemas["CompressionSummary"];
export type CompressionTrial = Schemas["CompressionTrial"];
export type CompressionPoint = Schemas["CompressionPoint"];
export type BenchPoint = Schemas["BenchPoint"];
export type VersionComparison = Schemas["VersionComparison"];
export type Neighbor = Schemas["Neighbor"];
export type NeighborAnswer = Schemas["NeighborAnswer"];
export type NodeId = Schemas["NodeId"];
export type RankedNode = Schemas["RankedNode"];
export type EncodedNode = Schemas["EncodedNode"];
export type UnseenInputs = Schemas["UnseenInputs"];
export type UnseenFeature = Schemas["UnseenFeature"];
export type UnseenRelation = Schemas["UnseenRelation"];
export type TrueLink = Schemas["TrueLink"];
export type DeploymentTarget = Schemas["DeploymentTarget"];

/** Task, then model, then metric. */
export type MetricTree = RunReport["metrics"];
