#include "rows/clustered_rows.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "portability/cpu.h"

namespace graphbox {
namespace {

constexpr std::size_t kRowsTogether = 512;  // whose decoded values stay in the second cache

GRAPHBOX_INLINE void add_centroid(const ClusterArrays& arrays, std::int64_t row, std::size_t dim, float* __restrict out) {
  const float* const centroid = arrays.centroids + arrays.clusters[row] * dim;
  for (std::size_t column = 0; column < dim; ++column) {
    out[column] += centroid[column];
  }
}

GRAPHBOX_INLINE void prefetch_clusters(const ClusterArrays& arrays, std::span<const std::int64_t> index) {
  for (const std::int64_t row : index) {
    prefetch(arrays.clusters + row);
  }
}

GRAPHBOX_CLONES
void add_centroids_of(const ClusterArrays& arrays, std::span<const std::int64_t> index, std::size_t dim,
                      const RowOutput& out) {
  for (std::size_t i = 0; i < index.size(); ++i) {
    add_centroid(arrays, index[i], dim, out.row(i));
  }
}

GRAPHBOX_CLONES
void add_centroids_from(const ClusterArrays& arrays, std::int64_t start, std::int64_t count, std::size_t dim,
                        const RowOutput& out) {
  for (std::int64_t i = 0; i < count; ++i) {
    add_centroid(arrays, start + i, dim, out.row(static_cast<std::size_t>(i)));
  }
}

// The bound of what is left of a row, and the product of its centroid.
class ClusteredProducts final : public ProductBounds {
 public:
  ClusteredProducts(const ClusterArrays& arrays, std::span<const float> query, std::unique_ptr<ProductBounds> rest)
      : clusters_(arrays.clusters), of_cluster_(arrays.count), rest_(std::move(rest)) {
    const double rounding = rounding_of_product(query.size()) * length_of(query);
    for (std::size_t cluster = 0; cluster < arrays.count; ++cluster) {
      const std::span<const float> centroid(arrays.centroids + cluster * query.size(), query.size());
      const double product = std::inner_product(centroid.begin(), centroid.end(), query.begin(), 0.0);
      of_cluster_[cluster] = static_cast<float>(product + rounding * length_of(centroid));
    }
  }

  void upper(std::int64_t start, std::int64_t count, float* out) const override {
    rest_->upper(start, count, out);
    for (std::int64_t i = 0; i < count; ++i) {
      out[i] += of_cluster_[clusters_[start + i]];
    }
  }

 private:
  const std::uint8_t* clusters_;
  std::vector<float> of_cluster_;
  std::unique_ptr<ProductBounds> rest_;
};

}  // namespace

ClusteredRows::ClusteredRows(const ClusterArrays& arrays, std::shared_ptr<const StoredRows> rest)
    : StoredRows(rest->rows(), rest->dim()), arrays_(arrays), rest_(std::move(rest)) {
  FoundTables of_rest = rest_->found_tables();
  if (of_rest.are_all && !of_rest.have_added) {
    found_ = {true, true, arrays_.clusters, std::move(of_rest.tables)};
  }
}

std::uint64_t ClusteredRows::bytes() const {
  return static_cast<std::uint64_t>(rows()) + arrays_.count * dim() * sizeof(float) + rest_->bytes();
}

void ClusteredRows::take(std::span<const std::int64_t> index, const RowOutput& out) const {
  // One table is decoded faster by itself: results are still in the second cache when centroids are added.
  if (found_.tables.size() > 1) {
    return take_found(*this, found_, index, out);
  }
  for (std::size_t start = 0; start < index.size(); start += kRowsTogether) {
    const std::span<const std::int64_t> part = index.subspan(start, std::min(kRowsTogether, index.size() - start));
    const RowOutput own = out.places == nullptr
                              ? RowOutput{out.values + start * out.stride, out.stride}
                              : RowOutput{out.values, out.stride, out.places + start};
    prefetch_clusters(arrays_, part);
    rest_->take(part, own);
    add_centroids_of(arrays_, part, dim(), own);
  }
}

void ClusteredRows::find(std::span<const std::int64_t> index, const std::uint16_t* places, FoundRow* found) const {
  rest_->find(index, places, found);
  for (std::size_t i = 0; i < index.size(); ++i) {
    found[places[i]].added = arrays_.centroids + arrays_.clusters[index[i]] * dim();
  }
}

void ClusteredRows::decode(std::int64_t start, std::int64_t count, float* out, std::size_t out_stride) const {
  constexpr auto kTogether = static_cast<std::int64_t>(kRowsTogether);
  for (std::int64_t first = 0; first < count; first += kTogether) {
    float* const part = out + static_cast<std::size_t>(first) * out_stride;
    const std::int64_t rows_of_part = std::min(kTogether, count - first);
    rest_->decode(start + first, rows_of_part, part, out_stride);
    add_centroids_from(arrays_, start + first, rows_of_part, dim(), {part, out_stride});
  }
}

std::unique_ptr<ProductBounds> ClusteredRows::product_bounds(std::span<const float> query) const {
  std::unique_ptr<ProductBounds> rest = rest_->product_bounds(query);
  return rest == nullptr ? nullptr : std::make_unique<ClusteredProducts>(arrays_, query, std::move(rest));
}

}  // namespace graphbox
