#include "table/row_index.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "random/philox.h"
#include "tests/check.h"

namespace graphbox {
namespace {

TEST(row_index, random_operations_agree_with_the_standard_map) {
  RowIndex index;
  std::unordered_map<std::int64_t, std::uint32_t> reference;
  const PhiloxKey random = derive_key(Stream::kWalk, 2, 0, 0);
  for (std::uint64_t i = 0; i < 200000; ++i) {
    const DrawSequence draws(random, 0, 0, i);
    const std::int64_t key = (static_cast<std::int64_t>(draws.bounded_wide(0, 5000)) - 2500) * (std::int64_t{1} << 48);
    const auto found = reference.find(key);
    CHECK_EQUAL(index.find(key, index.hash(key)), found == reference.end() ? kNoRow : found->second);
    if (found == reference.end()) {
      index.reserve(reference.size() + 1);
      index.insert(key, index.hash(key), static_cast<std::uint32_t>(i));
      reference[key] = static_cast<std::uint32_t>(i);
    } else if (draws.bounded_wide(1, 3) != 0) {
      index.erase(key, index.hash(key));
      reference.erase(key);
    }
  }
  for (const auto& [key, row] : reference) {
    CHECK_EQUAL(index.find(key, index.hash(key)), row);
  }
}

// Many keys come at once, some of them several times or there before, into an index that has just room for them, so that
// keys pass from one thread's part to the next.
TEST(row_index, inserting_many_keys_is_inserting_each) {
  for (const int threads : {1, 2, 3, 8}) {
    RowIndex index;
    std::unordered_map<std::int64_t, std::uint32_t> reference;
    const PhiloxKey random = derive_key(Stream::kWalk, 5, 0, 0);
    for (std::uint64_t batch = 0; batch < 12; ++batch) {
      std::vector<std::int64_t> keys;
      for (std::uint64_t i = 0; i < 20000; ++i) {
        keys.push_back(static_cast<std::int64_t>(DrawSequence(random, 0, 0, batch * 20000 + i).bounded_wide(0, 150000)) - 1);
      }
      index.reserve(reference.size() + keys.size(), threads);
      const RowIndex::Inserted inserted =
          index.insert_missing(keys.data(), static_cast<std::int64_t>(keys.size()), threads);
      for (std::size_t i = 0; i < keys.size(); ++i) {
        const auto row = static_cast<std::uint32_t>(reference.size());
        const bool is_new = reference.emplace(keys[i], row).second;
        CHECK_EQUAL(inserted.is_new[static_cast<std::int64_t>(i)], is_new);
        if (is_new) {
          *inserted.places[static_cast<std::int64_t>(i)] = row;
        }
        CHECK_EQUAL(*inserted.places[static_cast<std::int64_t>(i)], reference[keys[i]]);
      }
    }
    for (std::int64_t key = -1; key < 150000; ++key) {
      const auto found = reference.find(key);
      CHECK_EQUAL(index.find(key, index.hash(key)), found == reference.end() ? kNoRow : found->second);
    }
    for (const auto& [key, row] : reference) {  // in any order: what keys passed is known
      index.erase(key, index.hash(key));
      CHECK_EQUAL(index.find(key, index.hash(key)), kNoRow);
    }
    CHECK_EQUAL(index.probe_length(index.hash(7)), 1U);
  }
}

// An index as full as it may be, of which every bucket hands keys over, grows on several threads.
TEST(row_index, growing_keeps_every_key) {
  for (const int threads : {1, 2, 7}) {
    RowIndex index;
    std::int64_t keys = 0;
    for (int growth = 0; growth < 8; ++growth) {
      index.reserve(static_cast<std::uint64_t>(keys) + 30000, threads);
      for (; index.has_room_for(static_cast<std::uint64_t>(keys) + 1); ++keys) {
        index.insert(keys, index.hash(keys), static_cast<std::uint32_t>(2 * keys));
      }
      for (std::int64_t key = 0; key < keys; ++key) {
        CHECK_EQUAL(index.find(key, index.hash(key)), static_cast<std::uint32_t>(2 * key));
      }
      CHECK_EQUAL(index.find(keys, index.hash(keys)), kNoRow);
    }
  }
}

// Empty places hold the key -1.
TEST(row_index, every_key_is_legal) {
  RowIndex index;
  for (const std::int64_t key : {std::int64_t{-1}, std::int64_t{0}, INT64_MIN, INT64_MAX}) {
    CHECK_EQUAL(index.find(key, index.hash(key)), kNoRow);
    index.insert(key, index.hash(key), 7);
    CHECK_EQUAL(index.find(key, index.hash(key)), 7U);
    index.erase(key, index.hash(key));
    CHECK_EQUAL(index.find(key, index.hash(key)), kNoRow);
  }
}

// Keys that share all but a few bits, as an attacker without the secrets would choose them, must spread like random
// ones: no two of 100,000 hashes are equal, and no home is crowded.
TEST(row_index, structured_keys_spread) {
  const RowIndex index;
  const auto check = [&](auto key_of) {
    std::vector<std::uint64_t> hashes;
    std::vector<int> homes(1024, 0);
    for (std::int64_t i = 0; i < 100000; ++i) {
      hashes.push_back(index.hash(key_of(i)));
      ++homes[hashes.back() >> 54];
    }
    std::sort(hashes.begin(), hashes.end());
    CHECK(std::unique(hashes.begin(), hashes.end()) == hashes.end());
    CHECK(*std::max_element(homes.begin(), homes.end()) < 98 + 8 * 10);  // mean 97.7, standard deviation 9.9
  };
  check([](std::int64_t i) { return i; });
  check([](std::int64_t i) { return -i; });
  check([](std::int64_t i) { return i * (std::int64_t{1} << 40); });
  check([](std::int64_t i) { return i * 0x9E3779B97F4A7C15; });
  check([](std::int64_t i) { return i ^ INT64_MIN; });
}

// Mean number of buckets that lookups of absent keys read.
double mean_probe_length(const RowIndex& index, std::int64_t first_absent) {
  std::uint64_t total = 0;
  constexpr std::int64_t kLookups = 20000;
  for (std::int64_t i = 0; i < kLookups; ++i) {
    total += index.probe_length(index.hash(first_absent + i));
  }
  return static_cast<double>(total) / kLookups;
}

// Keys come and go in an index as full as it may be. Keys that passed full buckets must come back to the places that
// become free, or all lie ever further from home, and lookups of absent keys end late or never.
TEST(row_index, churn_leaves_no_trace) {
  RowIndex index;
  index.reserve(20000);
  std::int64_t last = 0;
  while (index.has_room_for(static_cast<std::uint64_t>(last) + 1)) {
    index.insert(last, index.hash(last), static_cast<std::uint32_t>(last));
    ++last;
  }
  const double before = mean_probe_length(index, std::int64_t{1} << 40);
  CHECK(before > 1.5);
  for (std::int64_t oldest = 0; oldest < 500000; ++oldest, ++last) {
    index.erase(oldest, index.hash(oldest));
    index.insert(last, index.hash(last), static_cast<std::uint32_t>(last));
  }
  CHECK(mean_probe_length(index, std::int64_t{1} << 40) < 2 * before);
  for (std::int64_t key = 500000; key < last; ++key) {
    CHECK_EQUAL(index.find(key, index.hash(key)), static_cast<std::uint32_t>(key));
    index.erase(key, index.hash(key));
  }
  CHECK_EQUAL(mean_probe_length(index, 0), 1.0);
}

// Keys that all have the same home in an index whose secrets were known do not in another one.
TEST(row_index, keys_that_flood_one_index_do_not_flood_another) {
  RowIndex known;
  RowIndex other;
  std::vector<std::int64_t> keys;
  for (std::int64_t key = 0; keys.size() < 1000; ++key) {
    if (known.hash(key) >> 52 == 0) {
      keys.push_back(key);
    }
  }
  known.reserve(4000);
  other.reserve(4000);
  for (const std::int64_t key : keys) {
    known.insert(key, known.hash(key), 0);
    other.insert(key, other.hash(key), 0);
  }
  std::uint64_t in_known = 0;
  std::uint64_t in_other = 0;
  for (const std::int64_t key : keys) {
    in_known += known.probe_length(known.hash(key));
    in_other += other.probe_length(other.hash(key));
  }
  CHECK(in_known > keys.size() * 100);
  CHECK(in_other < keys.size() * 3);
}

TEST(row_index, secrets_differ_between_indexes) {
  const RowIndex first;
  const RowIndex second;
  int equal = 0;
  for (std::int64_t key = 0; key < 100; ++key) {
    equal += first.hash(key) == second.hash(key) ? 1 : 0;
  }
  CHECK_EQUAL(equal, 0);
}

TEST(row_index, memory_per_row) {
  RowIndex index;
  for (const std::uint64_t rows : {1000000, 1300000, 3000000, 10000000}) {
    CHECK(index.bytes_for(rows) <= rows * 64 / 3);
    CHECK(index.bytes_for(rows) >= rows * 17);
  }
}

}  // namespace
}  // namespace graphbox
