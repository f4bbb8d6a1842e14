#include "rows/product_bounds.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "portability/instruction_set.h"
#include "rows/best_rows.h"
#include "rows/clustered_rows.h"
#include "rows/rotated_rows.h"
#include "rows/same_rows.h"
#include "rows/tiered_rows.h"
#include "table/float16.h"
#include "tests/check.h"

namespace graphbox {
namespace {

class Random {
 public:
  explicit Random(std::uint32_t seed) : state_(seed) {}
  std::uint32_t bits() { return (state_ = state_ * 1664525U + 1013904223U) >> 8; }
  float number() { return static_cast<float>(bits() % 2001) * 0.001F - 1.0F; }

 private:
  std::uint32_t state_;
};

// Random rows with factors of any size and sign, none of them infinite.
struct Rotated {
  std::vector<std::uint8_t> packed;
  std::vector<std::int8_t> signs;
  std::shared_ptr<const RotatedRows> stored;

  Rotated(int bits, std::int64_t rows, std::size_t dim, Random& random) {
    const std::size_t row_bytes = rotated_row_bytes(bits, dim);
    for (std::size_t i = 0; i < static_cast<std::size_t>(rows) * row_bytes; ++i) {
      const bool is_high_of_factor = i % row_bytes == 1 || i % row_bytes == 3;
      packed.push_back(static_cast<std::uint8_t>(random.bits() >> 8 & (is_high_of_factor ? 0xBB : 0xFF)));
    }
    for (std::size_t i = 0; i < dim; ++i) {
      signs.push_back((random.bits() >> 10 & 1) != 0 ? 1 : -1);
    }
    stored = std::make_shared<const RotatedRows>(RotatedArrays{bits, packed.data(), signs.data(), rows, dim});
  }
};

// Rows of another table, all of which a ranking decodes.
class WithoutBounds final : public StoredRows {
 public:
  explicit WithoutBounds(const StoredRows& rows) : StoredRows(rows.rows(), rows.dim()), rows_(rows) {}
  std::uint64_t bytes() const override { return rows_.bytes(); }
  void take(std::span<const std::int64_t> index, const RowOutput& out) const override { rows_.take(index, out); }
  void decode(std::int64_t start, std::int64_t count, float* out, std::size_t out_stride) const override {
    rows_.decode(start, count, out, out_stride);
  }

 private:
  const StoredRows& rows_;
};

std::vector<float> random_vector(std::size_t size, Random& random) {
  std::vector<float> vector(size);
  std::generate(vector.begin(), vector.end(), [&random] { return random.number(); });
  return vector;
}

// Same rows, same bits of the scores, with and without bounds; also divided by lengths.
void check_ranking(const StoredRows& stored, Random& random) {
  const std::size_t count = 3;
  std::vector<float> queries = random_vector(count * stored.dim(), random);
  std::fill_n(queries.begin(), stored.dim(), 0.0F);
  std::vector<float> lengths(static_cast<std::size_t>(stored.rows()));
  std::generate(lengths.begin(), lengths.end(), [&random] { return 2.0F + random.number(); });
  for (const float* divisors : {static_cast<const float*>(nullptr), static_cast<const float*>(lengths.data())}) {
    const std::int64_t k = stored.rows() / 20;
    std::vector<std::int64_t> index(count * static_cast<std::size_t>(k));
    std::vector<float> scores(index.size());
    std::vector<std::int64_t> expected_index(index.size());
    std::vector<float> expected_scores(index.size());
    const RowQueries wanted{queries.data(), count, divisors};
    best_rows(stored, wanted, k, index.data(), scores.data());
    best_rows(WithoutBounds(stored), wanted, k, expected_index.data(), expected_scores.data());
    CHECK(index == expected_index);
    CHECK(scores == expected_scores);
  }
}

TEST(product_bounds, bounds_are_just_above_the_products) {
  Random random(5);
  for (const int bits : {2, 3, 4}) {
    for (const std::size_t dim : {1U, 3U, 8U, 13U, 16U, 40U, 64U, 100U, 127U, 128U, 256U, 300U}) {
      const std::int64_t rows = 131;
      const Rotated table(bits, rows, dim, random);
      std::vector<float> decoded(static_cast<std::size_t>(rows) * dim);
      table.stored->decode(0, rows, decoded.data(), dim);
      const std::vector<float> query = random_vector(dim, random);
      const std::unique_ptr<ProductBounds> bounds = table.stored->product_bounds(query);
      CHECK(bounds != nullptr);
      for (const InstructionSet set : instruction_sets()) {
        use_instruction_set(set);
        std::vector<float> upper(static_cast<std::size_t>(rows));
        bounds->upper(0, 2, upper.data());
        bounds->upper(2, rows - 2, upper.data() + 2);
        for (std::size_t row = 0; row < upper.size(); ++row) {
          const std::span<const float> values(decoded.data() + row * dim, dim);
          double product = 0;
          for (std::size_t i = 0; i < dim; ++i) {
            product += double{values[i]} * double{query[i]};
          }
          CHECK(double{upper[row]} >= product);
          std::uint16_t factors[2];
          std::memcpy(factors, table.packed.data() + row * rotated_row_bytes(bits, dim), sizeof(factors));
          const double largest = 16.0 * std::abs(double{float16_value(factors[0])}) +
                                 std::abs(double{float16_value(factors[1])});
          const double slack = 0.02 * length_of(query) * std::sqrt(static_cast<double>(dim)) * largest;
          CHECK(double{upper[row]} - product <= slack);
        }
      }
      use_instruction_set(instruction_sets().back());
    }
  }
}

TEST(product_bounds, rankings_are_those_of_decoded_rows) {
  Random random(9);
  for (const std::size_t dim : {1U, 7U, 16U, 64U, 100U, 260U}) {
    for (const int bits : {2, 3, 4}) {
      const Rotated table(bits, 2500, dim, random);
      check_ranking(*table.stored, random);
      const std::vector<float> centroids = random_vector(7 * dim, random);
      std::vector<std::uint8_t> clusters(2500);
      std::generate(clusters.begin(), clusters.end(), [&random] { return static_cast<std::uint8_t>(random.bits() % 7); });
      check_ranking(ClusteredRows({clusters.data(), centroids.data(), 7}, table.stored), random);
      std::vector<std::uint8_t> is_hot(3000 / 8);
      std::int64_t hot_rows = 0;
      for (std::size_t row = 0; row < 3000; ++row) {
        if (hot_rows < 500 && (random.bits() % 5 == 0 || row >= 2500)) {
          is_hot[row / 8] |= static_cast<std::uint8_t>(1U << (row % 8));
          ++hot_rows;
        }
      }
      CHECK_EQUAL(hot_rows, 500);
      const Rotated hot(4, 500, dim, random);
      check_ranking(TieredRows(is_hot, hot.stored, table.stored), random);
      const std::vector<float> same = random_vector(dim, random);
      const auto all_same = std::make_shared<const SameRows>(same.data(), 2500, dim);
      check_ranking(*all_same, random);
      const auto centroid = std::make_shared<const ClusteredRows>(
          ClusterArrays{clusters.data(), centroids.data(), 7}, all_same);
      check_ranking(TieredRows(is_hot, hot.stored, centroid), random);
    }
  }
}

TEST(product_bounds, queries_at_the_ends_of_float32_are_ranked_too) {
  Random random(3);
  const Rotated table(4, 400, 24, random);
  std::vector<float> query = random_vector(24, random);
  for (const float factor : {1e38F, 1e-38F, 1e-44F, 1e30F}) {
    std::vector<float> scaled(query);
    std::transform(query.begin(), query.end(), scaled.begin(), [factor](float each) { return each * factor; });
    std::vector<std::int64_t> index(9);
    std::vector<std::int64_t> expected(9);
    std::vector<float> scores(9);
    best_rows(*table.stored, {scaled.data(), 1, nullptr}, 9, index.data(), scores.data());
    best_rows(WithoutBounds(*table.stored), {scaled.data(), 1, nullptr}, 9, expected.data(), scores.data());
    CHECK(index == expected);
  }
}

TEST(product_bounds, rows_that_are_no_numbers_are_ranked_as_decoded_ones) {
  Random random(4);
  Rotated table(3, 400, 20, random);
  for (const std::size_t row : {3U, 77U, 399U}) {
    const std::uint16_t factor = row == 77 ? 0x7C00 : 0x7E00;  // infinity, NaN
    std::memcpy(table.packed.data() + row * rotated_row_bytes(3, 20), &factor, sizeof(factor));
  }
  check_ranking(*table.stored, random);
}

}  // namespace
}  // namespace graphbox
