// Numbers and truth values out of columns of text, strict and the same for every size of batch.
#pragma once

#include <cstdint>
#include <span>

namespace graphbox {

// The cells of a column of text: cell i is the bytes [offsets[i], offsets[i + 1]) of `text`.
struct TextColumn {
  std::span<const std::int64_t> offsets;
  const char* text;

  std::int64_t size() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
};

// Accepted spellings of integers.
enum class IntegerSpelling {
  kPlain,  // what printing the number gives: no plus sign, no leading zero, no -0
  kAny     // a sign and leading zeros are fine
};

// Each parser writes one value and one flag per cell: a cell that is none gets value 0 and flag 1, an empty one too.
// They return the number of such cells.
std::int64_t parse_integers(const TextColumn& cells, IntegerSpelling spelling, std::int64_t* values,
                            std::uint8_t* wrong);
// Decimal and scientific notation, inf and nan. Beyond the range of double is no number; what is closer to 0 than
// the smallest double is 0.
std::int64_t parse_numbers(const TextColumn& cells, double* values, std::uint8_t* wrong);
// true, false, 1, 0; letters of either case.
std::int64_t parse_booleans(const TextColumn& cells, std::uint8_t* values, std::uint8_t* wrong);

}  // namespace graphbox
