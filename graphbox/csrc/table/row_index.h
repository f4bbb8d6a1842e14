// Finds the row of a key: open addressing over entries of eight bytes.
//
// An entry holds 32 bits of the key's hash and the row's number; the key itself is beside the row, whose memory line
// is needed anyway. Half the bytes of entries with whole keys, at the price of one row looked at in vain for every
// 2^32 / rows lookups or so. The home of an entry is its hash scaled to the capacity, so that the index can grow by
// half instead of doubling, and growing reads no row and walks both arrays in order.
#pragma once

#include <cstdint>

#include "memory/buffer.h"
#include "portability/cpu.h"

namespace graphbox {

inline constexpr std::uint32_t kNoRow = UINT32_MAX;

class RowIndex {
 public:
  RowIndex();

  // 32 bits of a hash keyed with secrets of this process: keys chosen to collide would have to know them.
  GRAPHBOX_INLINE std::uint32_t fingerprint(std::int64_t key) const {
    const std::uint64_t mixed = fold(static_cast<std::uint64_t>(key) ^ secrets_[0], secrets_[1]);
    return static_cast<std::uint32_t>(fold(mixed ^ secrets_[2], secrets_[3]) >> 32);
  }

  GRAPHBOX_INLINE void prefetch(std::uint32_t fingerprint) const { graphbox::prefetch(entries() + home(fingerprint)); }

  // The first row filed under the fingerprint, nearly always the only one, or kNoRow.
  GRAPHBOX_INLINE std::uint32_t candidate(std::uint32_t fingerprint) const {
    for (std::uint64_t slot = home(fingerprint);; slot = next(slot)) {
      const Entry entry = entries()[slot];
      if (entry.row == kNoRow || entry.fingerprint == fingerprint) {
        return entry.row;
      }
    }
  }

  // The row for which is_key(row) holds, or kNoRow.
  template <typename IsKey>
  std::uint32_t find(std::uint32_t fingerprint, IsKey is_key) const {
    for (std::uint64_t slot = home(fingerprint);; slot = next(slot)) {
      const Entry entry = entries()[slot];
      if (entry.row == kNoRow || (entry.fingerprint == fingerprint && is_key(entry.row))) {
        return entry.row;
      }
    }
  }

  // The key must not be there, and there must be room: see reserve().
  void insert(std::uint32_t fingerprint, std::uint32_t row);
  void erase(std::uint32_t fingerprint, std::uint32_t row);
  void move(std::uint32_t fingerprint, std::uint32_t from_row, std::uint32_t to_row);

  std::size_t bytes() const { return static_cast<std::size_t>(capacity_) * sizeof(Entry); }
  bool has_room_for(std::uint64_t rows) const { return rows <= room(capacity_); }

  // Bytes of the index that would hold `rows` rows; it exists beside the old one while that is moved.
  std::size_t bytes_for(std::uint64_t rows) const {
    return static_cast<std::size_t>(capacity_for(rows)) * sizeof(Entry);
  }
  void reserve(std::uint64_t rows);

 private:
  struct Entry {
    std::uint32_t fingerprint;
    std::uint32_t row;
  };

  static std::uint64_t fold(std::uint64_t a, std::uint64_t b) {
    const Uint128 product = static_cast<Uint128>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  }
  static std::uint64_t room(std::uint64_t capacity) { return capacity - capacity / 4; }  // full at three quarters

  Entry* entries() const { return reinterpret_cast<Entry*>(buffer_.data()); }
  std::uint64_t home(std::uint32_t fingerprint) const { return fingerprint * capacity_ >> 32; }
  std::uint64_t next(std::uint64_t slot) const { return slot + 1 == capacity_ ? 0 : slot + 1; }
  std::uint64_t slot_of(std::uint32_t fingerprint, std::uint32_t row) const;
  std::uint64_t capacity_for(std::uint64_t rows) const;
  void clear();

  Buffer buffer_;
  std::uint64_t capacity_ = 0;
  std::uint64_t secrets_[4];
};

}  // namespace graphbox
