// Choice of the edges that one relation samples at one hop of a pass of batches. Edges are chosen in parts, as the data
// that it needs comes into memory, by the strategies that choose in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "memory/fixed_array.h"
#include "sample/excluded_edges.h"
#include "sample/neighbor.h"

namespace graphbox {

// An edge type: its rows are nodes of `target_type`, their neighbours nodes of `source_type`.
struct PassRelation {
  int source_type;
  int target_type;
  std::vector<std::int64_t> num_neighbors;  // for each hop, -1: all
  std::string name;                         // for messages
};

// Edges of one relation that one batch must not sample: see ExcludedPairs.
struct PassExclusion {
  int relation = 0;
  std::vector<std::int64_t> rows;
  std::vector<std::int64_t> sources;
  std::vector<std::int64_t> groups;
  std::vector<std::int64_t> group_of_tree;

  ExcludedPairs pairs() const { return {rows, sources, groups, group_of_tree, true}; }
};

// One batch: how it is sampled in memory, but for its relations, hops and threads, which are the pass's.
struct PassBatch {
  NeighborRequest request;
  std::vector<PassExclusion> excluded{};
};

// The nodes of one batch whose neighbours are sampled.
struct PassFrontier {
  const std::int64_t* nodes = nullptr;
  const std::int64_t* trees = nullptr;     // of disjoint samples the tree of each node, else absent ...
  const std::uint32_t* numbers = nullptr;  // ... with its number within that
  std::int64_t size = 0;
};

using Positions = std::shared_ptr<FixedArray<std::int64_t>>;

// Chosen edges, batch after batch.
struct PassEdges {
  FixedArray<std::uint32_t> counts;      // edges of each node of the frontier
  Positions positions;                   // of the edges
  FixedArray<std::int64_t> neighbors;    // of the edges, where some lists were in memory
  std::vector<std::int64_t> first_node;  // of the frontier of each batch, and the end
  std::vector<std::int64_t> first_edge;  // of each batch, and the end
};

// First any number of times choose_in(), then choose_between() once, then finish().
class PassChoice {
 public:
  // All refer to the caller's.
  PassChoice(const PassRelation& relation, int number, int hop, const std::vector<PassBatch>& batches,
             std::vector<PassFrontier> frontier, int threads);

  // Chooses for the nodes of the frontier that have edges in the overlay of `lists`, whose ids are positions and whose
  // base has none.
  void choose_in(const Relation& lists);
  // Chooses for the nodes that are left, every edge of a node alike: those of the i-th are at bounds[2 i] to
  // bounds[2 i + 1] - 1. Returns the positions of the chosen ones, whose neighbours are to be found.
  Positions choose_between(std::span<const std::int64_t> bounds);
  // Whether choose_between() has run.
  bool is_done() const { return is_done_; }
  // Whether choose_in() has.
  bool has_lists() const { return parts_.size() > (is_done_ ? 1 : 0); }
  // Number of positions that choose_between() gave.
  std::int64_t num_missing() const { return parts_.back().positions->size(); }
  // All that was chosen. `found`: the neighbours at the positions that choose_between() gave, if has_lists().
  PassEdges finish(FixedArray<std::int64_t> found);

 private:
  // Edges chosen together, for nodes of all batches.
  struct Part {
    Positions positions;
    FixedArray<std::int64_t> neighbors;
    std::vector<std::int64_t> first_edge;  // of each batch, and the end
  };
  // The nodes of one batch that have a part's edges, while these are chosen.
  struct Chosen;

  template <typename FindSpan>
  void find_spans(std::size_t batch, FindSpan find_span, Chosen& chosen);
  Part choose(const std::vector<Chosen>& chosen) const;
  void name_edges(const Adjacency& lists, Part& part) const;
  void keep(const std::vector<Chosen>& chosen, Part&& part);
  std::int64_t batches() const { return static_cast<std::int64_t>(batches_.size()); }

  const PassRelation& relation_;
  std::uint32_t number_;
  std::uint32_t hop_;
  const std::vector<PassBatch>& batches_;
  std::vector<PassFrontier> frontier_;
  int threads_;
  std::vector<std::int64_t> first_node_;
  FixedArray<std::uint32_t> counts_;
  std::vector<std::uint32_t> part_of_;  // of each node the number of its part, from 1; 0: none with edges yet; empty: all 0
  std::vector<Part> parts_;
  bool is_done_ = false;
};

}  // namespace graphbox
