// Generated from openapi.json by `npm run api`. Do not edit.

export interface paths {
  "/api/v1/audit": {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    /**
     * Audit
     * @description List the requests that changed something, or tried to, newest first.
     *
     *     Of a server without a workspace, the log alone has them.
     */
    get: operations["audit"];
    put?: never;
    post?: never;
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  "/api/v1/events": {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    /**
     * Events
     * @description Stream a run: event `point` for each measured point, `run` when its state changes, `end` at its end.
     *
     *     The id of a `point` is its line in metrics.jsonl. A client that comes back with `Last-Event-ID`
     *     gets what it missed.
     */
    get: operations["events"];
    put?: never;
    post?: never;
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  "/api/v1/graphs": {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    /**
     * Graphs
     * @description List the graphs.
     */
    get: operations["graphs"];
    put?: never;
    post?: never;
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  "/api/v1/models": {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    /**
     * Models
     * @description List the models with their versions, newest first.
     */
    get: operations["models"];
    put?: never;
    post?: never;
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  "/api/v1/models/{name}/answers": {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    /**
     * Answers
     * @description Return the likeliest tails of a head, or heads of a tail, best first.
     */
    get: operations["answers"];
    put?: never;
    post?: never;
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  "/api/v1/models/{name}/canary": {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    get?: never;
    put?: never;
    /**
     * Set Canary
     * @description Let a version answer a share of the requests that name no version, within a second.
     *
     *     A promotion ends it.
     */
    post: operations["set_canary"];
    /**
     * End Canary
     * @description Let the active version answer all requests that name no version, within a second.
     */
    delete: operations["end_canary"];
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  "/api/v1/models/{name}/compressions": {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    /**
     * Compressions
     * @description List the searches for compressed versions of a model, the one written last first.
     */
    get: operations["compressions"];
    put?: never;
    post?: never;
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  "/api/v1/models/{name}/compressions/{search_id}": {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    /**
     * Compression
     * @description Return the report of a search for compressed versions; of one that has not finished, so far.
     */
    get: operations["compression"];
    put?: never;
    post?: never;
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  "/api/v1/models/{name}/encode": {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    /**
     * Encode Inputs
     * @description Describe the features and relations that an encoder reads of nodes that it was never given.
     */
    get: operations["encode_inputs"];
    put?: never;
    /**
     * Encode
     * @description Return embeddings, classes and nearest nodes of nodes given by their features and neighbours.
     */
    post: operations["encode"];
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  "/api/v1/models/{name}/example": {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    /**
     * Example
     * @description Return the inputs of the example request of the model, as an infer request has them.
     */
    get: operations["example"];
    put?: never;
    post?: never;
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  "/api/v1/models/{name}/ids": {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    /**
     * Ids
     * @description List ids the model can be asked about that start with ``prefix``, shortest first.
     *
     *     With ``type`` they may be of any node type of an encoder, such as the neighbours of ``encode``. Without
     *     a prefix the examples come first: the ids of the model's example request, then the nodes that are linked
     *     most.
     */
    get: operations["ids"];
    put?: never;
    post?: never;
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  "/api/v1/models/{name}/neighbors": {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    /**
     * Neighbors
     * @description Return the nodes whose vectors are nearest to that of one node, with the links known between them.
     */
    get: operations["neighbors"];
    put?: never;
    /**
     * Neighbors Of Queries
     * @description Return the nodes whose vectors are nearest to those of nodes, or to vectors.
     */
    post: operations["neighbors_of_queries"];
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  "/api/v1/models/{name}/predict": {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    get?: never;
    put?: never;
    /**
     * Predict
     * @description Return the probabilities of rows, each given by its own columns; of several labels that of each.
     */
    post: operations["predict"];
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  "/api/v1/models/{name}/promote": {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    get?: never;
    put?: never;
    /**
     * Promote
     * @description Make a version active: the one served by default.
     *
     *     The server switches to it within a second, or at SIGHUP if it does not follow.
     */
    post: operations["promote"];
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  "/api/v1/models/{name}/relations": {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    /**
     * Relations
     * @description List the relations that a model of a knowledge graph can be asked about.
     */
    get: operations["relations"];
    put?: never;
    post?: never;
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  "/api/v1/models/{name}/rollback": {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    get?: never;
    put?: never;
    /**
     * Roll Back
     * @description Make the version active that was active before the present one.
     *
     *     The server switches to it as after `promote`. Ends the canary and the shadow of the model.
     */
    post: operations["roll_back"];
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  "/api/v1/models/{name}/rows": {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    get?: never;
    put?: never;
    /**
     * Update Rows
     * @description Write new rows of some ids and make them active; all workers answer with them within a second.
     */
    post: operations["update_rows"];
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  "/api/v1/models/{name}/rows/rollback": {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    get?: never;
    put?: never;
    /**
     * Roll Back Rows
     * @description Serve the rows after an earlier row update, or again those after a later one; within a second.
     */
    post: operations["roll_back_rows"];
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  "/api/v1/models/{name}/shadow": {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    get?: never;
    put?: never;
    /**
     * Set Shadow
     * @description Repeat a share of the answered requests on a version, and sum the differences of its outputs.
     *
     *     Requests are repeated within a second; a promotion ends it.
     */
    post: operations["set_shadow"];
    /**
     * End Shadow
     * @description Stop repeating requests, within a second, and drop the sums of the differences.
     */
    delete: operations["end_shadow"];
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  "/api/v1/models/{name}/updates": {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    /**
     * Row Updates
     * @description List the newest row updates of a model version, the active one, and what the asked worker serves.
     */
    get: operations["row_updates"];
    put?: never;
    post?: never;
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  "/api/v1/overview": {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    /**
     * Overview
     * @description Count graphs, runs and models.
     */
    get: operations["overview"];
    put?: never;
    post?: never;
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  "/api/v1/runs": {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    /**
     * Runs
     * @description List the runs, newest first.
     */
    get: operations["runs"];
    put?: never;
    post?: never;
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  "/api/v1/runs/{run_id}": {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    /**
     * Run
     * @description Describe one run.
     */
    get: operations["run"];
    put?: never;
    post?: never;
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  "/api/v1/runs/{run_id}/metrics": {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    /**
     * Run Metrics
     * @description Return the measured quantities of a run, each thinned to at most ``max_points`` points.
     */
    get: operations["run_metrics"];
    put?: never;
    post?: never;
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  "/api/v1/targets": {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    /**
     * Targets
     * @description List adapters with the devices they found, or the reason why there is none.
     */
    get: operations["targets"];
    put?: never;
    post?: never;
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  "/healthz": {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    /**
     * Health
     * @description Return 200 while the process runs.
     */
    get: operations["health"];
    put?: never;
    post?: never;
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  "/healthz/live": {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    /**
     * Live
     * @description Return 200 while the process runs; restart it when it does not answer.
     */
    get: operations["live"];
    put?: never;
    post?: never;
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  "/healthz/ready": {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    /**
     * Ready
     * @description Return 200 when every model answers, and 503 while models are loading at start or one cannot answer.
     *
     *     A failed load of a newer version does not change this while the previous version answers. Model names
     *     need the token, if the server has one.
     */
    get: operations["ready"];
    put?: never;
    post?: never;
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  "/metrics": {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    /**
     * Metrics
     * @description Return the counters in the text format of Prometheus.
     */
    get: operations["metrics"];
    put?: never;
    post?: never;
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
}
export type webhooks = Record<string, never>;
export interface components {
  schemas: {
    /**
     * AuditEntry
     * @description A request that changed something, or tried to.
     */
    AuditEntry: {
      /** Action */
      action: string;
      /**
       * Address
       * @description of the client
       */
      address: string;
      /**
       * Client
       * @description name of the token
       */
      client: string;
      /**
       * Detail
       * @description further values of the request
       */
      detail: {
        [key: string]: unknown;
      };
      /**
       * Id
       * @description later entries have higher numbers
       */
      id: number;
      /**
       * Message
       * @description why it was refused or failed
       */
      message: string | null;
      /** Model */
      model: string | null;
      /** Request Id */
      request_id: string;
      /**
       * Result
       * @description `begun`: the server ended before it noted the result
       * @enum {string}
       */
      result: "begun" | "ok" | "refused" | "failed";
      /**
       * Time
       * Format: date-time
       */
      time: string;
      /** Version */
      version: number | null;
    };
    /**
     * BenchPoint
     * @description Latency and throughput of a model at one batch size.
     */
    BenchPoint: {
      /** Batch */
      batch: number;
      /**
       * Operation
       * @description what was measured: the requests `neighbors`, `answers` and `infer`, end to end but for the network; `program`, the ONNX part alone; `model`, a call in Python, of earlier releases
       * @enum {string}
       */
      operation: "neighbors" | "answers" | "infer" | "program" | "model";
      /** P50 Ms */
      p50_ms: number;
      /** P99 Ms */
      p99_ms: number;
      /** Rows Per S */
      rows_per_s: number;
      /**
       * Target
       * @description the adapter that ran it
       */
      target: string;
      /** Threads */
      threads: number;
    };
    /**
     * CanaryRequest
     * @description The version to answer a share of the requests.
     */
    CanaryRequest: {
      /**
       * Percent
       * @description share of the requests; 0 ends the canary
       */
      percent: number;
      /**
       * Version
       * @description version of the model, not the active one
       */
      version: number;
    };
    /**
     * CanaryState
     * @description The version that answers a share of the requests that name no version.
     */
    CanaryState: {
      /**
       * Available
       * @description it is open; else the active version gets its requests
       */
      available: boolean;
      /**
       * Percent
       * @description share of the requests
       */
      percent: number;
      /**
       * Unavailable Requests
       * @description requests of its share that the active version answered since the server started
       */
      unavailable_requests: number;
      /** Version */
      version: number;
    };
    /**
     * ComparedFigure
     * @description A figure of a version and of the active version; null where it was not measured.
     */
    ComparedFigure: {
      /** Active */
      active: number | null;
      /** Version */
      version: number | null;
    };
    /**
     * Compression
     * @description A search with its report. Where it was continued and has not finished, the report is that of before.
     */
    Compression: {
      bounds: components["schemas"]["CompressionBounds"];
      /**
       * Chosen
       * @description `key` of the chosen point; null: none yet
       */
      chosen: string | null;
      /**
       * Chosen Version
       * @description the version that was chosen; null: none yet
       */
      chosen_version: number | null;
      /**
       * Command
       * @description repeats the search
       */
      command: string;
      /**
       * Drift
       * @description on the validation part, in the order of the report; empty where the task does not measure its metric by popularity, or nothing was found yet
       * @default []
       */
      drift: components["schemas"]["CompressionDrift"][];
      /**
       * Environment
       * @description target, device, runtime, threads and batch, in words
       */
      environment: string;
      /**
       * Id
       * @description `version`-`key`
       */
      id: string;
      /**
       * Key
       * @description stands for what the figures depend on
       */
      key: string;
      /**
       * Layer Errors
       * @description relative error of the output where one layer alone is quantized
       */
      layer_errors: {
        [key: string]: number | null;
      };
      /**
       * Limits
       * @description as options of the command
       */
      limits: string[];
      /**
       * Metric
       * @description that decides, on the validation part; higher is better
       */
      metric: string;
      /**
       * Metrics Test
       * @description of the chosen version on the test part
       */
      metrics_test: {
        [key: string]: number | null;
      };
      original: components["schemas"]["CompressionTrial"];
      /**
       * Points
       * @description smallest first; empty where nothing was found yet
       */
      points: components["schemas"]["CompressionPoint"][];
      /**
       * Rejected
       * @description within the limits at first, not when they were measured again
       */
      rejected: components["schemas"]["CompressionTrial"][];
      /**
       * Running
       * @description a process searches for compressed versions of this version
       */
      running: boolean;
      /**
       * State
       * @description `unfinished` also where a search that had finished was continued; `damaged`: its report cannot be read
       * @enum {string}
       */
      state: "finished" | "unfinished" | "damaged";
      /**
       * Table Errors
       * @description relative error by table and codec
       */
      table_errors: {
        [key: string]: {
          [key: string]: number | null;
        };
      };
      /**
       * Trials
       * @description models that were tried, the original among them
       */
      trials: number;
      /**
       * Tried
       * @description all trials of the report, in their order
       */
      tried: components["schemas"]["CompressionTrial"][];
      /** @description null: the search has finished */
      unfinished: components["schemas"]["UnfinishedCompression"] | null;
      /**
       * Updated At
       * Format: date-time
       */
      updated_at: string;
      /**
       * Version
       * @description the version that is compressed
       */
      version: number;
    };
    /**
     * CompressionBounds
     * @description Limits as numbers; null: there is none.
     */
    CompressionBounds: {
      /**
       * Metric
       * @description least value of the deciding metric
       */
      metric: number | null;
      /**
       * P50 Ms
       * @description largest median latency
       */
      p50_ms: number | null;
      /**
       * P50 Ratio
       * @description the same, relative to that of the original in the same turns
       */
      p50_ratio: number | null;
      /**
       * P99 Ms
       * @description largest 99th percentile of the latency
       */
      p99_ms: number | null;
      /**
       * P99 Ratio
       * @description the same, relative to that of the original in the same turns
       */
      p99_ratio: number | null;
      /**
       * Size Bytes
       * @description largest size of a version
       */
      size_bytes: number | null;
    };
    /**
     * CompressionDrift
     * @description The deciding metric of one group of targets, by popularity.
     */
    CompressionDrift: {
      /**
       * Chosen
       * @description metric of the chosen version
       */
      chosen: number | null;
      /**
       * Group
       * @description links in training, e.g. `in_degree_5_to_50`
       */
      group: string;
      /**
       * Original
       * @description metric of the original
       */
      original: number | null;
      /**
       * Positives
       * @description links to find in the group
       */
      positives: number;
    };
    /**
     * CompressionLatency
     * @description Latency of one call in a process, measured in turns with the original.
     */
    CompressionLatency: {
      /**
       * Original P50 Ms
       * @description of the original, in the same turns
       */
      original_p50_ms: number;
      /**
       * Original P99 Ms
       * @description of the original, in the same turns
       */
      original_p99_ms: number;
      /**
       * P50 Max Ms
       * @description largest median of a repeat
       */
      p50_max_ms: number;
      /**
       * P50 Min Ms
       * @description smallest median of a repeat
       */
      p50_min_ms: number;
      /** P50 Ms */
      p50_ms: number;
      /** P99 Ms */
      p99_ms: number;
    };
    /**
     * CompressionPoint
     * @description A model that none beats in size, latency and quality, within the limits.
     */
    CompressionPoint: {
      /**
       * Exceeds
       * @description limits that it exceeds, as options of the command
       * @default []
       */
      exceeds: string[];
      /**
       * Key
       * @description digest of the recipe
       */
      key: string;
      latency: components["schemas"]["CompressionLatency"] | null;
      /**
       * Metrics
       * @description on the validation part
       */
      metrics: {
        [key: string]: number | null;
      };
      /**
       * Name
       * @description the recipe in words
       */
      name: string;
      /** Parts Bytes */
      parts_bytes: {
        [key: string]: number;
      };
      /**
       * Reason
       * @description why it was refused
       */
      reason: string | null;
      recipe: components["schemas"]["CompressionRecipe"];
      /**
       * Seconds
       * @description that the trial took
       */
      seconds: number;
      /**
       * Size Bytes
       * @description 0 where it was refused
       */
      size_bytes: number;
      /**
       * Source
       * @description what proposed it: `ladder`, `budget`, `tuning` or `sampler`
       */
      source: string;
      /**
       * Standard Error
       * @description the largest that the deciding metric can have; null: not known
       */
      standard_error: number | null;
      /**
       * State
       * @enum {string}
       */
      state: "measured" | "refused";
      /**
       * Version
       * @description the version of the model that it became
       */
      version: number | null;
    };
    /**
     * CompressionRecipe
     * @description Methods for the parts of one model.
     */
    CompressionRecipe: {
      /**
       * By Layer
       * @description whether hidden layers differ in the share they keep
       * @default false
       */
      by_layer: boolean;
      /**
       * Dense
       * @description method of the ONNX part; `float32`: it stays as it is
       */
      dense: string;
      /**
       * Float Layers
       * @description layers of the ONNX part that stay float32
       */
      float_layers: string[];
      /**
       * Kept Neurons
       * @description share of the hidden neurons that are kept
       */
      kept_neurons: number;
      /**
       * Max Neighbors
       * @description most neighbours that are kept of a node in a relation; null: all of them
       */
      max_neighbors: number | null;
      /**
       * Tables
       * @description codec of each table; those left out stay as they are
       */
      tables: {
        [key: string]: string;
      };
      /**
       * Tuned
       * @description whether the ONNX part is fine-tuned
       * @default false
       */
      tuned: boolean;
      /**
       * Unchanged
       * @description tables that stay as they are
       * @default []
       */
      unchanged: string[];
    };
    /**
     * CompressionSummary
     * @description A search for compressed versions of a model.
     */
    CompressionSummary: {
      /**
       * Chosen Version
       * @description the version that was chosen; null: none yet
       */
      chosen_version: number | null;
      /**
       * Id
       * @description `version`-`key`
       */
      id: string;
      /**
       * Key
       * @description stands for what the figures depend on
       */
      key: string;
      /**
       * Running
       * @description a process searches for compressed versions of this version
       */
      running: boolean;
      /**
       * State
       * @description `unfinished` also where a search that had finished was continued; `damaged`: its report cannot be read
       * @enum {string}
       */
      state: "finished" | "unfinished" | "damaged";
      /**
       * Trials
       * @description models that were tried, the original among them
       */
      trials: number;
      /**
       * Updated At
       * Format: date-time
       */
      updated_at: string;
      /**
       * Version
       * @description the version that is compressed
       */
      version: number;
    };
    /**
     * CompressionTrial
     * @description One recipe, tried.
     */
    CompressionTrial: {
      /**
       * Exceeds
       * @description limits that it exceeds, as options of the command
       * @default []
       */
      exceeds: string[];
      /**
       * Key
       * @description digest of the recipe
       */
      key: string;
      latency: components["schemas"]["CompressionLatency"] | null;
      /**
       * Metrics
       * @description on the validation part
       */
      metrics: {
        [key: string]: number | null;
      };
      /**
       * Name
       * @description the recipe in words
       */
      name: string;
      /** Parts Bytes */
      parts_bytes: {
        [key: string]: number;
      };
      /**
       * Reason
       * @description why it was refused
       */
      reason: string | null;
      recipe: components["schemas"]["CompressionRecipe"];
      /**
       * Seconds
       * @description that the trial took
       */
      seconds: number;
      /**
       * Size Bytes
       * @description 0 where it was refused
       */
      size_bytes: number;
      /**
       * Source
       * @description what proposed it: `ladder`, `budget`, `tuning` or `sampler`
       */
      source: string;
      /**
       * Standard Error
       * @description the largest that the deciding metric can have; null: not known
       */
      standard_error: number | null;
      /**
       * State
       * @enum {string}
       */
      state: "measured" | "refused";
    };
    /**
     * DeploymentTarget
     * @description A device that an adapter can use, or the reason why it cannot.
     */
    DeploymentTarget: {
      /** Adapter */
      adapter: string;
      /** Available */
      available: boolean;
      /**
       * Description
       * @description what the device is called
       */
      description: string | null;
      /**
       * Details
       * @default {}
       */
      details: {
        [key: string]: string;
      };
      /** Device */
      device: string | null;
      /**
       * Distribution
       * @description the package the adapter comes from, with its version
       */
      distribution: string;
      /** Kind */
      kind: ("cpu" | "gpu" | "npu" | "other") | null;
      /**
       * Reason
       * @description why it is not available
       */
      reason: string | null;
    };
    /**
     * EdgeTypeCount
     * @description An edge type and its number of edges.
     */
    EdgeTypeCount: {
      /** Edges */
      edges: number;
      /** Relation */
      relation: string;
      /** Source */
      source: string;
      /** Target */
      target: string;
    };
    /**
     * EncodeInputs
     * @description Inputs of an encoder.
     */
    EncodeInputs: {
      /** Model */
      model: string;
      /** @description null: it encodes the nodes of its graph alone */
      unseen: components["schemas"]["UnseenInputs"] | null;
      /** Version */
      version: number;
    };
    /**
     * EncodeRequest
     * @description Nodes that the model was never given.
     */
    EncodeRequest: {
      /**
       * Nodes
       * @description each an object with `features`, the value of each feature that the model reads, as in a row of the nodes' table, null where it is missing; `neighbors`, by relation `source__relation__target` the original ids of the nodes whose edges arrive at it; `weights`, likewise, of these edges, 1 each when left out; and `edge_features`, likewise, an object of each of these edges, or null, with the values of the features that the model reads, missing when left out; or, of a model of sequences, with `history`, the original ids of its events in their order, the last one last
       */
      nodes: {
        [key: string]: unknown;
      }[];
    };
    /**
     * EncodedNode
     * @description Embedding, class probabilities and nearest nodes of a node.
     */
    EncodedNode: {
      /** Embedding */
      embedding: number[];
      /**
       * Neighbors
       * @description nearest first; empty where `k` is left out
       */
      neighbors: components["schemas"]["RankedNode"][];
      /**
       * Probabilities
       * @description by class; empty where the model does not classify nodes
       */
      probabilities: {
        [key: string]: number;
      };
    };
    /**
     * EncodedNodes
     * @description Embeddings of nodes, in their order.
     */
    EncodedNodes: {
      /** Model */
      model: string;
      /** Nodes */
      nodes: components["schemas"]["EncodedNode"][];
      /**
       * Rows Sequence
       * @description number of the last row update that the answer has; null: none
       */
      rows_sequence: number | null;
      /** Version */
      version: number;
    };
    /**
     * EventEnd
     * @description Data of the event ``end``, the last one of a stream.
     */
    EventEnd: {
      /**
       * State
       * @enum {string}
       */
      state: "created" | "running" | "finished" | "failed" | "interrupted";
    };
    /**
     * GraphSummary
     * @description A graph of the workspace.
     */
    GraphSummary: {
      /**
       * Created At
       * Format: date-time
       */
      created_at: string;
      /** Edge Types */
      edge_types: components["schemas"]["EdgeTypeCount"][];
      /** Name */
      name: string;
      /** Node Types */
      node_types: components["schemas"]["NodeTypeCount"][];
      /** Size Bytes */
      size_bytes: number;
    };
    /**
     * Health
     * @description Whether the process is up.
     */
    Health: {
      /**
       * Status
       * @default ok
       * @constant
       */
      status: "ok";
      /** Version */
      version: string;
    };
    /**
     * IdMatches
     * @description Original ids with the asked prefix, in ascending order.
     */
    IdMatches: {
      /** Ids */
      ids: components["schemas"]["NodeId"][];
    };
    /**
     * LikelyAnswer
     * @description A candidate for the missing end of a triple.
     */
    LikelyAnswer: {
      /** Id */
      id: string | number;
      /**
       * Known
       * @description the data has this triple already
       */
      known: boolean;
      /**
       * Score
       * @description comparable among the answers of one question
       */
      score: number;
      /** Type */
      type: string;
    };
    /**
     * LikelyAnswers
     * @description The likeliest answers to a question about triples, best first.
     */
    LikelyAnswers: {
      /** Answers */
      answers: components["schemas"]["LikelyAnswer"][];
      /**
       * Asked
       * @description the end that the answers are
       * @enum {string}
       */
      asked: "head" | "tail";
      /** Model */
      model: string;
      query: components["schemas"]["NodeId"];
      /** Relation */
      relation: string;
      /**
       * Rows Sequence
       * @description number of the last row update that the answer has; null: none
       */
      rows_sequence: number | null;
      /** Version */
      version: number;
    };
    /**
     * ListedRowUpdate
     * @description A row update of a model version.
     */
    ListedRowUpdate: {
      /**
       * Created At
       * Format: date-time
       */
      created_at: string;
      /** Parent */
      parent: number;
      /**
       * Rows
       * @description rows by table
       */
      rows: {
        [key: string]: number;
      };
      /** Sequence */
      sequence: number;
    };
    /**
     * MetricPoint
     * @description Data of the event ``point``: what one line of metrics.jsonl says.
     */
    MetricPoint: {
      /** Epoch */
      epoch: number | null;
      /** Model */
      model: string;
      /**
       * Phase
       * @description as in MetricSeries
       */
      phase: string | null;
      /** Step */
      step: number;
      /** Time S */
      time_s: number | null;
      /** Values */
      values: {
        [key: string]: number | null;
      };
    };
    /**
     * MetricSeries
     * @description One measured quantity over the steps of one phase of a model's training.
     */
    MetricSeries: {
      /** Key */
      key: string;
      /** Model */
      model: string;
      /**
       * Non Finite
       * @description points left out because they were NaN or infinite
       * @default 0
       */
      non_finite: number;
      /**
       * Phase
       * @description phase of the training, such as `pretrain`; null: the training itself
       */
      phase: string | null;
      /** Steps */
      steps: number[];
      /** Values */
      values: number[];
    };
    /**
     * ModelSummary
     * @description A model with its versions, newest first.
     */
    ModelSummary: {
      /** @description null: there is none */
      canary: components["schemas"]["CanaryState"] | null;
      /** Name */
      name: string;
      /** @description null: there is none */
      shadow: components["schemas"]["ShadowState"] | null;
      /** Versions */
      versions: components["schemas"]["ModelVersion"][];
    };
    /**
     * ModelVersion
     * @description One version of a model.
     */
    ModelVersion: {
      /**
       * Active
       * @description the version the workspace has promoted
       */
      active: boolean;
      /** Bench */
      bench: components["schemas"]["BenchPoint"][];
      /** @description the version beside the active one; null for that one itself */
      comparison: components["schemas"]["VersionComparison"] | null;
      /**
       * Created At
       * Format: date-time
       */
      created_at: string;
      /**
       * Deciding Metric
       * @description the metric of its task that decides; null: not known
       */
      deciding_metric: string | null;
      /**
       * Failure
       * @description why this version cannot be served; null if nothing failed
       */
      failure: string | null;
      /** Kind */
      kind: string;
      /**
       * Metrics
       * @description task, then metric
       */
      metrics: {
        [key: string]: {
          [key: string]: number | null;
        };
      };
      /**
       * Parent
       * @description the version this one was made from by compression
       */
      parent: number | null;
      /** Precision */
      precision: string;
      /**
       * Promotable
       * @description it belongs to the workspace, which can promote it
       */
      promotable: boolean;
      /** Run Id */
      run_id: string | null;
      /** @description the program that runs it; null where it is not open */
      running: components["schemas"]["Running"] | null;
      /**
       * Served
       * @description this version answers requests that name no version
       */
      served: boolean;
      /** Size Bytes */
      size_bytes: number;
      /** Task */
      task: string | null;
      /** Version */
      version: number;
    };
    /**
     * Neighbor
     * @description A node near the query, with the links known between both.
     */
    Neighbor: {
      /** Id */
      id: string | number;
      /** Links */
      links: components["schemas"]["TrueLink"][];
      /**
       * Score
       * @description cosine or inner product of the vectors of both, the largest where a query has several
       */
      score: number;
      /** Type */
      type: string;
    };
    /**
     * NeighborAnswer
     * @description The nearest nodes of one node, best first.
     */
    NeighborAnswer: {
      /** Model */
      model: string;
      /** Neighbors */
      neighbors: components["schemas"]["Neighbor"][];
      query: components["schemas"]["NodeId"];
      /**
       * Query Types
       * @description all node types that have this id
       */
      query_types: string[];
      /**
       * Rows Sequence
       * @description number of the last row update that the answer has; null: none
       */
      rows_sequence: number | null;
      /** Version */
      version: number;
    };
    /**
     * NeighborAnswers
     * @description The nearest nodes of each query, in their order.
     */
    NeighborAnswers: {
      /** Model */
      model: string;
      /** Queries */
      queries: components["schemas"]["RankedNodes"][];
      /**
       * Rows Sequence
       * @description number of the last row update that the answer has; null: none
       */
      rows_sequence: number | null;
      /** Version */
      version: number;
    };
    /**
     * NeighborsRequest
     * @description Queries for nearest nodes.
     */
    NeighborsRequest: {
      /**
       * Queries
       * @description each an object with `id`, the original id of a node, or `vector`, a list of numbers; `type`, the node type of the id or that the vector stands for; `allow`, the original ids that alone may be among the neighbours, all when left out; and `deny`, those that may not
       */
      queries: {
        [key: string]: unknown;
      }[];
    };
    /**
     * NodeId
     * @description An original id and the node type it belongs to.
     */
    NodeId: {
      /** Id */
      id: string | number;
      /** Type */
      type: string;
    };
    /**
     * NodeTypeCount
     * @description A node type and its number of nodes.
     */
    NodeTypeCount: {
      /** Name */
      name: string;
      /** Nodes */
      nodes: number;
    };
    /**
     * Overview
     * @description Counts of what the workspace holds.
     */
    Overview: {
      /**
       * Can Promote
       * @description this client can promote versions: the server has a workspace, the token the scope manage
       */
      can_promote: boolean;
      /**
       * Follows
       * @description the server switches to versions that become active; false: only at SIGHUP
       */
      follows: boolean;
      /** Graphs */
      graphs: number;
      /** Models */
      models: number;
      /**
       * Running
       * @description runs in state `running`
       */
      running: number;
      /** Runs */
      runs: number;
      /**
       * Version
       * @description version of graphbox
       */
      version: string;
      /**
       * Workspace Name
       * @description name of the workspace folder; null when there is none
       */
      workspace_name: string | null;
    };
    /**
     * Prediction
     * @description Prediction of a click model for a row.
     */
    Prediction: {
      /**
       * Probabilities
       * @description of each label by its name, where the model has several
       */
      probabilities: {
        [key: string]: number;
      };
      /**
       * Probability
       * @description of the first label, where the model has several
       */
      probability: number;
      /**
       * Unseen
       * @description columns of whose value nothing was learnt, so that it counts as nothing
       */
      unseen: string[];
    };
    /**
     * PredictionRequest
     * @description Rows to predict.
     */
    PredictionRequest: {
      /**
       * Rows
       * @description each an object of column and value: a string, an integer or a boolean of a category, a number, a list of numbers of a vector, a list of strings and integers of slots; null is missing. Columns that the model does not read are passed over
       */
      rows: {
        [key: string]: unknown;
      }[];
    };
    /**
     * Predictions
     * @description The probabilities of rows, in their order.
     */
    Predictions: {
      /** Model */
      model: string;
      /** Predictions */
      predictions: components["schemas"]["Prediction"][];
      /**
       * Rows Sequence
       * @description number of the last row update that the answer has; null: none
       */
      rows_sequence: number | null;
      /** Version */
      version: number;
    };
    /**
     * Problem
     * @description An error: what was expected and received, where, and what to do next.
     */
    Problem: {
      /**
       * Choices
       * @description code `ambiguous_id`: the node types that have the id; empty otherwise
       * @default []
       */
      choices: string[];
      /**
       * Code
       * @description stable machine-readable name of the kind of error
       */
      code: string;
      /**
       * Hint
       * @description what to do next
       * @default null
       */
      hint: string | null;
      /**
       * Message
       * @description what was expected and what was received
       */
      message: string;
      /**
       * Request Id
       * @description also in the X-Request-ID header and in the server's log
       */
      request_id: string;
      /**
       * Where
       * @description the parameter, file or id the message is about
       * @default null
       */
      where: string | null;
    };
    /**
     * Promotion
     * @description The version to promote.
     */
    Promotion: {
      /**
       * Version
       * @description version of the model
       */
      version: number;
    };
    /**
     * RankedNode
     * @description A node near the query in the embedding space.
     */
    RankedNode: {
      /** Id */
      id: string | number;
      /**
       * Score
       * @description cosine or inner product of the vectors of both, the largest where a query has several
       */
      score: number;
      /** Type */
      type: string;
    };
    /**
     * RankedNodes
     * @description The nearest nodes of one query, best first.
     */
    RankedNodes: {
      /** Neighbors */
      neighbors: components["schemas"]["RankedNode"][];
    };
    /**
     * Readiness
     * @description Whether the server should receive requests.
     */
    Readiness: {
      /**
       * Available
       * @description models that answer
       */
      available: string[];
      /**
       * Failed
       * @description reason by model name, of the models that cannot answer
       */
      failed: {
        [key: string]: string;
      };
      /**
       * Loading
       * @description models that are about to be opened
       */
      loading: string[];
      /**
       * Ready
       * @description models are preloaded, and each of them has a version that answers
       */
      ready: boolean;
    };
    /**
     * Relation
     * @description A relation, and the node types of its heads and tails.
     */
    Relation: {
      /** Head Type */
      head_type: string;
      /** Name */
      name: string;
      /** Tail Type */
      tail_type: string;
    };
    /**
     * Relations
     * @description The relations of a model of a knowledge graph.
     */
    Relations: {
      /** Relations */
      relations: components["schemas"]["Relation"][];
    };
    /**
     * RowUpdatesAnswer
     * @description The row updates of a model version, newest first.
     */
    RowUpdatesAnswer: {
      /**
       * Active
       * @description number of the update that servers apply; 0: none
       */
      active: number;
      /**
       * Applied
       * @description number of the one that answers of the asked worker have; null: the version is not open
       */
      applied: number | null;
      /**
       * Damaged
       * @description updates that cannot be read, with the reason
       */
      damaged: {
        [key: string]: string;
      };
      /**
       * Failure
       * @description why the asked worker has not applied the active one
       */
      failure: string | null;
      /** Model */
      model: string;
      /** Updates */
      updates: components["schemas"]["ListedRowUpdate"][];
      /** Version */
      version: number;
    };
    /**
     * RowsRollback
     * @description The row update to serve.
     */
    RowsRollback: {
      /**
       * Sequence
       * @description number of the update; 0: the rows of the version itself
       */
      sequence: number;
    };
    /**
     * RunDetail
     * @description A run with its stages, its resolved run file and its report.
     */
    RunDetail: {
      /**
       * Config
       * @description the resolved run file, YAML
       */
      config: string;
      /**
       * Created At
       * Format: date-time
       */
      created_at: string;
      error: components["schemas"]["RunError"] | null;
      /** Id */
      id: string;
      /** Name */
      name: string;
      /**
       * Removable
       * @description `graphbox runs rm` can remove it: no process runs it
       */
      removable: boolean;
      report: components["schemas"]["RunReport"];
      /**
       * Resumable
       * @description `graphbox runs resume` can continue it as it is
       */
      resumable: boolean;
      /**
       * Seconds
       * @description time spent in stages
       */
      seconds: number;
      /** Size Bytes */
      size_bytes: number;
      /**
       * Stage
       * @description the stage that runs, or ran last
       */
      stage: string | null;
      /** Stages */
      stages: components["schemas"]["StageSummary"][];
      /**
       * State
       * @enum {string}
       */
      state: "created" | "running" | "finished" | "failed" | "interrupted";
      /**
       * Updated At
       * Format: date-time
       */
      updated_at: string;
    };
    /**
     * RunError
     * @description Error that ended a run.
     */
    RunError: {
      /** Code */
      code: string;
      /** Hint */
      hint: string | null;
      /** Message */
      message: string;
      /** Where */
      where: string | null;
    };
    /**
     * RunMetrics
     * @description The measured quantities of a run.
     */
    RunMetrics: {
      /**
       * Damaged Lines
       * @description lines that are no metric point and were left out
       * @default 0
       */
      damaged_lines: number;
      /**
       * Last Line
       * @description lines of metrics.jsonl read; `after` of the event stream continues from here
       */
      last_line: number;
      /** Series */
      series: components["schemas"]["MetricSeries"][];
    };
    /**
     * RunReport
     * @description Measurements of a run. ``metrics`` and ``baselines``: task, then model, then metric.
     *
     *     ``training``: by model; its ``chosen`` has the settings that the data chose, and each trial.
     */
    RunReport: {
      /**
       * Baselines
       * @default {}
       */
      baselines: {
        [key: string]: {
          [key: string]: {
            [key: string]: number | null;
          };
        };
      };
      /**
       * Baselines Left Out
       * @description task, then baseline: why it did not run
       * @default {}
       */
      baselines_left_out: {
        [key: string]: {
          [key: string]: string;
        };
      };
      /**
       * Bench
       * @default {}
       */
      bench: {
        [key: string]: unknown;
      };
      /**
       * Compress
       * @default {}
       */
      compress: {
        [key: string]: unknown;
      };
      /**
       * Export
       * @default {}
       */
      export: {
        [key: string]: unknown;
      };
      /**
       * Metrics
       * @default {}
       */
      metrics: {
        [key: string]: {
          [key: string]: {
            [key: string]: number | null;
          };
        };
      };
      /**
       * Notes
       * @description task, then model: what its validation and test figures mean
       * @default {}
       */
      notes: {
        [key: string]: {
          [key: string]: string;
        };
      };
      /**
       * Training
       * @default {}
       */
      training: {
        [key: string]: unknown;
      };
    };
    /**
     * RunSummary
     * @description A run of a pipeline.
     */
    RunSummary: {
      /**
       * Created At
       * Format: date-time
       */
      created_at: string;
      /** Id */
      id: string;
      /** Name */
      name: string;
      /**
       * Seconds
       * @description time spent in stages
       */
      seconds: number;
      /** Size Bytes */
      size_bytes: number;
      /**
       * Stage
       * @description the stage that runs, or ran last
       */
      stage: string | null;
      /**
       * State
       * @enum {string}
       */
      state: "created" | "running" | "finished" | "failed" | "interrupted";
      /**
       * Updated At
       * Format: date-time
       */
      updated_at: string;
    };
    /**
     * Running
     * @description The program that runs an open model version, as it reports itself.
     */
    Running: {
      /** Adapter */
      adapter: string;
      /** Device */
      device: string;
      /**
       * Measured Ms
       * @description by target, median milliseconds of a call with 1 and with 32 rows, where `auto` had a choice
       */
      measured_ms: {
        [key: string]: number[];
      };
      /**
       * Nearest
       * @description by node type of queries, what ranks nearest nodes: `exact`, `index`, or `building` while exact ranking answers until the index is ready
       */
      nearest: {
        [key: string]: string;
      };
      /**
       * Precision
       * @description of the matrix products
       */
      precision: string;
      /**
       * Provider
       * @description the part of the runtime that runs the model
       */
      provider: string;
      /**
       * Runtime
       * @description name and version
       */
      runtime: string;
      /**
       * Threads
       * @description of one call; 0: not reported
       */
      threads: number;
    };
    /**
     * ShadowOutputState
     * @description Differences of one output of the shadow; null where nothing was compared.
     */
    ShadowOutputState: {
      /**
       * Different Share
       * @description share of the rows that differ beyond the tolerance
       */
      different_share: number | null;
      /**
       * Largest Difference
       * @description largest absolute difference of numbers
       */
      largest_difference: number | null;
      /**
       * Mean Difference
       * @description mean absolute difference of numbers
       */
      mean_difference: number | null;
      /**
       * Name
       * @description of the output, after the signature's where that is not the whole model
       */
      name: string;
      /**
       * Overlap
       * @description share of the ids in the lists of the active version that the shadow lists, too
       */
      overlap: number | null;
      /**
       * Rows
       * @description rows compared
       */
      rows: number;
    };
    /**
     * ShadowRequest
     * @description The version to repeat answered requests on.
     */
    ShadowRequest: {
      /**
       * Percent
       * @description share of the requests; 0 ends the shadow
       * @default 100
       */
      percent: number;
      /**
       * Tolerance
       * @description largest absolute difference of equal numbers
       * @default 0.0001
       */
      tolerance: number;
      /**
       * Version
       * @description version of the model, not the active one
       */
      version: number;
    };
    /**
     * ShadowState
     * @description The version on which answered requests are repeated, and how its outputs differ, over all servers.
     */
    ShadowState: {
      /**
       * Active Ms
       * @description mean execution time of compared requests, active version
       */
      active_ms: number | null;
      /**
       * Available
       * @description it is open; else its requests are dropped
       */
      available: boolean;
      /**
       * Calls
       * @description requests compared
       */
      calls: number;
      /**
       * Dropped
       * @description requests not repeated, as the server was busy or it was not open
       */
      dropped: number;
      /**
       * Error
       * @description why it could not answer the last of the failed requests
       */
      error: string | null;
      /**
       * Failed
       * @description requests that it could not answer
       */
      failed: number;
      /** Outputs */
      outputs: components["schemas"]["ShadowOutputState"][];
      /**
       * Percent
       * @description share of the requests that are repeated
       */
      percent: number;
      /**
       * Shadow Ms
       * @description mean execution time of compared requests, shadow
       */
      shadow_ms: number | null;
      /**
       * Tolerance
       * @description largest absolute difference of equal numbers
       */
      tolerance: number;
      /** Version */
      version: number;
    };
    /**
     * StageSummary
     * @description One stage of a run.
     */
    StageSummary: {
      /** Name */
      name: string;
      /**
       * Peak Bytes
       * @description largest memory use of the process during the stage
       */
      peak_bytes: number | null;
      /** Seconds */
      seconds: number | null;
      /**
       * State
       * @enum {string}
       */
      state: "pending" | "running" | "finished" | "failed" | "interrupted" | "skipped";
    };
    /**
     * Traffic
     * @description Versions of a model that get a share of its requests besides the active one.
     */
    Traffic: {
      /** @description null: there is none */
      canary: components["schemas"]["CanaryState"] | null;
      /** @description null: there is none */
      shadow: components["schemas"]["ShadowState"] | null;
    };
    /**
     * TrueLink
     * @description A link of the graph between a query and one of its neighbours.
     */
    TrueLink: {
      /**
       * Direction
       * @description out: from the query to the neighbour
       * @enum {string}
       */
      direction: "out" | "in";
      /**
       * Held Out
       * @description the model did not see this link in training
       */
      held_out: boolean;
      /** Relation */
      relation: string;
    };
    /**
     * UnfinishedCompression
     * @description A search that has not finished since it was started or continued.
     */
    UnfinishedCompression: {
      /**
       * Command
       * @description continues it
       */
      command: string;
      /**
       * Failure
       * @description why it ended; null: it runs or was killed
       */
      failure: string | null;
      /**
       * Limits
       * @description as options of the command
       */
      limits: string[];
      /**
       * Trials
       * @description tried so far, those of earlier searches included
       */
      trials: number;
    };
    /**
     * UnseenExample
     * @description A node that can be encoded.
     */
    UnseenExample: {
      /**
       * Edge Features
       * @description by relation, of each neighbour's edge; relations without are left out
       */
      edge_features: {
        [key: string]: {
          [key: string]: unknown;
        }[];
      };
      /** Features */
      features: {
        [key: string]: unknown;
      };
      /** Neighbors */
      neighbors: {
        [key: string]: (string | number)[];
      };
    };
    /**
     * UnseenFeature
     * @description A feature that an encoder reads of unseen nodes, or of their edges.
     */
    UnseenFeature: {
      /**
       * Categories
       * @description the first 1,000 of the categories that were learned
       */
      categories: string[];
      /**
       * Dim
       * @description length of a vector, else null
       */
      dim: number | null;
      /**
       * Kind
       * @enum {string}
       */
      kind: "number" | "integer" | "categorical" | "boolean" | "vector" | "slots";
      /** Name */
      name: string;
      /**
       * Num Categories
       * @description how many categories were learned
       */
      num_categories: number;
    };
    /**
     * UnseenInputs
     * @description Inputs of an encoder for nodes that it was never given.
     */
    UnseenInputs: {
      /**
       * Classes
       * @description empty where the model does not classify nodes
       */
      classes: string[];
      example: components["schemas"]["UnseenExample"];
      /** Features */
      features: components["schemas"]["UnseenFeature"][];
      /** Node Type */
      node_type: string;
      /** Relations */
      relations: components["schemas"]["UnseenRelation"][];
      /**
       * Target Type
       * @description node type of the nearest nodes; null: the model ranks none
       */
      target_type: string | null;
    };
    /**
     * UnseenRelation
     * @description A relation along which neighbours of unseen nodes are given.
     */
    UnseenRelation: {
      /**
       * Edge Features
       * @description the features of the edges that the model reads
       */
      edge_features: components["schemas"]["UnseenFeature"][];
      /**
       * Integer Ids
       * @description whether the ids of the neighbours are integers, else strings
       */
      integer_ids: boolean;
      /**
       * Name
       * @description `source__relation__target`
       */
      name: string;
      /**
       * Node Type
       * @description of the neighbours
       */
      node_type: string;
      /**
       * Weighed
       * @description whether the model reads weights of the edges
       */
      weighed: boolean;
    };
    /**
     * VersionComparison
     * @description A version beside the active version of its model.
     */
    VersionComparison: {
      /**
       * Active
       * @description number of the active version
       */
      active: number;
      /**
       * Metric
       * @description the metric that decides; higher is better
       */
      metric: string | null;
      /**
       * Not Comparable
       * @description why the metrics cannot be compared; null: they can
       */
      not_comparable: string | null;
      /** @description the metric, on the test part */
      quality: components["schemas"]["ComparedFigure"];
      /**
       * Request
       * @description what was asked; null where they were not asked the same
       */
      request: string | null;
      /** @description median latency of the same request, end to end */
      request_ms: components["schemas"]["ComparedFigure"];
      size_bytes: components["schemas"]["ComparedFigure"];
    };
    /**
     * WrittenRowUpdate
     * @description A row update that was written and is active.
     */
    WrittenRowUpdate: {
      /**
       * Created At
       * Format: date-time
       */
      created_at: string;
      /** Model */
      model: string;
      /**
       * Parent
       * @description number of the update that it follows; 0: the version itself
       */
      parent: number;
      /** Rows */
      rows: number;
      /**
       * Sequence
       * @description its number
       */
      sequence: number;
      /** Version */
      version: number;
    };
  };
  responses: never;
  parameters: never;
  requestBodies: never;
  headers: never;
  pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
  audit: {
    parameters: {
      query?: {
        /** @description most entries to return */
        limit?: number;
        /** @description only entries with a lower id */
        before?: number | null;
        /** @description only what is about this model */
        model?: string | null;
      };
      header?: never;
      path?: never;
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description Successful Response */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["AuditEntry"][];
        };
      };
      /** @description An error */
      default: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Problem"];
        };
      };
    };
  };
  events: {
    parameters: {
      query: {
        /** @description lines of metrics.jsonl already known */
        after?: number;
        /** @description id of the run */
        run: string;
      };
      header?: {
        "last-event-id"?: number | null;
      };
      path?: never;
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description Successful Response */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "text/event-stream": unknown;
        };
      };
      /** @description An error */
      default: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Problem"];
        };
      };
    };
  };
  graphs: {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description Successful Response */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["GraphSummary"][];
        };
      };
      /** @description An error */
      default: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Problem"];
        };
      };
    };
  };
  models: {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description Successful Response */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["ModelSummary"][];
        };
      };
      /** @description An error */
      default: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Problem"];
        };
      };
    };
  };
  answers: {
    parameters: {
      query: {
        /** @description name of a relation */
        relation: string;
        /** @description original id; its tails are found */
        head?: string | null;
        /** @description original id; its heads are found */
        tail?: string | null;
        /** @description number of answers */
        k?: number;
        /** @description whether what the data has already is among them */
        known?: boolean;
        /** @description version of the model; the served one when left out */
        version?: number | null;
      };
      header?: {
        /** @description requests with the same key go to the same version */
        "x-routing-key"?: string | null;
      };
      path: {
        /** @description name of the model */
        name: string;
      };
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description Successful Response */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["LikelyAnswers"];
        };
      };
      /** @description An error */
      default: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Problem"];
        };
      };
    };
  };
  set_canary: {
    parameters: {
      query?: never;
      header?: never;
      path: {
        /** @description name of the model */
        name: string;
      };
      cookie?: never;
    };
    requestBody: {
      content: {
        "application/json": components["schemas"]["CanaryRequest"];
      };
    };
    responses: {
      /** @description Successful Response */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Traffic"];
        };
      };
      /** @description An error */
      default: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Problem"];
        };
      };
    };
  };
  end_canary: {
    parameters: {
      query?: never;
      header?: never;
      path: {
        /** @description name of the model */
        name: string;
      };
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description Successful Response */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Traffic"];
        };
      };
      /** @description An error */
      default: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Problem"];
        };
      };
    };
  };
  compressions: {
    parameters: {
      query?: never;
      header?: never;
      path: {
        /** @description name of the model */
        name: string;
      };
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description Successful Response */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["CompressionSummary"][];
        };
      };
      /** @description An error */
      default: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Problem"];
        };
      };
    };
  };
  compression: {
    parameters: {
      query?: never;
      header?: never;
      path: {
        /** @description name of the model */
        name: string;
        /** @description `id` of the search, as it is listed */
        search_id: string;
      };
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description Successful Response */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Compression"];
        };
      };
      /** @description An error */
      default: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Problem"];
        };
      };
    };
  };
  encode_inputs: {
    parameters: {
      query?: {
        /** @description version of the model; the served one when left out */
        version?: number | null;
      };
      header?: never;
      path: {
        /** @description name of the model */
        name: string;
      };
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description Successful Response */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["EncodeInputs"];
        };
      };
      /** @description An error */
      default: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Problem"];
        };
      };
    };
  };
  encode: {
    parameters: {
      query?: {
        /** @description number of nearest nodes to return for each node */
        k?: number;
        /** @description whether the given neighbours of a node may be among its nearest nodes */
        linked?: boolean;
        /** @description version of the model; the served one when left out */
        version?: number | null;
      };
      header?: {
        /** @description requests with the same key go to the same version */
        "x-routing-key"?: string | null;
      };
      path: {
        /** @description name of the model */
        name: string;
      };
      cookie?: never;
    };
    requestBody: {
      content: {
        "application/json": components["schemas"]["EncodeRequest"];
      };
    };
    responses: {
      /** @description Successful Response */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["EncodedNodes"];
        };
      };
      /** @description An error */
      default: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Problem"];
        };
      };
    };
  };
  example: {
    parameters: {
      query?: {
        /** @description version of the model; the served one when left out */
        version?: number | null;
      };
      header?: never;
      path: {
        /** @description name of the model */
        name: string;
      };
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description Successful Response */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": {
            [key: string]: unknown;
          };
        };
      };
      /** @description An error */
      default: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Problem"];
        };
      };
    };
  };
  ids: {
    parameters: {
      query?: {
        /** @description node type; needed when several have this id */
        type?: string | null;
        /** @description how the ids start */
        prefix?: string;
        /** @description most ids to return */
        limit?: number;
        /** @description version of the model; the served one when left out */
        version?: number | null;
      };
      header?: never;
      path: {
        /** @description name of the model */
        name: string;
      };
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description Successful Response */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["IdMatches"];
        };
      };
      /** @description An error */
      default: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Problem"];
        };
      };
    };
  };
  neighbors: {
    parameters: {
      query: {
        /** @description original id of the query */
        id: string;
        /** @description node type; needed when several have this id */
        type?: string | null;
        /** @description number of neighbours */
        k?: number;
        /** @description whether nodes that a known link joins to the query are among them */
        linked?: boolean;
        /** @description original ids that alone may be among the neighbours; all when left out */
        allow?: string[] | null;
        /** @description original ids that may not be among the neighbours */
        deny?: string[] | null;
        /** @description version of the model; the served one when left out */
        version?: number | null;
      };
      header?: {
        /** @description requests with the same key go to the same version */
        "x-routing-key"?: string | null;
      };
      path: {
        /** @description name of the model */
        name: string;
      };
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description Successful Response */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["NeighborAnswer"];
        };
      };
      /** @description An error */
      default: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Problem"];
        };
      };
    };
  };
  neighbors_of_queries: {
    parameters: {
      query?: {
        /** @description number of neighbours of each query */
        k?: number;
        /** @description whether nodes that a known link joins to a query are among them */
        linked?: boolean;
        /** @description version of the model; the served one when left out */
        version?: number | null;
      };
      header?: {
        /** @description requests with the same key go to the same version */
        "x-routing-key"?: string | null;
      };
      path: {
        /** @description name of the model */
        name: string;
      };
      cookie?: never;
    };
    requestBody: {
      content: {
        "application/json": components["schemas"]["NeighborsRequest"];
      };
    };
    responses: {
      /** @description Successful Response */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["NeighborAnswers"];
        };
      };
      /** @description An error */
      default: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Problem"];
        };
      };
    };
  };
  predict: {
    parameters: {
      query?: {
        /** @description version of the model; the served one when left out */
        version?: number | null;
      };
      header?: {
        /** @description requests with the same key go to the same version */
        "x-routing-key"?: string | null;
      };
      path: {
        /** @description name of the model */
        name: string;
      };
      cookie?: never;
    };
    requestBody: {
      content: {
        "application/json": components["schemas"]["PredictionRequest"];
      };
    };
    responses: {
      /** @description Successful Response */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Predictions"];
        };
      };
      /** @description An error */
      default: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Problem"];
        };
      };
    };
  };
  promote: {
    parameters: {
      query?: never;
      header?: never;
      path: {
        /** @description name of the model */
        name: string;
      };
      cookie?: never;
    };
    requestBody: {
      content: {
        "application/json": components["schemas"]["Promotion"];
      };
    };
    responses: {
      /** @description Successful Response */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["ModelVersion"];
        };
      };
      /** @description An error */
      default: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Problem"];
        };
      };
    };
  };
  relations: {
    parameters: {
      query?: {
        /** @description version of the model; the served one when left out */
        version?: number | null;
      };
      header?: never;
      path: {
        /** @description name of the model */
        name: string;
      };
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description Successful Response */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Relations"];
        };
      };
      /** @description An error */
      default: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Problem"];
        };
      };
    };
  };
  roll_back: {
    parameters: {
      query?: never;
      header?: never;
      path: {
        /** @description name of the model */
        name: string;
      };
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description Successful Response */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["ModelVersion"];
        };
      };
      /** @description An error */
      default: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Problem"];
        };
      };
    };
  };
  update_rows: {
    parameters: {
      query?: {
        /** @description name of the table; needed when there are several */
        table?: string | null;
        /** @description number that the update has to get; any when left out */
        sequence?: number | null;
        /** @description version of the model; the served one when left out */
        version?: number | null;
      };
      header?: never;
      path: {
        /** @description name of the model */
        name: string;
      };
      cookie?: never;
    };
    /** @description A KServe v2 request, in JSON or with binary data: the inputs `id`, BYTES or INT64 [n], and `vector`, FP32 [n, dim]. The header `Inference-Header-Content-Length` has the size of its JSON part. */
    requestBody: {
      content: {
        "application/json": unknown;
        "application/octet-stream": unknown;
      };
    };
    responses: {
      /** @description Successful Response */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["WrittenRowUpdate"];
        };
      };
      /** @description An error */
      default: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Problem"];
        };
      };
    };
  };
  roll_back_rows: {
    parameters: {
      query?: {
        /** @description version of the model; the served one when left out */
        version?: number | null;
      };
      header?: never;
      path: {
        /** @description name of the model */
        name: string;
      };
      cookie?: never;
    };
    requestBody: {
      content: {
        "application/json": components["schemas"]["RowsRollback"];
      };
    };
    responses: {
      /** @description Successful Response */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["RowUpdatesAnswer"];
        };
      };
      /** @description An error */
      default: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Problem"];
        };
      };
    };
  };
  set_shadow: {
    parameters: {
      query?: never;
      header?: never;
      path: {
        /** @description name of the model */
        name: string;
      };
      cookie?: never;
    };
    requestBody: {
      content: {
        "application/json": components["schemas"]["ShadowRequest"];
      };
    };
    responses: {
      /** @description Successful Response */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Traffic"];
        };
      };
      /** @description An error */
      default: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Problem"];
        };
      };
    };
  };
  end_shadow: {
    parameters: {
      query?: never;
      header?: never;
      path: {
        /** @description name of the model */
        name: string;
      };
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description Successful Response */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Traffic"];
        };
      };
      /** @description An error */
      default: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Problem"];
        };
      };
    };
  };
  row_updates: {
    parameters: {
      query?: {
        /** @description version of the model; the served one when left out */
        version?: number | null;
      };
      header?: never;
      path: {
        /** @description name of the model */
        name: string;
      };
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description Successful Response */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["RowUpdatesAnswer"];
        };
      };
      /** @description An error */
      default: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Problem"];
        };
      };
    };
  };
  overview: {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description Successful Response */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Overview"];
        };
      };
      /** @description An error */
      default: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Problem"];
        };
      };
    };
  };
  runs: {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description Successful Response */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["RunSummary"][];
        };
      };
      /** @description An error */
      default: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Problem"];
        };
      };
    };
  };
  run: {
    parameters: {
      query?: never;
      header?: never;
      path: {
        run_id: string;
      };
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description Successful Response */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["RunDetail"];
        };
      };
      /** @description An error */
      default: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Problem"];
        };
      };
    };
  };
  run_metrics: {
    parameters: {
      query?: {
        max_points?: number;
      };
      header?: never;
      path: {
        run_id: string;
      };
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description Successful Response */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["RunMetrics"];
        };
      };
      /** @description An error */
      default: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Problem"];
        };
      };
    };
  };
  targets: {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description Successful Response */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["DeploymentTarget"][];
        };
      };
      /** @description An error */
      default: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Problem"];
        };
      };
    };
  };
  health: {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description Successful Response */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Health"];
        };
      };
      /** @description An error */
      default: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Problem"];
        };
      };
    };
  };
  live: {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description Successful Response */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Health"];
        };
      };
      /** @description An error */
      default: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Problem"];
        };
      };
    };
  };
  ready: {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description Successful Response */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Readiness"];
        };
      };
      /** @description Service Unavailable */
      503: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Readiness"];
        };
      };
      /** @description An error */
      default: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Problem"];
        };
      };
    };
  };
  metrics: {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description Successful Response */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "text/plain": unknown;
        };
      };
      /** @description An error */
      default: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          "application/json": components["schemas"]["Problem"];
        };
      };
    };
  };
}
