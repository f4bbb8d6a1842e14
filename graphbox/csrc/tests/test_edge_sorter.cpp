#include "graph/edge_sorter.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "errors/error.h"
#include "graph/edge_record.h"
#include "graph/radix_sort.h"
#include "io/file.h"
#include "tests/check.h"

namespace graphbox {
namespace {

constexpr std::size_t kMemory = std::size_t{64} << 20;

struct Edges {
  std::vector<std::int64_t> sources;
  std::vector<std::int64_t> targets;
};

// Edges with a hub, repetitions and a few that are left out.
Edges some_edges(std::int64_t count, std::int64_t num_targets, std::int64_t source_factor) {
  Edges edges;
  std::uint64_t state = 7;
  const auto draw = [&](std::int64_t below) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::int64_t>((state >> 33) % static_cast<std::uint64_t>(below));
  };
  for (std::int64_t i = 0; i < count; ++i) {
    edges.targets.push_back(i % 3 == 0 ? 5 : i % 1001 == 7 ? -1 : draw(num_targets));
    edges.sources.push_back(i % 1003 == 9 ? -1 : draw(2'000) * source_factor);
  }
  return edges;
}

std::string data_of(const std::string& path) {
  const FileReader file(path);
  std::string content(file.bytes() - kArrayHeaderBytes, ' ');
  file.read(content.data(), content.size(), kArrayHeaderBytes);
  return content;
}

// Written arrays: indptr, indices and the column, which holds the row of each edge.
std::vector<std::string> written(const Edges& edges, std::int64_t num_targets, bool keep, std::int64_t spill_every,
                                 std::size_t memory, int threads, EdgeCounts* counts = nullptr) {
  const std::string folder = testing::temporary_path("");
  EdgeSorter sorter({8}, folder, memory, threads);
  const auto count = static_cast<std::int64_t>(edges.sources.size());
  std::vector<std::int64_t> rows(edges.sources.size());
  std::iota(rows.begin(), rows.end(), 0);
  for (std::int64_t first = 0; first < count; first += spill_every) {
    sorter.add(edges.sources.data() + first, edges.targets.data() + first, std::min(spill_every, count - first),
               {reinterpret_cast<const std::byte*>(rows.data() + first)});
    if (first + spill_every < count) {
      sorter.spill();
    }
  }
  ArrayFileWriter indptr(folder + "/indptr.npy", "<i8");
  ArrayFileWriter indices(folder + "/indices.npy", "<i8");
  ArrayFileWriter column(folder + "/column.npy", "<i8");
  EdgeEmitter emitter({&indptr, &indices, true, {{&column, 8, nullptr, 0}}}, num_targets, keep, true, threads);
  sorter.finish(emitter);
  const EdgeCounts said = emitter.finish();
  if (counts != nullptr) {
    *counts = said;
  }
  indptr.finish(), indices.finish(), column.finish();
  return {data_of(folder + "/indptr.npy"), data_of(folder + "/indices.npy"), data_of(folder + "/column.npy")};
}

std::string bytes_of(const std::vector<std::int64_t>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * 8};
}

std::vector<std::string> expected_of(const Edges& edges, std::int64_t num_targets, bool keep) {
  std::vector<std::int64_t> rows;
  for (std::size_t row = 0; row < edges.sources.size(); ++row) {
    if (edges.sources[row] >= 0 && edges.targets[row] >= 0) {
      rows.push_back(static_cast<std::int64_t>(row));
    }
  }
  const auto ends = [&](std::int64_t row) {
    const auto at = static_cast<std::size_t>(row);
    return std::pair(edges.targets[at], edges.sources[at]);
  };
  std::stable_sort(rows.begin(), rows.end(), [&](std::int64_t a, std::int64_t b) { return ends(a) < ends(b); });
  if (!keep) {
    rows.erase(std::unique(rows.begin(), rows.end(), [&](auto a, auto b) { return ends(a) == ends(b); }), rows.end());
  }
  std::vector<std::int64_t> indptr(static_cast<std::size_t>(num_targets) + 1, 0);
  std::vector<std::int64_t> indices;
  for (const std::int64_t row : rows) {
    ++indptr[static_cast<std::size_t>(ends(row).first) + 1];
    indices.push_back(ends(row).second);
  }
  std::partial_sum(indptr.begin(), indptr.end(), indptr.begin());
  return {bytes_of(indptr), bytes_of(indices), bytes_of(rows)};
}

TEST(edge_sorter, one_run_or_many_give_what_a_plain_sort_gives) {
  const Edges edges = some_edges(100'000, 3'000, 1);
  for (const bool keep : {false, true}) {
    const std::vector<std::string> expected = expected_of(edges, 3'000, keep);
    for (const int threads : {1, 2, 4}) {
      for (const std::int64_t rows : {std::int64_t{100'000}, std::int64_t{30'000}, std::int64_t{1'999}}) {
        CHECK(written(edges, 3'000, keep, rows, kMemory, threads) == expected);
      }
    }
  }
}

TEST(edge_sorter, source_indices_beyond_32_bits) {
  Edges edges = some_edges(50'000, 500, 1);
  for (std::size_t i = 20'000; i < edges.sources.size(); ++i) {  // runs before these are narrow
    edges.sources[i] = edges.sources[i] < 0 ? -1 : edges.sources[i] << 28;
  }
  const std::vector<std::string> expected = expected_of(edges, 500, false);
  CHECK(written(edges, 500, false, 50'000, kMemory, 2) == expected);
  CHECK(written(edges, 500, false, 7'000, kMemory, 2) == expected);
}

TEST(edge_sorter, a_run_is_read_in_small_parts) {
  const Edges edges = some_edges(400'000, 2'000, 1);  // a third of them into one hub
  const std::size_t memory = std::size_t{17} << 20;
  CHECK(written(edges, 2'000, false, 150'000, memory, 2) == expected_of(edges, 2'000, false));
}

TEST(edge_sorter, one_edge_again_and_again) {
  Edges edges{std::vector<std::int64_t>(100'000, 3), std::vector<std::int64_t>(100'000, 3)};
  EdgeCounts counts;
  CHECK(written(edges, 10, true, 30'000, kMemory, 2, &counts) == expected_of(edges, 10, true));
  CHECK_EQUAL(counts.duplicates, 99'999);
  CHECK_EQUAL(counts.self_loops, 100'000);
  CHECK(counts.duplicate_examples == (std::vector<std::pair<std::int64_t, std::int64_t>>{{3, 3}}));
  CHECK(written(edges, 10, false, 30'000, kMemory, 2, &counts) == expected_of(edges, 10, false));
  CHECK_EQUAL(counts.self_loops, 1);
}

TEST(edge_buckets, buckets_are_ranges_in_ascending_order) {
  std::size_t before = EdgeBuckets::bucket_of(0);
  CHECK_EQUAL(before, std::size_t{0});
  for (std::int64_t target = 1; target < 1'000'000; ++target) {
    const std::size_t bucket = EdgeBuckets::bucket_of(target);
    CHECK(bucket == before || bucket == before + 1);
    before = bucket;
  }
  CHECK(EdgeBuckets::bucket_of(std::int64_t{1} << 31) > EdgeBuckets::bucket_of((std::int64_t{1} << 31) - 1));
  CHECK(EdgeBuckets::bucket_of(std::numeric_limits<std::int64_t>::max()) < EdgeBuckets::kBuckets);
}

TEST(edge_sorter, more_than_is_sorted_at_once) {
  const Edges edges = some_edges(3'000'000, 700'000, 1);
  const std::vector<std::string> expected = expected_of(edges, 700'000, false);
  CHECK(written(edges, 700'000, false, 3'000'000, std::size_t{256} << 20, 2) == expected);
  CHECK(written(edges, 700'000, false, 3'000'000, std::size_t{40} << 20, 3) == expected);  // it spills by itself
}

TEST(edge_sorter, no_edges) {
  CHECK(written({}, 4, false, 1, kMemory, 2) == expected_of({}, 4, false));
  CHECK(written({}, 0, false, 1, kMemory, 2) == expected_of({}, 0, false));
}

TEST(edge_sorter, too_little_memory_says_what_is_needed) {
  CHECK_THROWS(written(some_edges(10, 10, 1), 10, false, 10, 1 << 20, 1), ErrorKind::kDoesNotFit,
               "expected at least");
}

template <typename Record>
void check_sorted(std::size_t count, std::uint64_t mask, int threads) {
  std::vector<Record> records(count);
  std::uint64_t state = 3;
  for (std::size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    records[i].key = (state >> 7) & mask;
    if constexpr (Record::kHasRow) {
      records[i].row = static_cast<std::uint32_t>(i);
    }
  }
  std::vector<Record> expected = records;
  std::stable_sort(expected.begin(), expected.end(), [](const Record& a, const Record& b) {
    const auto left = a.key;
    const auto right = b.key;
    return left < right;
  });
  std::vector<Record> other(count);
  radix_sort(records.data(), other.data(), static_cast<std::int64_t>(count), threads);
  CHECK(count == 0 || std::memcmp(records.data(), expected.data(), count * sizeof(Record)) == 0);
}

TEST(edge_sorter, radix_sort_is_a_stable_sort) {
  for (const std::size_t count : {0UL, 1UL, 31UL, 33UL, 5'000UL, 40'000UL, 300'000UL}) {
    for (const std::uint64_t mask : {0ULL, 1ULL, 0xFF00FFULL, 0xFFFFF00000ULL, ~0ULL}) {
      check_sorted<EdgeAlone<NarrowKey>>(count, mask, 2);
      check_sorted<EdgeWithRow<NarrowKey>>(count, mask, 3);
      check_sorted<EdgeWithRow<WideKey>>(count, mask, 1);
    }
  }
}

}  // namespace
}  // namespace graphbox
