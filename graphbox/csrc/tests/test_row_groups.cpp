#include "table/row_groups.h"

#include <map>
#include <set>
#include <vector>

#include "table/row_index.h"
#include "tests/check.h"

namespace graphbox {
namespace {

// Some rows often, most once, some without a row.
std::vector<std::uint32_t> rows_of_batch(std::int64_t count) {
  std::vector<std::uint32_t> rows;
  std::uint64_t state = 7;
  for (std::int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const auto drawn = static_cast<std::uint32_t>(state >> 33);
    rows.push_back(i % 97 == 0 ? kNoRow : i % 3 == 0 ? drawn % 10 : drawn % (1U << 20));
  }
  return rows;
}

TEST(row_groups, keys_of_a_row_are_in_one_group_in_their_order) {
  for (const std::int64_t count : {0, 1, 5, 20'000, 300'000}) {
    const std::vector<std::uint32_t> rows = rows_of_batch(count);
    std::map<std::uint32_t, std::vector<std::uint32_t>> expected;
    for (std::uint32_t i = 0; i < rows.size(); ++i) {
      if (rows[i] != kNoRow) {
        expected[rows[i]].push_back(i);
      }
    }
    for (const int threads : {1, 3}) {
      RowGroups groups(rows.data(), count, threads);
      std::map<std::uint32_t, std::vector<std::uint32_t>> found;
      for (std::int64_t group = 0; group < groups.groups(); ++group) {
        const RowGroups::Keys keys = groups.keys_of(group);
        std::map<std::uint32_t, std::uint32_t> sums;
        std::set<std::uint32_t> taken;
        for (std::int64_t i = 0; i < keys.count; ++i) {
          const GroupedKey& key = keys.keys[i];
          const std::vector<std::uint32_t>& positions = expected.at(key.row);
          CHECK_EQUAL(key.is_first != 0, key.position == positions.front());
          CHECK_EQUAL(key.is_last != 0, key.position == positions.back());
          CHECK_EQUAL(key.sum == GroupedKey::kNoSum, positions.size() == 1);
          if (positions.size() > 1) {
            CHECK(key.sum < keys.sums);
            CHECK_EQUAL(sums.emplace(key.row, key.sum).first->second, static_cast<std::uint32_t>(key.sum));
            taken.insert(key.sum);
          }
          found[key.row].push_back(key.position);
        }
        CHECK_EQUAL(taken.size(), sums.size());
        CHECK_EQUAL(static_cast<std::int64_t>(taken.size()), keys.sums);
      }
      CHECK(found == expected);
    }
  }
}

}  // namespace
}  // namespace graphbox
