// Choice of the edges of a hop's nodes: one interface, and a strategy behind it for each kind of choice.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "random/philox.h"
#include "sample/choice.h"
#include "sample/neighbor.h"

namespace graphbox {

// The nodes that one relation samples for at one hop. Those without edges are left out: the i-th is the one with the
// i-th of the others' `rows`.
struct Frontier {
  const std::int64_t* nodes = nullptr;
  const std::int64_t* trees = nullptr;      // of disjoint samples the tree of each node, else absent ...
  const std::uint32_t* numbers = nullptr;   // ... with its number within that
  const std::uint32_t* rows = nullptr;      // where in the three above the i-th node is
  const EdgeSpan* spans = nullptr;          // the edges of the i-th; narrowed, where the strategy does that
  std::int64_t wanted = 0;                  // edges of each node, -1: all
  bool replace = false;
  PhiloxKey key{};
  std::uint32_t hop = 0;
  std::uint32_t relation = 0;

  GRAPHBOX_INLINE std::int64_t node(std::int64_t i) const { return nodes[rows[i]]; }
  GRAPHBOX_INLINE std::int64_t tree(std::int64_t i) const { return trees == nullptr ? 0 : trees[rows[i]]; }

  // Number of sampled edges of the i-th node.
  GRAPHBOX_INLINE std::int64_t count(std::int64_t i) const { return choice_count(spans[i].degree, wanted, replace); }

  GRAPHBOX_INLINE std::uint64_t draw_position(std::int64_t i) const {
    return trees == nullptr ? static_cast<std::uint64_t>(node(i))
                            : static_cast<std::uint64_t>(tree(i)) << 32 | numbers[rows[i]];
  }

  GRAPHBOX_INLINE DrawSequence draws(std::int64_t i) const { return {key, hop, relation, draw_position(i)}; }
};

// A strategy. One for each thread; the frontier outlives it.
class NeighborChooser {
 public:
  virtual ~NeighborChooser() = default;

  // Leaves in the spans of the nodes [begin, end) only the edges that may be chosen at all. What they then hold need
  // not be positions: choose() alone reads them, others only their degrees.
  virtual void narrow(const Frontier& frontier, std::int64_t begin, std::int64_t end, EdgeSpan* spans) const;

  // Writes the positions of the chosen edges of the nodes [begin, end) to `out`, those of one node after those of the
  // other: frontier.count() of each. Behind those `out` may be written to as well.
  virtual void choose(const Frontier& frontier, std::int64_t begin, std::int64_t end, std::span<std::int64_t> out) = 0;
};

// The edges of a node of a relation with sums of weights: the first of `span`, places in the order of time.
SummedEdges summed_edges(const Relation& relation, EdgeSpan span);

// The strategy that the request asks for of this relation.
std::unique_ptr<NeighborChooser> make_chooser(const NeighborRequest& request, const Relation& relation);

}  // namespace graphbox
