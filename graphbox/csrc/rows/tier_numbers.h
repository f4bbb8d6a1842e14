// Map from rows to tiers and row numbers in them. Two bits a row, without branches: each lookup reads 16 bytes.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "portability/cpu.h"

namespace graphbox {

struct TierNumber {
  std::size_t tier;  // 0: hot, 1: cold
  std::int64_t number;
};

class TierNumbers {
 public:
  // is_hot: bit row % 8 of byte row / 8; the rows of each tier ascend.
  TierNumbers(std::span<const std::uint8_t> is_hot, std::int64_t rows)
      : words_(static_cast<std::size_t>(rows / kWordRows + 1)) {
    for (std::size_t byte = 0; byte < is_hot.size(); ++byte) {
      words_[byte / 8].is_hot |= std::uint64_t{is_hot[byte]} << (byte % 8 * 8);
    }
    std::int64_t before = 0;
    for (Word& word : words_) {
      word.hot_before = before;
      before += std::popcount(word.is_hot);
    }
  }

  std::uint64_t bytes() const { return words_.size() * sizeof(Word); }

  GRAPHBOX_INLINE void prefetch_row(std::int64_t row) const { prefetch(words_.data() + row / kWordRows); }

  GRAPHBOX_INLINE TierNumber find(std::int64_t row) const {
    const Word& word = words_[static_cast<std::size_t>(row / kWordRows)];
    const std::uint64_t from_row = word.is_hot >> (row % kWordRows);
    const std::int64_t hot = word.hot_before + std::popcount(word.is_hot ^ from_row << (row % kWordRows));
    const bool is_hot = (from_row & 1) != 0;
    return {is_hot ? std::size_t{0} : std::size_t{1}, is_hot ? hot : row - hot};
  }

  // out[i] = the next of the first `hot_rows` of `both` where row start + i is hot, else the next of the others.
  GRAPHBOX_INLINE void interleave(std::int64_t start, std::int64_t rows, std::int64_t hot_rows, const float* both,
                                  float* out) const {
    std::int64_t hot = 0;
    for (std::int64_t first = 0; first < rows;) {
      const std::int64_t bit = (start + first) % kWordRows;
      const std::int64_t end = std::min(first + kWordRows - bit, rows);
      std::uint64_t is_hot = words_[static_cast<std::size_t>((start + first) / kWordRows)].is_hot >> bit;
      for (; first < end; ++first, is_hot >>= 1) {
        const auto one = static_cast<std::int64_t>(is_hot & 1);
        const std::int64_t cold = hot_rows + first - hot;
        out[first] = both[cold ^ ((cold ^ hot) & -one)];  // a choice without a branch, which could not be predicted
        hot += one;
      }
    }
  }

  // Rows below `row` that are hot. `row` may be the number of rows.
  std::int64_t hot_before(std::int64_t row) const {
    const Word& word = words_[static_cast<std::size_t>(row / kWordRows)];
    return word.hot_before + std::popcount(word.is_hot & ((std::uint64_t{1} << (row % kWordRows)) - 1));
  }

 private:
  static constexpr std::int64_t kWordRows = 64;
  struct alignas(16) Word {
    std::uint64_t is_hot = 0;
    std::int64_t hot_before = 0;
  };

  std::vector<Word> words_;
};

}  // namespace graphbox
