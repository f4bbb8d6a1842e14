// The edges of each node by time: which of them are not later than a given time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "memory/buffer.h"
#include "sample/choice.h"

namespace graphbox {

// The edges of all rows of an adjacency, those of each row by time, equal times by position: 12 bytes for each edge.
class TimeOrder {
 public:
  // The same for any number of threads. Keeps no reference to the arrays; `name` is for messages.
  TimeOrder(std::span<const std::int64_t> indptr, std::span<const std::int64_t> timestamps, const std::string& name,
            int threads);

  std::int64_t num_edges() const { return num_edges_; }
  std::size_t bytes() const { return times_.bytes() + shifts_.bytes(); }

  // Number of the first edges by time of a row, [begin, begin + degree), that are not later than `time`.
  std::int64_t count_until(std::int64_t begin, std::int64_t degree, std::int64_t time) const {
    const std::int64_t* const first = times() + begin;
    return std::upper_bound(first, first + degree, time) - first;
  }

  // The times of all edges in the order, and ...
  const std::int64_t* times() const { return reinterpret_cast<const std::int64_t*>(times_.data()); }
  // ... from the place of an edge in the order to its position.
  const std::int32_t* shifts() const { return reinterpret_cast<const std::int32_t*>(shifts_.data()); }

 private:
  std::int64_t num_edges_;
  Buffer times_;
  Buffer shifts_;
};

}  // namespace graphbox
