#include "rows/tiered_rows.h"

#include <algorithm>
#include <array>
#include <utility>

#include "portability/instruction_set.h"

namespace graphbox {
namespace {

constexpr std::size_t kPrefetchedNumbers = 16;
constexpr std::size_t kRowsTogether = 1024;  // that each tier decodes in one call

// Rows of one tier among at most kMost rows, and their places among these.
template <typename Place, std::size_t kMost>
struct TierRows {
  std::array<std::int64_t, kMost> index;
  std::array<Place, kMost> places;
  std::size_t count = 0;

  std::span<const std::int64_t> rows() const { return {index.data(), count}; }
};

// Divides rows between the tiers, without branches, which could not be predicted.
template <typename Place, std::size_t kMost>
GRAPHBOX_INLINE void divide(const TierNumbers& numbers, std::span<const std::int64_t> index, const auto& place_of,
                            std::array<TierRows<Place, kMost>, 2>& tiers) {
  for (std::size_t i = 0; i < index.size(); ++i) {
    numbers.prefetch_row(index[std::min(i + kPrefetchedNumbers, index.size() - 1)]);
    const TierNumber found = numbers.find(index[i]);
    TierRows<Place, kMost>& tier = tiers[found.tier];
    tier.index[tier.count] = found.number;
    tier.places[tier.count++] = place_of(i);
  }
}

// Of both tiers.
FoundTables together(const FoundTables& hot, const FoundTables& cold) {
  FoundTables found = {hot.are_all && cold.are_all, hot.have_added || cold.have_added, nullptr, hot.tables};
  found.tables.insert(found.tables.end(), cold.tables.begin(), cold.tables.end());
  return found;
}

class TieredProducts final : public ProductBounds {
 public:
  TieredProducts(const TierNumbers& numbers, std::unique_ptr<ProductBounds> hot, std::unique_ptr<ProductBounds> cold)
      : numbers_(numbers), hot_(std::move(hot)), cold_(std::move(cold)) {}

  // Consecutive rows are consecutive rows of each tier.
  void upper(std::int64_t start, std::int64_t count, float* out) const override {
    std::array<float, kRowsTogether> both;  // of the hot rows, then of the cold ones
    for (std::int64_t first = 0; first < count; first += kRowsTogether) {
      const std::int64_t rows = std::min<std::int64_t>(kRowsTogether, count - first);
      const std::int64_t hot_start = numbers_.hot_before(start + first);
      const std::int64_t hot_rows = numbers_.hot_before(start + first + rows) - hot_start;
      hot_->upper(hot_start, hot_rows, both.data());
      cold_->upper(start + first - hot_start, rows - hot_rows, both.data() + hot_rows);
      numbers_.interleave(start + first, rows, hot_rows, both.data(), out + first);
    }
  }

 private:
  const TierNumbers& numbers_;
  std::unique_ptr<ProductBounds> hot_;
  std::unique_ptr<ProductBounds> cold_;
};

}  // namespace

TieredRows::TieredRows(std::span<const std::uint8_t> is_hot, std::shared_ptr<const StoredRows> hot,
                       std::shared_ptr<const StoredRows> cold)
    : StoredRows(hot->rows() + cold->rows(), hot->dim()),
      numbers_(is_hot, hot->rows() + cold->rows()),
      hot_(std::move(hot)),
      cold_(std::move(cold)),
      found_(together(hot_->found_tables(), cold_->found_tables())) {}

std::uint64_t TieredRows::bytes() const { return numbers_.bytes() + hot_->bytes() + cold_->bytes(); }

void TieredRows::take(std::span<const std::int64_t> index, const RowOutput& out) const {
  if (found_.are_all) {
    return take_found(*this, found_, index, out);
  }
  for (std::size_t start = 0; start < index.size(); start += kRowsTogether) {
    std::array<TierRows<std::int64_t, kRowsTogether>, 2> tiers;
    const auto place_of = [&out, start](std::size_t i) GRAPHBOX_INLINE_LAMBDA {
      return out.places == nullptr ? static_cast<std::int64_t>(start + i) : out.places[start + i];
    };
    const std::span<const std::int64_t> part = index.subspan(start, std::min(kRowsTogether, index.size() - start));
    run_with_instruction_set([&](auto) GRAPHBOX_INLINE_LAMBDA { divide(numbers_, part, place_of, tiers); });
    hot_->take(tiers[0].rows(), {out.values, out.stride, tiers[0].places.data()});
    cold_->take(tiers[1].rows(), {out.values, out.stride, tiers[1].places.data()});
  }
}

void TieredRows::find(std::span<const std::int64_t> index, const std::uint16_t* places, FoundRow* found) const {
  std::array<TierRows<std::uint16_t, kFoundTogether>, 2> tiers;
  const auto place_of = [places](std::size_t i) GRAPHBOX_INLINE_LAMBDA { return places[i]; };
  run_with_instruction_set([&](auto) GRAPHBOX_INLINE_LAMBDA { divide(numbers_, index, place_of, tiers); });
  hot_->find(tiers[0].rows(), tiers[0].places.data(), found);
  cold_->find(tiers[1].rows(), tiers[1].places.data(), found);
}

void TieredRows::decode(std::int64_t start, std::int64_t count, float* out, std::size_t out_stride) const {
  std::array<std::int64_t, kRowsTogether> index;
  for (std::int64_t first = 0; first < count; first += kRowsTogether) {
    const auto part = static_cast<std::size_t>(std::min<std::int64_t>(kRowsTogether, count - first));
    for (std::size_t i = 0; i < part; ++i) {
      index[i] = start + first + static_cast<std::int64_t>(i);
    }
    take({index.data(), part}, {out + static_cast<std::size_t>(first) * out_stride, out_stride});
  }
}

std::unique_ptr<ProductBounds> TieredRows::product_bounds(std::span<const float> query) const {
  std::unique_ptr<ProductBounds> hot = hot_->product_bounds(query);
  std::unique_ptr<ProductBounds> cold = cold_->product_bounds(query);
  return hot == nullptr || cold == nullptr
             ? nullptr
             : std::make_unique<TieredProducts>(numbers_, std::move(hot), std::move(cold));
}

}  // namespace graphbox
