#include "table/slab.h"

#include <algorithm>

namespace graphbox {
namespace {

// Large enough that the unused end of a chunk does not matter; only the pages in use cost memory.
constexpr std::size_t kSmallestChunkBytes = std::size_t{64} << 20;

std::size_t whole_pages(std::size_t bytes) { return (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes; }

}  // namespace

Slab::Slab(std::size_t row_bytes) : row_bytes_(row_bytes) {
  while ((std::size_t{1} << shift_) * row_bytes_ < kSmallestChunkBytes) {
    ++shift_;
  }
  mask_ = (1U << shift_) - 1;
}

std::size_t Slab::bytes_for(std::uint64_t rows) const {
  const std::uint64_t full_chunks = rows >> shift_;
  const std::uint64_t rest = rows & mask_;
  return full_chunks * whole_pages(rows_per_chunk() * row_bytes_) + whole_pages(rest * row_bytes_);
}

void Slab::resize(std::uint64_t rows) {
  const std::uint64_t needed = (rows + mask_) >> shift_;
  while (chunks_.size() < needed) {
    bases_.reserve(chunks_.size() + 1);
    chunks_.emplace_back(rows_per_chunk() * row_bytes_);
    bases_.push_back(chunks_.back().data());
  }
  if (chunks_.size() > needed) {
    chunks_.resize(needed);
    bases_.resize(needed);
    most_rows_ = std::min<std::uint64_t>(most_rows_, static_cast<std::uint64_t>(needed) << shift_);
  }
  rows_ = rows;
  most_rows_ = std::max(most_rows_, rows);
}

}  // namespace graphbox
