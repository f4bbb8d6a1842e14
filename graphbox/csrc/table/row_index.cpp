#include "table/row_index.h"

#include <sys/random.h>

#include <cstring>
#include <random>
#include <utility>

namespace graphbox {
namespace {

constexpr std::uint64_t kFewestBuckets = 256;

void fill_random(std::uint64_t* words, std::size_t count) {
  const auto bytes = static_cast<ssize_t>(count * sizeof(std::uint64_t));
  if (::getrandom(words, static_cast<std::size_t>(bytes), 0) != bytes) {
    std::random_device device;
    for (std::size_t i = 0; i < count; ++i) {
      words[i] = std::uint64_t{device()} << 32 | device();
    }
  }
}

}  // namespace

RowIndex::RowIndex() : buffer_(kFewestBuckets * sizeof(Bucket)), buckets_count_(kFewestBuckets) {
  fill_random(secrets_.data(), secrets_.size());
  secrets_[1] |= 1;  // a factor of 0 would lose the key
  secrets_[3] |= 1;
  clear();
}

// All bits set: keys of -1 without rows, in buckets that are the last to look into.
void RowIndex::clear() { std::memset(buffer_.data(), 0xFF, bytes()); }

std::uint64_t RowIndex::buckets_for(std::uint64_t rows) const {
  std::uint64_t count = buckets_count_;
  while (rows > room(count)) {
    count += count / 4;
  }
  return count;
}

void RowIndex::reserve(std::uint64_t rows) {
  const std::uint64_t count = buckets_for(rows);
  if (count == buckets_count_) {
    return;
  }
  Buffer larger(count * sizeof(Bucket));  // may throw: nothing has changed yet
  const Buffer old = std::exchange(buffer_, std::move(larger));
  const auto* const old_buckets = reinterpret_cast<const Bucket*>(old.data());
  const std::uint64_t old_count = std::exchange(buckets_count_, count);
  clear();
  for (std::uint64_t number = 0; number < old_count; ++number) {
    const Bucket& bucket = old_buckets[number];
    for (std::size_t i = 0; i < kKeys; ++i) {
      if (bucket.rows[i] != kNoRow) {
        insert(bucket.keys[i], hash(bucket.keys[i]), bucket.rows[i]);
      }
    }
  }
}

void RowIndex::insert(std::int64_t key, std::uint64_t hash, std::uint32_t row) {
  for (std::uint64_t number = home(hash);; number = next(number)) {
    Bucket& bucket = buckets()[number];
    for (std::size_t i = 0; i < kKeys; ++i) {
      if (bucket.rows[i] == kNoRow) {
        bucket.keys[i] = key;
        bucket.rows[i] = row;
        return;
      }
    }
    bucket.is_last = 0;
  }
}

// The mark of a bucket that was full stays until the index grows: lookups of keys that are absent look further.
void RowIndex::erase(std::int64_t key, std::uint64_t hash) {
  for (std::uint64_t number = home(hash);; number = next(number)) {
    Bucket& bucket = buckets()[number];
    for (std::size_t i = 0; i < kKeys; ++i) {
      if (bucket.keys[i] == key && bucket.rows[i] != kNoRow) {
        bucket.keys[i] = -1;
        bucket.rows[i] = kNoRow;
        return;
      }
    }
  }
}

}  // namespace graphbox
