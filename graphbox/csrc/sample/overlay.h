// New lists of some rows of an adjacency: what changes of a graph made of them, beside the arrays of its base.
#pragma once

#include <cstdint>
#include <span>

#include "memory/buffer.h"
#include "portability/cpu.h"

namespace graphbox {

// Bitmap with rank of the rows that have new lists: from a row to the ordinal of its list. Both are in one cache line,
// of which four rows share a byte. Membership cannot be predicted, so nothing here branches on it.
class Overlay {
 public:
  // `rows` ascending in [0, num_rows); the list of rows[i] is indices[indptr[i] ... indptr[i + 1] - 1], and edge_ids
  // has the ids of the edges in it. The arrays stay the caller's; exactly one of the two kinds of indices is given.
  Overlay(std::span<const std::int64_t> rows, std::span<const std::int64_t> indptr,
          std::span<const std::int32_t> narrow_indices, std::span<const std::int64_t> wide_indices,
          std::span<const std::int64_t> edge_ids, std::int64_t num_rows);

  std::int64_t num_rows() const { return num_rows_; }
  std::int64_t num_edges() const { return static_cast<std::int64_t>(edge_ids_.size()); }
  // Of the kind that was given, else null.
  template <typename Index>
  GRAPHBOX_INLINE const Index* indices() const {
    if constexpr (sizeof(Index) == 4) {
      return narrow_indices_;
    } else {
      return wide_indices_;
    }
  }

  // The number of the row's list, -1 when it has no new one. `row` is in [0, num_rows).
  GRAPHBOX_INLINE std::int64_t find(std::int64_t row) const {
    const Block& block = blocks_[row / kBlockRows];
    const auto bit = static_cast<std::uint32_t>(row % kBlockRows);
    const std::uint64_t below = (std::uint64_t{1} << bit) - 1;
    const auto absent = static_cast<std::int64_t>(block.bits >> bit & 1) - 1;  // all bits, or none
    return (block.before + count_bits(block.bits & below)) | absent;
  }
  GRAPHBOX_INLINE void prefetch_row(std::int64_t row) const { prefetch(blocks_.data() + row / kBlockRows); }

  // Where the begin of the list with a number, and after it its end, stand.
  GRAPHBOX_INLINE const std::int64_t* bounds(std::int64_t number) const { return indptr_.data() + number; }
  // Of the edges in the order of their positions.
  GRAPHBOX_INLINE const std::int64_t* edge_ids() const { return edge_ids_.data(); }

  std::int64_t begin(std::int64_t number) const { return indptr_[static_cast<std::size_t>(number)]; }
  std::int64_t degree(std::int64_t number) const { return begin(number + 1) - begin(number); }

 private:
  static constexpr std::int64_t kBlockRows = 64;
  struct alignas(16) Block {
    std::uint64_t bits;
    std::int64_t before;  // rows with new lists in the blocks before
  };

  // Where compilers may not count on an instruction for it, std::popcount is a call.
  GRAPHBOX_INLINE static std::int64_t count_bits(std::uint64_t bits) {
    bits -= bits >> 1 & 0x5555555555555555U;
    bits = (bits & 0x3333333333333333U) + (bits >> 2 & 0x3333333333333333U);
    bits = (bits + (bits >> 4)) & 0x0F0F0F0F0F0F0F0FU;
    return static_cast<std::int64_t>(bits * 0x0101010101010101U >> 56);
  }

  std::span<const std::int64_t> indptr_;
  const std::int32_t* narrow_indices_ = nullptr;
  const std::int64_t* wide_indices_ = nullptr;
  std::span<const std::int64_t> edge_ids_;
  std::int64_t num_rows_;
  PooledArray<Block> blocks_;
};

}  // namespace graphbox
