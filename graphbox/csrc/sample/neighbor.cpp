#include "sample/neighbor.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "parallel/parallel_for.h"
#include "sample/hop_lists.h"
#include "sample/neighbor_check.h"
#include "sample/neighbor_hop.h"
#include "sample/neighbor_nodes.h"

namespace graphbox {
namespace {

constexpr std::int64_t kColumnDistance = 128;    // how far ahead of its use the memory line of a value is asked for
constexpr std::int64_t kChunkEdges = 16384;      // edges whose values one thread reads at a time
constexpr std::int64_t kParallelEdges = 65536;   // fewer are not worth waking a thread

// Reads a value of each sampled edge, as long as edge_ids are positions.
template <typename Value>
void read_column(const EdgeColumn<Value>& column, const PooledArray<std::int64_t>& positions, int threads,
                 PooledArray<Value>& out) {
  if (!column.is_wanted) {
    return;
  }
  const std::int64_t edges = positions.size();
  const auto in_base = static_cast<std::int64_t>(column.base.size());
  const auto place = [&](std::int64_t i) {
    const std::int64_t position = positions[i];
    return position < in_base ? column.base.data() + position : column.overlay.data() + (position - in_base);
  };
  out.resize(edges);
  parallel_for(edges >= kParallelEdges ? threads : 1, (edges + kChunkEdges - 1) / kChunkEdges, [&](std::int64_t chunk) {
    const std::int64_t end = std::min((chunk + 1) * kChunkEdges, edges);
    for (std::int64_t i = chunk * kChunkEdges; i < end; ++i) {
      if (i + kColumnDistance < end) {
        prefetch(place(i + kColumnDistance));
      }
      out[i] = *place(i);
    }
  });
}

// Positions become edge ids.
void name_edges(const Adjacency& adjacency, SampledEdges& edges) {
  if (adjacency.overlay == nullptr) {
    return;
  }
  std::int64_t* const ids = edges.edge_ids.data();
  const std::int64_t count = edges.edge_ids.size();
  // Whether an edge is new cannot be predicted: those of the base read themselves.
  const auto place = [&](std::int64_t i) -> const std::int64_t* {
    const std::int64_t number = ids[i] - adjacency.num_edges;
    return either<std::int64_t>(number < 0, ids + i, adjacency.overlay->edge_ids() + number);
  };
  for (std::int64_t i = 0; i < count; ++i) {
    prefetch(place(std::min(i + kColumnDistance, count - 1)));
    ids[i] = *place(i);
  }
}

// The lists of the nodes of a hop in the relations that have an index.
class FoundLists {
 public:
  FoundLists(const NeighborRequest& request, const std::vector<BatchNodes>& types) : lists_(request.relations.size()) {
    for (const IndexedRelations& indexed : request.indexed) {
      const Relation& first = request.relations[indexed.relations.front()];
      const BatchNodes& target = types[static_cast<std::size_t>(first.target_type)];
      hops_.emplace_back(*indexed.index, target.out->nodes.data() + target.frontier_begin,
                         target.frontier_end - target.frontier_begin, request.threads);
      for (std::size_t i = 0; i < indexed.relations.size(); ++i) {
        lists_[indexed.relations[i]] = hops_.back().lists(i);
      }
    }
  }

  // Absent for a relation without.
  const std::optional<HopLists>& of(std::size_t relation) const { return lists_[relation]; }

 private:
  std::vector<IndexedHop> hops_;
  std::vector<std::optional<HopLists>> lists_;
};

}  // namespace

NeighborSample sample_neighbors(const NeighborRequest& request) {
  check_request(request);
  NeighborSample sample;
  sample.types.resize(request.num_nodes.size());
  sample.relations.resize(request.relations.size());
  std::vector<BatchNodes> types = start_batch(request, sample.types);
  for (int hop = 0; hop < request.hops; ++hop) {
    const FoundLists found(request, types);
    for (std::size_t relation = 0; relation < request.relations.size(); ++relation) {
      const Relation& edges = request.relations[relation];
      BatchNodes& source = types[static_cast<std::size_t>(edges.source_type)];
      const BatchNodes& target = types[static_cast<std::size_t>(edges.target_type)];
      sample_hop(request, static_cast<int>(relation), hop, source, target, found.of(relation), sample.relations[relation]);
    }
    for (BatchNodes& type : types) {
      type.frontier_begin = type.frontier_end;
      type.frontier_end = type.out->nodes.size();
      type.out->nodes_per_hop.push_back(type.frontier_end - type.frontier_begin);
    }
  }
  for (std::size_t relation = 0; relation < request.relations.size(); ++relation) {
    const Relation& given = request.relations[relation];
    SampledEdges& edges = sample.relations[relation];
    read_column(given.weight, edges.edge_ids, request.threads, edges.weight);
    read_column(given.timestamp, edges.edge_ids, request.threads, edges.timestamp);
    name_edges(given.adjacency, edges);
  }
  return sample;
}

}  // namespace graphbox
