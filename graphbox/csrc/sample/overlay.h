// New lists of some rows of an adjacency: what changes of a graph made of them, beside the arrays of its base.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "memory/buffer.h"
#include "portability/cpu.h"

namespace graphbox {

// Which rows have new lists, and where those are. A bitmap with counts: whether a row is among them, and as the how
// manieth, is in one cache line; the untouched rows of a large graph cost little more than that.
class Overlay {
 public:
  // `rows` ascending in [0, num_rows); the list of rows[i] is indices[indptr[i] ... indptr[i + 1] - 1], and edge_ids
  // has the ids of the edges in it. The arrays stay the caller's; exactly one of the two kinds of indices is given.
  Overlay(std::span<const std::int64_t> rows, std::span<const std::int64_t> indptr,
          std::span<const std::int32_t> narrow_indices, std::span<const std::int64_t> wide_indices,
          std::span<const std::int64_t> edge_ids, std::int64_t num_rows);

  std::int64_t num_rows() const { return num_rows_; }
  std::int64_t num_edges() const { return static_cast<std::int64_t>(edge_ids_.size()); }
  const std::int32_t* narrow_indices() const { return narrow_indices_; }
  const std::int64_t* wide_indices() const { return wide_indices_; }

  // The number of the row's list, -1 when it has no new one. `row` is in [0, num_rows).
  GRAPHBOX_INLINE std::int64_t find(std::int64_t row) const {
    const Block& block = blocks_[row / kBlockRows];
    const auto bit = static_cast<std::uint32_t>(row % kBlockRows);
    const std::uint64_t word = block.bits[bit / 64];
    const std::uint64_t below = (std::uint64_t{1} << (bit % 64)) - 1;
    if ((word & (below + 1)) == 0) [[likely]] {
      return -1;
    }
    std::int64_t number = block.before + std::popcount(word & below);
    for (std::uint32_t i = 0; i < bit / 64; ++i) {
      number += std::popcount(block.bits[i]);
    }
    return number;
  }
  GRAPHBOX_INLINE void prefetch_row(std::int64_t row) const { prefetch(blocks_.data() + row / kBlockRows); }

  std::int64_t begin(std::int64_t number) const { return indptr_[static_cast<std::size_t>(number)]; }
  std::int64_t degree(std::int64_t number) const { return begin(number + 1) - begin(number); }
  std::int64_t edge_id(std::int64_t position) const { return edge_ids_[static_cast<std::size_t>(position)]; }

 private:
  static constexpr std::int64_t kBlockRows = 448;
  struct alignas(kCacheLineBytes) Block {
    std::int64_t before;  // rows with new lists in the blocks before
    std::uint64_t bits[kBlockRows / 64];
  };

  std::span<const std::int64_t> indptr_;
  const std::int32_t* narrow_indices_ = nullptr;
  const std::int64_t* wide_indices_ = nullptr;
  std::span<const std::int64_t> edge_ids_;
  std::int64_t num_rows_;
  PooledArray<Block> blocks_;
};

}  // namespace graphbox
