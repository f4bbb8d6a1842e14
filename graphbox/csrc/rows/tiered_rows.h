// Rows in two encodings: that of the hot rows, which are read often, and that of the cold ones.
#pragma once

#include <memory>

#include "rows/stored_rows.h"
#include "rows/tier_numbers.h"

namespace graphbox {

class TieredRows final : public StoredRows {
 public:
  // is_hot: bit row % 8 of byte row / 8. Hot rows are those of `hot` in ascending order, the others those of `cold`.
  TieredRows(std::span<const std::uint8_t> is_hot, std::shared_ptr<const StoredRows> hot,
             std::shared_ptr<const StoredRows> cold);

  std::uint64_t bytes() const override;
  void take(std::span<const std::int64_t> index, const RowOutput& out) const override;
  std::unique_ptr<ProductBounds> product_bounds(std::span<const float> query) const override;
  FoundTables found_tables() const override { return found_; }
  void find(std::span<const std::int64_t> index, const std::uint16_t* places, FoundRow* found) const override;
  void decode(std::int64_t start, std::int64_t count, float* out, std::size_t out_stride) const override;

 private:
  TierNumbers numbers_;
  std::shared_ptr<const StoredRows> hot_;
  std::shared_ptr<const StoredRows> cold_;
  FoundTables found_;
};

}  // namespace graphbox
