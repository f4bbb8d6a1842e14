#include "table/row_index.h"

#include <sys/random.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "parallel/divide.h"
#include "parallel/parallel_for.h"

namespace graphbox {
namespace {

constexpr std::uint64_t kFewestBuckets = 256;
constexpr std::uint32_t kNotNumbered = 0;  // in place of the row of a new key
constexpr std::uint64_t kFewestPartBuckets = 1024;  // worth a thread

// Buckets divided among threads.
struct BucketParts {
  BucketParts(std::uint64_t all_buckets, int threads)
      : buckets(all_buckets),
        count(std::clamp<std::uint64_t>(all_buckets / kFewestPartBuckets, 1,
                                        static_cast<std::uint64_t>(bounded_threads(threads)))) {}

  std::uint64_t begin(std::uint64_t part) const { return part * buckets / count; }
  std::uint64_t of(std::uint64_t bucket) const { return ((bucket + 1) * count - 1) / buckets; }

  std::uint64_t buckets;
  std::uint64_t count;
};

// Those for which there was no room in a part.
using KeysBeyond = std::vector<std::pair<std::int64_t, std::uint32_t>>;

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
  clear(0, kFewestBuckets);
}

void RowIndex::clear(std::uint64_t begin, std::uint64_t end) {
  Bucket empty{};
  empty.keys.fill(-1);
  empty.rows.fill(kNoRow);
  std::fill(buckets() + begin, buckets() + end, empty);
}

std::uint64_t RowIndex::buckets_for(std::uint64_t rows) const {
  std::uint64_t count = view_.buckets_count_;
  while (rows > room(count)) {
    count += count / 5;
  }
  return count;
}

// Each thread fills a stretch of the new buckets from the old ones that hold its keys: those that are at home there, and
// those that follow as long as keys were passed on.
void RowIndex::reserve(std::uint64_t rows, int threads) {
  const std::uint64_t count = buckets_for(rows);
  const std::uint64_t old_count = view_.buckets_count_;
  if (count == old_count) {
    return;
  }
  Buffer old(count * sizeof(Bucket));
  std::swap(buffer_, old);
  const auto* const old_buckets = reinterpret_cast<const Bucket*>(old.data());
  view_.buckets_ = reinterpret_cast<Bucket*>(buffer_.data());
  view_.buckets_count_ = count;
  const auto move_to = [&](std::uint64_t begin, std::uint64_t end, KeysBeyond& beyond) {
    clear(begin, end);
    const std::uint64_t first = begin * old_count / count;
    const std::uint64_t homes = end * old_count / count + 1 - first;
    bool follows = true;
    for (std::uint64_t met = 0; met < old_count && (met < homes || follows); ++met) {
      const Bucket& bucket = old_buckets[(first + met) % old_count];
      follows = bucket.passed != 0;
      for (std::size_t i = 0; i < kKeys; ++i) {
        const std::uint64_t key_hash = hash(bucket.keys[i]);
        if (bucket.rows[i] != kNoRow && home(key_hash) >= begin && home(key_hash) < end &&
            insert_before(end, bucket.keys[i], key_hash, bucket.rows[i]) == nullptr) {
          beyond.emplace_back(bucket.keys[i], bucket.rows[i]);
        }
      }
    }
  };
  try {
    const BucketParts parts(count, threads);
    std::vector<KeysBeyond> beyond(parts.count);
    parallel_for(threads, static_cast<std::int64_t>(parts.count), [&](std::int64_t number) {
      const auto part = static_cast<std::uint64_t>(number);
      move_to(parts.begin(part), parts.begin(part + 1), beyond[part]);
    });
    for (const KeysBeyond& keys : beyond) {
      for (const auto& [key, row] : keys) {
        insert(key, hash(key), row);
      }
    }
  } catch (...) {
    std::swap(buffer_, old);
    view_.buckets_ = reinterpret_cast<Bucket*>(buffer_.data());
    view_.buckets_count_ = old_count;
    throw;
  }
}

// Each thread has a part of the buckets, and takes the keys that are at home there in their order. Those that would
// leave it come last, all equal keys then.
RowIndex::Inserted RowIndex::insert_missing(const std::int64_t* keys, std::int64_t count, int threads) {
  constexpr std::int64_t kDistance = 16;
  Inserted inserted{PooledArray<std::uint32_t*>(count), PooledArray<bool>(count)};
  std::fill_n(inserted.is_new.data(), count, false);
  const BucketParts parts(view_.buckets_count_, threads);
  PooledArray<std::uint32_t> items(count);  // those of a part together
  std::vector<std::vector<std::uint32_t>> beyond(parts.count);
  const std::vector<std::int64_t> begins = divide(
      threads, count, parts.count, [&](std::int64_t i) { return parts.of(home(hash(keys[i]))); },
      [&](std::int64_t place, std::int64_t i) { items[place] = static_cast<std::uint32_t>(i); });
  try {
    parallel_for(threads, static_cast<std::int64_t>(parts.count), [&](std::int64_t number) {
      const auto part = static_cast<std::size_t>(number);
      for (std::int64_t item = begins[part]; item < begins[part + 1]; ++item) {
        const std::uint32_t ahead = items[std::min(item + kDistance, begins[part + 1] - 1)];
        prefetch_write(buckets() + home(hash(keys[ahead])));
        const std::uint32_t i = items[item];
        bool is_new = false;
        inserted.places[i] = find_or_insert_before(parts.begin(part + 1), keys[i], hash(keys[i]), is_new);
        inserted.is_new[i] = is_new;
        if (inserted.places[i] == nullptr) {
          beyond[part].push_back(i);
        }
      }
    });
  } catch (...) {
    for (std::int64_t i = 0; i < count; ++i) {
      if (inserted.is_new[i]) {
        erase(keys[i], hash(keys[i]));
      }
    }
    throw;
  }
  for (const std::vector<std::uint32_t>& rest : beyond) {
    for (const std::uint32_t i : rest) {
      inserted.is_new[i] = find(keys[i], hash(keys[i])) == kNoRow;
      inserted.places[i] =
          inserted.is_new[i] ? insert(keys[i], hash(keys[i]), kNotNumbered) : place_of(keys[i], hash(keys[i]));
    }
  }
  return inserted;
}

std::uint32_t* RowIndex::find_or_insert_before(std::uint64_t end, std::int64_t key, std::uint64_t hash, bool& is_new) {
  for (std::uint64_t number = home(hash); number < end; ++number) {
    if (std::uint32_t* const place = buckets()[number].place_of(key); place != nullptr) {
      return place;
    }
    if (buckets()[number].passed == 0) {
      std::uint32_t* const place = insert_before(end, key, hash, kNotNumbered);
      is_new = place != nullptr;
      return place;
    }
  }
  return nullptr;
}

std::uint32_t* RowIndex::insert_before(std::uint64_t end, std::int64_t key, std::uint64_t hash, std::uint32_t row) {
  for (std::uint64_t number = home(hash); number < end; ++number) {
    if (std::uint32_t* const place = buckets()[number].insert(key, row); place != nullptr) {
      return place;
    }
    ++buckets()[number].passed;
  }
  for (std::uint64_t number = home(hash); number < end; ++number) {
    --buckets()[number].passed;
  }
  return nullptr;
}

std::uint32_t* RowIndex::insert(std::int64_t key, std::uint64_t hash, std::uint32_t row) {
  for (std::uint64_t number = home(hash);; number = next(number)) {
    if (std::uint32_t* const place = buckets()[number].insert(key, row); place != nullptr) {
      return place;
    }
    ++buckets()[number].passed;
  }
}

std::uint32_t* RowIndex::place_of(std::int64_t key, std::uint64_t hash) {
  for (std::uint64_t number = home(hash);; number = next(number)) {
    if (std::uint32_t* const place = buckets()[number].place_of(key); place != nullptr) {
      return place;
    }
  }
}

void RowIndex::replace(std::int64_t key, std::uint64_t hash, std::uint32_t row) { *place_of(key, hash) = row; }

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
