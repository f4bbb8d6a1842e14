#include "graph/edge_buckets.h"

#include <algorithm>

namespace graphbox {
namespace {

constexpr std::size_t kAheadBytes = std::size_t{1} << 20;

}  // namespace

EdgeBuckets::EdgeBuckets(std::size_t record_bytes, std::size_t most_bytes, int threads)
    : record_bytes_(record_bytes), threads_(threads), buckets_(kBuckets) {
  edges_bytes_ = (kBlockBytes - sizeof(std::byte*)) / record_bytes * record_bytes;
  blocks_ = GrowingArray<std::byte>(most_bytes / kBlockBytes * kBlockBytes);
}

void EdgeBuckets::count(const std::int64_t* sources, const std::int64_t* targets, std::int64_t count,
                        Falling& falling) const {
  falling.used = static_cast<std::size_t>((count + kChunkRows - 1) / kChunkRows);
  falling.chunks.resize(std::max(falling.chunks.size(), falling.used));
  parallel_for(threads_, static_cast<std::int64_t>(falling.used), [&](std::int64_t index) {
    Falling::Chunk& chunk = falling.chunks[static_cast<std::size_t>(index)];
    chunk.first = index * kChunkRows;
    chunk.end = std::min(count, chunk.first + kChunkRows);
    chunk.kept = 0;
    chunk.counts.assign(kBuckets, 0);
    chunk.next.resize(kBuckets);
    for (std::int64_t i = chunk.first; i < chunk.end; ++i) {
      if ((sources[i] | targets[i]) >= 0) {
        ++chunk.counts[bucket_of(targets[i])];
        ++chunk.kept;
      }
    }
  });
  falling.kept = 0;
  for (std::size_t i = 0; i < falling.used; ++i) {
    falling.chunks[i].place = falling.kept;
    falling.kept += falling.chunks[i].kept;
  }
  std::size_t blocks = 0;
  falling.largest = largest_;
  for (std::size_t number = 0; number < kBuckets; ++number) {
    std::int64_t edges = buckets_[number].size;
    for (std::size_t i = 0; i < falling.used; ++i) {
      edges += falling.chunks[i].counts[number];
    }
    blocks += blocks_of(edges);
    falling.largest = std::max(falling.largest, edges);
  }
  falling.held_bytes = blocks * kBlockBytes;
}

// The place `edges` further on, over as many new blocks as that takes. A block is added when an edge needs it, so that
// the place may be the end of a block.
std::byte* EdgeBuckets::advance(std::byte* place, std::int64_t edges) {
  auto left = static_cast<std::size_t>(edges) * record_bytes_;
  for (;;) {
    const std::size_t room = edges_bytes_ - (reinterpret_cast<std::uintptr_t>(place) & (kBlockBytes - 1));
    if (left <= room) {
      return place + left;
    }
    left -= room;
    std::byte* const block = new_block();
    std::memcpy(place + room, &block, sizeof block);
    place = block;
  }
}

// Has the system clear the memory of the next blocks, which takes it longer than filling them, while other threads work.
void EdgeBuckets::touch_ahead() {
  touched_bytes_ = std::max(touched_bytes_, used_blocks_ * kBlockBytes);
  if (touched_bytes_ < used_blocks_ * kBlockBytes + kAheadBytes && touched_bytes_ < blocks_.capacity()) {
    blocks_.data()[touched_bytes_] = std::byte{0};
    touched_bytes_ += kHugePageBytes;
  }
}

void EdgeBuckets::clear() {
  blocks_.release();
  touched_bytes_ = 0;
  used_blocks_ = 0;
  std::fill(buckets_.begin(), buckets_.end(), Bucket{});
  end_ = 0;
  size_ = 0;
  largest_ = 0;
}

}  // namespace graphbox
