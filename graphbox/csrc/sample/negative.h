// Draws items with given probabilities: negatives of skip-gram and of ranking losses.
#pragma once

#include <cstdint>
#include <span>

#include "memory/buffer.h"
#include "random/philox.h"

namespace graphbox {

// Walker's alias table as Vose builds it ("A linear algorithm for generating random numbers with a given
// distribution", IEEE TSE 17(9), 1991): each draw costs one bounded integer and one comparison.
class AliasTable {
 public:
  // Weights must be finite, not negative, not all zero, fewer than 2^32.
  explicit AliasTable(std::span<const double> weights);

  std::int64_t size() const { return entries_.size(); }
  std::size_t bytes() const { return static_cast<std::size_t>(entries_.size()) * sizeof(Entry); }

  // Draw i has position i / 2 and two words of its block.
  void sample(PhiloxKey key, std::int64_t* out, std::int64_t count, int threads) const;

 private:
  struct Entry {
    std::uint32_t threshold;  // a second word below it keeps the entry, above takes the alias
    std::uint32_t alias;
  };

  PooledArray<Entry> entries_;
};

}  // namespace graphbox
