// Neighbour sampling (Hamilton et al., "Inductive representation learning on large graphs", NeurIPS 2017, section
// 3.1) over one or several edge types. A graph of one type is the case of one relation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memory/buffer.h"
#include "random/philox.h"
#include "sample/adjacency.h"
#include "sample/alias.h"
#include "sample/time_order.h"
#include "sample/weight_sums.h"

namespace graphbox {

class ExcludedEdges;
class RelationIndex;

// A value for each edge of an adjacency and of its overlay; absent unless asked for.
template <typename Value>
struct EdgeColumn {
  std::span<const Value> base;
  std::span<const Value> overlay;
  bool is_wanted = false;
};

// An edge type: rows of `adjacency` are nodes of `target_type`, its indices nodes of `source_type`.
struct Relation {
  Adjacency adjacency;
  int source_type = 0;
  int target_type = 0;
  std::vector<std::int64_t> num_neighbors;  // for each hop, -1: all
  const AliasTables* weights = nullptr;     // of the base's edges: neighbours in proportion to their weights
  const AliasTables* overlay_weights = nullptr;  // of the overlay's edges, where there is one
  const TimeOrder* times = nullptr;              // of the base's edges: only edges not later than the tree's time
  const TimeOrder* overlay_times = nullptr;      // of the overlay's edges, where there is one
  const WeightSums* weight_sums = nullptr;  // of the base's edges with times: by weight among those not later ...
  const WeightSums* overlay_weight_sums = nullptr;  // ... and of the overlay's; instead of the alias tables
  const ExcludedEdges* excluded = nullptr;       // edges that must not be sampled
  EdgeColumn<float> weight;                      // to be given with the sampled edges, as is ...
  EdgeColumn<std::int64_t> timestamp;            // ... this
};

// Relations with one target type, none with an overlay, whose lists are found by an index over them.
struct IndexedRelations {
  const RelationIndex* index = nullptr;
  std::vector<std::size_t> relations;  // their numbers in the request, in the order of the index
};

struct NeighborRequest {
  std::vector<Relation> relations;
  std::vector<IndexedRelations> indexed;             // none of them twice; the same sample as without
  std::vector<std::int64_t> num_nodes;               // for each node type, -1: unknown
  std::vector<std::span<const std::int64_t>> seeds;  // for each node type
  int hops = 0;
  bool replace = false;
  bool disjoint = false;  // a tree of its own for each seed
  std::vector<std::int64_t> tree_times;  // of disjoint samples by relations with times, for each tree
  bool take_last = false;                // by those the latest edges, instead of any
  PhiloxKey key{};
  int threads = 1;
};

// The nodes of one type: the seeds in their order, then the others by first appearance.
struct SampledNodes {
  PooledArray<std::int64_t> nodes;
  std::vector<std::int64_t> nodes_per_hop;  // hops + 1 numbers, the seeds first
  PooledArray<std::int64_t> trees;          // of disjoint samples the tree of each node, else empty
};

// The edges of one relation: rows[i] -> cols[i] are positions in the nodes of its source and target type.
struct SampledEdges {
  PooledArray<std::int64_t> rows;
  PooledArray<std::int64_t> cols;
  PooledArray<std::int64_t> edge_ids;  // positions in `indices`
  std::vector<std::int64_t> edges_per_hop;
  PooledArray<float> weight;            // empty unless wanted
  PooledArray<std::int64_t> timestamp;  // empty unless wanted
};

struct NeighborSample {
  std::vector<SampledNodes> types;
  std::vector<SampledEdges> relations;
};

// At each hop every relation samples in-neighbours of the target nodes that the hop before added; relations take
// their turns in order. A node draws by its index (position), so shared subgraphs draw the same whatever the batch
// around it. A seed given twice is kept twice; edges to it lead to the first.
//
// Disjoint samples have a tree for each seed, numbered over all types; a node that several reach is in each of them.
// There a node draws by its tree and its number within that (position: both, 32 bits each), so trees are independent,
// and none depends on what the others reach.
NeighborSample sample_neighbors(const NeighborRequest& request);

}  // namespace graphbox
