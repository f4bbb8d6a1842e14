// Weighted choice among the first edges of a node by time.
//
// The candidate edges differ from one query to the next, so no alias table fits. Sums of the weights in the order of
// time do: the allowed edges are a prefix of that, and a draw is a binary search in its sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "memory/buffer.h"
#include "random/philox.h"
#include "sample/offset_set.h"
#include "sample/time_order.h"

namespace graphbox {

// Of the edges of all rows of an adjacency, in the order of time: the sum of the weights of a row up to and with each.
// 8 bytes for each edge.
class WeightSums {
 public:
  // The same for any number of threads. `order` is that of the same edges; `weights` has one positive finite number for
  // each. Both stay the caller's and are used later; `name` is for messages.
  WeightSums(const TimeOrder& order, std::span<const std::int64_t> indptr, std::span<const float> weights,
             const std::string& name, int threads);

  const double* sums() const { return reinterpret_cast<const double*>(sums_.data()); }
  const float* weights() const { return weights_.data(); }
  std::int64_t num_edges() const { return static_cast<std::int64_t>(weights_.size()); }
  std::size_t bytes() const { return sums_.bytes(); }

 private:
  std::span<const float> weights_;
  Buffer sums_;
};

// The edges of one node that may be chosen: the first `degree` by time. All arrays begin with the node's first edge.
struct SummedEdges {
  std::int64_t degree;
  const double* sums;
  const float* weights;                         // by position
  const std::int32_t* shifts;                   // from place to position
  std::span<const std::uint32_t> excluded{};    // places of edges that must not be chosen all the same, ascending
};

// One for each thread.
class SummedEdgeChooser {
 public:
  // Writes choice_count() places in the order of time. Without replacement the choices are draws with repeated ones
  // dropped, and after many repetitions the smallest exponential keys of the rest: see WeightedChooser.
  void choose(const DrawSequence& draws, const SummedEdges& edges, std::int64_t wanted, bool replace, std::int64_t* out);

 private:
  void sum_remaining(const SummedEdges& edges);
  void take_rest(const DrawSequence& draws, const SummedEdges& edges, std::int64_t count, std::int64_t* out);

  std::vector<double> sums_;  // where edges are excluded: of the others
  OffsetSet taken_;
  std::vector<std::pair<double, std::uint32_t>> keys_;
};

}  // namespace graphbox
