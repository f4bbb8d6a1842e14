// The rows of a table, dense from 0, in chunks that never move.
#pragma once

#include <cstdint>
#include <vector>

#include "memory/buffer.h"
#include "portability/cpu.h"

namespace graphbox {

// Precedes the values of each row.
struct RowHeader {
  std::int64_t key;
  float accumulator;    // row-wise optimizer state
  std::uint32_t steps;  // updates
};
static_assert(sizeof(RowHeader) == 16);

class Slab {
 public:
  explicit Slab(std::size_t row_bytes);

  std::byte* row(std::uint32_t row) const {
    return bases_[row >> shift_] + static_cast<std::size_t>(row & mask_) * row_bytes_;
  }
  RowHeader& header(std::uint32_t row_number) const { return *reinterpret_cast<RowHeader*>(row(row_number)); }
  float* values(std::uint32_t row_number) const {
    return reinterpret_cast<float*>(row(row_number) + sizeof(RowHeader));
  }
  GRAPHBOX_INLINE void prefetch_row(std::uint32_t row_number) const {
    const std::byte* const begin = row(row_number);
    for (std::size_t line = 0; line < row_bytes_; line += kCacheLineBytes) {
      prefetch(begin + line);
    }
  }

  std::size_t row_bytes() const { return row_bytes_; }
  std::uint64_t rows() const { return rows_; }
  std::uint32_t rows_per_chunk() const { return mask_ + 1; }

  // Memory in use once there are `rows` rows. Chunks are touched page by page, so this counts touched huge pages.
  std::size_t bytes_for(std::uint64_t rows) const;
  std::size_t bytes() const { return bytes_for(most_rows_); }

  // The caller fills new rows. Shrinking frees the chunks it empties.
  void resize(std::uint64_t rows);

 private:
  std::size_t row_bytes_;
  std::uint32_t shift_ = 0;
  std::uint32_t mask_ = 0;
  std::vector<Buffer> chunks_;
  std::vector<std::byte*> bases_;
  std::uint64_t rows_ = 0;
  std::uint64_t most_rows_ = 0;  // since the last chunk was made or freed
};

}  // namespace graphbox
