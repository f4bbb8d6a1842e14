#include "sample/tiered_neighbor.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <variant>

#include "errors/error.h"
#include "parallel/parallel_for.h"
#include "sample/neighbor_check.h"
#include "sample/neighbor_nodes.h"

namespace graphbox {
namespace {

constexpr std::int64_t kMapDistance = 16;  // how far ahead of its use an entry of the node map is asked for

[[noreturn]] void throw_bad_node(const PassRelation& relation, std::int64_t node, std::int64_t num_nodes) {
  throw Error(ErrorKind::kData,
              "indices must be in [0, " + std::to_string(num_nodes) + "); an edge leads to node " +
                  std::to_string(node),
              relation.name, "the graph is damaged: import it again");
}

void check_seeds(std::span<const std::int64_t> seeds, std::int64_t num_nodes) {
  check_batch_size(static_cast<std::int64_t>(seeds.size()));
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    if (seeds[i] < 0 || seeds[i] >= num_nodes) {
      throw Error(ErrorKind::kUsage,
                  "seeds must be node indices in [0, " + std::to_string(num_nodes) + "), received " +
                      std::to_string(seeds[i]) + " at position " + std::to_string(i),
                  "seeds");
    }
  }
}

template <typename Work>
void with_map(std::int64_t num_nodes, const Work& work) {
  if (num_nodes <= kLargestDirectMap) {
    const BorrowedMap<DirectNodeMap> map(num_nodes);
    work(*map);
  } else {
    const BorrowedMap<HashNodeMap> map(num_nodes);
    work(*map);
  }
}

}  // namespace

NeighborPass::NeighborPass(PassRequest request) : request_(std::move(request)) {
  for (PassBatch& batch : request_.batches) {
    if (batch.request.disjoint != is_disjoint()) {
      throw Error(ErrorKind::kUsage, "expected batches that are all disjoint, or none");
    }
    start_batch(batch);
  }
  if (request_.hops > 0) {
    drawn_.emplace_back(request_.relations.size());
  }
}

void NeighborPass::start_batch(PassBatch& batch) {
  const std::size_t trees = count_seeds(batch.request);
  check_batch_size(static_cast<std::int64_t>(trees));
  for (const PassExclusion& each : batch.excluded) {
    const PassRelation& relation = request_.relations.at(static_cast<std::size_t>(each.relation));
    check_excluded(each.pairs(), request_.num_nodes[static_cast<std::size_t>(relation.target_type)], trees,
                   relation.name);
  }
  trees_.push_back(static_cast<std::int64_t>(trees));
  std::int64_t first_tree = 0;
  for (std::size_t type = 0; type < types(); ++type) {
    const auto seeds = batch.request.seeds.at(type);
    check_seeds(seeds, request_.num_nodes[type]);
    const auto count = static_cast<std::int64_t>(seeds.size());
    Nodes& nodes = nodes_.emplace_back();
    nodes.nodes.assign(seeds.begin(), seeds.end());
    nodes.ends.push_back(count);
    if (is_disjoint()) {
      nodes.trees.resize(seeds.size());
      std::iota(nodes.trees.begin(), nodes.trees.end(), first_tree);
      nodes.numbers.assign(seeds.size(), 0);
      first_tree += count;
    }
  }
}

void NeighborPass::check_relation(int relation) const {
  if (hop_ >= request_.hops || relation < 0 || static_cast<std::size_t>(relation) >= request_.relations.size()) {
    throw Error(ErrorKind::kUsage, "expected a relation of a pass with hops left, received relation " +
                                       std::to_string(relation) + " at hop " + std::to_string(hop_));
  }
}

FixedArray<std::int64_t> NeighborPass::frontier(int relation) const {
  check_relation(relation);
  const int type = request_.relations[static_cast<std::size_t>(relation)].target_type;
  std::int64_t size = 0;
  for (std::int64_t batch = 0; batch < batches(); ++batch) {
    size += of(batch, type).frontier_size();
  }
  FixedArray<std::int64_t> all(size);
  std::int64_t* next = all.data();
  for (std::int64_t batch = 0; batch < batches(); ++batch) {
    const Nodes& nodes = of(batch, type);
    next = std::copy_n(nodes.nodes.data() + nodes.frontier_begin(), nodes.frontier_size(), next);
  }
  return all;
}

PassFrontier NeighborPass::Nodes::frontier() const {
  const std::int64_t begin = frontier_begin();
  return {nodes.data() + begin, trees.empty() ? nullptr : trees.data() + begin,
          numbers.empty() ? nullptr : numbers.data() + begin, frontier_size()};
}

PassChoice& NeighborPass::choice_of(int relation) {
  check_relation(relation);
  Drawn& drawn = drawn_.back()[static_cast<std::size_t>(relation)];
  if (drawn.is_added || (drawn.choice && drawn.choice->is_done())) {
    throw Error(ErrorKind::kUsage, "expected one draw of each relation at a hop, received another of relation " +
                                       std::to_string(relation) + " at hop " + std::to_string(hop_));
  }
  if (!drawn.choice) {
    const PassRelation& its = request_.relations[static_cast<std::size_t>(relation)];
    std::vector<PassFrontier> frontier;
    for (std::int64_t batch = 0; batch < batches(); ++batch) {
      frontier.push_back(of(batch, its.target_type).frontier());
    }
    drawn.choice = std::make_unique<PassChoice>(its, relation, hop_, request_.batches, std::move(frontier),
                                                request_.threads);
  }
  return *drawn.choice;
}

void NeighborPass::draw_in(int relation, const Relation& lists) {
  PassChoice& choice = choice_of(relation);
  const PassRelation& its = request_.relations[static_cast<std::size_t>(relation)];
  if (lists.adjacency.num_rows != request_.num_nodes[static_cast<std::size_t>(its.target_type)]) {
    throw Error(ErrorKind::kUsage, "expected lists of some of all nodes of the target type", its.name);
  }
  choice.choose_in(lists);
}

Positions NeighborPass::draw(int relation, std::span<const std::int64_t> bounds) {
  return choice_of(relation).choose_between(bounds);
}

void NeighborPass::add(int relation, std::span<const std::int32_t> narrow, std::span<const std::int64_t> wide) {
  check_relation(relation);
  Drawn& drawn = drawn_.back()[static_cast<std::size_t>(relation)];
  const PassRelation& its = request_.relations[static_cast<std::size_t>(relation)];
  if (!drawn.choice || !drawn.choice->is_done()) {
    throw Error(ErrorKind::kUsage, "expected a draw of relation " + std::to_string(relation) + " before its neighbours");
  }
  const auto expected = static_cast<std::size_t>(drawn.choice->num_missing());
  if (narrow.size() + wide.size() != expected || (!narrow.empty() && !wide.empty())) {
    throw Error(ErrorKind::kUsage, "expected the neighbour at each of " + std::to_string(expected) +
                                       " positions, received " + std::to_string(narrow.size() + wide.size()));
  }
  for (const std::int32_t node : narrow) {
    if (node < 0) {
      throw_bad_node(its, node, request_.num_nodes[static_cast<std::size_t>(its.source_type)]);
    }
  }
  const bool is_narrow = wide.empty() && !drawn.choice->has_lists();
  FixedArray<std::int64_t> found(is_narrow ? 0 : static_cast<std::int64_t>(expected));
  if (!is_narrow) {
    std::copy(narrow.begin(), narrow.end(), found.data());
    std::copy(wide.begin(), wide.end(), found.data());
  }
  PassEdges edges = drawn.choice->finish(std::move(found));
  drawn.choice.reset();
  drawn.edges = std::move(edges);
  drawn.rows = FixedArray<std::uint32_t>(drawn.edges.first_edge.back());
  if (is_narrow) {
    std::copy(narrow.begin(), narrow.end(), drawn.rows.data());
  }
  drawn.is_added = true;
}

Positions NeighborPass::positions(int relation) const {
  check_relation(relation);
  const Drawn& drawn = drawn_.back()[static_cast<std::size_t>(relation)];
  if (!drawn.is_added) {
    throw Error(ErrorKind::kUsage, "expected a relation whose neighbours are added");
  }
  return drawn.edges.positions;
}

void NeighborPass::end_hop() {
  check_relation(request_.relations.empty() ? -1 : 0);
  for (const Drawn& drawn : drawn_.back()) {
    if (!drawn.is_added) {
      throw Error(ErrorKind::kUsage, "expected the neighbours of each relation before the hop ends");
    }
  }
  parallel_for(request_.threads, batches(), [&](std::int64_t batch) { number_batch(batch); });
  for (Drawn& drawn : drawn_.back()) {
    drawn.edges.neighbors = {};
  }
  if (++hop_ < request_.hops) {
    drawn_.emplace_back(request_.relations.size());
  }
}

void NeighborPass::number_batch(std::int64_t batch) {
  const auto at = static_cast<std::size_t>(batch);
  for (int type = 0; type < static_cast<int>(types()); ++type) {
    Nodes& nodes = of(batch, type);
    std::int64_t found = 0;
    for (std::size_t relation = 0; relation < request_.relations.size(); ++relation) {
      const Drawn& drawn = drawn_.back()[relation];
      const std::vector<std::int64_t>& first = drawn.edges.first_edge;
      found += request_.relations[relation].source_type == type ? first[at + 1] - first[at] : 0;
    }
    check_batch_size(nodes.ends.back() + found);
    if (found > 0 && is_disjoint()) {
      number_trees(batch, type, found);
    } else if (found > 0) {
      with_map(request_.num_nodes[static_cast<std::size_t>(type)],
               [&](auto& map) { number_type(batch, type, found, map); });
    }
    nodes.ends.push_back(static_cast<std::int64_t>(nodes.nodes.size()));
  }
}

// Numbers the neighbours of all relations with this source type, in the order of the relations. What was numbered
// before goes into the map again: that costs less than keeping a map for each batch.
template <typename Map>
void NeighborPass::number_type(std::int64_t batch, int type, std::int64_t found, Map& map) {
  std::vector<std::int64_t>& known = of(batch, type).nodes;
  PooledArray<std::int64_t> nodes(static_cast<std::int64_t>(known.size()) + found + 1);  // number() writes one more
  for (std::size_t i = 0; i < known.size(); ++i) {
    map.prefetch(known[std::min(i + kMapDistance, known.size() - 1)]);
    map.find_or_insert(known[i], static_cast<std::uint32_t>(i));
    nodes.data()[i] = known[i];
  }
  auto next = static_cast<std::uint32_t>(known.size());
  for (std::size_t relation = 0; relation < request_.relations.size(); ++relation) {
    if (request_.relations[relation].source_type != type) {
      continue;
    }
    Drawn& drawn = drawn_.back()[relation];
    const std::int64_t first = drawn.edges.first_edge[static_cast<std::size_t>(batch)];
    const std::int64_t count = drawn.edges.first_edge[static_cast<std::size_t>(batch) + 1] - first;
    std::uint32_t* const rows = drawn.rows.data() + first;
    const PassRelation& edges = request_.relations[relation];
    const FixedArray<std::int64_t>& wide = drawn.edges.neighbors;
    next = wide.size() > 0 ? number(edges, wide.data() + first, count, map, next, rows, nodes.data())
                           : number(edges, rows, count, map, next, rows, nodes.data());
  }
  known.reserve(next);
  known.insert(known.end(), nodes.begin() + known.size(), nodes.begin() + next);
}

// `rows` may be where the neighbours are.
template <typename Map, typename Index>
std::uint32_t NeighborPass::number(const PassRelation& relation, const Index* neighbors, std::int64_t count, Map& map,
                                   std::uint32_t next, std::uint32_t* rows, std::int64_t* nodes) const {
  const std::int64_t num_nodes = request_.num_nodes[static_cast<std::size_t>(relation.source_type)];
  const auto limit = static_cast<std::uint64_t>(num_nodes);
  for (std::int64_t i = 0; i < count; ++i) {
    if (i + kMapDistance < count) {
      const std::int64_t ahead = neighbors[i + kMapDistance];
      map.prefetch(static_cast<std::uint64_t>(ahead) < limit ? ahead : 0);
    }
    const std::int64_t node = neighbors[i];
    if (static_cast<std::uint64_t>(node) >= limit) [[unlikely]] {
      throw_bad_node(relation, node, num_nodes);
    }
    const std::uint32_t position = map.find_or_insert(node, next);
    rows[i] = position;
    nodes[next] = node;
    next += position == next ? 1U : 0U;
  }
  return next;
}

// The same in disjoint trees: a node is numbered in the tree of the node whose neighbour it is.
void NeighborPass::number_trees(std::int64_t batch, int type, std::int64_t found) {
  const auto at = static_cast<std::size_t>(batch);
  Nodes& known = of(batch, type);
  const std::int64_t num_nodes = request_.num_nodes[static_cast<std::size_t>(type)];
  const std::int64_t nodes_per_tree = count_nodes_per_tree(num_nodes, trees_[at]);
  const BorrowedMap<HashNodeMap> borrowed(-1);
  HashNodeMap& map = *borrowed;
  std::vector<std::uint32_t> nodes_of_tree(static_cast<std::size_t>(trees_[at]), 0);
  for (std::size_t i = 0; i < known.nodes.size(); ++i) {
    map.find_or_insert(known.trees[i] * nodes_per_tree + known.nodes[i], static_cast<std::uint32_t>(i));
    ++nodes_of_tree[static_cast<std::size_t>(known.trees[i])];
  }
  PooledArray<std::int64_t> keys(found);  // of the neighbours in the map
  for (std::size_t relation = 0; relation < request_.relations.size(); ++relation) {
    const PassRelation& its = request_.relations[relation];
    if (its.source_type != type) {
      continue;
    }
    Drawn& drawn = drawn_.back()[relation];
    // Its type may have been numbered already.
    const Nodes& targets = of(batch, its.target_type);
    const std::int64_t first_target = hop_ > 0 ? targets.ends[static_cast<std::size_t>(hop_) - 1] : 0;
    const FixedArray<std::int64_t>& wide = drawn.edges.neighbors;
    std::int64_t edge = drawn.edges.first_edge[at];
    std::int64_t count = 0;
    const std::int64_t first_node = drawn.edges.first_node[at];
    for (std::int64_t i = 0; i < drawn.edges.first_node[at + 1] - first_node; ++i) {
      const std::int64_t tree = targets.trees[static_cast<std::size_t>(first_target + i)];
      for (std::uint32_t left = drawn.edges.counts[first_node + i]; left > 0; --left, ++edge) {
        const std::int64_t node = wide.size() > 0 ? wide[edge] : std::int64_t{drawn.rows[edge]};
        if (static_cast<std::uint64_t>(node) >= static_cast<std::uint64_t>(num_nodes)) [[unlikely]] {
          throw_bad_node(its, node, num_nodes);
        }
        keys[count++] = tree * nodes_per_tree + node;
      }
    }
    std::uint32_t* const rows = drawn.rows.data() + drawn.edges.first_edge[at];
    for (std::int64_t i = 0; i < count; ++i) {
      map.prefetch(keys[std::min(i + kMapDistance, count - 1)]);
      const auto next = static_cast<std::uint32_t>(known.nodes.size());
      rows[i] = map.find_or_insert(keys[i], next);
      if (rows[i] == next) {
        const std::int64_t tree = keys[i] / nodes_per_tree;
        known.nodes.push_back(keys[i] % nodes_per_tree);
        known.trees.push_back(tree);
        known.numbers.push_back(nodes_of_tree[static_cast<std::size_t>(tree)]++);
      }
    }
  }
}

std::span<const std::int64_t> NeighborPass::nodes(std::int64_t batch, int type) const {
  if (batch < 0 || batch >= batches() || type < 0 || static_cast<std::size_t>(type) >= types() ||
      hop_ != request_.hops) {  // before, a hop would move the nodes
    throw Error(ErrorKind::kUsage, "expected a batch and a node type of a pass whose hops are done");
  }
  return of(batch, type).nodes;
}

const std::vector<std::int64_t>& NeighborPass::first_edges(int hop, int relation) const {
  if (hop < 0 || hop >= hop_ || relation < 0 || static_cast<std::size_t>(relation) >= request_.relations.size()) {
    throw Error(ErrorKind::kUsage, "expected a hop that is done and a relation of the pass");
  }
  return drawn_[static_cast<std::size_t>(hop)][static_cast<std::size_t>(relation)].edges.first_edge;
}

NeighborSample NeighborPass::batch(std::int64_t batch) const {
  if (batch < 0 || batch >= batches() || hop_ != request_.hops) {
    throw Error(ErrorKind::kUsage, "expected a batch of a pass whose hops are done");
  }
  const auto number = static_cast<std::size_t>(batch);
  NeighborSample sample;
  for (int type = 0; type < static_cast<int>(types()); ++type) {
    const Nodes& nodes = of(batch, type);
    SampledNodes& out = sample.types.emplace_back();
    out.nodes.resize(static_cast<std::int64_t>(nodes.nodes.size()));
    std::copy(nodes.nodes.begin(), nodes.nodes.end(), out.nodes.data());
    out.trees.resize(static_cast<std::int64_t>(nodes.trees.size()));
    std::copy(nodes.trees.begin(), nodes.trees.end(), out.trees.data());
    std::int64_t before = 0;
    for (const std::int64_t end : nodes.ends) {
      out.nodes_per_hop.push_back(end - std::exchange(before, end));
    }
  }
  for (std::size_t relation = 0; relation < request_.relations.size(); ++relation) {
    SampledEdges& out = sample.relations.emplace_back();
    std::int64_t total = 0;
    for (const std::vector<Drawn>& hop : drawn_) {
      const std::vector<std::int64_t>& first = hop[relation].edges.first_edge;
      out.edges_per_hop.push_back(first[number + 1] - first[number]);
      total += out.edges_per_hop.back();
    }
    out.rows.resize(total);
    out.cols.resize(total);
    out.edge_ids.resize(total);
    const std::vector<std::int64_t>& ends = of(batch, request_.relations[relation].target_type).ends;
    std::int64_t edge = 0;
    for (std::size_t hop = 0; hop < drawn_.size(); ++hop) {
      const Drawn& drawn = drawn_[hop][relation];
      const PassEdges& edges = drawn.edges;
      const std::int64_t first = edges.first_edge[number];
      std::copy_n(drawn.rows.data() + first, out.edges_per_hop[hop], out.rows.data() + edge);
      std::copy_n(edges.positions->data() + first, out.edges_per_hop[hop], out.edge_ids.data() + edge);
      std::int64_t col = hop > 0 ? ends[hop - 1] : 0;
      for (std::int64_t i = edges.first_node[number]; i < edges.first_node[number + 1]; ++i, ++col) {
        std::fill_n(out.cols.data() + edge, edges.counts[i], col);
        edge += edges.counts[i];
      }
    }
  }
  return sample;
}

std::uint64_t NeighborPass::bytes() const {
  std::uint64_t total = 0;
  for (const Nodes& nodes : nodes_) {
    total += (nodes.nodes.capacity() + nodes.trees.capacity()) * sizeof(std::int64_t) +
             nodes.numbers.capacity() * sizeof(std::uint32_t);
  }
  for (const std::vector<Drawn>& hop : drawn_) {
    for (const Drawn& drawn : hop) {
      total += drawn.edges.counts.bytes() + drawn.rows.bytes();
      total += drawn.edges.positions ? drawn.edges.positions->bytes() : 0;
    }
  }
  for (const PassBatch& batch : request_.batches) {
    for (const PassExclusion& each : batch.excluded) {
      total += (each.rows.size() + each.sources.size() + each.groups.size() + each.group_of_tree.size()) *
               sizeof(std::int64_t);
    }
  }
  return total;
}

}  // namespace graphbox
