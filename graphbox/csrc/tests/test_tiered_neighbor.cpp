#include "sample/tiered_neighbor.h"

#include <cstdint>
#include <span>
#include <vector>

#include "errors/error.h"
#include "tests/check.h"

namespace graphbox {
namespace {

constexpr std::int64_t kNodes = 300;

// In-neighbours of each node, some without any, one of all.
struct Lists {
  std::vector<std::int64_t> indptr{0};
  std::vector<std::int32_t> narrow;
  std::vector<std::int64_t> wide;

  explicit Lists(std::uint32_t seed) {
    std::uint32_t state = seed;
    const auto next = [&] { return state = state * 1664525U + 1013904223U; };
    for (std::int64_t node = 0; node < kNodes; ++node) {
      const std::uint32_t degree = node == 7 ? 400 : next() >> 28;
      for (std::uint32_t i = 0; i < degree; ++i) {
        narrow.push_back(static_cast<std::int32_t>((next() >> 8) % kNodes));
      }
      indptr.push_back(static_cast<std::int64_t>(narrow.size()));
    }
    wide.assign(narrow.begin(), narrow.end());
  }

  Adjacency adjacency(bool is_wide) const {
    Adjacency adjacency;
    adjacency.indptr = indptr.data();
    (is_wide ? static_cast<void>(adjacency.wide_indices = wide.data())
             : static_cast<void>(adjacency.narrow_indices = narrow.data()));
    adjacency.num_rows = kNodes;
    adjacency.num_edges = static_cast<std::int64_t>(narrow.size());
    return adjacency;
  }
};

struct Case {
  std::vector<std::int64_t> first;   // neighbours per hop of one relation ...
  std::vector<std::int64_t> second;  // ... and of the other, whose indices are wide
  bool replace;
  bool disjoint;
  bool in_lists;
  int threads;
};

// Chooses for every third node in a list of its own, whose places are not positions.
void draw_in_lists(NeighborPass& pass, int relation, const Lists& its) {
  std::vector<std::int64_t> rows;
  std::vector<std::int64_t> indptr{0};
  std::vector<std::int64_t> positions;
  std::vector<std::int32_t> narrow;
  std::vector<std::int64_t> wide;
  for (std::int64_t row = 1; row < kNodes; row += 3) {
    rows.push_back(row);
    for (std::int64_t i = its.indptr[static_cast<std::size_t>(row)]; i < its.indptr[static_cast<std::size_t>(row) + 1];
         ++i) {
      positions.push_back(i);
      relation == 0 ? narrow.push_back(its.narrow[static_cast<std::size_t>(i)])
                    : wide.push_back(its.wide[static_cast<std::size_t>(i)]);
    }
    indptr.push_back(static_cast<std::int64_t>(positions.size()));
  }
  const Overlay overlay(rows, indptr, narrow, wide, positions, kNodes);
  Relation fetched;
  fetched.adjacency = its.adjacency(relation == 1);
  fetched.adjacency.num_edges = 0;
  fetched.adjacency.num_base_rows = 0;
  fetched.adjacency.overlay = &overlay;
  fetched.source_type = relation;
  fetched.target_type = 1 - relation;
  pass.draw_in(relation, fetched);
}

bool is_in_lists(std::int64_t node, const Lists& its) {
  return node % 3 == 1 && its.indptr[static_cast<std::size_t>(node)] < its.indptr[static_cast<std::size_t>(node) + 1];
}

void run_hops(NeighborPass& pass, const std::vector<Lists>& lists, int hops, bool in_lists) {
  for (int hop = 0; hop < hops; ++hop) {
    for (int relation = 0; relation < 2; ++relation) {
      const Lists& its = lists[static_cast<std::size_t>(relation)];
      const FixedArray<std::int64_t> frontier = pass.frontier(relation);
      std::vector<std::int64_t> bounds;
      if (in_lists) {
        draw_in_lists(pass, relation, its);
      }
      for (std::int64_t i = 0; i < frontier.size(); ++i) {
        if (in_lists && is_in_lists(frontier[i], its)) {
          continue;
        }
        bounds.push_back(its.indptr[static_cast<std::size_t>(frontier[i])]);
        bounds.push_back(its.indptr[static_cast<std::size_t>(frontier[i]) + 1]);
      }
      const auto positions = pass.draw(relation, bounds);
      std::vector<std::int32_t> narrow;
      std::vector<std::int64_t> wide;
      for (std::int64_t i = 0; i < positions->size(); ++i) {
        const std::int64_t position = (*positions)[i];
        relation == 0 ? narrow.push_back(its.narrow[static_cast<std::size_t>(position)])
                      : wide.push_back(its.wide[static_cast<std::size_t>(position)]);
      }
      pass.add(relation, narrow, wide);
    }
    pass.end_hop();
  }
}

template <typename T>
bool equal(const PooledArray<T>& one, const PooledArray<T>& other) {
  return std::vector<T>(one.begin(), one.end()) == std::vector<T>(other.begin(), other.end());
}

// Two node types, each the source of a relation into the other.
void check(const Case& given) {
  const std::vector<Lists> lists{Lists(1), Lists(2)};
  const std::vector<std::vector<std::int64_t>> seeds{{0, 7, 7, 299}, {}, {5}, {1, 2, 3, 4, 5, 6, 7, 8}};
  const auto hops = static_cast<int>(given.first.size());
  PassRequest request;
  request.relations = {{0, 1, given.first, "first"}, {1, 0, given.second, "second"}};
  request.num_nodes = {kNodes, kNodes};
  request.hops = hops;
  request.threads = given.threads;
  for (std::size_t batch = 0; batch < seeds.size(); ++batch) {
    NeighborRequest& its = request.batches.emplace_back().request;
    its.seeds = {seeds[batch], seeds[seeds.size() - 1 - batch]};
    its.replace = given.replace;
    its.disjoint = given.disjoint;
    its.key = derive_key(Stream::kNeighbor, 9, 1, batch);
  }
  NeighborPass pass(request);
  run_hops(pass, lists, hops, given.in_lists);
  CHECK(pass.bytes() > 0);
  for (std::size_t batch = 0; batch < seeds.size(); ++batch) {
    NeighborRequest whole = request.batches[batch].request;
    whole.relations.resize(2);
    for (std::size_t i = 0; i < 2; ++i) {
      whole.relations[i].adjacency = lists[i].adjacency(i == 1);
      whole.relations[i].source_type = request.relations[i].source_type;
      whole.relations[i].target_type = request.relations[i].target_type;
      whole.relations[i].num_neighbors = request.relations[i].num_neighbors;
    }
    whole.num_nodes = request.num_nodes;
    whole.hops = hops;
    const NeighborSample expected = sample_neighbors(whole);
    const NeighborSample found = pass.batch(static_cast<std::int64_t>(batch));
    for (std::size_t i = 0; i < 2; ++i) {
      CHECK(equal(found.types[i].nodes, expected.types[i].nodes));
      CHECK(equal(found.types[i].trees, expected.types[i].trees));
      CHECK(found.types[i].nodes_per_hop == expected.types[i].nodes_per_hop);
      CHECK(equal(found.relations[i].rows, expected.relations[i].rows));
      CHECK(equal(found.relations[i].cols, expected.relations[i].cols));
      CHECK(equal(found.relations[i].edge_ids, expected.relations[i].edge_ids));
      CHECK(found.relations[i].edges_per_hop == expected.relations[i].edges_per_hop);
      CHECK_EQUAL(pass.nodes(static_cast<std::int64_t>(batch), static_cast<int>(i)).size(),
                  static_cast<std::size_t>(expected.types[i].nodes.size()));
    }
  }
}

TEST(tiered_neighbor, passes_are_what_batches_are_in_memory) {
  for (const bool replace : {false, true}) {
    for (const bool disjoint : {false, true}) {
      for (const bool in_lists : {false, true}) {
        for (const int threads : {1, 3}) {
          check({{5, 3}, {4, 6}, replace, disjoint, in_lists, threads});
          check({{-1, 2}, {0, -1}, replace, disjoint, in_lists, threads});
          check({{2, 0, 70}, {2, 3, 1}, replace, disjoint, in_lists, threads});
          check({{0}, {0}, replace, disjoint, in_lists, threads});
        }
      }
    }
  }
}

TEST(tiered_neighbor, seeds_that_are_no_nodes_are_named) {
  const std::vector<std::int64_t> seeds{0, kNodes};
  PassRequest request;
  request.num_nodes = {kNodes};
  request.batches.emplace_back().request.seeds = {seeds};
  CHECK_THROWS(NeighborPass{request}, ErrorKind::kUsage, "at position 1");
}

}  // namespace
}  // namespace graphbox
