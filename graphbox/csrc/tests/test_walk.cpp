#include "sample/walk.h"

#include <algorithm>
#include <vector>

#include "sample/negative.h"
#include "sample/pairs.h"
#include "sample/ppr.h"
#include "tests/check.h"

namespace graphbox {
namespace {

// A ring of `nodes` nodes with edges to both sides; node 0 has none.
struct Ring {
  explicit Ring(std::int64_t nodes) : indptr{0} {
    for (std::int64_t node = 0; node < nodes; ++node) {
      if (node > 0) {
        indices.push_back(static_cast<std::int32_t>(node - 1));
        indices.push_back(static_cast<std::int32_t>((node + 1) % nodes));
      }
      indptr.push_back(static_cast<std::int64_t>(indices.size()));
    }
  }
  Adjacency adjacency() const {
    return {indptr.data(),
            indices.data(),
            nullptr,
            static_cast<std::int64_t>(indptr.size()) - 1,
            static_cast<std::int64_t>(indices.size()),
            "ring"};
  }
  std::vector<std::int64_t> indptr;
  std::vector<std::int32_t> indices;
};

WalkRequest request_of(const Ring& ring, std::span<const std::int64_t> start, std::int64_t length, int threads = 1) {
  WalkRequest request;
  request.paths = {{{ring.adjacency()}}};
  request.start = start;
  request.length = length;
  request.key = derive_key(Stream::kWalk, 1, 0, 0);
  request.threads = threads;
  return request;
}

TEST(walk, follows_edges_and_ends_where_there_are_none) {
  const Ring ring(50);
  std::vector<std::int64_t> start;
  for (std::int64_t i = 0; i < 3000; ++i) {
    start.push_back(i % 50);
  }
  WalkRequest request = request_of(ring, start, 9);
  std::vector<std::int64_t> walks(start.size() * 10);
  random_walks(request, walks.data());
  for (std::size_t i = 0; i < walks.size(); ++i) {
    if (i % 10 == 0) {
      CHECK_EQUAL(walks[i], start[i / 10]);
    } else if (walks[i - 1] <= 0) {
      CHECK_EQUAL(walks[i], std::int64_t{-1});
    } else {
      const std::int64_t difference = (walks[i] - walks[i - 1] + 50) % 50;
      CHECK(difference == 1 || difference == 49);
    }
  }
  std::vector<std::int64_t> others(walks.size());
  request.threads = 3;
  random_walks(request, others.data());
  CHECK(walks == others);
}

TEST(walk, damaged_arrays_and_wrong_starts_are_refused) {
  std::vector<std::int64_t> start(100, 5);
  std::vector<std::int64_t> walks(100 * 4);
  Ring ring(50);
  ring.indptr[6] = 1000;
  CHECK_THROWS(random_walks(request_of(ring, start, 3), walks.data()), ErrorKind::kData, "at node 5");
  ring = Ring(50);
  std::fill(ring.indices.begin(), ring.indices.end(), 77);
  CHECK_THROWS(random_walks(request_of(ring, start, 3, 2), walks.data()), ErrorKind::kData, "node 77");
  ring = Ring(50);
  start[70] = 50;
  CHECK_THROWS(random_walks(request_of(ring, start, 3), walks.data()), ErrorKind::kUsage, "position 70");
}

TEST(walk, weights_and_times_decide_where_to) {
  const Ring ring(50);
  std::vector<float> weight(ring.indices.size());
  std::vector<std::int64_t> time(ring.indices.size());
  for (std::size_t edge = 0; edge < weight.size(); ++edge) {
    weight[edge] = edge % 2 == 0 ? 1e-30F : 1;                               // all but never down
    time[edge] = edge % 2 == 0 ? 0 : 100 - static_cast<std::int64_t>(edge);  // up is later than down, but ever earlier
  }
  const AliasTables aliases(ring.indptr, weight, "ring", 1);
  const TimeOrder order(ring.indptr, time, "ring", 1);
  const std::vector<std::int64_t> start(300, 10);
  WalkRequest request = request_of(ring, start, 5);
  request.paths.front().front().weights = &aliases;
  std::vector<std::int64_t> walks(start.size() * 6);
  random_walks(request, walks.data());
  for (std::size_t i = 0; i < walks.size(); ++i) {
    CHECK_EQUAL(walks[i], static_cast<std::int64_t>(10 + i % 6));
  }
  request = request_of(ring, start, 5);
  request.paths.front().front().times = &order;
  const std::vector<std::int64_t> times(start.size(), 60);
  request.times = times;
  for (const TimeChoice choice : {TimeChoice::kUniform, TimeChoice::kLinear}) {
    request.time_rule.choice = choice;
    random_walks(request, walks.data());
    for (std::size_t i = 0; i < walks.size(); ++i) {
      CHECK_EQUAL(walks[i], i % 6 < 2 ? static_cast<std::int64_t>(10 + i % 6) : -1);
    }
  }
}

TEST(walk, several_paths_and_where_to_go_first) {
  const Ring ring(50);
  const std::vector<std::int64_t> start(3000, 5);
  const std::vector<std::int64_t> second(3000, 40);
  std::vector<std::int64_t> path_of;
  for (std::int64_t i = 0; i < 3000; ++i) {
    path_of.push_back(i % 3);
  }
  WalkRequest request = request_of(ring, start, 4);
  request.paths.resize(3, request.paths.front());
  request.path_of = path_of;
  request.second = second;
  std::vector<std::int64_t> walks(start.size() * 5);
  random_walks(request, walks.data());
  std::vector<std::int64_t> others(walks.size());
  request.threads = 3;
  random_walks(request, others.data());
  CHECK(walks == others);
  for (std::size_t i = 0; i < walks.size(); i += 5) {
    CHECK(walks[i] == 5 && walks[i + 1] == 40 && (walks[i + 2] == 39 || walks[i + 2] == 41));
  }
  path_of[17] = 3;
  CHECK_THROWS(random_walks(request, walks.data()), ErrorKind::kUsage, "received 3");
}

TEST(walk, the_most_visited_come_first) {
  const Ring ring(50);
  const std::vector<std::int64_t> nodes = {20, 0, 49};
  PprRequest request;
  request.round = {{ring.adjacency()}};
  request.nodes = nodes;
  request.num_walks = 700;
  request.num_rounds = 3;
  request.num_neighbors = 7;
  request.restart_probability = 0.1;
  request.threads = 2;
  std::vector<std::int64_t> neighbors(21);
  std::vector<std::int64_t> visits(21);
  ppr_neighbors(request, neighbors.data(), visits.data());
  const std::vector<std::int64_t> nearest(neighbors.begin(), neighbors.begin() + 2);
  CHECK(nearest == std::vector<std::int64_t>({19, 21}) || nearest == std::vector<std::int64_t>({21, 19}));
  CHECK(visits[0] >= visits[1] && visits[1] > visits[2] && visits[5] > 0 && neighbors[6] == -1 && visits[6] == 0);
  CHECK(std::all_of(neighbors.begin() + 7, neighbors.begin() + 14, [](auto node) { return node == -1; }));
  CHECK(neighbors[14] == 48 || neighbors[14] == 0);
}

TEST(walk, pairs_are_counted_as_they_are_written) {
  std::vector<std::int64_t> walks;
  for (std::int64_t i = 0; i < 2500; ++i) {
    for (std::int64_t j = 0; j < 7; ++j) {
      walks.push_back(j > i % 9 ? -1 : j);
    }
  }
  for (const bool dynamic : {false, true}) {
    for (const int threads : {1, 2}) {
      SkipGramRequest request;
      request.walks = walks.data();
      request.num_walks = 2500;
      request.width = 7;
      request.window = 3;
      request.dynamic_window = dynamic;
      request.threads = threads;
      const SkipGramPairs pairs(request);
      const auto count = static_cast<std::size_t>(pairs.count());
      std::vector<std::int64_t> centers(count + 1, -7);
      std::vector<std::int64_t> contexts(count + 1, -7);
      pairs.write({centers.data(), contexts.data()});
      CHECK(std::count(centers.begin(), centers.end(), -7) == 1);
      CHECK(std::count(contexts.begin(), contexts.end(), -7) == 1);
      for (std::size_t i = 0; i < count; ++i) {
        CHECK(centers[i] != contexts[i] && std::abs(centers[i] - contexts[i]) <= 3);
      }
    }
  }
}

TEST(walk, negatives_of_weight_zero_never_come) {
  const std::vector<double> weights = {0, 1, 0, 3, 1e-300, 0};
  const AliasTable table(weights);
  std::vector<std::int64_t> drawn(40001);
  table.sample(derive_key(Stream::kNegative, 1, 0, 0), drawn.data(), 40001, 2);
  const auto threes = std::count(drawn.begin(), drawn.end(), 3);
  const auto ones = std::count(drawn.begin(), drawn.end(), 1);
  CHECK_EQUAL(threes + ones, std::ptrdiff_t{40001});
  CHECK(std::abs(static_cast<double>(threes) - 30000.75) < 5 * 87);
  CHECK_THROWS(AliasTable(std::vector<double>{}), ErrorKind::kUsage, "received 0");
  CHECK_THROWS(AliasTable(std::vector<double>{0, 0}), ErrorKind::kData, "above 0");
  CHECK_THROWS(AliasTable(std::vector<double>{1, -1}), ErrorKind::kData, "position 1");
}

}  // namespace
}  // namespace graphbox
