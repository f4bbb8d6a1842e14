#include "table/float16.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/check.h"

namespace graphbox {
namespace {

// By the definition of binary16.
double value_of(std::uint16_t half) {
  const int exponent = half >> 10 & 31;
  const double fraction = (half & 1023) / 1024.0;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

bool is_finite(std::uint16_t half) { return (half & 0x7C00) != 0x7C00; }

std::uint16_t nearest(float value) {
  std::uint16_t half = 0;
  to_float16(&value, &half, 1);
  return half;
}

std::vector<std::uint16_t> all_halves() {
  std::vector<std::uint16_t> halves(1 << 16);
  for (std::size_t i = 0; i < halves.size(); ++i) {
    halves[i] = static_cast<std::uint16_t>(i);
  }
  return halves;
}

TEST(float16, every_value_is_read_and_written_back) {
  const std::vector<std::uint16_t> halves = all_halves();
  std::vector<float> values(halves.size());
  from_float16(halves.data(), values.data(), halves.size());
  std::vector<std::uint16_t> back(halves.size());
  to_float16(values.data(), back.data(), halves.size());
  for (std::size_t i = 0; i < halves.size(); ++i) {
    if (is_finite(halves[i])) {
      CHECK_EQUAL(static_cast<double>(values[i]), value_of(halves[i]));
      CHECK_EQUAL(back[i], halves[i]);
    } else if ((halves[i] & 0x3FF) == 0) {
      CHECK(std::isinf(values[i]));
      CHECK_EQUAL(back[i], (halves[i] & 0x8000) | 0x7BFF);
    } else {
      CHECK(std::isnan(values[i]));
      CHECK_EQUAL(back[i], (halves[i] & 0x8000) | 0x7E00);
    }
  }
}

TEST(float16, the_nearest_is_taken_and_the_even_one_between_two) {
  for (std::uint16_t half = 0; half < 0x7BFF; ++half) {
    const double low = value_of(half);
    const double high = value_of(static_cast<std::uint16_t>(half + 1));
    const auto middle = static_cast<float>((low + high) / 2);  // exact
    CHECK_EQUAL(nearest(middle), half % 2 == 0 ? half : half + 1);
    CHECK_EQUAL(nearest(std::nextafter(middle, 0.0F)), half);
    CHECK_EQUAL(nearest(std::nextafter(middle, 1e9F)), half + 1);
    CHECK_EQUAL(nearest(-middle), nearest(middle) | 0x8000);
  }
  CHECK_EQUAL(nearest(65504.0F), 0x7BFF);
  CHECK_EQUAL(nearest(1e20F), 0x7BFF);
  CHECK_EQUAL(nearest(-std::numeric_limits<float>::infinity()), 0xFBFF);
}

// Of the 2^13 random numbers, as many round up as the value is above the lower neighbour.
TEST(float16, the_share_that_is_rounded_up_is_the_rest) {
  constexpr std::uint32_t kDraws = 1 << 13;
  std::vector<float> values(kDraws);
  std::vector<std::uint32_t> words(kDraws / 2);
  std::vector<std::uint16_t> halves(kDraws);
  for (std::uint32_t i = 0; i < kDraws / 2; ++i) {
    words[i] = (2 * i) | (2 * i + 1) << 16 | 0xE000E000U;  // the upper three bits of each do not count
  }
  for (const int half : {0, 1, 5, 1022, 1023, 1024, 1025, 0x3C00, 0x4BCD, 0x7BFE}) {
    const double low = value_of(static_cast<std::uint16_t>(half));
    const double high = value_of(static_cast<std::uint16_t>(half + 1));
    for (const std::uint32_t share : {0U, 1U, 100U, kDraws / 2, kDraws - 1}) {
      const auto value = static_cast<float>(low + (high - low) * share / kDraws);
      for (const float sign : {1.0F, -1.0F}) {
        std::fill(values.begin(), values.end(), sign * value);
        to_float16_stochastic(values.data(), words.data(), halves.data(), kDraws);
        const int signed_half = half | (sign < 0 ? 0x8000 : 0);
        CHECK_EQUAL(std::count(halves.begin(), halves.end(), signed_half + 1), static_cast<std::ptrdiff_t>(share));
        CHECK_EQUAL(std::count(halves.begin(), halves.end(), signed_half), static_cast<std::ptrdiff_t>(kDraws - share));
      }
    }
  }
}

TEST(float16, any_length) {
  for (std::size_t count = 0; count < 70; ++count) {
    std::vector<float> values(count, 1.5F);
    std::vector<std::uint32_t> words((count + 1) / 2, 0xFFFFFFFFU);
    std::vector<std::uint16_t> halves(count + 1, 7);
    to_float16_stochastic(values.data(), words.data(), halves.data(), count);
    for (std::size_t i = 0; i < count; ++i) {
      CHECK_EQUAL(halves[i], 0x3E00);
    }
    CHECK_EQUAL(halves[count], 7);
  }
}

}  // namespace
}  // namespace graphbox
