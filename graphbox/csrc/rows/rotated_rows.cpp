#include "rows/rotated_rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "portability/cpu.h"
#include "rows/walsh_hadamard.h"
#include "store/gather.h"
#include "table/float16.h"

namespace graphbox {
namespace {

constexpr std::int64_t kRowsTogether = 4;
constexpr std::int64_t kPrefetchedRows = 24;
constexpr std::size_t kFactorBytes = 2 * sizeof(std::uint16_t);

constexpr std::size_t bytes_of_bits(std::size_t bits) { return (bits + 7) / 8; }

// Loads `kBytes` of codes into vectors; the rest is zero.
template <std::size_t kBytes, std::size_t kVectors>
GRAPHBOX_INLINE void load_codes(std::array<Shorts, kVectors>& codes, const std::uint8_t* from) {
  std::array<std::uint8_t, kVectors * sizeof(Shorts)> bytes{};
  std::memcpy(bytes.data(), from, kBytes);
  std::memcpy(codes.data(), bytes.data(), bytes.size());
}

// Eight codes of 2 bits in each lane.
template <std::size_t kSize>
GRAPHBOX_INLINE void unpack_2_bits(ShortBlock& block, const std::uint8_t* from) {
  std::array<Shorts, 1> codes;
  load_codes<kSize / 4>(codes, from);
  const auto eight = std::bit_cast<UnsignedShorts>(codes[0]);
  for (std::size_t i = 0; i < block.size(); ++i) {
    block[i] = std::bit_cast<Shorts>((eight >> static_cast<int>(2 * i)) & 3);
  }
}

template <std::size_t kSize>
GRAPHBOX_INLINE void unpack_3_bits(ShortBlock& block, const std::uint8_t* low, const std::uint8_t* high) {
  unpack_2_bits<kSize>(block, low);
  std::array<std::uint8_t, kShortLanes> bytes{};
  std::memcpy(bytes.data(), high, kSize / 8);
  UnsignedShorts eight;
  for (std::size_t lane = 0; lane < kShortLanes; ++lane) {
    eight[lane] = bytes[lane];
  }
  const UnsignedShorts raised = eight << 2;
  for (std::size_t i = 0; i < block.size(); ++i) {
    block[i] |= std::bit_cast<Shorts>((raised >> static_cast<int>(i)) & 4);
  }
}

// Eight codes of 4 bits in each pair of lanes.
template <std::size_t kSize>
GRAPHBOX_INLINE void unpack_4_bits(ShortBlock& block, const std::uint8_t* from) {
  std::array<Shorts, 2> codes;
  load_codes<kSize / 2>(codes, from);
  const auto even =
      std::bit_cast<UnsignedShorts>(__builtin_shuffle(codes[0], codes[1], Shorts{0, 2, 4, 6, 8, 10, 12, 14}));
  const auto odd =
      std::bit_cast<UnsignedShorts>(__builtin_shuffle(codes[0], codes[1], Shorts{1, 3, 5, 7, 9, 11, 13, 15}));
  for (std::size_t i = 0; i < block.size() / 2; ++i) {
    block[i] = std::bit_cast<Shorts>((even >> static_cast<int>(4 * i)) & 15);
    block[i + 4] = std::bit_cast<Shorts>((odd >> static_cast<int>(4 * i)) & 15);
  }
}

// The codes of one row.
template <int kBits>
class Codes {
 public:
  GRAPHBOX_INLINE Codes(const std::uint8_t* row, std::size_t dim)
      : low_(row + kFactorBytes), high_(low_ + (kBits == 3 ? bytes_of_bits(2 * dim) : 0)) {}

  // kSize codes from `start`, a multiple of kSize.
  template <std::size_t kSize>
  GRAPHBOX_INLINE void unpack(std::size_t start, ShortBlock& block) const {
    if constexpr (kBits == 2) {
      unpack_2_bits<kSize>(block, low_ + start / 4);
    } else if constexpr (kBits == 3) {
      unpack_3_bits<kSize>(block, low_ + start / 4, high_ + start / 8);
    } else {
      unpack_4_bits<kSize>(block, low_ + start / 2);
    }
  }

  GRAPHBOX_INLINE int code(std::size_t i) const {
    if constexpr (kBits == 4) {
      return low_[i / 2] >> (4 * (i % 2)) & 15;
    }
    const int low = low_[i / 4] >> (2 * (i % 4)) & 3;
    return kBits == 2 ? low : low | (high_[i / 8] >> (i % 8) & 1) << 2;
  }

 private:
  const std::uint8_t* low_;
  const std::uint8_t* high_;
};

template <int kBits, std::size_t kSize>
GRAPHBOX_INLINE void transform_part(const Codes<kBits>& codes, std::size_t start, std::int16_t* sums) {
  ShortBlock block;
  codes.template unpack<kSize>(start, block);
  transform<kSize>(block);
  std::memcpy(sums + start, block.data(), kSize * sizeof(std::int16_t));
}

// sums[start ...] = the transform of the codes of one block.
template <int kBits>
GRAPHBOX_INLINE void transform_block(const Codes<kBits>& codes, std::size_t start, std::size_t size,
                                     std::int16_t* sums) {
  if (size >= kTransformed) {
    for (std::size_t part = start; part < start + size; part += kTransformed) {
      transform_part<kBits, kTransformed>(codes, part, sums);
    }
    for (std::size_t distance = kTransformed; distance < size; distance *= 2) {
      add_in_memory(sums + start, size, distance);
    }
  } else if (size == 32) {
    transform_part<kBits, 32>(codes, start, sums);
  } else if (size == 16) {
    transform_part<kBits, 16>(codes, start, sums);
  } else if (size == 8) {
    transform_part<kBits, 8>(codes, start, sums);
  } else {
    for (std::size_t i = start; i < start + size; ++i) {
      sums[i] = static_cast<std::int16_t>(codes.code(i));
    }
    for (std::size_t distance = 1; distance < size; distance *= 2) {
      add_in_memory(sums + start, size, distance);
    }
  }
}

GRAPHBOX_INLINE void write_row(const RotatedRows& table, const std::int16_t* __restrict sums, float scale, float bias,
                               float* __restrict out) {
  const std::size_t dim = table.dim();
  const float* __restrict weights = table.weights();
  for (std::size_t i = 0; i < dim; ++i) {
    out[i] = static_cast<float>(sums[i]) * scale * weights[i];
  }
  for (const RotatedRows::Block& block : table.blocks()) {
    out[block.start] += bias * block.bias_weight;
  }
}

// A few rows at a time: transformed sums of all, and then their values, so that the loads of the second step need not
// wait for the stores of the first. `row_of` and `place_of` give the row and the memory of each of `count` results.
template <int kBits, typename RowOf, typename PlaceOf>
GRAPHBOX_INLINE void decode_rows(const RotatedRows& table, std::int64_t count, const RowOf& row_of,
                                 const PlaceOf& place_of) {
  const std::uint8_t* const packed = table.arrays().packed;
  const std::size_t dim = table.dim();
  const std::size_t row_bytes = table.row_bytes();
  const auto row_at = [&](std::int64_t i) { return packed + static_cast<std::size_t>(row_of(i)) * row_bytes; };
  std::vector<std::int16_t> sums(kRowsTogether * dim);
  std::array<std::uint16_t, 2 * kRowsTogether> halves{};
  std::array<float, 2 * kRowsTogether> factors;
  for (std::int64_t start = 0; start < count; start += kRowsTogether) {
    const std::int64_t end = std::min(start + kRowsTogether, count);
    for (std::int64_t i = start; i < end; ++i) {
      const auto number = static_cast<std::size_t>(i - start);
      const std::uint8_t* const row = row_at(i);
      std::memcpy(&halves[2 * number], row, kFactorBytes);
      const Codes<kBits> codes(row, dim);
      for (const RotatedRows::Block& block : table.blocks()) {
        transform_block(codes, block.start, block.size, sums.data() + number * dim);
      }
    }
    for (std::size_t i = 0; i < factors.size(); ++i) {
      factors[i] = float16_value(halves[i]);
    }
    for (std::int64_t i = start; i < end; ++i) {
      if (i + kPrefetchedRows < count) {
        prefetch_range(reinterpret_cast<const std::byte*>(row_at(i + kPrefetchedRows)), row_bytes);
      }
      const auto number = static_cast<std::size_t>(i - start);
      write_row(table, sums.data() + number * dim, factors[2 * number], factors[2 * number + 1], place_of(i));
    }
  }
}

template <int kBits>
GRAPHBOX_INLINE void take_rows(const RotatedRows& table, std::span<const std::int64_t> index, const RowOutput& out) {
  decode_rows<kBits>(
      table, static_cast<std::int64_t>(index.size()),
      [index](std::int64_t i) { return index[static_cast<std::size_t>(i)]; },
      [&out](std::int64_t i) { return out.row(static_cast<std::size_t>(i)); });
}

template <int kBits>
GRAPHBOX_INLINE void decode_block(const RotatedRows& table, std::int64_t start, std::int64_t count,
                                  const RowOutput& out) {
  decode_rows<kBits>(
      table, count, [start](std::int64_t i) { return start + i; },
      [&out](std::int64_t i) { return out.row(static_cast<std::size_t>(i)); });
}

// Clones cannot be templates.
GRAPHBOX_CLONES
void take_2_bits(const RotatedRows& table, std::span<const std::int64_t> index, const RowOutput& out) {
  take_rows<2>(table, index, out);
}

GRAPHBOX_CLONES
void take_3_bits(const RotatedRows& table, std::span<const std::int64_t> index, const RowOutput& out) {
  take_rows<3>(table, index, out);
}

GRAPHBOX_CLONES
void take_4_bits(const RotatedRows& table, std::span<const std::int64_t> index, const RowOutput& out) {
  take_rows<4>(table, index, out);
}

GRAPHBOX_CLONES
void decode_2_bits(const RotatedRows& table, std::int64_t start, std::int64_t count, const RowOutput& out) {
  decode_block<2>(table, start, count, out);
}

GRAPHBOX_CLONES
void decode_3_bits(const RotatedRows& table, std::int64_t start, std::int64_t count, const RowOutput& out) {
  decode_block<3>(table, start, count, out);
}

GRAPHBOX_CLONES
void decode_4_bits(const RotatedRows& table, std::int64_t start, std::int64_t count, const RowOutput& out) {
  decode_block<4>(table, start, count, out);
}

}  // namespace

std::size_t rotated_row_bytes(int bits, std::size_t dim) {
  const std::size_t codes = bits == 3 ? bytes_of_bits(2 * dim) + bytes_of_bits(dim)
                                      : bytes_of_bits(static_cast<std::size_t>(bits) * dim);
  return kFactorBytes + codes;
}

RotatedRows::RotatedRows(const RotatedArrays& arrays)
    : StoredRows(arrays.rows, arrays.dim),
      arrays_(arrays),
      row_bytes_(rotated_row_bytes(arrays.bits, arrays.dim)),
      weights_(arrays.dim) {
  for (std::size_t start = 0; start < arrays.dim;) {
    const std::size_t size = std::min(std::bit_floor(arrays.dim - start), kLargestTransform);
    const double root = std::sqrt(static_cast<double>(size));
    blocks_.push_back({start, size, static_cast<float>(root) * static_cast<float>(arrays.signs[start])});
    for (std::size_t i = start; i < start + size; ++i) {
      weights_[i] = static_cast<float>(1 / root) * static_cast<float>(arrays.signs[i]);
    }
    start += size;
  }
}

std::uint64_t RotatedRows::bytes() const {
  return static_cast<std::uint64_t>(rows()) * row_bytes_ + dim() * sizeof(std::int8_t);
}

void RotatedRows::take(std::span<const std::int64_t> index, const RowOutput& out) const {
  switch (arrays_.bits) {
    case 2:
      return take_2_bits(*this, index, out);
    case 3:
      return take_3_bits(*this, index, out);
    default:
      return take_4_bits(*this, index, out);
  }
}

void RotatedRows::decode(std::int64_t start, std::int64_t count, float* out, std::size_t out_stride) const {
  const RowOutput rows = {out, out_stride};
  switch (arrays_.bits) {
    case 2:
      return decode_2_bits(*this, start, count, rows);
    case 3:
      return decode_3_bits(*this, start, count, rows);
    default:
      return decode_4_bits(*this, start, count, rows);
  }
}

}  // namespace graphbox
