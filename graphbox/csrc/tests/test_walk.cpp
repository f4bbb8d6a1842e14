#include "sample/walk.h"

#include <algorithm>
#include <vector>

#include "sample/negative.h"
#include "sample/pairs.h"
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
      const PairOutput output{centers.data(), contexts.data()};
      pairs.write({&output, 1});
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
