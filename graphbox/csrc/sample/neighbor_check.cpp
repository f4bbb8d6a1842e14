#include "sample/neighbor_check.h"

#include <string>
#include <vector>

#include "errors/error.h"
#include "sample/relation_index.h"

namespace graphbox {
namespace {

void check_weights(const Relation& relation) {
  const Adjacency& adjacency = relation.adjacency;
  const auto fit = [&](const AliasTables* tables, std::int64_t edges) {
    if (tables->num_edges() != edges) {
      throw Error(ErrorKind::kUsage,
                  "expected a weight for each of " + std::to_string(edges) + " edges, received " +
                      std::to_string(tables->num_edges()),
                  adjacency.name);
    }
  };
  const std::int64_t overlay_edges = adjacency.overlay == nullptr ? 0 : adjacency.overlay->num_edges();
  const auto fits = [&](const auto* base, const auto* overlay) {
    return base->num_edges() == adjacency.num_edges &&
           (adjacency.overlay == nullptr || (overlay != nullptr && overlay->num_edges() == overlay_edges));
  };
  if (relation.times != nullptr && (relation.weights != nullptr || !fits(relation.times, relation.overlay_times))) {
    throw Error(ErrorKind::kUsage,
                "expected a timestamp for each edge of the base and its changes, and no alias tables", adjacency.name);
  }
  if (relation.weight_sums != nullptr &&
      (relation.times == nullptr || !fits(relation.weight_sums, relation.overlay_weight_sums))) {
    throw Error(ErrorKind::kUsage, "expected sums of weights for each edge of the base and its changes that has a timestamp",
                adjacency.name);
  }
  if (relation.weights == nullptr) {
    return;
  }
  fit(relation.weights, adjacency.num_edges);
  if (adjacency.overlay != nullptr) {
    if (relation.overlay_weights == nullptr) {
      throw Error(ErrorKind::kUsage, "the edges of the base have weights, those of its changes have none",
                  adjacency.name);
    }
    fit(relation.overlay_weights, adjacency.overlay->num_edges());
  }
}

template <typename Value>
void check_column(const EdgeColumn<Value>& column, const Adjacency& adjacency, const char* name) {
  const std::int64_t overlay_edges = adjacency.overlay == nullptr ? 0 : adjacency.overlay->num_edges();
  if (column.is_wanted && (static_cast<std::int64_t>(column.base.size()) != adjacency.num_edges ||
                           static_cast<std::int64_t>(column.overlay.size()) != overlay_edges)) {
    throw Error(ErrorKind::kUsage,
                std::string(name) + " must have an entry for each of " + std::to_string(adjacency.num_edges) + " and " +
                    std::to_string(overlay_edges) + " edges, received " + std::to_string(column.base.size()) + " and " +
                    std::to_string(column.overlay.size()),
                adjacency.name);
  }
}

// An index of other arrays would lead out of these.
void check_index(const NeighborRequest& request, const IndexedRelations& indexed, std::vector<bool>& is_indexed) {
  const std::vector<std::int64_t>& num_edges = indexed.index->num_edges();
  bool sound = num_edges.size() == indexed.relations.size();
  for (std::size_t i = 0; sound && i < num_edges.size(); ++i) {
    const std::size_t number = indexed.relations[i];
    sound = number < request.relations.size() && !is_indexed[number];
    if (sound) {
      const Relation& relation = request.relations[number];
      sound = relation.target_type == request.relations[indexed.relations.front()].target_type &&
              relation.adjacency.overlay == nullptr && relation.adjacency.num_edges == num_edges[i] &&
              relation.adjacency.num_rows == indexed.index->num_rows();
      is_indexed[number] = true;
    }
  }
  if (!sound) {
    throw Error(ErrorKind::kUsage,
                "expected an index of the adjacencies of relations with one target type and without changes, each in "
                "one index");
  }
}

}  // namespace

std::size_t count_seeds(const NeighborRequest& request) {
  std::size_t seeds = 0;
  for (const auto& of_type : request.seeds) {
    seeds += of_type.size();
  }
  return seeds;
}

void check_tables(const NeighborRequest& request, const Relation& relation) {
  check_weights(relation);
  const std::size_t trees = count_seeds(request);
  if (relation.times != nullptr && (!request.disjoint || request.tree_times.size() != trees)) {
    throw Error(ErrorKind::kUsage, "expected disjoint trees with a time for each, received " + std::to_string(trees) +
                                       " seeds and " + std::to_string(request.tree_times.size()) + " times");
  }
  check_column(relation.weight, relation.adjacency, "weight");
  check_column(relation.timestamp, relation.adjacency, "timestamp");
}

void check_request(const NeighborRequest& request) {
  for (const Relation& relation : request.relations) {
    const std::int64_t nodes = request.num_nodes[static_cast<std::size_t>(relation.target_type)];
    if (relation.adjacency.num_rows != nodes) {
      throw Error(ErrorKind::kData,
                  "indptr must have one entry for each target node and one more: " + std::to_string(nodes + 1) +
                      ", received " + std::to_string(relation.adjacency.num_rows + 1),
                  relation.adjacency.name);
    }
    check_tables(request, relation);
  }
  std::vector<bool> is_indexed(request.relations.size(), false);
  for (const IndexedRelations& indexed : request.indexed) {
    check_index(request, indexed, is_indexed);
  }
}

}  // namespace graphbox
