// Rows that are sums of one row from each of several codebooks.
#pragma once

#include "rows/stored_rows.h"

namespace graphbox {

inline constexpr std::size_t kCodebookRows = 256;

// Chen, Guan, Wang, "Approximate Nearest Neighbor Search by Residual Vector Quantization", Sensors 10(12), 2010.
struct ResidualArrays {
  const std::uint8_t* codes;  // [rows, books]
  const float* codebooks;     // [books, kCodebookRows, dim]
  std::size_t books;          // at least 1
  std::int64_t rows;
  std::size_t dim;
};

class ResidualRows final : public StoredRows {
 public:
  explicit ResidualRows(const ResidualArrays& arrays) : StoredRows(arrays.rows, arrays.dim), arrays_(arrays) {}

  std::uint64_t bytes() const override;
  void take(std::span<const std::int64_t> index, const RowOutput& out) const override;
  void decode(std::int64_t start, std::int64_t count, float* out, std::size_t out_stride) const override;

 private:
  ResidualArrays arrays_;
};

}  // namespace graphbox
