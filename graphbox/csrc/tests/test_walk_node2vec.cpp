#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "sample/list_search.h"
#include "sample/node2vec.h"
#include "tests/check.h"

namespace graphbox {
namespace {

struct Lists {
  explicit Lists(const std::vector<std::vector<std::int32_t>>& lists) : indptr{0} {
    for (const auto& list : lists) {
      indices.insert(indices.end(), list.begin(), list.end());
      indptr.push_back(static_cast<std::int64_t>(indices.size()));
    }
  }
  Adjacency adjacency() const {
    return {indptr.data(),
            indices.data(),
            nullptr,
            static_cast<std::int64_t>(indptr.size()) - 1,
            static_cast<std::int64_t>(indices.size()),
            "lists"};
  }
  std::vector<std::int64_t> indptr;
  std::vector<std::int32_t> indices;
};

// A hub with edges to and from all others, which stand in a ring.
Lists wheel(std::int32_t nodes) {
  std::vector<std::vector<std::int32_t>> lists(static_cast<std::size_t>(nodes));
  for (std::int32_t node = 1; node < nodes; ++node) {
    lists[0].push_back(node);
    auto& list = lists[static_cast<std::size_t>(node)];
    list = {0, node == 1 ? nodes - 1 : node - 1, node == nodes - 1 ? 1 : node + 1};
    std::sort(list.begin(), list.end());
  }
  return Lists(lists);
}

WalkRequest request_of(const Lists& lists, std::span<const std::int64_t> start, std::int64_t length, double p,
                       double q) {
  WalkRequest request;
  request.paths = {{{lists.adjacency()}}};
  request.start = start;
  request.length = length;
  request.key = derive_key(Stream::kWalk, 3, 1, 4);
  request.p = p;
  request.q = q;
  return request;
}

template <typename Index>
void check_search(std::uint32_t seed, std::int64_t length, std::int64_t spread) {
  const DrawSequence draws(derive_key(Stream::kNeighbor, seed, 0, 0), 0, 0, 0);
  std::vector<Index> list;
  for (std::int64_t i = 0; i < length; ++i) {
    const std::uint64_t value = draws.bounded_wide(static_cast<std::uint32_t>(i), static_cast<std::uint64_t>(spread));
    list.push_back(static_cast<Index>(i % 3 == 0 ? value * value / static_cast<std::uint64_t>(spread) : value));
  }
  std::sort(list.begin(), list.end());
  for (std::int64_t target = 0; target < spread; target += 1 + spread / 700) {
    const auto copies = std::count(list.begin(), list.end(), static_cast<Index>(target));
    for (std::int64_t rank = 0; rank < copies + 2; ++rank) {
      ListSearch<Index> search;
      search.start(list.data(), length, target, spread, rank);
      SearchState state = SearchState::kGoesOn;
      int lines = 0;
      while (state == SearchState::kGoesOn) {
        state = search.advance();
        CHECK(++lines < 40);
      }
      CHECK_EQUAL(state == SearchState::kFound, rank < copies);
    }
  }
}

TEST(walk, a_list_search_finds_what_is_there) {
  for (std::uint32_t seed = 0; seed < 6; ++seed) {
    for (const std::int64_t length : {1, 2, 15, 16, 17, 33, 100, 5000}) {
      for (const std::int64_t spread : {1, 3, 200, 10000}) {
        check_search<std::int32_t>(seed, length, spread);
        check_search<std::int64_t>(seed, length, spread);
      }
    }
  }
}

TEST(walk, a_search_in_a_damaged_list_ends_inside_it) {
  std::vector<std::int64_t> list;
  for (std::int64_t i = 0; i < 3000; ++i) {
    list.push_back(i % 7 == 0 ? INT64_MIN : i % 5 == 0 ? INT64_MAX : (i * 7919) % 3001);
  }
  for (std::int64_t target = 0; target < 3001; ++target) {
    for (const std::int64_t rank : {0, 1, 5000}) {
      ListSearch<std::int64_t> search;
      search.start(list.data(), 3000, target, 3001, rank);
      int lines = 0;
      while (search.advance() == SearchState::kGoesOn) {
        CHECK(++lines < 3000);
      }
    }
  }
}

TEST(walk, node2vec_follows_edges_by_their_weights) {
  const Lists lists = wheel(400);
  const std::vector<std::int64_t> start(40000, 0);
  for (const auto& [p, q] : std::vector<std::pair<double, double>>{{.5, 2}, {4, .25}, {1, 2}, {.25, .25}, {1e9, 1e9}}) {
    std::vector<std::int64_t> walks(start.size() * 3);
    random_walks(request_of(lists, start, 2, p, q), walks.data());
    // From the ring, reached from the hub: back to it with 1 / p, along the ring, where the hub leads too, with 1.
    double back = 0;
    for (std::size_t i = 0; i < walks.size(); i += 3) {
      CHECK(walks[i + 1] > 0);
      back += walks[i + 2] == 0;
    }
    const double share = 1 / p / (1 / p + 2);
    const double count = static_cast<double>(start.size());
    CHECK(std::abs(back - share * count) <= 5 * std::sqrt(count * share * (1 - share)) + 1);
  }
}

TEST(walk, node2vec_is_the_same_for_any_number_of_threads) {
  const Lists lists = wheel(1000);
  std::vector<std::int64_t> start;
  for (std::int64_t i = 0; i < 9001; ++i) {
    start.push_back(i % 1000);
  }
  WalkRequest request = request_of(lists, start, 12, .5, 2);
  for (const double restart : {0.0, 0.2}) {
    request.restart_probability = restart;
    request.threads = 1;
    std::vector<std::int64_t> one(start.size() * 13);
    random_walks(request, one.data());
    for (const int threads : {2, 4}) {
      std::vector<std::int64_t> more(one.size());
      request.threads = threads;
      random_walks(request, more.data());
      CHECK(one == more);
    }
  }
}

TEST(walk, node2vec_ends_at_dead_ends_and_at_any_weights) {
  const Lists lists({{1}, {0, 2}, {}});
  const std::vector<std::int64_t> start(500, 0);
  for (const double p : {1e-30, 1.0, 1e30}) {
    for (const double q : {1e-30, 1e30}) {
      std::vector<std::int64_t> walks(start.size() * 8);
      random_walks(request_of(lists, start, 7, p, q), walks.data());
      for (std::size_t i = 0; i < walks.size(); ++i) {
        CHECK(i % 8 == 0 || (walks[i - 1] == 2 || walks[i - 1] == -1 ? walks[i] == -1 : walks[i] >= 0));
      }
    }
  }
}

TEST(walk, restarts_lead_to_the_start) {
  const Lists lists({{1}, {2}, {3}, {}});
  const std::vector<std::int64_t> start(300, 1);
  for (const double q : {1.0, 2.0}) {
    WalkRequest request = request_of(lists, start, 30, 1, q);
    request.restart_probability = 0.3;
    std::vector<std::int64_t> walks(start.size() * 31);
    random_walks(request, walks.data());
    for (std::size_t i = 0; i < walks.size(); ++i) {
      CHECK(walks[i] == 1 || (i % 31 != 0 && walks[i] == walks[i - 1] + 1));
    }
  }
}

TEST(walk, node2vec_refuses_damaged_arrays) {
  Lists lists = wheel(50);
  std::vector<std::int64_t> start(100, 7);
  std::vector<std::int64_t> walks(start.size() * 5);
  CHECK_EQUAL(most_parallel_edges(lists.adjacency(), 2), std::int64_t{1});
  CHECK_EQUAL(most_parallel_edges(Lists({{0, 1, 1, 1}, {1, 2, 2}, {}}).adjacency(), 1), std::int64_t{3});
  CHECK_THROWS(most_parallel_edges(Lists({{0, 1}, {2, 1}}).adjacency(), 1), ErrorKind::kUsage, "node 1 goes from 2");
  start[60] = 50;
  CHECK_THROWS(random_walks(request_of(lists, start, 4, 1, 2), walks.data()), ErrorKind::kUsage, "position 60");
  start[60] = 7;
  std::fill(lists.indices.begin(), lists.indices.end(), 50);
  CHECK_THROWS(random_walks(request_of(lists, start, 4, 1, 2), walks.data()), ErrorKind::kData, "node 50");
  lists = wheel(50);
  lists.indptr[8] = 1 << 20;
  CHECK_THROWS(random_walks(request_of(lists, start, 4, 1, 2), walks.data()), ErrorKind::kData, "at node 7");
}

}  // namespace
}  // namespace graphbox
