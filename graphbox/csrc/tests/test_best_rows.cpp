#include "rows/best_rows.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "rows/elementwise_rows.h"
#include "tests/check.h"

namespace graphbox {
namespace {

// Codes with scale 1 and bias -2: small integers, whose products are exact in any order.
struct Example {
  std::vector<std::uint8_t> codes;
  std::vector<std::uint16_t> scale_bias;
  std::vector<float> queries;
  ElementArrays stored{};

  Example(std::int64_t rows, std::size_t dim, std::int64_t count) {
    std::uint32_t state = 7;
    const auto next = [&state] { return (state = state * 1664525U + 1013904223U) >> 24; };
    for (std::size_t i = 0; i < static_cast<std::size_t>(rows) * dim; ++i) {
      codes.push_back(static_cast<std::uint8_t>(next() % 5));
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      scale_bias.insert(scale_bias.end(), {0x3C00, 0xC000});
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(count) * dim; ++i) {
      queries.push_back(static_cast<float>(next() % 5) - 2.0F);
    }
    stored = {ElementEncoding::kInt8, codes.data(), scale_bias.data(), rows, dim};
  }

  float product(std::size_t query, std::size_t row) const {
    float sum = 0;
    for (std::size_t i = 0; i < stored.dim; ++i) {
      sum += queries[query * stored.dim + i] * (static_cast<float>(codes[row * stored.dim + i]) - 2.0F);
    }
    return sum;
  }
};

TEST(best_rows, rows_of_any_length_are_ranked_with_ties_to_the_lower_row) {
  for (std::size_t dim = 1; dim < 70; ++dim) {
    for (const std::int64_t rows : {1, 2, 37, 1100}) {
      const std::size_t count = 3;
      const Example example(rows, dim, count);
      for (const std::int64_t k : {std::int64_t{0}, std::int64_t{1}, std::min<std::int64_t>(20, rows), rows}) {
        std::vector<std::int64_t> index(count * static_cast<std::size_t>(k) + 1, -7);
        std::vector<float> scores(index.size(), -7.0F);
        best_rows(ElementwiseRows(example.stored), {example.queries.data(), count, nullptr}, k, index.data(), scores.data());
        CHECK_EQUAL(index.back(), -7);
        for (std::size_t query = 0; query < count && k > 0; ++query) {
          std::vector<std::int64_t> order(static_cast<std::size_t>(rows));
          std::iota(order.begin(), order.end(), 0);
          std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
            return example.product(query, static_cast<std::size_t>(a)) >
                   example.product(query, static_cast<std::size_t>(b));
          });
          for (std::size_t i = 0; i < static_cast<std::size_t>(k); ++i) {
            const std::size_t at = query * static_cast<std::size_t>(k) + i;
            CHECK_EQUAL(index[at], order[i]);
            CHECK_EQUAL(scores[at], example.product(query, static_cast<std::size_t>(order[i])));
          }
        }
      }
    }
  }
}

TEST(best_rows, products_are_divided_by_the_lengths_of_rows) {
  const std::vector<float> values = {4, 1, 8, -8};
  const std::vector<float> lengths = {4, 0.5F, 16, 2};
  const float query = 1;
  const ElementwiseRows stored({ElementEncoding::kFloat32, values.data(), nullptr, 4, 1});
  std::vector<std::int64_t> index(4);
  std::vector<float> scores(4);
  best_rows(stored, {&query, 1, lengths.data()}, 4, index.data(), scores.data());
  CHECK(index == std::vector<std::int64_t>({1, 0, 2, 3}));
  CHECK(scores == std::vector<float>({2, 1, 0.5F, -4}));
}

TEST(best_rows, what_is_no_number_comes_last) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {std::nanf(""), 3, infinity, -infinity, std::nanf(""), -1};
  const float query = 1;
  const ElementwiseRows stored({ElementEncoding::kFloat32, values.data(), nullptr, 6, 1});
  std::vector<std::int64_t> index(6);
  std::vector<float> scores(6);
  best_rows(stored, {&query, 1, nullptr}, 6, index.data(), scores.data());
  CHECK(index == std::vector<std::int64_t>({2, 1, 5, 0, 3, 4}));
  index.resize(3);
  best_rows(stored, {&query, 1, nullptr}, 3, index.data(), scores.data());
  CHECK(index == std::vector<std::int64_t>({2, 1, 5}));
}

}  // namespace
}  // namespace graphbox
