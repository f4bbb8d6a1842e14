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
  std::vector<std::int64_t> key_of_row;
  const PhiloxKey random = derive_key(Stream::kWalk, 2, 0, 0);
  const auto find = [&](std::int64_t key) {
    return index.find(index.fingerprint(key), [&](std::uint32_t row) { return key_of_row[row] == key; });
  };
  for (std::uint64_t i = 0; i < 200000; ++i) {
    const DrawSequence draws(random, 0, 0, i);
    const auto key = static_cast<std::int64_t>(draws.bounded_wide(0, 5000)) * (std::int64_t{1} << 48);
    const auto found = reference.find(key);
    CHECK_EQUAL(find(key), found == reference.end() ? kNoRow : found->second);
    if (found == reference.end()) {
      const auto row = static_cast<std::uint32_t>(key_of_row.size());
      key_of_row.push_back(key);
      index.reserve(key_of_row.size());
      index.insert(index.fingerprint(key), row);
      reference[key] = row;
    } else if (draws.bounded_wide(1, 3) != 0) {
      // As the table erases: the last row moves to the gap.
      const std::uint32_t row = found->second;
      const auto last = static_cast<std::uint32_t>(key_of_row.size() - 1);
      index.erase(index.fingerprint(key), row);
      if (row != last) {
        index.move(index.fingerprint(key_of_row[last]), last, row);
        key_of_row[row] = key_of_row[last];
        reference[key_of_row[last]] = row;
      }
      key_of_row.pop_back();
      reference.erase(key);
    }
  }
  for (const auto& [key, row] : reference) {
    CHECK_EQUAL(find(key), row);
  }
}

// Keys that share all but a few bits, as an attacker without the secrets would choose them, must spread like random
// ones: among 100,000 fingerprints of 32 bits about 1.2 pairs are equal, and no home is crowded.
TEST(row_index, structured_keys_spread) {
  const RowIndex index;
  const auto check = [&](auto key_of) {
    std::vector<std::uint32_t> fingerprints;
    std::vector<int> homes(1024, 0);
    for (std::int64_t i = 0; i < 100000; ++i) {
      fingerprints.push_back(index.fingerprint(key_of(i)));
      ++homes[fingerprints.back() >> 22];
    }
    std::sort(fingerprints.begin(), fingerprints.end());
    const auto distinct = std::unique(fingerprints.begin(), fingerprints.end()) - fingerprints.begin();
    CHECK(distinct > 100000 - 20);
    CHECK(*std::max_element(homes.begin(), homes.end()) < 98 + 8 * 10);  // mean 97.7, standard deviation 9.9
  };
  check([](std::int64_t i) { return i; });
  check([](std::int64_t i) { return -i; });
  check([](std::int64_t i) { return i * (std::int64_t{1} << 40); });
  check([](std::int64_t i) { return i * 0x9E3779B97F4A7C15; });
  check([](std::int64_t i) { return i ^ INT64_MIN; });
}

TEST(row_index, secrets_differ_between_indexes) {
  const RowIndex first;
  const RowIndex second;
  int equal = 0;
  for (std::int64_t key = 0; key < 100; ++key) {
    equal += first.fingerprint(key) == second.fingerprint(key) ? 1 : 0;
  }
  CHECK(equal < 3);
}

TEST(row_index, memory_per_row) {
  RowIndex index;
  index.reserve(10000000);
  CHECK(index.bytes() < 10000000 * 16);
  CHECK(index.bytes() >= 10000000 * 8);
}

}  // namespace
}  // namespace graphbox
