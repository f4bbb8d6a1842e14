// Rows that are the centroid of a cluster and what is left of the row, which is stored in any encoding.
#pragma once

#include <memory>

#include "rows/stored_rows.h"

namespace graphbox {

struct ClusterArrays {
  const std::uint8_t* clusters;  // [rows], each below the number of centroids
  const float* centroids;        // [centroids, dim]
  std::size_t count;             // of the centroids, at most 256
};

class ClusteredRows final : public StoredRows {
 public:
  // Row i is centroid clusters[i] + row i of `rest`.
  ClusteredRows(const ClusterArrays& arrays, std::shared_ptr<const StoredRows> rest);

  std::uint64_t bytes() const override;
  void take(std::span<const std::int64_t> index, const RowOutput& out) const override;
  FoundTables found_tables() const override { return found_; }
  void find(std::span<const std::int64_t> index, const std::uint16_t* places, FoundRow* found) const override;
  void decode(std::int64_t start, std::int64_t count, float* out, std::size_t out_stride) const override;
  std::unique_ptr<ProductBounds> product_bounds(std::span<const float> query) const override;

 private:
  ClusterArrays arrays_;
  std::shared_ptr<const StoredRows> rest_;
  FoundTables found_;  // none where what is left has clusters as well
};

}  // namespace graphbox
