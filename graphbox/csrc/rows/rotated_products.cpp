#include "rows/rotated_products.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "portability/cpu.h"
#include "portability/instruction_set.h"
#include "rows/rotated_codes.h"
#include "table/float16.h"

namespace graphbox {
namespace {

constexpr std::size_t kRowsTogether = 64;  // a multiple of the rows of any vector
constexpr std::size_t kQuarters = 4;       // sums of a row

// Half of the number of codes: what is left of a code is at most as far from zero.
constexpr std::int32_t middle_code(int bits) { return 1 << (bits - 1); }

// Eight terms of a code and a factor fit 16 bits.
constexpr std::int32_t largest_factor(int bits) {
  return std::numeric_limits<std::int16_t>::max() / (static_cast<std::int32_t>(kShortLanes) * middle_code(bits));
}

// The transform of the query's part of each block, times the weights.
std::vector<double> turned_query(const RotatedRows& table, std::span<const float> query) {
  std::vector<double> turned(table.dim());
  for (std::size_t i = 0; i < turned.size(); ++i) {
    turned[i] = double{query[i]} * double{table.weights()[i]};
  }
  for (const RotatedRows::Block& block : table.blocks()) {
    for (std::size_t distance = 1; distance < block.size; distance *= 2) {
      for (std::size_t i = block.start; i < block.start + block.size; ++i) {
        if (((i - block.start) & distance) == 0) {
          const double sum = turned[i] + turned[i + distance];
          turned[i + distance] = turned[i] - turned[i + distance];
          turned[i] = sum;
        }
      }
    }
  }
  return turned;
}

template <std::size_t kRows>
using RowSums [[gnu::vector_size(16 * kRows)]] = std::int32_t;

// Adds (code - middle) * factor over a part of kSize elements; four numbers for each row.
template <int kBits, std::size_t kSize, std::size_t kRows>
GRAPHBOX_INLINE void add_part(const Codes<kBits, kRows>& codes, std::size_t start, const std::int16_t* factors,
                              const std::int16_t* offsets, RowSums<kRows>& sums) {
  using Unsigned = typename ShortGroup<kRows>::Unsigned;
  ShortBlock<kRows> block;
  codes.template unpack<kSize>(start, block);
  Unsigned sum;
  std::memcpy(&sum, offsets, sizeof(sum));
  for (std::size_t i = 0; i < block.size(); ++i) {
    Unsigned factor;
    std::memcpy(&factor, factors + i * RotatedProducts::kLanesTogether, sizeof(factor));
    sum += reinterpret_cast<Unsigned>(block[i]) * factor;  // wraps; the whole sum fits
  }
  const auto pairs = reinterpret_cast<RowSums<kRows>>(sum);
  sums += (pairs << 16 >> 16) + (pairs >> 16);
}

template <int kBits, std::size_t kRows>
GRAPHBOX_INLINE void add_any_part(const Codes<kBits, kRows>& codes, const RotatedProducts::Part& part,
                                  const std::int16_t* factors, const std::int16_t* offsets, RowSums<kRows>& sums) {
  if (part.size == kTransformed) {
    add_part<kBits, kTransformed>(codes, part.start, factors, offsets, sums);
  } else if (part.size == 32) {
    add_part<kBits, 32>(codes, part.start, factors, offsets, sums);
  } else if (part.size == 16) {
    add_part<kBits, 16>(codes, part.start, factors, offsets, sums);
  } else {
    add_part<kBits, 8>(codes, part.start, factors, offsets, sums);
  }
}

// Four numbers for each row from `start` on, whose sum is that of (code - middle) * factor; up to kRows - 1 rows more are
// written than there are.
template <int kBits, std::size_t kRows>
GRAPHBOX_INLINE void sum_codes(const RotatedProducts& products, std::int64_t start, std::size_t count,
                               std::int32_t* quarters) {
  const RotatedRows& table = products.table();
  const std::size_t row_bytes = table.row_bytes();
  const std::uint8_t* const first = table.arrays().packed + static_cast<std::size_t>(start) * row_bytes;
  const std::size_t num_parts = products.parts().size();
  const std::size_t in_parts = num_parts == 0 ? 0 : products.parts().back().start + products.parts().back().size;
  for (std::size_t i = 0; i < count; i += kRows) {
    std::array<const std::uint8_t*, kRows> rows;
    for (std::size_t row = 0; row < kRows; ++row) {
      rows[row] = first + std::min(i + row, count - 1) * row_bytes;  // at the end the last one again
    }
    const Codes<kBits, kRows> codes(rows, table.dim());
    RowSums<kRows> total{};
    for (std::size_t part = 0; part < num_parts; ++part) {
      add_any_part<kBits, kRows>(codes, products.parts()[part], products.factors(part), products.offsets(part), total);
    }
    std::memcpy(quarters + i * kQuarters, &total, sizeof(total));
    for (std::size_t row = 0; row < kRows && in_parts < table.dim(); ++row) {
      for (std::size_t element = in_parts; element < table.dim(); ++element) {
        quarters[(i + row) * kQuarters] += (codes.code(row, element) - middle_code(kBits)) * products.rounded(element);
      }
    }
  }
}

void sum_codes_of(const RotatedProducts& products, std::int64_t start, std::size_t count, std::int32_t* quarters) {
  run_with_instruction_set([&]<InstructionSet kSet>(ForSet<kSet>) GRAPHBOX_INLINE_LAMBDA {
    switch (products.table().arrays().bits) {
      case 2:
        return sum_codes<2, kRowsInVector<kSet>>(products, start, count, quarters);
      case 3:
        return sum_codes<3, kRowsInVector<kSet>>(products, start, count, quarters);
      default:
        return sum_codes<4, kRowsInVector<kSet>>(products, start, count, quarters);
    }
  });
}

GRAPHBOX_CLONES
void bounds_of_sums(const RotatedProducts::Terms& terms, const std::int32_t* quarters, const std::uint16_t* scales,
                    const std::uint16_t* biases, std::size_t count, float* out) {
  std::array<std::int32_t, kRowsTogether> sums;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t* const own = quarters + i * kQuarters;
    sums[i] = (own[0] + own[1]) + (own[2] + own[3]);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const float scale = float16_value(scales[i]);
    const float bias = float16_value(biases[i]);
    out[i] = scale * (static_cast<float>(sums[i]) * terms.step + terms.centre) + bias * terms.bias +
             (std::abs(scale) * terms.scale_error + std::abs(bias) * terms.bias_error);
  }
}

}  // namespace

std::unique_ptr<ProductBounds> RotatedProducts::of(const RotatedRows& table, std::span<const float> query) {
  const std::vector<double> turned = turned_query(table, query);
  const double codes = 1 << table.arrays().bits;
  // Products with finite scales and biases are far from both ends of float32, where roundings are not relative.
  const double length = length_of(query);
  const double largest = length * static_cast<double>(table.dim()) * codes;
  const bool is_usual = length == 0 || (length > 0x1p-60 && largest < 0x1p100);
  if (!is_usual || table.dim() > kLargestDim) {
    return nullptr;
  }
  return std::unique_ptr<ProductBounds>(new RotatedProducts(table, query, turned));
}

RotatedProducts::RotatedProducts(const RotatedRows& table, std::span<const float> query,
                                 const std::vector<double>& turned)
    : table_(table), rounded_(table.dim()) {
  const int bits = table.arrays().bits;
  double largest = 0;
  double sum = 0;
  for (const double each : turned) {
    largest = std::max(largest, std::abs(each));
    sum += each;
  }
  const double step = std::max(largest / largest_factor(bits), double{std::numeric_limits<float>::min()});
  double distance = 0;  // of all elements from what they are rounded to
  for (std::size_t i = 0; i < turned.size(); ++i) {
    rounded_[i] = static_cast<std::int32_t>(std::lround(turned[i] / step));
    distance += std::abs(turned[i] - rounded_[i] * step);
  }
  double bias = 0;
  for (const RotatedRows::Block& block : table.blocks()) {
    bias += double{query[block.start]} * double{block.bias_weight};
    for (std::size_t at = block.start; at < block.start + block.size; at += std::min(block.size, kTransformed)) {
      if (block.size >= kShortLanes) {
        add_part({at, std::min(block.size, kTransformed)});
      }
    }
  }
  const double middle = middle_code(bits);
  const double rounding = rounding_of_product(table.dim()) * length_of(query) * std::sqrt(static_cast<double>(table.dim()));
  terms_ = {static_cast<float>(step), static_cast<float>(middle * sum), static_cast<float>(bias),
            static_cast<float>(distance * middle + rounding * 2 * middle), static_cast<float>(rounding)};
}

void RotatedProducts::add_part(const Part& part) {
  const std::int32_t middle = middle_code(table_.arrays().bits);
  parts_.push_back(part);
  factors_.resize(parts_.size() * kFactorsOfPart);
  offsets_.resize(parts_.size() * kLanesTogether);
  std::int16_t* const factors = factors_.data() + factors_.size() - kFactorsOfPart;
  std::int16_t* const offsets = offsets_.data() + offsets_.size() - kLanesTogether;
  for (std::size_t element = 0; element < part.size; ++element) {
    const std::int32_t factor = rounded_[part.start + element];
    for (std::size_t lane = element / kShortLanes; lane < kLanesTogether; lane += kShortLanes) {
      factors[element % kShortLanes * kLanesTogether + lane] = static_cast<std::int16_t>(factor);
      offsets[lane] = static_cast<std::int16_t>(offsets[lane] - middle * factor);
    }
  }
}

void RotatedProducts::upper(std::int64_t start, std::int64_t count, float* out) const {
  std::array<std::int32_t, kRowsTogether * kQuarters> quarters;
  std::array<std::uint16_t, kRowsTogether> scales;
  std::array<std::uint16_t, kRowsTogether> biases;
  const std::size_t row_bytes = table_.row_bytes();
  for (std::int64_t first = 0; first < count; first += kRowsTogether) {
    const auto rows = static_cast<std::size_t>(std::min<std::int64_t>(kRowsTogether, count - first));
    sum_codes_of(*this, start + first, rows, quarters.data());
    const std::uint8_t* row = table_.arrays().packed + static_cast<std::size_t>(start + first) * row_bytes;
    for (std::size_t i = 0; i < rows; ++i, row += row_bytes) {
      std::memcpy(&scales[i], row, sizeof(scales[i]));
      std::memcpy(&biases[i], row + sizeof(scales[i]), sizeof(biases[i]));
    }
    bounds_of_sums(terms_, quarters.data(), scales.data(), biases.data(), rows, out + first);
  }
}

}  // namespace graphbox
