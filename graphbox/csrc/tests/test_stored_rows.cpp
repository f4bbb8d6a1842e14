#include "rows/elementwise_rows.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "table/float16.h"
#include "tests/check.h"

namespace graphbox {
namespace {

constexpr float kUntouched = -12345.0F;

// Rows of each encoding, and what they are by the definition of it.
struct Example {
  std::vector<float> floats;
  std::vector<std::uint16_t> halves;
  std::vector<std::uint8_t> codes;
  std::vector<std::uint16_t> scale_bias;
  ElementArrays stored{};

  Example(ElementEncoding encoding, std::int64_t rows, std::size_t dim) {
    const std::size_t count = static_cast<std::size_t>(rows) * dim;
    std::uint32_t state = 12345;
    const auto next = [&state] { return state = state * 1664525U + 1013904223U; };
    for (std::size_t i = 0; i < count; ++i) {
      floats.push_back(static_cast<float>(next() >> 8) / 1000.0F - 3000.0F);
      halves.push_back(static_cast<std::uint16_t>((next() >> 9) & 0xBBFF));  // finite, small ones among them
      codes.push_back(static_cast<std::uint8_t>(next() >> 24));
    }
    for (std::int64_t i = 0; i < 2 * rows; ++i) {
      scale_bias.push_back(static_cast<std::uint16_t>((next() >> 9) & 0xBBFF));
    }
    const void* const values = encoding == ElementEncoding::kFloat32   ? static_cast<const void*>(floats.data())
                               : encoding == ElementEncoding::kFloat16 ? static_cast<const void*>(halves.data())
                                                                   : static_cast<const void*>(codes.data());
    stored = {encoding, values, scale_bias.data(), rows, dim};
  }

  float value(std::int64_t row, std::size_t column) const {
    const std::size_t at = static_cast<std::size_t>(row) * stored.dim + column;
    switch (stored.encoding) {
      case ElementEncoding::kFloat32:
        return floats[at];
      case ElementEncoding::kFloat16:
        return float16_value(halves[at]);
      case ElementEncoding::kInt8:
        break;
    }
    const auto pair = static_cast<std::size_t>(2 * row);
    // In two steps: a fused multiplication and addition would round once.
    volatile float product = static_cast<float>(codes[at]) * float16_value(scale_bias[pair]);
    return product + float16_value(scale_bias[pair + 1]);
  }
};

constexpr ElementEncoding kEncodings[] = {ElementEncoding::kFloat32, ElementEncoding::kFloat16, ElementEncoding::kInt8};

TEST(stored_rows, rows_of_any_length_are_their_values) {
  for (const ElementEncoding encoding : kEncodings) {
    for (std::size_t dim = 1; dim < 140; ++dim) {
      const Example example(encoding, 21, dim);
      const std::vector<std::int64_t> index = {20, 0, 7, 7, 3, 1, 2, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15, 0, 20};
      const std::size_t stride = dim + 3;
      std::vector<float> out(index.size() * stride, kUntouched);
      ElementwiseRows(example.stored).take(index, {out.data(), stride});
      for (std::size_t i = 0; i < index.size(); ++i) {
        for (std::size_t column = 0; column < stride; ++column) {
          CHECK_EQUAL(out[i * stride + column], column < dim ? example.value(index[i], column) : kUntouched);
        }
      }
    }
  }
}

TEST(stored_rows, entries_of_minus_one_have_the_default_row) {
  for (const ElementEncoding encoding : kEncodings) {
    for (const std::size_t dim : {1U, 7U, 16U, 64U, 139U}) {
      const Example example(encoding, 21, dim);
      std::vector<float> default_row;
      for (std::size_t column = 0; column < dim; ++column) {
        default_row.push_back(static_cast<float>(column) - 0.5F);
      }
      const std::size_t stride = dim + 3;
      // -1 at both ends, alone, in a row, and as far ahead as rows are prefetched.
      std::vector<std::int64_t> index = {-1, 20, -1, -1, 0, 7, 7, -1, 3, 1, 2, 4, 5, 6, 8, 9, -1, 10, 11, 12, 20, -1};
      for (const std::size_t count : {index.size(), std::size_t{1}, std::size_t{0}}) {
        index.resize(count);
        std::vector<float> out(count * stride + 1, kUntouched);
        ElementwiseRows(example.stored).take_or_default({index, default_row.data()}, out.data(), stride);
        for (std::size_t i = 0; i < count; ++i) {
          for (std::size_t column = 0; column < stride; ++column) {
            const float expected = column >= dim    ? kUntouched
                                   : index[i] < 0   ? default_row[column]
                                                    : example.value(index[i], column);
            CHECK_EQUAL(out[i * stride + column], expected);
          }
        }
        CHECK_EQUAL(out.back(), kUntouched);
      }
    }
  }
}

TEST(stored_rows, blocks_are_their_rows) {
  for (const ElementEncoding encoding : kEncodings) {
    const Example example(encoding, 9, 33);
    std::vector<float> out(4 * 33 + 1, kUntouched);
    ElementwiseRows(example.stored).decode(5, 4, out.data(), 33);
    for (std::size_t i = 0; i < 4 * 33; ++i) {
      CHECK_EQUAL(out[i], example.value(static_cast<std::int64_t>(5 + i / 33), i % 33));
    }
    CHECK_EQUAL(out.back(), kUntouched);
    ElementwiseRows(example.stored).decode(9, 0, nullptr, 33);
    ElementwiseRows(example.stored).take({}, {nullptr, 33});
  }
}

TEST(stored_rows, sums_are_added_in_the_order_of_their_bags) {
  for (const ElementEncoding encoding : kEncodings) {
    for (const std::size_t dim : {1U, 16U, 37U, 64U}) {
      const Example example(encoding, 30, dim);
      std::vector<std::int64_t> index;
      std::vector<float> weights;
      for (std::int64_t i = 0; i < 60; ++i) {
        index.push_back(i % 7 == 3 ? -1 : i * 11 % 30);
        weights.push_back(static_cast<float>(i) / 7.0F - 2.0F);
      }
      const std::vector<std::int64_t> offsets = {0, 0, 1, 3, 4, 4, 40, 60};
      std::vector<float> out((offsets.size() - 1) * dim, kUntouched);
      ElementwiseRows(example.stored).sum({index.data(), weights.data(), offsets}, out.data());
      for (std::size_t bag = 0; bag + 1 < offsets.size(); ++bag) {
        for (std::size_t column = 0; column < dim; ++column) {
          volatile float sum = 0;
          for (auto i = static_cast<std::size_t>(offsets[bag]); i < static_cast<std::size_t>(offsets[bag + 1]); ++i) {
            if (index[i] >= 0) {
              volatile float weighted = example.value(index[i], column) * weights[i];
              sum = sum + weighted;
            }
          }
          CHECK_EQUAL(out[bag * dim + column], sum);
        }
      }
    }
  }
}

TEST(stored_rows, the_first_entry_outside_is_found) {
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  CHECK_EQUAL(first_outside(std::vector<std::int64_t>{}, 0, 0), -1);
  CHECK_EQUAL(first_outside(std::vector<std::int64_t>{0, 4}, 0, 5), -1);
  CHECK_EQUAL(first_outside(std::vector<std::int64_t>{0, 5, -1}, 0, 5), 1);
  CHECK_EQUAL(first_outside(std::vector<std::int64_t>{-1, -1, -2}, -1, 5), 2);
  CHECK_EQUAL(first_outside(std::vector<std::int64_t>{kLeast}, 0, 5), 0);
  CHECK_EQUAL(first_outside(std::vector<std::int64_t>{4, kMost}, 0, 5), 1);
}

}  // namespace
}  // namespace graphbox
