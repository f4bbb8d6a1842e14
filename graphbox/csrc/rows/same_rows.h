// Rows that are all the same one.
#pragma once

#include "rows/stored_rows.h"

namespace graphbox {

class SameRows final : public StoredRows {
 public:
  // row: [dim], finite.
  SameRows(const float* row, std::int64_t rows, std::size_t dim) : StoredRows(rows, dim), row_(row) {}

  std::uint64_t bytes() const override { return dim() * sizeof(float); }
  void take(std::span<const std::int64_t> index, const RowOutput& out) const override;
  void decode(std::int64_t start, std::int64_t count, float* out, std::size_t out_stride) const override;
  std::unique_ptr<ProductBounds> product_bounds(std::span<const float> query) const override;
  FoundTables found_tables() const override { return {true, false, nullptr, {}}; }
  void find(std::span<const std::int64_t> index, const std::uint16_t* places, FoundRow* found) const override;

 private:
  const float* row_;
};

}  // namespace graphbox
