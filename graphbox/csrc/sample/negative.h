// Draws items with given probabilities: negatives of skip-gram and of ranking losses.
#pragma once

#include <cstdint>
#include <span>

#include "memory/buffer.h"
#include "random/philox.h"
#include "portability/cpu.h"

namespace graphbox {

// Walker's alias table as Vose builds it ("A linear algorithm for generating random numbers with a given
// distribution", IEEE TSE 17(9), 1991): each draw costs one bounded integer and one comparison.
class AliasTable {
 public:
  struct Entry {
    std::uint32_t threshold;  // a second word below it keeps the entry, above takes the alias
    std::uint32_t alias;
  };

  // Weights must be finite, not negative, not all zero, fewer than 2^32.
  explicit AliasTable(std::span<const double> weights);
  // Items that are equally likely: needs no memory, and draws what equal weights would.
  explicit AliasTable(std::int64_t size);

  std::int64_t size() const { return size_; }
  std::size_t bytes() const { return static_cast<std::size_t>(entries_.size()) * sizeof(Entry); }
  std::span<const Entry> entries() const {  // none where items are equally likely
    return {entries_.data(), static_cast<std::size_t>(entries_.size())};
  }

  GRAPHBOX_INLINE void prefetch_column(std::uint32_t column) const { prefetch(entries_.data() + column); }
  GRAPHBOX_INLINE std::int64_t item(std::uint32_t column, std::uint32_t coin) const {
    if (entries_.size() == 0) {
      return column;
    }
    const Entry entry = entries_[column];
    return coin < entry.threshold ? column : entry.alias;
  }

  // Draw i has position i / 2 and two words of its block.
  void sample(PhiloxKey key, std::int64_t* out, std::int64_t count, int threads) const;

 private:
  std::int64_t size_;
  PooledArray<Entry> entries_;  // empty: equally likely
};

}  // namespace graphbox
