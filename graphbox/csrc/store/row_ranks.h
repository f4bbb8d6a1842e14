// Bitmap with rank: row -> ordinal among the members. Each lookup reads one cache line.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "portability/cpu.h"

namespace graphbox {

struct RankedRow {
  bool is_member;
  std::int64_t members_before;  // rows of the set below it
};

class RowRanks {
  static constexpr std::int64_t kBlockRows = 448;
  struct alignas(kCacheLineBytes) Block {
    std::int64_t before = 0;  // members in the blocks before
    std::uint64_t bits[kBlockRows / 64] = {};
  };

 public:
  explicit RowRanks(std::int64_t num_rows)
      : num_rows_(num_rows), blocks_(static_cast<std::size_t>(num_rows / kBlockRows + 1)) {}

  std::int64_t num_rows() const { return num_rows_; }
  std::int64_t count() const { return count_; }
  std::uint64_t bytes() const { return blocks_.size() * sizeof(Block); }

  void clear() {
    for (Block& block : blocks_) {
      block = {};
    }
    count_ = 0;
  }
  GRAPHBOX_INLINE void prefetch_row(std::int64_t row) const { prefetch(blocks_.data() + row / kBlockRows); }
  void insert(std::int64_t row) {
    const auto bit = static_cast<std::uint32_t>(row % kBlockRows);
    blocks_[static_cast<std::size_t>(row / kBlockRows)].bits[bit / 64] |= std::uint64_t{1} << (bit % 64);
  }
  // After the last insertion.
  void number() {
    count_ = 0;
    for (Block& block : blocks_) {
      block.before = count_;
      for (const std::uint64_t word : block.bits) {
        count_ += std::popcount(word);
      }
    }
  }

  GRAPHBOX_INLINE RankedRow find(std::int64_t row) const {
    const Block& block = blocks_[static_cast<std::size_t>(row / kBlockRows)];
    const auto bit = static_cast<std::uint32_t>(row % kBlockRows);
    const std::uint64_t below = (std::uint64_t{1} << (bit % 64)) - 1;
    std::int64_t before = block.before + std::popcount(block.bits[bit / 64] & below);
    for (std::uint32_t word = 0; word < bit / 64; ++word) {
      before += std::popcount(block.bits[word]);
    }
    return {(block.bits[bit / 64] & (below + 1)) != 0, before};
  }

  GRAPHBOX_INLINE bool is_member(std::int64_t row) const {
    const Block& block = blocks_[static_cast<std::size_t>(row / kBlockRows)];
    const auto bit = static_cast<std::uint32_t>(row % kBlockRows);
    return (block.bits[bit / 64] >> (bit % 64) & 1) != 0;
  }

  // -1: not a member.
  GRAPHBOX_INLINE std::int64_t rank(std::int64_t row) const {
    return is_member(row) ? find(row).members_before : -1;
  }

 private:
  std::int64_t num_rows_;
  std::int64_t count_ = 0;
  std::vector<Block> blocks_;
};

}  // namespace graphbox
