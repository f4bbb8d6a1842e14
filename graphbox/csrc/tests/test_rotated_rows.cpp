#include "rows/rotated_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "rows/walsh_hadamard.h"
#include "table/float16.h"
#include "tests/check.h"

namespace graphbox {
namespace {

constexpr float kUntouched = -12345.0F;
constexpr int kEachBits[] = {2, 3, 4};

// Random rows, and what they are by the definition of the encoding.
struct Example {
  std::vector<std::uint8_t> packed;
  std::vector<std::int8_t> signs;
  int bits;
  std::int64_t rows;
  std::size_t dim;

  Example(int bits, std::int64_t rows, std::size_t dim) : bits(bits), rows(rows), dim(dim) {
    std::uint32_t state = 99;
    const auto next = [&state] { return (state = state * 1664525U + 1013904223U) >> 8; };
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::size_t i = 0; i < rotated_row_bytes(bits, dim); ++i) {
        const bool is_high_of_factor = i < 4 && i % 2 == 1;
        packed.push_back(static_cast<std::uint8_t>(next() >> 8 & (is_high_of_factor ? 0xBB : 0xFF)));
      }
    }
    for (std::size_t i = 0; i < dim; ++i) {
      signs.push_back((next() >> 10 & 1) != 0 ? 1 : -1);
    }
  }

  RotatedRows stored() const { return RotatedRows({bits, packed.data(), signs.data(), rows, dim}); }

  int code(const std::uint8_t* codes, std::size_t i) const {
    if (bits == 4) {
      return codes[i / 2] >> (4 * (i % 2)) & 15;
    }
    const int low = codes[i / 4] >> (2 * (i % 4)) & 3;
    return bits == 2 ? low : low | (codes[(dim + 3) / 4 + i / 8] >> (i % 8) & 1) << 2;
  }

  std::vector<float> row(std::int64_t number) const {
    const std::uint8_t* const bytes = packed.data() + static_cast<std::size_t>(number) * rotated_row_bytes(bits, dim);
    const float scale = float16_value(static_cast<std::uint16_t>(bytes[0] | bytes[1] << 8));
    const float bias = float16_value(static_cast<std::uint16_t>(bytes[2] | bytes[3] << 8));
    std::vector<float> values;
    for (std::size_t start = 0; start < dim;) {
      const std::size_t size = std::min<std::size_t>(std::bit_floor(dim - start), 256);
      const double root = std::sqrt(static_cast<double>(size));
      for (std::size_t i = 0; i < size; ++i) {
        int sum = 0;
        for (std::size_t j = 0; j < size; ++j) {
          sum += std::popcount(i & j) % 2 == 0 ? code(bytes + 4, start + j) : -code(bytes + 4, start + j);
        }
        const auto sign = static_cast<float>(signs[start + i]);
        volatile float scaled = static_cast<float>(sum) * scale;
        volatile float value = scaled * (static_cast<float>(1 / root) * sign);
        if (i == 0) {
          volatile float share = bias * (static_cast<float>(root) * sign);
          value = value + share;
        }
        values.push_back(float{value});
      }
      start += size;
    }
    return values;
  }
};

TEST(rotated_rows, rows_of_any_length_are_those_of_the_matrix) {
  for (const int bits : kEachBits) {
    for (std::size_t dim = 1; dim < 140; ++dim) {
      const Example example(bits, 11, dim);
      const std::vector<std::int64_t> index = {10, 0, 7, 7, 3, 1, 2, 4, 5};
      const std::size_t stride = dim + 3;
      std::vector<float> out(index.size() * stride, kUntouched);
      example.stored().take(index, {out.data(), stride});
      for (std::size_t i = 0; i < index.size(); ++i) {
        const std::vector<float> expected = example.row(index[i]);
        for (std::size_t column = 0; column < stride; ++column) {
          CHECK_EQUAL(out[i * stride + column], column < dim ? expected[column] : kUntouched);
        }
      }
    }
  }
}

TEST(rotated_rows, long_rows_have_blocks_of_256) {
  for (const int bits : kEachBits) {
    for (const std::size_t dim : {256U, 300U, 519U, 1024U}) {
      const Example example(bits, 5, dim);
      std::vector<float> out(4 * dim + 1, kUntouched);
      example.stored().decode(1, 4, out.data(), dim);
      for (std::int64_t i = 0; i < 4; ++i) {
        const std::vector<float> expected = example.row(1 + i);
        CHECK(std::equal(expected.begin(), expected.end(), out.begin() + i * static_cast<std::int64_t>(dim)));
      }
      CHECK_EQUAL(out.back(), kUntouched);
    }
  }
}

TEST(rotated_rows, rows_go_to_their_places) {
  const Example example(4, 9, 20);
  const std::vector<std::int64_t> index = {3, 8, 0};
  const std::vector<std::int64_t> places = {4, 1, 3};
  std::vector<float> out(std::size_t{6} * 20, kUntouched);
  example.stored().take(index, {out.data(), 20, places.data()});
  for (std::size_t place = 0; place < 6; ++place) {
    const auto found = std::find(places.begin(), places.end(), static_cast<std::int64_t>(place));
    for (std::size_t column = 0; column < 20; ++column) {
      const float expected =
          found == places.end() ? kUntouched : example.row(index[static_cast<std::size_t>(found - places.begin())])[column];
      CHECK_EQUAL(out[place * 20 + column], expected);
    }
  }
}

TEST(rotated_rows, defaults_and_sums_are_those_of_the_rows) {
  const Example example(3, 30, 37);
  std::vector<std::int64_t> index;
  std::vector<float> weights;
  for (std::int64_t i = 0; i < 600; ++i) {
    index.push_back(i % 7 == 3 ? -1 : i * 11 % 30);
    weights.push_back(static_cast<float>(i) / 7.0F - 2.0F);
  }
  const std::vector<float> default_row(37, 2.5F);
  std::vector<float> out(600 * 37);
  example.stored().take_or_default({index, default_row.data()}, out.data(), 37);
  for (std::size_t i = 0; i < 600; ++i) {
    CHECK_EQUAL(out[i * 37 + 5], index[i] < 0 ? 2.5F : example.row(index[i])[5]);
  }
  const std::vector<std::int64_t> offsets = {0, 0, 1, 3, 4, 4, 70, 600, 600};
  std::vector<float> sums((offsets.size() - 1) * 37, kUntouched);
  example.stored().sum({index.data(), weights.data(), offsets}, sums.data());
  for (std::size_t bag = 0; bag + 1 < offsets.size(); ++bag) {
    volatile float sum = 0;
    for (auto i = static_cast<std::size_t>(offsets[bag]); i < static_cast<std::size_t>(offsets[bag + 1]); ++i) {
      if (index[i] >= 0) {
        volatile float weighted = example.row(index[i])[5] * weights[i];
        sum = sum + weighted;
      }
    }
    CHECK_EQUAL(sums[bag * 37 + 5], sum);
  }
}

}  // namespace
}  // namespace graphbox
