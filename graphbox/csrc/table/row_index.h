// Finds the row of a key: buckets of one cache line, five keys and rows in each.
//
// A lookup reads the line that its hash points to, and nearly always no other: the whole key is there, so a key that
// is absent is known to be without looking at any row. A bucket that is full hands over to the next and remembers for
// how many keys it did, so that lookups end where the last of them lies. The home of a key is its hash scaled to the
// number of buckets, so that the index can grow by a fifth instead of doubling, and growing walks both arrays in order.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "memory/buffer.h"
#include "portability/cpu.h"

namespace graphbox {

// Row numbers end before these two.
inline constexpr std::uint32_t kNoRow = UINT32_MAX;
inline constexpr std::uint32_t kElsewhere = UINT32_MAX - 1;  // of RowIndex::find_first

class RowIndex {
  struct Bucket;

 public:
  // Fields of an index for lookups, to be copied into a loop's registers: loads that follow stores whose addresses are
  // alike wait for them, and a loop that writes rows has many stores in flight. Good until the index changes.
  class View {
   public:
    // Keyed with secrets of this process: keys chosen to collide would have to know them.
    GRAPHBOX_INLINE std::uint64_t hash(std::int64_t key) const {
      const std::uint64_t mixed = fold(static_cast<std::uint64_t>(key) ^ secrets_[0], secrets_[1]);
      return fold(mixed ^ secrets_[2], secrets_[3]);
    }

    GRAPHBOX_INLINE void prefetch(std::uint64_t hash) const { graphbox::prefetch(buckets_ + home(hash)); }

    // The row of the key, or kNoRow. `hash` is that of the key, here and below.
    GRAPHBOX_INLINE std::uint32_t find(std::int64_t key, std::uint64_t hash) const {
      for (std::uint64_t number = home(hash);; number = next(number)) {
        const Bucket& bucket = buckets_[number];
        const std::uint32_t row = bucket.find(key);
        if (row != kNoRow || bucket.passed == 0) [[likely]] {
          return row;
        }
      }
    }

    // The same, but kElsewhere where another bucket than the first must be looked into; that one is asked for.
    // So a caller who goes on with other keys before it calls find() waits for no memory.
    GRAPHBOX_INLINE std::uint32_t find_first(std::int64_t key, std::uint64_t hash) const {
      const std::uint64_t number = home(hash);
      const Bucket& bucket = buckets_[number];
      const std::uint32_t row = bucket.find(key);
      if (row != kNoRow || bucket.passed == 0) [[likely]] {
        return row;
      }
      graphbox::prefetch(buckets_ + next(number));
      return kElsewhere;
    }

   private:
    friend class RowIndex;

    static std::uint64_t fold(std::uint64_t a, std::uint64_t b) {
      const Uint128 product = static_cast<Uint128>(a) * b;
      return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
    }
    std::uint64_t home(std::uint64_t hash) const {
      return static_cast<std::uint64_t>(static_cast<Uint128>(hash) * buckets_count_ >> 64);
    }
    std::uint64_t next(std::uint64_t number) const { return number + 1 == buckets_count_ ? 0 : number + 1; }

    Bucket* buckets_ = nullptr;
    std::uint64_t buckets_count_ = 0;
    std::array<std::uint64_t, 4> secrets_{};
  };

  RowIndex();

  const View& view() const { return view_; }

  std::uint64_t hash(std::int64_t key) const { return view_.hash(key); }
  GRAPHBOX_INLINE void prefetch(std::uint64_t hash) const { view_.prefetch(hash); }
  std::uint32_t find(std::int64_t key, std::uint64_t hash) const { return view_.find(key, hash); }

  // Number of buckets that the lookup of an absent key reads.
  std::uint64_t probe_length(std::uint64_t hash) const;

  // Inserts those of the keys that are not there, on several threads. The caller writes their rows. There must be room:
  // see reserve().
  struct Inserted {
    PooledArray<std::uint32_t*> places;  // of each key: where its row stands, until the index changes
    PooledArray<bool> is_new;            // whether the key was not there; at its first place among these
  };
  Inserted insert_missing(const std::int64_t* keys, std::int64_t count, int threads);

  // The key must not be there, and there must be room: see reserve(). Returns where the row stands.
  std::uint32_t* insert(std::int64_t key, std::uint64_t hash, std::uint32_t row);
  // The key must be there, here and below.
  void replace(std::int64_t key, std::uint64_t hash, std::uint32_t row);
  void erase(std::int64_t key, std::uint64_t hash);

  // Calls visit(key, row) for all; a row that visit changes stays changed, and must not become kNoRow.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (std::uint64_t number = 0; number < view_.buckets_count_; ++number) {
      Bucket& bucket = buckets()[number];
      for (std::size_t i = 0; i < kKeys; ++i) {
        if (bucket.rows[i] != kNoRow) {
          visit(bucket.keys[i], bucket.rows[i]);
        }
      }
    }
  }

  std::size_t bytes() const { return static_cast<std::size_t>(view_.buckets_count_) * sizeof(Bucket); }
  bool has_room_for(std::uint64_t rows) const { return rows <= room(view_.buckets_count_); }

  // Bytes of the index that would hold `rows` rows; it exists beside the old one while that is moved.
  std::size_t bytes_for(std::uint64_t rows) const {
    return static_cast<std::size_t>(buckets_for(rows)) * sizeof(Bucket);
  }
  void reserve(std::uint64_t rows, int threads = 1);

 private:
  static constexpr std::size_t kKeys = 5;

  struct alignas(kCacheLineBytes) Bucket {
    GRAPHBOX_INLINE std::uint32_t find(std::int64_t key) const {
      // A bit for each key that is equal: which one it is cannot be predicted, so there is no branch for it.
      std::uint32_t equal = 0;
      for (std::size_t i = 0; i < kKeys; ++i) {
        equal |= static_cast<std::uint32_t>(keys[i] == key) << i;
      }
      for (; equal != 0; equal &= equal - 1) {
        const std::uint32_t row = rows[static_cast<std::size_t>(std::countr_zero(equal))];
        if (row != kNoRow) [[likely]] {  // an empty place holds the key -1
          return row;
        }
      }
      return kNoRow;
    }

    // Where the row of the key stands, or null.
    std::uint32_t* place_of(std::int64_t key) {
      for (std::size_t i = 0; i < kKeys; ++i) {
        if (keys[i] == key && rows[i] != kNoRow) {
          return &rows[i];
        }
      }
      return nullptr;
    }
    // Puts the key here, or returns null where all places are taken.
    std::uint32_t* insert(std::int64_t key, std::uint32_t row) {
      for (std::size_t i = 0; i < kKeys; ++i) {
        if (rows[i] == kNoRow) {
          keys[i] = key;
          rows[i] = row;
          return &rows[i];
        }
      }
      return nullptr;
    }

    std::array<std::int64_t, kKeys> keys;
    std::array<std::uint32_t, kKeys> rows;
    std::uint32_t passed;  // keys for which there was no room, and which lie further on
  };
  static_assert(sizeof(Bucket) == kCacheLineBytes);

  // Full when 3.6 of five places are taken on average: one key of eight is then elsewhere than its hash points to.
  static std::uint64_t room(std::uint64_t buckets) { return buckets * 3 + buckets / 5 * 3; }

  Bucket* buckets() const { return view_.buckets_; }
  std::uint64_t home(std::uint64_t hash) const { return view_.home(hash); }
  std::uint64_t next(std::uint64_t number) const { return view_.next(number); }
  // Buckets from one to another, forwards.
  std::uint64_t distance(std::uint64_t from, std::uint64_t to) const {
    return to >= from ? to - from : to + view_.buckets_count_ - from;
  }
  std::uint64_t buckets_for(std::uint64_t rows) const;
  void clear(std::uint64_t begin, std::uint64_t end);
  void fill_place(std::uint64_t number, std::size_t place);

  std::uint32_t* place_of(std::int64_t key, std::uint64_t hash);
  // Inserts the key unless it is there; null, and nothing is changed, where a bucket from `end` on would be looked at.
  std::uint32_t* find_or_insert_before(std::uint64_t end, std::int64_t key, std::uint64_t hash, bool& is_new);
  // The same for a key that is not there.
  std::uint32_t* insert_before(std::uint64_t end, std::int64_t key, std::uint64_t hash, std::uint32_t row);

  Buffer buffer_;
  View view_;
};

}  // namespace graphbox
