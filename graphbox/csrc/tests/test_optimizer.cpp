#include "table/optimizer.h"

#include <cmath>
#include <limits>
#include <vector>

#include "tests/check.h"

namespace graphbox {
namespace {

TEST(optimizer, any_length_agrees_with_double_precision) {
  for (std::size_t dim = 1; dim < 70; ++dim) {
    std::vector<float> values(dim, 1.0F);
    std::vector<float> gradient(dim);
    double squares = 0;
    for (std::size_t i = 0; i < dim; ++i) {
      gradient[i] = static_cast<float>(i % 7) - 2.5F;
      squares += static_cast<double>(gradient[i]) * static_cast<double>(gradient[i]);
    }
    OptimizerConfig config;
    config.lr = 0.1F;
    config.initial_accumulator = 0.5F;
    const RowUpdate update(config);
    float accumulator = 0;
    std::uint32_t steps = 7;
    const RowState state = {&accumulator, &steps, nullptr};
    update.initialize(state, dim);
    RowGradient row = {values.data(), state, gradient.data(), 1.0F};
    update.apply({&row, 1}, dim);
    CHECK_EQUAL(steps, 1U);
    const double expected = 0.5 + squares / static_cast<double>(dim);
    CHECK(std::abs(static_cast<double>(accumulator) - expected) < 1e-5);
    for (std::size_t i = 0; i < dim; ++i) {
      CHECK(std::abs(static_cast<double>(values[i]) -
                     (1.0 - 0.1 * static_cast<double>(gradient[i]) / std::sqrt(expected))) < 1e-6);
    }
  }
}

TEST(optimizer, finds_what_is_not_finite_wherever_it_is) {
  for (std::size_t dim = 1; dim < 70; ++dim) {
    std::vector<float> values(dim, std::numeric_limits<float>::max());
    CHECK(all_finite(values.data(), dim));
    for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
      for (std::size_t i = 0; i < dim; ++i) {
        values[i] = bad;
        CHECK(!all_finite(values.data(), dim));
        values[i] = 0.0F;
      }
    }
  }
}

TEST(optimizer, uniform_values_reach_both_ends) {
  const std::uint32_t words[] = {0, UINT32_MAX, 0x80000000U};
  float values[3];
  uniform_values(values, words, 3, 2.0F);
  CHECK_EQUAL(values[0], -2.0F);
  CHECK(values[1] < 2.0F && values[1] > 1.999F);
  CHECK_EQUAL(values[2], 0.0F);
}

}  // namespace
}  // namespace graphbox
