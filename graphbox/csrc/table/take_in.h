// Records that were read from SSD become rows in memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "parallel/parallel_for.h"
#include "table/cold_rows.h"
#include "table/table.h"

namespace graphbox {

// Brings rows that were read into memory, those of reading.rows from `begin` to `end`, whose records are at their
// `index`; there must be room. Rows that were changed, moved or erased since are left alone. Calls seen(row, location)
// with where each is now.
template <typename Seen>
void Table::take_in(const ColdReading& reading, std::size_t begin, std::size_t end, const std::byte* records,
                    int threads, const Seen& seen) {
  constexpr std::size_t kDistance = 24;  // rows between asking for a line of the index and reading it
  constexpr std::size_t kCopiedRows = 512;  // that one thread takes at a time
  struct Taken {
    std::uint32_t row;
    std::uint32_t wanted;
  };
  std::vector<Taken> taken;
  taken.reserve(end - begin);
  const auto copy = [&] {
    const std::size_t record_bytes = slab_.layout().record_bytes();
    const std::size_t chunks = (taken.size() + kCopiedRows - 1) / kCopiedRows;
    parallel_for(threads, static_cast<std::int64_t>(chunks), [&](std::int64_t chunk) {
      const std::size_t first = static_cast<std::size_t>(chunk) * kCopiedRows;
      for (std::size_t i = first; i < std::min(first + kCopiedRows, taken.size()); ++i) {
        const WantedRow& wanted = reading.rows[taken[i].wanted];
        slab_.key(taken[i].row) = wanted.key;
        slab_.read_record(taken[i].row, records + wanted.index * record_bytes);
      }
    });
  };
  auto part = std::upper_bound(reading.parts.begin(), reading.parts.end(), begin,
                               [](std::size_t row, const ColdReading::Part& each) { return row < each.end; });
  try {
    for (std::size_t i = begin; i < end; ++i) {
      if (i + kDistance < end) {
        index_.prefetch(index_.hash(reading.rows[i + kDistance].key));
      }
      part += part->end == i ? 1 : 0;
      const WantedRow& wanted = reading.rows[i];
      std::uint32_t location = wanted.location;
      if (take_row_in(wanted, part->sequence, location)) {
        taken.push_back({location, static_cast<std::uint32_t>(i)});
      }
      seen(wanted, location);
    }
  } catch (...) {
    copy();  // those that have their rows already
    throw;
  }
  copy();
}

}  // namespace graphbox
