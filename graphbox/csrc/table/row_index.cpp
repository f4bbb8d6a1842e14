#include "table/row_index.h"

#include <sys/random.h>

#include <algorithm>
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

RowIndex::RowIndex() : buffer_(kFewestBuckets * sizeof(Bucket)) {
  view_.buckets_ = reinterpret_cast<Bucket*>(buffer_.data());
  view_.buckets_count_ = kFewestBuckets;
  auto& secrets = view_.secrets_;
  fill_random(secrets.data(), secrets.size());
  secrets[1] |= 1;  // a factor of 0 would lose the key
  secrets[3] |= 1;
  clear();
}

void RowIndex::clear() {
  Bucket empty{};
  empty.keys.fill(-1);
  empty.rows.fill(kNoRow);
  std::fill_n(buckets(), view_.buckets_count_, empty);
}

std::uint64_t RowIndex::buckets_for(std::uint64_t rows) const {
  std::uint64_t count = view_.buckets_count_;
  while (rows > room(count)) {
    count += count / 5;
  }
  return count;
}

void RowIndex::reserve(std::uint64_t rows) {
  const std::uint64_t count = buckets_for(rows);
  if (count == view_.buckets_count_) {
    return;
  }
  Buffer larger(count * sizeof(Bucket));  // may throw: nothing has changed yet
  const Buffer old = std::exchange(buffer_, std::move(larger));
  const auto* const old_buckets = reinterpret_cast<const Bucket*>(old.data());
  const std::uint64_t old_count = std::exchange(view_.buckets_count_, count);
  view_.buckets_ = reinterpret_cast<Bucket*>(buffer_.data());
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
    ++bucket.passed;
  }
}

void RowIndex::replace(std::int64_t key, std::uint64_t hash, std::uint32_t row) {
  for (std::uint64_t number = home(hash);; number = next(number)) {
    Bucket& bucket = buckets()[number];
    for (std::size_t i = 0; i < kKeys; ++i) {
      if (bucket.keys[i] == key && bucket.rows[i] != kNoRow) {
        bucket.rows[i] = row;
        return;
      }
    }
  }
}

void RowIndex::erase(std::int64_t key, std::uint64_t hash) {
  for (std::uint64_t number = home(hash);; number = next(number)) {
    Bucket& bucket = buckets()[number];
    for (std::size_t i = 0; i < kKeys; ++i) {
      if (bucket.keys[i] == key && bucket.rows[i] != kNoRow) {
        fill_place(number, i);
        return;
      }
    }
    --bucket.passed;
  }
}

// Empties a place, or rather moves a key there that passed it, and another one to where that was: else keys would lie
// ever further from home when many come and go.
void RowIndex::fill_place(std::uint64_t number, std::size_t place) {
  while (buckets()[number].passed != 0) {
    Bucket& bucket = buckets()[number];
    std::uint64_t other = number;
    std::size_t found = kKeys;
    do {
      --buckets()[other].passed;
      other = next(other);
      const Bucket& candidates = buckets()[other];
      for (std::size_t i = 0; i < kKeys && found == kKeys; ++i) {
        const bool is_key = candidates.rows[i] != kNoRow;
        if (is_key && distance(home(this->hash(candidates.keys[i])), other) >= distance(number, other)) {
          found = i;
        }
      }
    } while (found == kKeys);
    bucket.keys[place] = buckets()[other].keys[found];
    bucket.rows[place] = buckets()[other].rows[found];
    number = other;
    place = found;
  }
  buckets()[number].keys[place] = -1;
  buckets()[number].rows[place] = kNoRow;
}

std::uint64_t RowIndex::probe_length(std::uint64_t hash) const {
  std::uint64_t length = 1;
  for (std::uint64_t number = home(hash); buckets()[number].passed != 0; number = next(number)) {
    ++length;
  }
  return length;
}

}  // namespace graphbox
