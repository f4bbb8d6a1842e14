// Chooses which of a node's edges are sampled, with probabilities in proportion to their weights.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "random/philox.h"
#include "sample/alias.h"
#include "sample/choice.h"
#include "sample/offset_set.h"

namespace graphbox {

// The edges of one node with their part of the alias tables and their weights.
struct WeightedEdges {
  EdgeSpan span;
  const AliasEntry* entries;
  const float* weights;
  std::span<const std::uint32_t> excluded{};  // offsets of edges that must not be chosen, ascending

  std::int64_t choosable() const { return span.degree - static_cast<std::int64_t>(excluded.size()); }
  bool is_excluded(std::uint32_t offset) const {
    return !excluded.empty() && std::binary_search(excluded.begin(), excluded.end(), offset);
  }
};

// Chooses for one node after the other, in two steps with some time between: prepare() draws and asks for the memory
// lines that choose() will read. One for each thread.
//
// With replacement the choices are draws from the alias table. Without, they are those draws with repeated edges
// dropped, which is successive weighted sampling (each next edge in proportion to its weight among the untaken ones)
// in time that does not depend on the degree. After many repetitions, or at once where most edges are wanted, it goes
// on with exponential keys: the edge with the smallest E / weight, E exponentially distributed, is one in proportion
// to its weight, the next smallest one among the rest, and so on (Efraimidis and Spirakis, "Weighted random sampling
// with a reservoir", IPL 97(5), 2006). After how many draws it changes over does not depend on what they gave, and
// nothing is drawn anew, so the choice stays exact.
//
// Excluded edges count as taken before the first draw; with replacement, draws of them are passed over, and after many
// draws the rest is drawn from the sums of the remaining weights.
class WeightedChooser {
 public:
  // Nodes are chosen for in the order in which they were prepared; prepare() must not be called when is_full().
  void prepare(const DrawSequence& draws, const WeightedEdges& edges, std::int64_t wanted, bool replace);

  // Whether enough memory lines are on their way: choose() before the next prepare().
  bool is_full() const { return num_nodes_ == kNodesAhead || num_draws_ >= kDrawsAhead; }

  // Writes choice_count() edge positions of the first node that was prepared and not chosen for.
  void choose(std::int64_t* out);

 private:
  static constexpr std::uint32_t kNodesAhead = 32;
  static constexpr std::uint32_t kDrawsAhead = 64;  // and no more than these for one node

  // Draws 2 * number and 2 * number + 1 are the halves of block `number`: of 64 bits each.
  struct Draw {
    std::uint32_t column;
    std::uint32_t fraction;
  };
  struct Node {
    DrawSequence sequence{{}, 0, 0, 0};
    WeightedEdges edges{};
    std::uint32_t count = 0;
    bool replace = false;
    bool take_all = false;
    std::uint32_t num_draws = 0;  // that are prepared
    std::array<Draw, kDrawsAhead> draws;
  };

  static void draw_two(const DrawSequence& sequence, std::uint32_t number, std::uint32_t degree, Draw* draws);
  static std::uint32_t resolve(const Node& node, Draw draw);
  static void prepare_draws(Node& node, std::uint32_t count);

  static void with_replacement(const Node& node, std::int64_t* out);
  void with_replacement_among_choosable(const Node& node, std::int64_t* out);
  void without_replacement(const Node& node, std::int64_t* out);
  template <typename Taken>
  void draw_distinct(const Node& node, Taken& taken, std::int64_t* out);
  template <typename Taken>
  void take_rest(const Node& node, const Taken& taken, std::uint32_t count, std::int64_t* out);

  std::array<Node, kNodesAhead> nodes_;
  std::uint32_t first_ = 0;
  std::uint32_t num_nodes_ = 0;
  std::uint32_t num_draws_ = 0;  // of all nodes that are prepared
  OffsetSet set_;
  std::vector<std::pair<double, std::uint32_t>> keys_;
  std::vector<double> sums_;
};

}  // namespace graphbox
