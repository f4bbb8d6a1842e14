// A hash table in memory from the hashes of ids to their numbers, one cache line for most searches.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "memory/growing_array.h"
#include "portability/cpu.h"

namespace graphbox {

// Open addressing with buckets of one cache line, searched upwards from the bucket that a hash names (Knuth, The Art of
// Computer Programming, volume 3, 6.4, linear probing with buckets). Whole hashes are kept: ids are touched only where
// their hash is the one looked for. The table grows where it lies, and touches no memory but what is new.
class IdBuckets {
 public:
  static constexpr std::int64_t kMostNumbers = (std::int64_t{1} << 32) - 2;

  IdBuckets() = default;
  explicit IdBuckets(std::size_t most_bytes) : buckets_(most_bytes / sizeof(Bucket) + 1) {}

  // Bytes of a table for so many ids: up to four fifths of the slots are in use.
  static std::size_t bytes_of(std::int64_t capacity) {
    const std::size_t bytes = static_cast<std::size_t>(buckets_of(capacity)) * sizeof(Bucket);
    return (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  }

  // Makes room for `capacity` ids in all.
  void grow(std::int64_t capacity);

  GRAPHBOX_INLINE void prefetch_for(std::uint64_t hash) const { prefetch(buckets_.data() + place_of(hash)); }

  // The number of the id with this hash for which `is_same(number)` holds, -1 where there is none.
  template <typename IsSame>
  std::int64_t find(std::uint64_t hash, IsSame&& is_same) const {
    const Bucket* bucket = buckets_.data() + place_of(hash);
    for (;;) {
      for (unsigned matches = matches_in(*bucket, hash); matches != 0; matches &= matches - 1) {
        const std::int64_t number = number_at(*bucket, std::countr_zero(matches));
        if (number < 0 || is_same(number)) {  // behind the last slot in use there are zeros
          return number;
        }
      }
      if (bucket->numbers[kSlots - 1] == 0) {  // slots are filled in their order, and none is ever emptied
        return -1;
      }
      bucket = after(bucket);
    }
  }

  // The same, but an id that is not there gets `number`. There must be room.
  template <typename IsSame>
  std::int64_t find_or_insert(std::uint64_t hash, std::int64_t number, IsSame&& is_same) {
    Bucket* bucket = buckets_.data() + place_of(hash);
    for (;;) {
      for (int slot = 0; slot < kSlots; ++slot) {
        if (bucket->numbers[slot] == 0) {
          bucket->hashes[slot] = hash;
          bucket->numbers[slot] = static_cast<std::uint32_t>(number + 1);
          return number;
        }
        if (bucket->hashes[slot] == hash && is_same(number_at(*bucket, slot))) {
          return number_at(*bucket, slot);
        }
      }
      bucket = const_cast<Bucket*>(after(bucket));
    }
  }

 private:
  static constexpr int kSlots = 5;
  static constexpr std::int64_t kChunk = std::int64_t{1} << 12;  // buckets moved at a time

  struct alignas(kCacheLineBytes) Bucket {
    std::uint64_t hashes[kSlots];
    std::uint32_t numbers[kSlots];  // and one; 0 is an empty slot, as fresh memory is
  };
  static_assert(sizeof(Bucket) == kCacheLineBytes);

  struct Entry {
    std::uint64_t hash;
    std::uint32_t number;
  };

  static std::int64_t buckets_of(std::int64_t capacity) { return (capacity + kSlots - 2) / (kSlots - 1); }
  static std::int64_t number_at(const Bucket& bucket, int slot) { return std::int64_t{bucket.numbers[slot]} - 1; }

  // A bit for each slot with this hash. Without branches: which slot it is cannot be foretold.
  static unsigned matches_in(const Bucket& bucket, std::uint64_t hash) {
    unsigned matches = 0;
    for (int slot = 0; slot < kSlots; ++slot) {
      matches |= (bucket.hashes[slot] == hash ? 1U : 0U) << slot;
    }
    return matches;
  }

  std::int64_t size() const { return static_cast<std::int64_t>(buckets_.size()); }

  // By the low half of the hash: the high bits are the same in all ids of a partition of spilled ids. Ascends with the
  // rotated hash whatever the number of buckets, so that the table grows from the top down in place.
  std::int64_t place_of(std::uint64_t hash) const {
    return static_cast<std::int64_t>(Uint128{std::rotl(hash, 32)} * buckets_.size() >> 64);
  }

  const Bucket* after(const Bucket* bucket) const {
    return bucket + 1 == buckets_.data() + buckets_.size() ? buckets_.data() : bucket + 1;
  }

  void put(const Entry& entry) {
    find_or_insert(entry.hash, std::int64_t{entry.number} - 1, [](std::int64_t) { return false; });
  }

  GrowingArray<Bucket> buckets_;
};

// Buckets are emptied from the last one down, some at a time, and their entries put where they belong now: that is not
// below them, among buckets not yet emptied, but for few, which come at the end.
inline void IdBuckets::grow(std::int64_t capacity) {
  const std::int64_t before = size();
  const std::int64_t wanted = buckets_of(capacity);
  if (wanted <= before) {
    return;
  }
  buckets_.resize(static_cast<std::size_t>(wanted));
  std::vector<Entry> entries;
  std::vector<Entry> late;
  for (std::int64_t end = before; end > 0;) {
    const std::int64_t first = end < 2 * kChunk ? 0 : end - kChunk;
    entries.clear();
    for (std::int64_t place = first; place < end; ++place) {
      Bucket& bucket = buckets_[static_cast<std::size_t>(place)];
      for (int slot = 0; slot < kSlots && bucket.numbers[slot] != 0; ++slot) {
        entries.push_back({bucket.hashes[slot], bucket.numbers[slot]});
      }
      std::memset(static_cast<void*>(&bucket), 0, sizeof bucket);
    }
    for (const Entry& entry : entries) {
      if (place_of(entry.hash) >= first) {
        put(entry);
      } else {
        late.push_back(entry);
      }
    }
    end = first;
  }
  for (const Entry& entry : late) {
    put(entry);
  }
}

}  // namespace graphbox
