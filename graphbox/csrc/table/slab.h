// The memory of rows, numbered from 0, in chunks that never move. Rows stand in groups: the values of all rows of a
// group, then their keys, then their row-wise state. So values whose size is a multiple of a cache line touch no line
// more than they must, and what belongs to a row is on the same page.
#pragma once

#include <cstdint>
#include <vector>

#include "memory/buffer.h"
#include "portability/cpu.h"
#include "table/optimizer.h"
#include "table/row_layout.h"

namespace graphbox {

class Slab {
  static constexpr std::uint32_t kGroupRows = 64;

 public:
  // Where rows are, to be copied into a loop's registers as RowIndex::View is. Good until the slab grows.
  struct View {
    // The values, as the layout keeps them, then the state of each value.
    GRAPHBOX_INLINE std::byte* data(std::uint32_t row) const {
      return group(row) + static_cast<std::size_t>(row % kGroupRows) * row_bytes;
    }
    GRAPHBOX_INLINE std::byte* group(std::uint32_t row) const {
      return bases[row >> shift] + static_cast<std::size_t>((row & mask) / kGroupRows) * group_bytes;
    }

    std::byte* const* bases = nullptr;  // of chunks
    std::size_t row_bytes = 0;          // of values and their state, a multiple of 16
    std::size_t group_bytes = 0;
    std::uint32_t shift = 0;  // of a row's number: its chunk
    std::uint32_t mask = 0;   // its place there
  };

  explicit Slab(const RowLayout& layout);

  const View& view() const { return view_; }
  std::byte* data(std::uint32_t row) const { return view_.data(row); }
  float* float32_values(std::uint32_t row) const { return reinterpret_cast<float*>(data(row)); }
  std::uint16_t* float16_values(std::uint32_t row) const { return reinterpret_cast<std::uint16_t*>(data(row)); }

  // The values as float32, whatever the layout keeps.
  void copy_values(std::uint32_t row, float* values) const;
  // The same of what data() points to, in a layout whose values are not float32.
  void unpack_values(const std::byte* data, float* values) const;
  // Rounds to the nearest where they are kept as float16 or int8, which must be finite.
  void set_values(std::uint32_t row, const float* values) const;

  std::int64_t& key(std::uint32_t row) const { return column<std::int64_t>(row, keys_offset_); }
  RowState state(std::uint32_t row) const {
    return {layout_.has_accumulator ? &column<float>(row, accumulators_offset_) : nullptr,
            layout_.has_steps ? &column<std::uint32_t>(row, steps_offset_) : nullptr,
            reinterpret_cast<float*>(data(row) + state_offset_)};
  }
  // Only where the layout has counters.
  RowCounters& counters(std::uint32_t row) const { return column<RowCounters>(row, counters_offset_); }

  // All of a row but its key, as layout().record_bytes() bytes.
  void write_record(std::uint32_t row, std::byte* record) const;
  void read_record(std::uint32_t row, const std::byte* record) const;

  // The values of a record as float32.
  void copy_record_values(const std::byte* record, float* values) const;

  // Asks for all of a row.
  GRAPHBOX_INLINE void prefetch_row(std::uint32_t row) const {
    prefetch_bytes(data(row), view_.row_bytes);
    if (layout_.has_accumulator) {
      prefetch(&column<float>(row, accumulators_offset_));
    }
    if (layout_.has_steps) {
      prefetch(&column<std::uint32_t>(row, steps_offset_));
    }
    if (layout_.has_counters) {
      prefetch(&counters(row));
    }
  }

  const RowLayout& layout() const { return layout_; }
  std::size_t bytes_per_row() const { return view_.group_bytes / kGroupRows; }
  std::uint64_t rows() const { return rows_; }

  // Memory in use once there are `rows` rows: chunks are touched page by page, so this counts touched huge pages.
  std::size_t bytes_for(std::uint64_t rows) const;
  std::size_t bytes() const { return bytes_for(rows_); }

  // Until there are `rows` rows, resize() does not disturb threads that use other rows meanwhile.
  void reserve(std::uint64_t rows);

  // The caller fills new rows. Chunks stay when there are fewer.
  void resize(std::uint64_t rows);
  // Asks the system for the pages of new rows, those from `first` on, on several threads: threads that write rows side
  // by side would clear the same pages.
  void touch(std::uint64_t first, int threads) const;
  // resize() for fewer rows, and gives the memory of the others back.
  void release_from(std::uint64_t rows);

 private:
  template <typename Value>
  Value& column(std::uint32_t row, std::size_t offset) const {
    return reinterpret_cast<Value*>(view_.group(row) + offset)[row % kGroupRows];
  }

  std::size_t chunk_bytes() const { return (std::size_t{1} << view_.shift) / kGroupRows * view_.group_bytes; }

  RowLayout layout_;
  std::size_t state_offset_;  // in the row
  std::size_t keys_offset_;   // in a group, as the next three
  std::size_t accumulators_offset_;
  std::size_t steps_offset_;
  std::size_t counters_offset_;
  View view_;
  std::vector<Buffer> chunks_;
  std::vector<std::byte*> bases_;
  std::uint64_t rows_ = 0;
};

}  // namespace graphbox
