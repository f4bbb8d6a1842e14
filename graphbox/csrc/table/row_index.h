// Finds the row of a key: buckets of one cache line, five keys and rows in each.
//
// A lookup reads the line that its hash points to, and nearly always no other: the whole key is there, so a key that
// is absent is known to be without looking at any row. A bucket that is full hands over to the next and remembers
// how many keys it did for, so that lookups end where the last of them lies. The home of a key is its hash scaled to the number of buckets, so that the index can grow by a quarter
// instead of doubling, and growing walks both arrays in order.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "memory/buffer.h"
#include "portability/cpu.h"

namespace graphbox {

inline constexpr std::uint32_t kNoRow = UINT32_MAX;

class RowIndex {
 public:
  RowIndex();

  // Keyed with secrets of this process: keys chosen to collide would have to know them.
  GRAPHBOX_INLINE std::uint64_t hash(std::int64_t key) const {
    const std::uint64_t mixed = fold(static_cast<std::uint64_t>(key) ^ secrets_[0], secrets_[1]);
    return fold(mixed ^ secrets_[2], secrets_[3]);
  }

  GRAPHBOX_INLINE void prefetch(std::uint64_t hash) const { graphbox::prefetch(buckets() + home(hash)); }

  // The row of the key, or kNoRow. `hash` is that of the key, here and below.
  GRAPHBOX_INLINE std::uint32_t find(std::int64_t key, std::uint64_t hash) const {
    for (std::uint64_t number = home(hash);; number = next(number)) {
      const Bucket& bucket = buckets()[number];
      // A bit for each key that is equal: which one it is cannot be predicted, so there is no branch for it.
      std::uint32_t equal = 0;
      for (std::size_t i = 0; i < kKeys; ++i) {
        equal |= static_cast<std::uint32_t>(bucket.keys[i] == key) << i;
      }
      for (; equal != 0; equal &= equal - 1) {
        const std::uint32_t row = bucket.rows[static_cast<std::size_t>(std::countr_zero(equal))];
        if (row != kNoRow) [[likely]] {  // an empty place holds the key -1
          return row;
        }
      }
      if (bucket.passed == 0) [[likely]] {
        return kNoRow;
      }
    }
  }

  // How many buckets the lookup of an absent key reads.
  std::uint64_t probe_length(std::uint64_t hash) const;

  // The key must not be there, and there must be room: see reserve().
  void insert(std::int64_t key, std::uint64_t hash, std::uint32_t row);
  // The key must be there.
  void erase(std::int64_t key, std::uint64_t hash);

  std::size_t bytes() const { return static_cast<std::size_t>(buckets_count_) * sizeof(Bucket); }
  bool has_room_for(std::uint64_t rows) const { return rows <= room(buckets_count_); }

  // Bytes of the index that would hold `rows` rows; it exists beside the old one while that is moved.
  std::size_t bytes_for(std::uint64_t rows) const {
    return static_cast<std::size_t>(buckets_for(rows)) * sizeof(Bucket);
  }
  void reserve(std::uint64_t rows);

 private:
  static constexpr std::size_t kKeys = 5;

  struct alignas(kCacheLineBytes) Bucket {
    std::array<std::int64_t, kKeys> keys;
    std::array<std::uint32_t, kKeys> rows;
    std::uint32_t passed;  // keys for which there was no room, and which lie further on
  };
  static_assert(sizeof(Bucket) == kCacheLineBytes);

  static std::uint64_t fold(std::uint64_t a, std::uint64_t b) {
    const Uint128 product = static_cast<Uint128>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  }
  // Full when 4.25 of five places are taken on average.
  static std::uint64_t room(std::uint64_t buckets) { return buckets * 4 + buckets / 4; }

  Bucket* buckets() const { return reinterpret_cast<Bucket*>(buffer_.data()); }
  std::uint64_t home(std::uint64_t hash) const {
    return static_cast<std::uint64_t>(static_cast<Uint128>(hash) * buckets_count_ >> 64);
  }
  std::uint64_t next(std::uint64_t number) const { return number + 1 == buckets_count_ ? 0 : number + 1; }
  // Buckets from one to another, forwards.
  std::uint64_t distance(std::uint64_t from, std::uint64_t to) const {
    return to >= from ? to - from : to + buckets_count_ - from;
  }
  std::uint64_t buckets_for(std::uint64_t rows) const;
  void clear();
  void fill_place(std::uint64_t number, std::size_t place);

  Buffer buffer_;
  std::uint64_t buckets_count_ = 0;
  std::array<std::uint64_t, 4> secrets_;
};

}  // namespace graphbox
