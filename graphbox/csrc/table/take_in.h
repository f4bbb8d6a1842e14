// Records that were read from SSD become rows in memory.
#pragma once

#include <algorithm>
#include <cstddef>

#include "table/cold_rows.h"
#include "table/table.h"

namespace graphbox {

// Brings rows that were read into memory, those of reading.rows from `begin` to `end`, whose records are at their
// `index`; there must be room. Rows that were changed, moved or erased since are left alone. Calls seen(row, location)
// with where each is now.
template <typename Seen>
void Table::take_in(const ColdReading& reading, std::size_t begin, std::size_t end, const std::byte* records,
                    const Seen& seen) {
  constexpr std::size_t kDistance = 24;  // rows between asking for a line of the index and reading it
  const std::size_t record_bytes = slab_.layout().record_bytes();
  auto part = std::upper_bound(reading.parts.begin(), reading.parts.end(), begin,
                               [](std::size_t row, const ColdReading::Part& each) { return row < each.end; });
  for (std::size_t i = begin; i < end; ++i) {
    if (i + kDistance < end) {
      index_.prefetch(index_.hash(reading.rows[i + kDistance].key));
    }
    part += part->end == i ? 1 : 0;
    const WantedRow& row = reading.rows[i];
    seen(row, take_in_row(row, part->sequence, records + row.index * record_bytes));
  }
}

}  // namespace graphbox
