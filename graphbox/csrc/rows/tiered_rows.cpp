#include "rows/tiered_rows.h"

#include <algorithm>
#include <array>
#include <utility>

#include "portability/cpu.h"

namespace graphbox {
namespace {

constexpr std::size_t kRowsTogether = 1024;  // that each tier decodes in one call

// Rows of one tier, and the places of their results.
struct TierRows {
  std::array<std::int64_t, kRowsTogether> index;
  std::array<std::int64_t, kRowsTogether> places;
  std::size_t count = 0;

  void add(std::int64_t row, std::int64_t place) {
    index[count] = row;
    places[count++] = place;
  }
  void take_from(const StoredRows& tier, const RowOutput& out) const {
    tier.take({index.data(), count}, {out.values, out.stride, places.data()});
  }
};

// Divides rows between the tiers: adds each to the tier that has it, under its number there.
GRAPHBOX_CLONES
void divide(const RowRanks& ranks, std::span<const std::int64_t> index, const std::int64_t* places,
            std::int64_t first_place, TierRows& hot, TierRows& cold) {
  for (std::size_t i = 0; i < index.size(); ++i) {
    const std::int64_t place = places == nullptr ? first_place + static_cast<std::int64_t>(i) : places[i];
    const RankedRow found = ranks.find(index[i]);
    if (found.is_member) {
      hot.add(found.members_before, place);
    } else {
      cold.add(index[i] - found.members_before, place);
    }
  }
}

// out[i] = the next of the `hot_rows` first of `both` where row start + i is hot, else the next of the others.
GRAPHBOX_CLONES
void interleave(const RowRanks& ranks, std::int64_t start, std::int64_t rows, std::int64_t hot_rows, const float* both,
                float* out) {
  RowRanks::Scan scan(ranks, start);
  std::int64_t hot = 0;
  for (std::int64_t i = 0; i < rows; ++i) {  // without branches, which could not be predicted
    const bool is_hot = scan.next();
    out[i] = both[is_hot ? hot : hot_rows + i - hot];
    hot += is_hot ? 1 : 0;
  }
}

class TieredProducts final : public ProductBounds {
 public:
  TieredProducts(const RowRanks& ranks, std::unique_ptr<ProductBounds> hot, std::unique_ptr<ProductBounds> cold)
      : ranks_(ranks), hot_(std::move(hot)), cold_(std::move(cold)) {}

  // Consecutive rows are consecutive rows of each tier.
  void upper(std::int64_t start, std::int64_t count, float* out) const override {
    std::array<float, kRowsTogether> both;  // of the hot rows, then of the cold ones
    for (std::int64_t first = 0; first < count; first += kRowsTogether) {
      const std::int64_t rows = std::min<std::int64_t>(kRowsTogether, count - first);
      const std::int64_t hot_start = ranks_.find(start + first).members_before;
      const RankedRow last = ranks_.find(start + first + rows - 1);
      const std::int64_t hot_rows = last.members_before + (last.is_member ? 1 : 0) - hot_start;
      hot_->upper(hot_start, hot_rows, both.data());
      cold_->upper(start + first - hot_start, rows - hot_rows, both.data() + hot_rows);
      interleave(ranks_, start + first, rows, hot_rows, both.data(), out + first);
    }
  }

 private:
  const RowRanks& ranks_;
  std::unique_ptr<ProductBounds> hot_;
  std::unique_ptr<ProductBounds> cold_;
};

}  // namespace

TieredRows::TieredRows(std::span<const std::uint8_t> is_hot, std::shared_ptr<const StoredRows> hot,
                       std::shared_ptr<const StoredRows> cold)
    : StoredRows(hot->rows() + cold->rows(), hot->dim()),
      ranks_(hot->rows() + cold->rows()),
      hot_(std::move(hot)),
      cold_(std::move(cold)) {
  for (std::int64_t row = 0; row < rows(); ++row) {
    if ((is_hot[static_cast<std::size_t>(row / 8)] >> (row % 8) & 1) != 0) {
      ranks_.insert(row);
    }
  }
  ranks_.number();
}

std::uint64_t TieredRows::bytes() const { return ranks_.bytes() + hot_->bytes() + cold_->bytes(); }

void TieredRows::take(std::span<const std::int64_t> index, const RowOutput& out) const {
  for (std::size_t start = 0; start < index.size(); start += kRowsTogether) {
    TierRows hot;
    TierRows cold;
    const std::span<const std::int64_t> part = index.subspan(start, std::min(kRowsTogether, index.size() - start));
    const std::int64_t* const places = out.places == nullptr ? nullptr : out.places + start;
    divide(ranks_, part, places, static_cast<std::int64_t>(start), hot, cold);
    hot.take_from(*hot_, out);
    cold.take_from(*cold_, out);
  }
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
             : std::make_unique<TieredProducts>(ranks_, std::move(hot), std::move(cold));
}

}  // namespace graphbox
