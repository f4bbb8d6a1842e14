#include "sample/pass_choice.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "errors/error.h"
#include "parallel/parallel_for.h"
#include "sample/neighbor_check.h"
#include "sample/neighbor_choice.h"
#include "sample/neighbor_nodes.h"

namespace graphbox {
namespace {

constexpr std::int64_t kBlockNodes = 128;  // whose edges are chosen at a time

[[noreturn]] void throw_bad_bounds(const PassRelation& relation, std::int64_t node, std::int64_t begin,
                                   std::int64_t end) {
  throw Error(ErrorKind::kData,
              "indptr must rise; it goes from " + std::to_string(begin) + " to " + std::to_string(end) + " at node " +
                  std::to_string(node),
              relation.name, "the graph is damaged: import it again");
}

}  // namespace

struct PassChoice::Chosen {
  const NeighborRequest* request = nullptr;  // how they are chosen
  std::unique_ptr<ExcludedEdges> excluded;
  Relation relation;
  Frontier frontier;
  PooledArray<EdgeSpan> spans;
  PooledArray<std::uint32_t> rows;
  std::int64_t edges = 0;
};

PassChoice::PassChoice(const PassRelation& relation, int number, int hop, const std::vector<PassBatch>& batches,
                       std::vector<PassFrontier> frontier, int threads)
    : relation_(relation),
      number_(static_cast<std::uint32_t>(number)),
      hop_(static_cast<std::uint32_t>(hop)),
      batches_(batches),
      frontier_(std::move(frontier)),
      threads_(threads) {
  first_node_.assign(1, 0);
  for (const PassFrontier& each : frontier_) {
    first_node_.push_back(first_node_.back() + each.size);
  }
  counts_ = FixedArray<std::uint32_t>(first_node_.back());
  std::fill_n(counts_.data(), counts_.size(), 0U);
}

void PassChoice::choose_in(const Relation& lists) {
  const Adjacency& adjacency = lists.adjacency;
  if (adjacency.overlay == nullptr || adjacency.num_edges != 0 || lists.source_type != relation_.source_type ||
      lists.target_type != relation_.target_type) {
    throw Error(ErrorKind::kUsage, "expected lists of the relation in an overlay, over a base without edges",
                relation_.name);
  }
  for (const PassBatch& each : batches_) {
    check_tables(each.request, lists);
  }
  part_of_.resize(static_cast<std::size_t>(first_node_.back()), 0);
  std::vector<Chosen> chosen(batches_.size());
  parallel_for(threads_, batches(), [&](std::int64_t batch) {
    const auto at = static_cast<std::size_t>(batch);
    Chosen& its = chosen[at];
    its.request = &batches_[at].request;
    its.relation = lists;
    for (const PassExclusion& each : batches_[at].excluded) {
      if (each.relation == static_cast<int>(number_)) {
        its.excluded = std::make_unique<ExcludedEdges>(adjacency, each.pairs());
        its.relation.excluded = its.excluded.get();
      }
    }
    find_spans(at, [&](std::int64_t node) -> std::optional<EdgeSpan> {
      const std::int64_t list = adjacency.overlay->find(node);
      return list < 0 ? std::nullopt : std::optional(edges_of(adjacency, node));
    }, its);
  });
  Part part = choose(chosen);
  name_edges(adjacency, part);
  keep(chosen, std::move(part));
}

Positions PassChoice::choose_between(std::span<const std::int64_t> bounds) {
  static const NeighborRequest uniform;  // whatever else the batches choose by: that takes lists
  std::vector<std::int64_t> first_bounds(1, 0);  // of each batch
  for (std::size_t batch = 0; batch < batches_.size(); ++batch) {
    const auto begin = static_cast<std::ptrdiff_t>(first_node_[batch]);
    const auto end = static_cast<std::ptrdiff_t>(first_node_[batch + 1]);
    const std::ptrdiff_t left =
        part_of_.empty() ? end - begin : std::count(part_of_.begin() + begin, part_of_.begin() + end, 0U);
    first_bounds.push_back(first_bounds.back() + left);
  }
  if (bounds.size() != 2 * static_cast<std::size_t>(first_bounds.back())) {
    throw Error(ErrorKind::kUsage, "expected bounds of the edges of each node of the frontier that is left, received " +
                                       std::to_string(bounds.size()) + " numbers for " +
                                       std::to_string(first_bounds.back()) + " nodes");
  }
  std::vector<Chosen> chosen(batches_.size());
  parallel_for(threads_, batches(), [&](std::int64_t batch) {
    const auto at = static_cast<std::size_t>(batch);
    const std::int64_t* next = bounds.data() + 2 * first_bounds[at];
    chosen[at].request = &uniform;
    find_spans(at, [&](std::int64_t node) -> std::optional<EdgeSpan> {
      const std::int64_t begin = *next++;
      const std::int64_t end = *next++;
      if (begin < 0 || end < begin) {
        throw_bad_bounds(relation_, node, begin, end);
      }
      return EdgeSpan{begin, end - begin};
    }, chosen[at]);
  });
  keep(chosen, choose(chosen));
  is_done_ = true;
  return parts_.back().positions;
}

// Gives `chosen` those nodes of the batch that have no part yet and for which `find_span` finds a list with edges, and
// counts what is sampled of these.
template <typename FindSpan>
void PassChoice::find_spans(std::size_t batch, FindSpan find_span, Chosen& chosen) {
  const PassFrontier& nodes = frontier_[batch];
  const NeighborRequest& request = batches_[batch].request;
  const std::int64_t first = first_node_[batch];
  chosen.spans.resize(nodes.size);
  chosen.rows.resize(nodes.size);
  std::int64_t found = 0;
  for (std::int64_t i = 0; i < nodes.size; ++i) {
    if (!part_of_.empty() && part_of_[static_cast<std::size_t>(first + i)] != 0) {
      continue;
    }
    const std::optional<EdgeSpan> span = find_span(nodes.nodes[i]);
    if (span && span->degree > 0) {
      chosen.spans[found] = *span;
      chosen.rows[found++] = static_cast<std::uint32_t>(i);
    }
  }
  chosen.spans.resize(found);
  chosen.rows.resize(found);
  Frontier& frontier = chosen.frontier;
  frontier.nodes = nodes.nodes;
  frontier.trees = nodes.trees;
  frontier.numbers = nodes.numbers;
  frontier.rows = chosen.rows.data();
  frontier.spans = chosen.spans.data();
  frontier.wanted = relation_.num_neighbors[hop_];
  frontier.replace = request.replace;
  frontier.key = request.key;
  frontier.hop = hop_;
  frontier.relation = number_;
  make_chooser(*chosen.request, chosen.relation)->narrow(frontier, 0, found, chosen.spans.data());
  for (std::int64_t i = 0; i < found; ++i) {
    check_batch_size(chosen.edges += frontier.count(i));
  }
}

PassChoice::Part PassChoice::choose(const std::vector<Chosen>& chosen) const {
  Part part;
  part.first_edge.assign(1, 0);
  for (const Chosen& each : chosen) {
    part.first_edge.push_back(part.first_edge.back() + each.edges);
  }
  part.positions = std::make_shared<FixedArray<std::int64_t>>(part.first_edge.back());
  parallel_for(threads_, batches(), [&](std::int64_t batch) {
    const auto at = static_cast<std::size_t>(batch);
    const Chosen& its = chosen[at];
    const std::unique_ptr<NeighborChooser> chooser = make_chooser(*its.request, its.relation);
    std::int64_t* out = part.positions->data() + part.first_edge[at];
    std::int64_t* const end = part.positions->data() + part.first_edge[at + 1];
    for (std::int64_t begin = 0; begin < its.rows.size(); begin += kBlockNodes) {
      const std::int64_t last = std::min(begin + kBlockNodes, its.rows.size());
      chooser->choose(its.frontier, begin, last, {out, end});
      for (std::int64_t i = begin; i < last; ++i) {
        out += its.frontier.count(i);
      }
    }
  });
  return part;
}

// Now that nothing can fail any more.
void PassChoice::keep(const std::vector<Chosen>& chosen, Part&& part) {
  parts_.push_back(std::move(part));
  for (std::size_t batch = 0; batch < chosen.size(); ++batch) {
    const Chosen& its = chosen[batch];
    for (std::int64_t i = 0; i < its.rows.size(); ++i) {
      const std::int64_t node = first_node_[batch] + its.rows[i];
      counts_[node] = static_cast<std::uint32_t>(its.frontier.count(i));
      if (!part_of_.empty()) {
        part_of_[static_cast<std::size_t>(node)] = static_cast<std::uint32_t>(parts_.size());
      }
    }
  }
}

// Places in `lists` become positions, beside their neighbours.
void PassChoice::name_edges(const Adjacency& lists, Part& part) const {
  std::int64_t* const positions = part.positions->data();
  part.neighbors = FixedArray<std::int64_t>(part.positions->size());
  parallel_for(threads_, batches(), [&](std::int64_t batch) {
    const auto at = static_cast<std::size_t>(batch);
    for (std::int64_t i = part.first_edge[at]; i < part.first_edge[at + 1]; ++i) {
      part.neighbors[i] = lists.wide_indices != nullptr ? *neighbor_at(lists, lists.wide_indices, positions[i])
                                                        : *neighbor_at(lists, lists.narrow_indices, positions[i]);
      positions[i] = edge_id_at(lists, positions[i]);
    }
  });
}

PassEdges PassChoice::finish(FixedArray<std::int64_t> found) {
  PassEdges all;
  all.counts = std::move(counts_);
  all.first_node = std::move(first_node_);
  if (!has_lists()) {
    all.positions = std::move(parts_.front().positions);
    all.neighbors = std::move(found);
    all.first_edge = std::move(parts_.front().first_edge);
    return all;
  }
  parts_.back().neighbors = std::move(found);
  all.first_edge.assign(batches_.size() + 1, 0);
  for (const Part& part : parts_) {
    for (std::size_t i = 0; i < all.first_edge.size(); ++i) {
      all.first_edge[i] += part.first_edge[i];
    }
  }
  all.positions = std::make_shared<FixedArray<std::int64_t>>(all.first_edge.back());
  all.neighbors = FixedArray<std::int64_t>(all.first_edge.back());
  parallel_for(threads_, batches(), [&](std::int64_t batch) {
    const auto at = static_cast<std::size_t>(batch);
    std::vector<std::int64_t> next;  // of each part
    for (const Part& part : parts_) {
      next.push_back(part.first_edge[at]);
    }
    std::int64_t edge = all.first_edge[at];
    for (std::int64_t i = all.first_node[at]; i < all.first_node[at + 1]; ++i) {
      if (all.counts[i] == 0) {
        continue;
      }
      const std::size_t number = part_of_[static_cast<std::size_t>(i)] - 1;
      const std::int64_t from = std::exchange(next[number], next[number] + all.counts[i]);
      std::copy_n(parts_[number].positions->data() + from, all.counts[i], all.positions->data() + edge);
      std::copy_n(parts_[number].neighbors.data() + from, all.counts[i], all.neighbors.data() + edge);
      edge += all.counts[i];
    }
  });
  return all;
}

}  // namespace graphbox
