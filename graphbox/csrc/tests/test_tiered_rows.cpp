#include "rows/tiered_rows.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "rows/elementwise_rows.h"
#include "tests/check.h"

namespace graphbox {
namespace {

// Row i is (i, -i); the hot rows are in one array, the others in another.
struct Example {
  std::vector<std::uint8_t> is_hot;
  std::vector<float> hot;
  std::vector<float> cold;
  std::int64_t rows;

  Example(std::int64_t rows, std::int64_t step) : is_hot(static_cast<std::size_t>((rows + 7) / 8)), rows(rows) {
    for (std::int64_t row = 0; row < rows; ++row) {
      const bool chosen = step > 0 && row * 7 % step == 0;
      std::vector<float>& tier = chosen ? hot : cold;
      tier.insert(tier.end(), {static_cast<float>(row), -static_cast<float>(row)});
      if (chosen) {
        is_hot[static_cast<std::size_t>(row / 8)] |= static_cast<std::uint8_t>(1 << (row % 8));
      }
    }
  }

  static std::shared_ptr<const StoredRows> tier(const std::vector<float>& values) {
    return std::make_shared<const ElementwiseRows>(ElementArrays{
        ElementEncoding::kFloat32, values.data(), nullptr, static_cast<std::int64_t>(values.size() / 2), 2});
  }
  TieredRows stored() const { return TieredRows(is_hot, tier(hot), tier(cold)); }
};

TEST(tiered_rows, rows_are_those_of_their_tiers) {
  for (const std::int64_t rows : {1, 8, 449, 3000}) {
    for (const std::int64_t step : {0, 1, 2, 5, 1000}) {
      const Example example(rows, step);
      const TieredRows stored = example.stored();
      CHECK_EQUAL(stored.rows(), rows);
      std::vector<float> all(static_cast<std::size_t>(rows) * 2);
      stored.decode(0, rows, all.data(), 2);
      std::vector<std::int64_t> index;
      for (std::int64_t i = 0; i < 1000; ++i) {
        index.push_back(i * 613 % rows);
      }
      std::vector<float> taken(index.size() * 3, 0.5F);
      stored.take(index, {taken.data(), 3});
      for (std::int64_t row = 0; row < rows; ++row) {
        CHECK_EQUAL(all[static_cast<std::size_t>(2 * row)], static_cast<float>(row));
        CHECK_EQUAL(all[static_cast<std::size_t>(2 * row + 1)], -static_cast<float>(row));
      }
      for (std::size_t i = 0; i < index.size(); ++i) {
        CHECK_EQUAL(taken[3 * i], static_cast<float>(index[i]));
        CHECK_EQUAL(taken[3 * i + 1], -static_cast<float>(index[i]));
        CHECK_EQUAL(taken[3 * i + 2], 0.5F);
      }
    }
  }
}

TEST(tiered_rows, places_lead_through_the_tiers) {
  const Example example(100, 3);
  const std::vector<std::int64_t> index = {99, 3, 4, 50};
  const std::vector<std::int64_t> places = {2, 0, 3, 1};
  std::vector<float> out(8);
  example.stored().take(index, {out.data(), 2, places.data()});
  CHECK(out == std::vector<float>({3, -3, 50, -50, 99, -99, 4, -4}));
}

}  // namespace
}  // namespace graphbox
