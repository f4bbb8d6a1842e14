#include "rows/rotated_rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "portability/cpu.h"
#include "portability/instruction_set.h"
#include "rows/walsh_hadamard.h"
#include "store/gather.h"
#include "table/float16.h"

namespace graphbox {
namespace {

// Rows are transformed four at a time, and then written, so that loads of the second step need not wait for stores of
// the first. An instruction set transforms as many of them at once as its vectors hold.
constexpr std::size_t kRowsTogether = 4;
constexpr std::int64_t kPrefetchedRows = 24;
constexpr std::size_t kFactorBytes = 2 * sizeof(std::uint16_t);

template <InstructionSet kSet>
constexpr std::size_t kRowsInVector = kSet == InstructionSet::kAvx512 ? 4 : kSet == InstructionSet::kAvx2 ? 2 : 1;

constexpr std::size_t bytes_of_bits(std::size_t bits) { return (bits + 7) / 8; }

using TwoWords = ShortGroup<1>::Words;
using FourWords = ShortGroup<2>::Words;

// kBytes, at most 16, of each row at an offset into the row's share of the vector; the rest is zero. The vector is made
// of vectors: made of memory that was just written it would wait for the writes.
template <std::size_t kBytes, std::size_t kRows>
GRAPHBOX_INLINE void load_codes(typename ShortGroup<kRows>::Unsigned& codes,
                                const std::array<const std::uint8_t*, kRows>& rows, std::size_t offset) {
  std::array<TwoWords, kRows> parts{};
  for (std::size_t row = 0; row < kRows; ++row) {
    std::memcpy(&parts[row], rows[row] + offset, kBytes);
  }
  if constexpr (kRows == 1) {
    codes = reinterpret_cast<typename ShortGroup<kRows>::Unsigned>(parts[0]);
  } else {
    const FourWords first = __builtin_shufflevector(parts[0], parts[1], 0, 1, 2, 3);
    if constexpr (kRows == 2) {
      codes = reinterpret_cast<typename ShortGroup<kRows>::Unsigned>(first);
    } else {
      const FourWords second = __builtin_shufflevector(parts[2], parts[3], 0, 1, 2, 3);
      codes = reinterpret_cast<typename ShortGroup<kRows>::Unsigned>(
          __builtin_shufflevector(first, second, 0, 1, 2, 3, 4, 5, 6, 7));
    }
  }
}

// The places of the even or odd numbers of two vectors, those of the first before those of the second in each row.
template <std::size_t kRows>
constexpr std::array<std::uint16_t, kRows * kShortLanes> every_2nd(std::size_t from) {
  std::array<std::uint16_t, kRows * kShortLanes> places{};
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::size_t vector = i % kShortLanes / 4;
    const std::size_t row = i / kShortLanes;
    places[i] = static_cast<std::uint16_t>(vector * places.size() + row * kShortLanes + i % 4 * 2 + from);
  }
  return places;
}

template <std::size_t kRows, std::size_t kFrom>
constexpr auto kEvery2nd = every_2nd<kRows>(kFrom);

// Codes of kRows rows.
template <int kBits, std::size_t kRows>
class Codes {
 public:
  using Signed = typename ShortGroup<kRows>::Signed;
  using Unsigned = typename ShortGroup<kRows>::Unsigned;

  GRAPHBOX_INLINE Codes(const std::array<const std::uint8_t*, kRows>& rows, std::size_t dim)
      : rows_(rows), high_(kFactorBytes + bytes_of_bits(2 * dim)) {}

  // kSize codes from `start`, a multiple of kSize.
  template <std::size_t kSize>
  GRAPHBOX_INLINE void unpack(std::size_t start, ShortBlock<kRows>& block) const {
    if constexpr (kBits == 4) {
      Unsigned first;
      Unsigned second{};
      load_codes<std::min<std::size_t>(kSize / 2, 16)>(first, rows_, kFactorBytes + start / 2);
      if constexpr (kSize > 32) {
        load_codes<16>(second, rows_, kFactorBytes + start / 2 + 16);
      }
      // Eight codes of a lane are in two neighbours.
      for (std::size_t odd = 0; odd < 2; ++odd) {
        Unsigned places;
        std::memcpy(&places, odd == 0 ? &kEvery2nd<kRows, 0> : &kEvery2nd<kRows, 1>, sizeof(places));
        const Unsigned four = __builtin_shuffle(first, second, places);
        for (std::size_t i = 0; i < 4; ++i) {
          block[4 * odd + i] = reinterpret_cast<Signed>((four >> 4 * static_cast<int>(i)) & 15);
        }
      }
    } else {
      Unsigned codes;
      load_codes<kSize / 4>(codes, rows_, kFactorBytes + start / 4);
      for (int i = 0; i < 8; ++i) {
        block[static_cast<std::size_t>(i)] = reinterpret_cast<Signed>((codes >> 2 * i) & 3);
      }
    }
    if constexpr (kBits == 3) {
      add_high_bits<kSize>(start, block);
    }
  }

  GRAPHBOX_INLINE int code(std::size_t row, std::size_t i) const {
    const std::uint8_t* const low = rows_[row] + kFactorBytes;
    if constexpr (kBits == 4) {
      return low[i / 2] >> (4 * (i % 2)) & 15;
    }
    const int pair = low[i / 4] >> (2 * (i % 4)) & 3;
    return kBits == 2 ? pair : pair | (rows_[row][high_ + i / 8] >> (i % 8) & 1) << 2;
  }

 private:
  template <std::size_t kSize>
  GRAPHBOX_INLINE void add_high_bits(std::size_t start, ShortBlock<kRows>& block) const {
    Unsigned bytes;
    load_codes<kSize / 8>(bytes, rows_, high_ + start / 8);
    // A byte for each lane; what is above it does not matter.
    const Unsigned shifted = bytes >> 8;
    Unsigned halves;
    std::memcpy(&halves, &walsh_hadamard_detail::kFirstHalves<kRows>, sizeof(halves));
    const Unsigned eight = __builtin_shuffle(bytes, shifted, halves);
    for (int i = 0; i < 8; ++i) {
      block[static_cast<std::size_t>(i)] |= reinterpret_cast<Signed>(((eight << 2) >> i) & 4);
    }
  }

  std::array<const std::uint8_t*, kRows> rows_;
  std::size_t high_;
};

// The share of one row of a vector, 16 bytes.
template <std::size_t kRows, std::size_t kRow>
GRAPHBOX_INLINE void store_share(const typename ShortGroup<kRows>::Signed& sums, std::int16_t* to) {
  if constexpr (kRows == 1) {
    std::memcpy(to, &sums, sizeof(sums));
  } else {
    const auto words = reinterpret_cast<typename ShortGroup<kRows>::Words>(sums);
    const TwoWords own = __builtin_shufflevector(words, words, 2 * kRow, 2 * kRow + 1);
    std::memcpy(to, &own, sizeof(own));
  }
}

template <int kBits, std::size_t kSize, std::size_t kRows>
GRAPHBOX_INLINE void transform_part(const Codes<kBits, kRows>& codes, std::size_t start, std::size_t dim,
                                    std::int16_t* sums) {
  ShortBlock<kRows> block;
  codes.template unpack<kSize>(start, block);
  transform<kSize, kRows>(block);
  for (std::size_t i = 0; i < kSize / kShortLanes; ++i) {
    [&]<std::size_t... kRow>(std::index_sequence<kRow...>) GRAPHBOX_INLINE_LAMBDA {
      (store_share<kRows, kRow>(block[i], sums + kRow * dim + start + i * kShortLanes), ...);
    }(std::make_index_sequence<kRows>());
  }
}

// sums[row * dim + start ...] = the transform of the codes of one block of each row.
template <int kBits, std::size_t kRows>
GRAPHBOX_INLINE void transform_block(const Codes<kBits, kRows>& codes, const RotatedRows::Block& block,
                                     std::size_t dim, std::int16_t* sums) {
  std::size_t distance = std::min(block.size, kTransformed);
  if (block.size >= kTransformed) {
    for (std::size_t part = block.start; part < block.start + block.size; part += kTransformed) {
      transform_part<kBits, kTransformed>(codes, part, dim, sums);
    }
  } else if (block.size == 32) {
    transform_part<kBits, 32>(codes, block.start, dim, sums);
  } else if (block.size == 16) {
    transform_part<kBits, 16>(codes, block.start, dim, sums);
  } else if (block.size == 8) {
    transform_part<kBits, 8>(codes, block.start, dim, sums);
  } else {
    for (std::size_t row = 0; row < kRows; ++row) {
      for (std::size_t i = block.start; i < block.start + block.size; ++i) {
        sums[row * dim + i] = static_cast<std::int16_t>(codes.code(row, i));
      }
    }
    distance = 1;
  }
  for (; distance < block.size; distance *= 2) {
    for (std::size_t row = 0; row < kRows; ++row) {
      add_in_memory(sums + row * dim + block.start, block.size, distance);
    }
  }
}

GRAPHBOX_INLINE void write_row(const RotatedRows& table, const std::int16_t* __restrict sums, float scale, float bias,
                               float* __restrict out) {
  const std::size_t dim = table.dim();
  const float* __restrict weights = table.weights();
  // Not with __builtin_convertvector, which GCC cuts into scalars before it knows the instruction set.
  for (std::size_t i = 0; i < dim; ++i) {
    out[i] = static_cast<float>(sums[i]) * scale * weights[i];
  }
  for (const RotatedRows::Block& block : table.blocks()) {
    const auto sum = static_cast<float>(sums[block.start]);
    out[block.start] = sum * scale * weights[block.start] + bias * block.bias_weight;
  }
}

// `row_of` and `place_of` give the row and the memory of each of `count` results.
template <int kBits, std::size_t kRows, typename RowOf, typename PlaceOf>
GRAPHBOX_INLINE void decode_rows(const RotatedRows& table, std::int64_t count, const RowOf& row_of,
                                 const PlaceOf& place_of) {
  const std::uint8_t* const packed = table.arrays().packed;
  const std::size_t row_bytes = table.row_bytes();
  const auto row_at = [&](std::int64_t i) { return packed + static_cast<std::size_t>(row_of(i)) * row_bytes; };
  const std::size_t dim = table.dim();
  std::vector<std::int16_t> sums(kRowsTogether * dim);
  std::array<std::uint16_t, 2 * kRowsTogether> halves;
  std::array<float, 2 * kRowsTogether> factors;
  for (std::int64_t start = 0; start < count; start += kRowsTogether) {
    for (std::size_t first = 0; first < kRowsTogether; first += kRows) {
      std::array<const std::uint8_t*, kRows> rows;
      for (std::size_t row = 0; row < kRows; ++row) {
        // At the end the last one again, whose results are not written.
        rows[row] = row_at(std::min(start + static_cast<std::int64_t>(first + row), count - 1));
        std::memcpy(&halves[2 * (first + row)], rows[row], kFactorBytes);
      }
      const Codes<kBits, kRows> codes(rows, dim);
      for (const RotatedRows::Block& block : table.blocks()) {
        transform_block(codes, block, dim, sums.data() + first * dim);
      }
    }
    for (std::size_t i = 0; i < factors.size(); ++i) {
      factors[i] = float16_value(halves[i]);
    }
    for (std::int64_t i = start; i < std::min(start + static_cast<std::int64_t>(kRowsTogether), count); ++i) {
      if (i + kPrefetchedRows < count) {
        prefetch_range(reinterpret_cast<const std::byte*>(row_at(i + kPrefetchedRows)), row_bytes);
      }
      const auto number = static_cast<std::size_t>(i - start);
      write_row(table, sums.data() + number * dim, factors[2 * number], factors[2 * number + 1], place_of(i));
    }
  }
}

template <int kBits, typename RowOf>
void decode_to(const RotatedRows& table, std::int64_t count, const RowOf& row_of, const RowOutput& out) {
  run_with_instruction_set([&]<InstructionSet kSet>(ForSet<kSet>) GRAPHBOX_INLINE_LAMBDA {
    decode_rows<kBits, kRowsInVector<kSet>>(table, count, row_of, [&out](std::int64_t i) GRAPHBOX_INLINE_LAMBDA {
      return out.row(static_cast<std::size_t>(i));
    });
  });
}

template <typename RowOf>
void decode_any(const RotatedRows& table, std::int64_t count, const RowOf& row_of, const RowOutput& out) {
  switch (table.arrays().bits) {
    case 2:
      return decode_to<2>(table, count, row_of, out);
    case 3:
      return decode_to<3>(table, count, row_of, out);
    default:
      return decode_to<4>(table, count, row_of, out);
  }
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
  const auto row_of = [index](std::int64_t i) GRAPHBOX_INLINE_LAMBDA { return index[static_cast<std::size_t>(i)]; };
  decode_any(*this, static_cast<std::int64_t>(index.size()), row_of, out);
}

void RotatedRows::decode(std::int64_t start, std::int64_t count, float* out, std::size_t out_stride) const {
  decode_any(*this, count, [start](std::int64_t i) GRAPHBOX_INLINE_LAMBDA { return start + i; }, {out, out_stride});
}

}  // namespace graphbox
