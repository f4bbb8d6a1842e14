// Edges in memory, dealt out by their target as they come, so that each part can be sorted in the cache.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "graph/edge_record.h"
#include "memory/growing_array.h"
#include "parallel/parallel_for.h"

namespace graphbox {

// Buckets are ranges of targets in ascending order, whose widths grow with the targets as the steps of floating-point
// numbers do: so they need not know how many targets there will be, and those that are met first, the ones with the most
// edges, are told apart best. A bucket is a chain of blocks; edges keep the order in which they came.
class EdgeBuckets {
 public:
  static constexpr int kStepBits = 6;
  static constexpr std::size_t kBuckets = std::size_t{64 - kStepBits + 1} << kStepBits;
  // A power of two: blocks lie at multiples of it. Small, since the last block of every bucket is only half full.
  static constexpr std::size_t kBlockBytes = std::size_t{1} << 11;

  static GRAPHBOX_INLINE std::size_t bucket_of(std::int64_t target) {
    const auto value = static_cast<std::uint64_t>(target);
    const int octave = static_cast<int>(std::bit_width(value >> kStepBits | 1)) - 1;
    return (static_cast<std::size_t>(octave) << kStepBits) + static_cast<std::size_t>(value >> octave);
  }

  EdgeBuckets() = default;
  EdgeBuckets(std::size_t record_bytes, std::size_t most_bytes, int threads);

  std::int64_t size() const { return size_; }
  std::int64_t size_of(std::size_t bucket) const { return buckets_[bucket].size; }
  // Behind the last bucket with edges.
  std::size_t end() const { return end_; }
  std::int64_t largest() const { return largest_; }
  std::size_t held_bytes() const { return used_blocks_ * kBlockBytes; }

  // Distribution of further edges over buckets; those with an end below 0 are left out.
  struct Falling {
    struct Chunk {
      std::int64_t first = 0;
      std::int64_t end = 0;
      std::int64_t place = 0;  // of its first edge among all that are added
      std::int64_t kept = 0;
      std::vector<std::uint32_t> counts;
      std::vector<std::byte*> next;
    };
    std::vector<Chunk> chunks;
    std::size_t used = 0;  // of the chunks
    std::int64_t kept = 0;
    std::size_t held_bytes = 0;  // of all edges when these are added
    std::int64_t largest = 0;    // bucket then
  };
  void count(const std::int64_t* sources, const std::int64_t* targets, std::int64_t count, Falling& falling) const;

  // Adds the edges that were counted. Their rows count from `first_row`.
  template <typename Record>
  void add(const std::int64_t* sources, const std::int64_t* targets, std::int64_t first_row, Falling& falling);

  // Copies the edges of a bucket to `to`.
  template <typename Record>
  void gather(std::size_t bucket, Record* to) const;

  // Forgets all edges and gives their memory back.
  void clear();

 private:
  static constexpr std::int64_t kChunkRows = std::int64_t{1} << 13;

  struct Bucket {
    std::byte* first = nullptr;
    std::byte* next = nullptr;  // where its next edge goes, in its last block
    std::int64_t size = 0;
  };

  std::size_t blocks_of(std::int64_t edges) const {
    const auto in_block = static_cast<std::int64_t>(edges_bytes_ / record_bytes_);
    return static_cast<std::size_t>((edges + in_block - 1) / in_block);
  }
  bool is_end(const std::byte* place) const {
    return (reinterpret_cast<std::uintptr_t>(place) & (kBlockBytes - 1)) == edges_bytes_;
  }
  // The block behind the one that ends at `end`.
  static std::byte* follow(const std::byte* end) {
    std::byte* block;
    std::memcpy(&block, end, sizeof block);
    return block;
  }
  std::byte* new_block() {
    blocks_.resize(++used_blocks_ * kBlockBytes);
    return blocks_.data() + (used_blocks_ - 1) * kBlockBytes;
  }
  std::byte* advance(std::byte* place, std::int64_t edges);
  void touch_ahead();

  std::size_t record_bytes_ = 0;
  std::size_t edges_bytes_ = 0;  // of a block; behind them stands the next block
  int threads_ = 1;
  std::size_t used_blocks_ = 0;
  std::size_t touched_bytes_ = 0;
  GrowingArray<std::byte> blocks_;
  std::vector<Bucket> buckets_;
  std::size_t end_ = 0;
  std::int64_t size_ = 0;
  std::int64_t largest_ = 0;
};

template <typename Record>
void EdgeBuckets::add(const std::int64_t* sources, const std::int64_t* targets, std::int64_t first_row,
                      Falling& falling) {
  for (std::size_t number = 0; number < kBuckets; ++number) {
    Bucket& bucket = buckets_[number];
    for (std::size_t i = 0; i < falling.used; ++i) {
      Falling::Chunk& chunk = falling.chunks[i];
      const std::int64_t edges = chunk.counts[number];
      if (edges == 0) {
        continue;
      }
      if (bucket.size == 0) {
        bucket.first = new_block();
        bucket.next = bucket.first;
      }
      chunk.next[number] = bucket.next;
      bucket.next = advance(bucket.next, edges);
      bucket.size += edges;
      end_ = number + 1 > end_ ? number + 1 : end_;
    }
  }
  size_ += falling.kept;
  largest_ = falling.largest;
  parallel_for(threads_, static_cast<std::int64_t>(falling.used) + 1, [&](std::int64_t index) {
    if (index == 0) {
      touch_ahead();
      return;
    }
    Falling::Chunk& chunk = falling.chunks[static_cast<std::size_t>(index) - 1];
    std::byte** const nexts = chunk.next.data();
    [[maybe_unused]] auto row = static_cast<std::uint32_t>(first_row + chunk.place);
    for (std::int64_t i = chunk.first; i < chunk.end; ++i) {
      if ((sources[i] | targets[i]) < 0) {
        continue;
      }
      std::byte*& next = nexts[bucket_of(targets[i])];
      if (is_end(next)) {
        next = follow(next);
      }
      Record record;
      record.key = key_of<typename Record::Key>(targets[i], sources[i]);
      if constexpr (Record::kHasRow) {
        record.row = row++;
      }
      std::memcpy(next, &record, sizeof record);
      next += sizeof record;
    }
  });
}

template <typename Record>
void EdgeBuckets::gather(std::size_t bucket, Record* to) const {
  const std::byte* block = buckets_[bucket].first;
  for (std::int64_t left = buckets_[bucket].size; left > 0;) {
    const std::int64_t part = std::min(left, static_cast<std::int64_t>(edges_bytes_ / sizeof(Record)));
    std::memcpy(static_cast<void*>(to), block, static_cast<std::size_t>(part) * sizeof(Record));
    to += part;
    left -= part;
    if (left > 0) {
      block = follow(block + edges_bytes_);
      prefetch(block + edges_bytes_);
    }
  }
}

}  // namespace graphbox
