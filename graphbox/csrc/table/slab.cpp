#include "table/slab.h"

#include <sys/mman.h>

#include <bit>
#include <cstring>

#include "parallel/parallel_for.h"
#include "table/float16.h"
#include "table/row_contents.h"

namespace graphbox {
namespace {

// Large enough that the unused end of a chunk, up to a huge page, does not matter; only the pages in use cost memory.
constexpr std::size_t kSmallestChunkBytes = std::size_t{128} << 20;

std::size_t rounded_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

std::size_t whole_pages(std::size_t bytes) { return rounded_up(bytes, kHugePageBytes); }

}  // namespace

Slab::Slab(const RowLayout& layout)
    : layout_(layout), state_offset_(rounded_up(layout.value_bytes, sizeof(float))) {
  view_.row_bytes = rounded_up(state_offset_ + layout.state_bytes, 16);
  keys_offset_ = kGroupRows * view_.row_bytes;
  accumulators_offset_ = keys_offset_ + kGroupRows * sizeof(std::int64_t);
  steps_offset_ = accumulators_offset_ + (layout.has_accumulator ? kGroupRows * sizeof(float) : 0);
  counters_offset_ = steps_offset_ + (layout.has_steps ? kGroupRows * sizeof(std::uint32_t) : 0);
  view_.group_bytes = counters_offset_ + (layout.has_counters ? kGroupRows * sizeof(RowCounters) : 0);
  view_.shift = std::countr_zero(kGroupRows);
  while (chunk_bytes() < kSmallestChunkBytes) {
    ++view_.shift;
  }
  view_.mask = (1U << view_.shift) - 1;
}

std::size_t Slab::bytes_for(std::uint64_t rows) const {
  const std::uint64_t groups_of_rest = ((rows & view_.mask) + kGroupRows - 1) / kGroupRows;
  return (rows >> view_.shift) * whole_pages(chunk_bytes()) + whole_pages(groups_of_rest * view_.group_bytes);
}

void Slab::reserve(std::uint64_t rows) {
  bases_.reserve((rows >> view_.shift) + 1);
  view_.bases = bases_.data();
}

void Slab::resize(std::uint64_t rows) {
  while ((static_cast<std::uint64_t>(chunks_.size()) << view_.shift) < rows) {
    bases_.reserve(chunks_.size() + 1);
    if (view_.bases != bases_.data()) {  // after reserve() it does not change, and others may be reading it
      view_.bases = bases_.data();  // before there may be no memory for a chunk: the old place is gone
    }
    chunks_.emplace_back(chunk_bytes());
    bases_.push_back(chunks_.back().data());
  }
  rows_ = rows;
}

void Slab::touch(std::uint64_t first, int threads) const {
  std::vector<std::byte*> pages;
  for (std::uint64_t row = rounded_up(first, kGroupRows); row < rows_; row += kGroupRows) {
    std::byte* const begin = view_.group(static_cast<std::uint32_t>(row));
    const std::size_t before = reinterpret_cast<std::uintptr_t>(begin) % kHugePageBytes;
    for (std::size_t page = whole_pages(before) - before; page < view_.group_bytes; page += kHugePageBytes) {
      pages.push_back(begin + page);
    }
  }
  parallel_for(threads, static_cast<std::int64_t>(pages.size()),
               [&](std::int64_t page) { *pages[static_cast<std::size_t>(page)] = std::byte{0}; });
}

void Slab::release_from(std::uint64_t rows) {
  rows_ = rows;
  const std::uint64_t whole = (rows + view_.mask) >> view_.shift;
  chunks_.resize(whole);
  bases_.resize(whole);
  view_.bases = bases_.data();
  const std::size_t used = whole_pages(((rows & view_.mask) + kGroupRows - 1) / kGroupRows * view_.group_bytes);
  if ((rows & view_.mask) != 0 && used < chunks_.back().bytes()) {
    ::madvise(chunks_.back().data() + used, chunks_.back().bytes() - used, MADV_DONTNEED);
  }
}

void Slab::unpack_values(const std::byte* data, float* values) const {
  if (layout_.value_type == ValueType::kFloat16) {
    from_float16(reinterpret_cast<const std::uint16_t*>(data), values, layout_.dim);
  } else {
    decode_int8(data, values, layout_.dim);
  }
}

void Slab::copy_values(std::uint32_t row, float* values) const { copy_record_values(data(row), values); }

void Slab::copy_record_values(const std::byte* record, float* values) const {
  if (layout_.value_type == ValueType::kFloat32) {
    std::memcpy(values, record, layout_.value_bytes);
  } else {
    unpack_values(record, values);
  }
}

void Slab::set_values(std::uint32_t row, const float* values) const {
  if (layout_.value_type == ValueType::kFloat16) {
    to_float16(values, float16_values(row), layout_.dim);
  } else if (layout_.value_type == ValueType::kInt8) {
    encode_int8(values, layout_.dim, data(row));
  } else {
    std::memcpy(data(row), values, layout_.value_bytes);
  }
}

void Slab::write_record(std::uint32_t row, std::byte* record) const {
  const auto write = [&record](const void* part, std::size_t bytes) {
    std::memcpy(record, part, bytes);
    record += bytes;
  };
  write(data(row), layout_.value_bytes);
  write(data(row) + state_offset_, layout_.state_bytes);
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
  read(data(row), layout_.value_bytes);
  read(data(row) + state_offset_, layout_.state_bytes);
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
