#include "table/slab.h"

#include <bit>
#include <cstring>

namespace graphbox {
namespace {

// Large enough that the unused end of a chunk does not matter; only the pages in use cost memory.
constexpr std::size_t kSmallestChunkBytes = std::size_t{64} << 20;

std::size_t whole_pages(std::size_t bytes) { return (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes; }

}  // namespace

Slab::Slab(const RowLayout& layout)
    : layout_(layout),
      row_bytes_((layout.floats * sizeof(float) + 15) / 16 * 16),
      keys_offset_(kGroupRows * row_bytes_),
      accumulators_offset_(keys_offset_ + kGroupRows * sizeof(std::int64_t)),
      steps_offset_(accumulators_offset_ + (layout.has_accumulator ? kGroupRows * sizeof(float) : 0)),
      counters_offset_(steps_offset_ + (layout.has_steps ? kGroupRows * sizeof(std::uint32_t) : 0)),
      group_bytes_(counters_offset_ + (layout.has_counters ? kGroupRows * sizeof(RowCounters) : 0)) {
  shift_ = std::countr_zero(kGroupRows);
  while ((std::size_t{1} << shift_) / kGroupRows * group_bytes_ < kSmallestChunkBytes) {
    ++shift_;
  }
  mask_ = (1U << shift_) - 1;
}

std::size_t Slab::bytes_for(std::uint64_t rows) const {
  const std::uint64_t groups_of_rest = ((rows & mask_) + kGroupRows - 1) / kGroupRows;
  return (rows >> shift_) * whole_pages(chunk_bytes()) + whole_pages(groups_of_rest * group_bytes_);
}

void Slab::resize(std::uint64_t rows) {
  while ((static_cast<std::uint64_t>(chunks_.size()) << shift_) < rows) {
    bases_.reserve(chunks_.size() + 1);
    chunks_.emplace_back(chunk_bytes());
    bases_.push_back(chunks_.back().data());
  }
  rows_ = rows;
}

void Slab::write_record(std::uint32_t row, std::byte* record) const {
  const auto write = [&record](const void* part, std::size_t bytes) {
    std::memcpy(record, part, bytes);
    record += bytes;
  };
  write(values(row), layout_.floats * sizeof(float));
  if (layout_.has_accumulator) {
    write(state(row).accumulator, sizeof(float));
  }
  if (layout_.has_steps) {
    write(state(row).steps, sizeof(std::uint32_t));
  }
  if (layout_.has_counters) {
    write(&counters(row), sizeof(RowCounters));
  }
}

void Slab::read_record(std::uint32_t row, const std::byte* record) const {
  const auto read = [&record](void* part, std::size_t bytes) {
    std::memcpy(part, record, bytes);
    record += bytes;
  };
  read(values(row), layout_.floats * sizeof(float));
  if (layout_.has_accumulator) {
    read(state(row).accumulator, sizeof(float));
  }
  if (layout_.has_steps) {
    read(state(row).steps, sizeof(std::uint32_t));
  }
  if (layout_.has_counters) {
    read(&counters(row), sizeof(RowCounters));
  }
}

}  // namespace graphbox
