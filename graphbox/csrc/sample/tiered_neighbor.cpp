#include "sample/tiered_neighbor.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "errors/error.h"
#include "parallel/parallel_for.h"
#include "sample/choice.h"
#include "sample/neighbor_nodes.h"

namespace graphbox {
namespace {

constexpr std::int64_t kMapDistance = 16;  // how far ahead of its use an entry of the node map is asked for

[[noreturn]] void throw_bad_bounds(const PassRelation& relation, std::int64_t node, std::int64_t begin,
                                   std::int64_t end) {
  throw Error(ErrorKind::kData,
              "indptr must rise; it goes from " + std::to_string(begin) + " to " + std::to_string(end) + " at node " +
                  std::to_string(node),
              relation.name, "the graph is damaged: import it again");
}

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

NeighborPass::NeighborPass(PassRequest request, const std::vector<std::vector<std::span<const std::int64_t>>>& seeds)
    : request_(std::move(request)) {
  if (seeds.size() != request_.keys.size()) {
    throw Error(ErrorKind::kUsage, "expected seeds for each batch");
  }
  nodes_.resize(seeds.size() * types());
  for (std::size_t batch = 0; batch < seeds.size(); ++batch) {
    for (std::size_t type = 0; type < types(); ++type) {
      const auto given = seeds[batch].at(type);
      check_seeds(given, request_.num_nodes[type]);
      Nodes& nodes = nodes_[batch * types() + type];
      nodes.nodes.assign(given.begin(), given.end());
      nodes.ends.push_back(static_cast<std::int64_t>(given.size()));
    }
  }
  if (request_.hops > 0) {
    drawn_.emplace_back(request_.relations.size());
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

// How many edges each node of the frontier gives, and where those of each batch begin.
void NeighborPass::count_edges(int relation, std::span<const std::int64_t> bounds, Drawn& drawn) const {
  const PassRelation& edges = request_.relations[static_cast<std::size_t>(relation)];
  const std::int64_t wanted = edges.num_neighbors[static_cast<std::size_t>(hop_)];
  drawn.first_node.assign(1, 0);
  for (std::int64_t batch = 0; batch < batches(); ++batch) {
    drawn.first_node.push_back(drawn.first_node.back() + of(batch, edges.target_type).frontier_size());
  }
  if (bounds.size() != 2 * static_cast<std::size_t>(drawn.first_node.back())) {
    throw Error(ErrorKind::kUsage, "expected bounds of the edges of each node of the frontier, received " +
                                       std::to_string(bounds.size()) + " numbers for " +
                                       std::to_string(drawn.first_node.back()) + " nodes");
  }
  drawn.counts = FixedArray<std::uint32_t>(drawn.first_node.back());
  std::vector<std::int64_t> edges_of(static_cast<std::size_t>(batches()), 0);
  parallel_for(request_.threads, batches(), [&](std::int64_t batch) {
    const std::int64_t* const nodes =
        of(batch, edges.target_type).nodes.data() + of(batch, edges.target_type).frontier_begin();
    const std::int64_t first = drawn.first_node[static_cast<std::size_t>(batch)];
    std::int64_t total = 0;
    for (std::int64_t i = first; i < drawn.first_node[static_cast<std::size_t>(batch) + 1]; ++i) {
      const std::int64_t begin = bounds[2 * static_cast<std::size_t>(i)];
      const std::int64_t end = bounds[2 * static_cast<std::size_t>(i) + 1];
      if (begin < 0 || end < begin) {
        throw_bad_bounds(edges, nodes[i - first], begin, end);
      }
      const std::int64_t count = choice_count(end - begin, wanted, request_.replace);
      check_batch_size(total += count);
      drawn.counts[i] = static_cast<std::uint32_t>(count);
    }
    edges_of[static_cast<std::size_t>(batch)] = total;
  });
  drawn.first_edge.assign(1, 0);
  for (const std::int64_t count : edges_of) {
    drawn.first_edge.push_back(drawn.first_edge.back() + count);
  }
}

void NeighborPass::choose(int relation, std::int64_t batch, std::span<const std::int64_t> bounds, Drawn& drawn) const {
  const PassRelation& edges = request_.relations[static_cast<std::size_t>(relation)];
  const std::int64_t wanted = edges.num_neighbors[static_cast<std::size_t>(hop_)];
  const auto number = static_cast<std::size_t>(batch);
  const Nodes& nodes = of(batch, edges.target_type);
  const std::int64_t* const frontier = nodes.nodes.data() + nodes.frontier_begin();
  const std::int64_t first = drawn.first_node[number];
  std::int64_t* out = drawn.positions.data() + drawn.first_edge[number];
  EdgeChooser chooser;
  for (std::int64_t i = first; i < drawn.first_node[number + 1]; ++i) {
    const std::int64_t begin = bounds[2 * static_cast<std::size_t>(i)];
    const EdgeSpan span{begin, bounds[2 * static_cast<std::size_t>(i) + 1] - begin};
    const DrawSequence draws(request_.keys[number], static_cast<std::uint32_t>(hop_),
                             static_cast<std::uint32_t>(relation), static_cast<std::uint64_t>(frontier[i - first]));
    chooser.choose(draws, span, wanted, request_.replace, out);
    out += drawn.counts[i];
  }
}

std::span<const std::int64_t> NeighborPass::draw(int relation, std::span<const std::int64_t> bounds) {
  check_relation(relation);
  Drawn& drawn = drawn_.back()[static_cast<std::size_t>(relation)];
  if (!drawn.first_edge.empty()) {  // the positions have been lent
    throw Error(ErrorKind::kUsage, "expected one draw of each relation at a hop, received another of relation " +
                                       std::to_string(relation) + " at hop " + std::to_string(hop_));
  }
  Drawn all;  // kept once nothing can fail any more
  count_edges(relation, bounds, all);
  all.positions = FixedArray<std::int64_t>(all.first_edge.back());
  all.rows = FixedArray<std::uint32_t>(all.first_edge.back());
  parallel_for(request_.threads, batches(), [&](std::int64_t batch) { choose(relation, batch, bounds, all); });
  all.is_added = all.positions.size() == 0;
  drawn = std::move(all);
  return {drawn.positions.data(), static_cast<std::size_t>(drawn.positions.size())};
}

void NeighborPass::add(int relation, std::span<const std::int32_t> narrow, std::span<const std::int64_t> wide) {
  check_relation(relation);
  Drawn& drawn = drawn_.back()[static_cast<std::size_t>(relation)];
  const std::size_t expected = static_cast<std::size_t>(drawn.positions.size());
  if (narrow.size() + wide.size() != expected || (!narrow.empty() && !wide.empty())) {
    throw Error(ErrorKind::kUsage, "expected the neighbour at each of " + std::to_string(expected) +
                                       " positions, received " + std::to_string(narrow.size() + wide.size()));
  }
  for (std::size_t i = 0; i < narrow.size(); ++i) {
    if (narrow[i] < 0) {
      throw_bad_node(request_.relations[static_cast<std::size_t>(relation)], narrow[i],
                     request_.num_nodes[static_cast<std::size_t>(
                         request_.relations[static_cast<std::size_t>(relation)].source_type)]);
    }
    drawn.rows.data()[i] = static_cast<std::uint32_t>(narrow[i]);
  }
  if (!wide.empty()) {
    drawn.wide = FixedArray<std::int64_t>(static_cast<std::int64_t>(wide.size()));
    std::copy(wide.begin(), wide.end(), drawn.wide.data());
  }
  drawn.is_added = true;
}

void NeighborPass::end_hop() {
  check_relation(request_.relations.empty() ? -1 : 0);
  for (const Drawn& drawn : drawn_.back()) {
    if (!drawn.is_added || drawn.first_edge.empty()) {
      throw Error(ErrorKind::kUsage, "expected the neighbours of each relation before the hop ends");
    }
  }
  parallel_for(request_.threads, batches(), [&](std::int64_t batch) { number_batch(batch); });
  for (Drawn& drawn : drawn_.back()) {
    drawn.wide = {};
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
      found += request_.relations[relation].source_type == type ? drawn.first_edge[at + 1] - drawn.first_edge[at] : 0;
    }
    check_batch_size(nodes.ends.back() + found);
    if (found > 0) {
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
    const std::int64_t first = drawn.first_edge[static_cast<std::size_t>(batch)];
    const std::int64_t count = drawn.first_edge[static_cast<std::size_t>(batch) + 1] - first;
    std::uint32_t* const rows = drawn.rows.data() + first;
    const PassRelation& edges = request_.relations[relation];
    next = drawn.wide.size() > 0 ? number(edges, drawn.wide.data() + first, count, map, next, rows, nodes.data())
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
  return drawn_[static_cast<std::size_t>(hop)][static_cast<std::size_t>(relation)].first_edge;
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
    std::int64_t before = 0;
    for (const std::int64_t end : nodes.ends) {
      out.nodes_per_hop.push_back(end - std::exchange(before, end));
    }
  }
  for (std::size_t relation = 0; relation < request_.relations.size(); ++relation) {
    SampledEdges& out = sample.relations.emplace_back();
    std::int64_t total = 0;
    for (const std::vector<Drawn>& hop : drawn_) {
      out.edges_per_hop.push_back(hop[relation].first_edge[number + 1] - hop[relation].first_edge[number]);
      total += out.edges_per_hop.back();
    }
    out.rows.resize(total);
    out.cols.resize(total);
    out.edge_ids.resize(total);
    const std::vector<std::int64_t>& ends = of(batch, request_.relations[relation].target_type).ends;
    std::int64_t edge = 0;
    for (std::size_t hop = 0; hop < drawn_.size(); ++hop) {
      const Drawn& drawn = drawn_[hop][relation];
      const std::int64_t first = drawn.first_edge[number];
      std::copy_n(drawn.rows.data() + first, out.edges_per_hop[hop], out.rows.data() + edge);
      std::copy_n(drawn.positions.data() + first, out.edges_per_hop[hop], out.edge_ids.data() + edge);
      std::int64_t col = hop > 0 ? ends[hop - 1] : 0;
      for (std::int64_t i = drawn.first_node[number]; i < drawn.first_node[number + 1]; ++i, ++col) {
        std::fill_n(out.cols.data() + edge, drawn.counts[i], col);
        edge += drawn.counts[i];
      }
    }
  }
  return sample;
}

std::uint64_t NeighborPass::bytes() const {
  std::uint64_t total = 0;
  for (const Nodes& nodes : nodes_) {
    total += nodes.nodes.capacity() * sizeof(std::int64_t);
  }
  for (const std::vector<Drawn>& hop : drawn_) {
    for (const Drawn& drawn : hop) {
      total += drawn.counts.bytes() + drawn.positions.bytes() + drawn.rows.bytes();
    }
  }
  return total;
}

}  // namespace graphbox
