#include "rows/same_rows.h"

#include <algorithm>
#include <numeric>

namespace graphbox {
namespace {

class SameProducts final : public ProductBounds {
 public:
  explicit SameProducts(float product) : product_(product) {}

  void upper(std::int64_t /*start*/, std::int64_t count, float* out) const override {
    std::fill_n(out, count, product_);
  }

 private:
  float product_;
};

}  // namespace

void SameRows::take(std::span<const std::int64_t> index, const RowOutput& out) const {
  for (std::size_t i = 0; i < index.size(); ++i) {
    std::copy_n(row_, dim(), out.row(i));
  }
}

void SameRows::decode(std::int64_t /*start*/, std::int64_t count, float* out, std::size_t out_stride) const {
  for (std::int64_t i = 0; i < count; ++i) {
    std::copy_n(row_, dim(), out + static_cast<std::size_t>(i) * out_stride);
  }
}

std::unique_ptr<ProductBounds> SameRows::product_bounds(std::span<const float> query) const {
  const std::span<const float> row(row_, dim());
  const double product = std::inner_product(row.begin(), row.end(), query.begin(), 0.0);
  const double rounding = rounding_of_product(dim()) * length_of(query) * length_of(row);
  return std::make_unique<SameProducts>(static_cast<float>(product + rounding));
}

void SameRows::find(std::span<const std::int64_t> index, const std::uint16_t* places, FoundRow* found) const {
  for (std::size_t i = 0; i < index.size(); ++i) {
    found[places[i]] = {nullptr, row_, nullptr};
  }
}

}  // namespace graphbox
