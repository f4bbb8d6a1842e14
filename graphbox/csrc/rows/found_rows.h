// Tables of rotated codes behind tiers and clusters: where the codes of each row are is found first, and rows of all tiers
// are then decoded in the order of their results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace graphbox {

class RotatedRows;
class StoredRows;
struct RowOutput;

// Rows that are found in one call: few, so that the processor does it while it decodes others.
inline constexpr std::size_t kFoundTogether = 16;

// A row is that of a table of rotated codes, or the same for all rows; and what is added to it.
struct FoundRow {
  const RotatedRows* table;  // null: `row` is float[dim] as it is
  const void* row;
  const float* added;  // [dim]; null: nothing
};

// Tables that find() may find rows in.
struct FoundTables {
  bool are_all = false;                     // whether find() finds all rows
  bool have_added = false;                  // whether something is added to some
  const std::uint8_t* clusters = nullptr;   // by row, read by find(): asked for ahead; null: not read
  std::vector<const RotatedRows*> tables{};  // at most two
};

// Row i of `out` = row index[i] of rows whose found_tables() are all.
void take_found(const StoredRows& rows, const FoundTables& tables, std::span<const std::int64_t> index,
                const RowOutput& out);

}  // namespace graphbox
