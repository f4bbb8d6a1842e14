#include "sample/excluded_edges.h"

#include <algorithm>
#include <vector>

#include "tests/check.h"

namespace graphbox {
namespace {

constexpr std::int64_t kRows = 40;

// Row v has (v * v) % 331 neighbours in [0, 50), ascending, many of them parallel.
struct Lists {
  Lists() {
    for (std::int64_t row = 0; row < kRows; ++row) {
      const std::int64_t begin = static_cast<std::int64_t>(indices.size());
      for (std::int64_t i = 0; i < row * row % 331; ++i) {
        indices.push_back((row * 11 + i * i * 7) % 50);
      }
      std::sort(indices.begin() + begin, indices.end());
      indptr.push_back(static_cast<std::int64_t>(indices.size()));
    }
  }

  Adjacency adjacency() const {
    return {indptr.data(), nullptr, indices.data(), kRows, static_cast<std::int64_t>(indices.size()), "test"};
  }

  std::vector<std::int64_t> positions(std::int64_t row, std::int64_t source) const {
    std::vector<std::int64_t> found;
    for (auto i = indptr[static_cast<std::size_t>(row)]; i < indptr[static_cast<std::size_t>(row) + 1]; ++i) {
      if (indices[static_cast<std::size_t>(i)] == source) {
        found.push_back(i);
      }
    }
    return found;
  }

  std::vector<std::int64_t> indptr{0};
  std::vector<std::int64_t> indices;
};

std::vector<std::int64_t> excluded_of(const ExcludedEdges& excluded, const Lists& lists, std::int64_t row,
                                      std::int64_t tree) {
  std::vector<std::int64_t> found;
  excluded.for_each(tree, edges_of(lists.adjacency(), row), [&](std::int64_t at) { found.push_back(at); });
  return found;
}

TEST(excluded_edges, finds_all_parallel_edges_by_search_and_by_a_look_at_the_list) {
  const Lists lists;
  for (const bool ascending : {true, false}) {
    for (std::int64_t source = 0; source < 50; ++source) {
      std::vector<std::int64_t> rows;
      for (std::int64_t row = 0; row < kRows; ++row) {
        rows.push_back(row);
        rows.push_back(row);  // given twice, found once
      }
      const std::vector<std::int64_t> sources(rows.size(), source);
      const ExcludedEdges excluded(lists.adjacency(), {rows, sources, {}, {}, ascending});
      for (std::int64_t row = 0; row < kRows; ++row) {
        const auto expected = lists.positions(row, source);
        CHECK(excluded_of(excluded, lists, row, 7) == expected);
        CHECK(expected.empty() || excluded.may_touch(row));
      }
    }
  }
}

TEST(excluded_edges, are_those_of_the_group_of_a_tree) {
  const Lists lists;
  const std::vector<std::int64_t> rows{20, 20, 30};
  const std::vector<std::int64_t> sources{lists.indices[static_cast<std::size_t>(lists.indptr[20])],
                                          lists.indices[static_cast<std::size_t>(lists.indptr[21]) - 1],
                                          lists.indices[static_cast<std::size_t>(lists.indptr[30])]};
  const std::vector<std::int64_t> groups{1, 0, 1};
  const std::vector<std::int64_t> group_of_tree{0, 1, 1, 2};
  const ExcludedEdges excluded(lists.adjacency(), {rows, sources, groups, group_of_tree, true});
  for (std::int64_t tree = 0; tree < 4; ++tree) {
    const std::int64_t group = group_of_tree[static_cast<std::size_t>(tree)];
    for (const std::int64_t row : {20, 30}) {
      std::vector<std::int64_t> expected;
      for (std::size_t pair = 0; pair < rows.size(); ++pair) {
        if (rows[pair] == row && groups[pair] == group) {
          const auto found = lists.positions(row, sources[pair]);
          expected.insert(expected.end(), found.begin(), found.end());
        }
      }
      CHECK(excluded_of(excluded, lists, row, tree) == expected);
    }
  }
}

void exclude(const Lists& lists, const std::vector<std::int64_t>& rows, const std::vector<std::int64_t>& sources,
             const std::vector<std::int64_t>& group_of_tree) {
  check_excluded({rows, sources, {}, group_of_tree, true}, lists.adjacency().num_rows, 1, "lists");
}

TEST(excluded_edges, must_lead_to_rows_and_have_as_many_sources_and_groups) {
  const Lists lists;
  CHECK_THROWS(exclude(lists, {kRows}, {0}, {}), ErrorKind::kUsage, "in [0, 40), received 40 at position 0");
  CHECK_THROWS(exclude(lists, {0}, {}, {}), ErrorKind::kUsage, "received 0 and 0");
  CHECK_THROWS(exclude(lists, {0}, {0}, {0, 0}), ErrorKind::kUsage, "1 groups of trees, received 1 and 0");
  CHECK_THROWS(exclude(lists, {}, {}, {0, 0}), ErrorKind::kUsage, "each of 1 trees, received 2");
}

}  // namespace
}  // namespace graphbox
