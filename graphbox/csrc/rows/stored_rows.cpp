#include "rows/stored_rows.h"

#include <algorithm>
#include <array>
#include <vector>

#include "portability/cpu.h"

namespace graphbox {
namespace {

constexpr std::size_t kEntriesTogether = 256;  // of which the rows that are there are decoded in one call
constexpr std::size_t kSummedTogether = 64;    // whose decoded rows stay in the caches

GRAPHBOX_CLONES
void add_weighted(const float* __restrict row, float weight, std::size_t dim, float* __restrict sum) {
  for (std::size_t column = 0; column < dim; ++column) {
    sum[column] += row[column] * weight;
  }
}

}  // namespace

void StoredRows::take_or_default(const RowsOrDefault& wanted, float* out, std::size_t out_stride) const {
  std::array<std::int64_t, kEntriesTogether> index;
  std::array<std::int64_t, kEntriesTogether> places;
  for (std::size_t start = 0; start < wanted.index.size(); start += kEntriesTogether) {
    const std::size_t end = std::min(start + kEntriesTogether, wanted.index.size());
    std::size_t count = 0;
    for (std::size_t i = start; i < end; ++i) {
      if (wanted.index[i] >= 0) {
        index[count] = wanted.index[i];
        places[count++] = static_cast<std::int64_t>(i);
      } else {
        std::copy_n(wanted.default_row, dim_, out + i * out_stride);
      }
    }
    take({index.data(), count}, {out, out_stride, places.data()});
  }
}

void StoredRows::sum(const WeightedBags& bags, float* out) const {
  std::fill_n(out, (bags.offsets.size() - 1) * dim_, 0.0F);
  std::array<std::int64_t, kSummedTogether> index;
  std::vector<float> decoded(kSummedTogether * dim_);
  std::size_t bag = 0;
  for (std::int64_t start = 0; start < bags.offsets.back(); start += kSummedTogether) {
    const std::int64_t end = std::min<std::int64_t>(start + kSummedTogether, bags.offsets.back());
    const auto last = std::copy_if(bags.index + start, bags.index + end, index.begin(),
                                   [](std::int64_t row) { return row >= 0; });
    take({index.data(), static_cast<std::size_t>(last - index.begin())}, {decoded.data(), dim_});
    const float* row = decoded.data();
    for (std::int64_t i = start; i < end; ++i) {
      while (bags.offsets[bag + 1] <= i) {
        ++bag;
      }
      if (bags.index[i] >= 0) {
        add_weighted(row, bags.weights[i], dim_, out + bag * dim_);
        row += dim_;
      }
    }
  }
}

std::unique_ptr<ProductBounds> StoredRows::product_bounds(std::span<const float> /*query*/) const { return nullptr; }

void StoredRows::find(std::span<const std::int64_t> /*index*/, const std::uint16_t* /*places*/, FoundRow* /*found*/) const {}

std::int64_t first_outside(std::span<const std::int64_t> index, std::int64_t lowest, std::int64_t limit) {
  const auto found =
      std::find_if(index.begin(), index.end(), [&](std::int64_t row) { return row < lowest || row >= limit; });
  return found == index.end() ? -1 : found - index.begin();
}

}  // namespace graphbox
