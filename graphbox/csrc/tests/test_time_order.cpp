#include "sample/time_order.h"

#include <numeric>
#include <vector>

#include "errors/error.h"
#include "sample/neighbor.h"
#include "tests/check.h"

namespace graphbox {
namespace {

struct Graph {
  explicit Graph(std::int64_t nodes) : indptr{0} {
    for (std::int64_t node = 0; node < nodes; ++node) {
      for (std::int64_t i = 0; i < node % 70; ++i) {
        indices.push_back((node * 7 + i * i + 1) % nodes);
        timestamps.push_back((node + i * i * 31) % 100);
      }
      indptr.push_back(static_cast<std::int64_t>(indices.size()));
    }
  }

  std::vector<std::int64_t> indptr;
  std::vector<std::int64_t> indices;
  std::vector<std::int64_t> timestamps;
};

TEST(time_order, counts_and_positions) {
  const Graph graph(300);
  for (const int threads : {1, 2}) {
    const TimeOrder order(graph.indptr, graph.timestamps, "test", threads);
    for (std::size_t row = 0; row < 300; ++row) {
      const std::int64_t begin = graph.indptr[row];
      const std::int64_t degree = graph.indptr[row + 1] - begin;
      for (const std::int64_t time : {std::int64_t{-1}, std::int64_t{40}, std::int64_t{99}, INT64_MAX, INT64_MIN}) {
        const std::int64_t until = order.count_until(begin, degree, time);
        std::vector<std::int64_t> positions;
        for (std::int64_t place = begin; place < begin + degree; ++place) {
          const std::int64_t position = place + order.shifts()[place];
          CHECK((graph.timestamps[static_cast<std::size_t>(position)] <= time) == (place < begin + until));
          positions.push_back(position);
        }
        std::sort(positions.begin(), positions.end());
        std::vector<std::int64_t> all(positions.size());
        std::iota(all.begin(), all.end(), begin);
        CHECK(positions == all);
      }
    }
  }
}

TEST(time_order, damaged_indptr_is_refused) {
  const std::vector<std::int64_t> timestamps = {1, 2, 3};
  for (const std::vector<std::int64_t>& damaged :
       {std::vector<std::int64_t>{0, 4}, std::vector<std::int64_t>{0, 2, 1}, std::vector<std::int64_t>{-1, 3}}) {
    CHECK_THROWS(TimeOrder(damaged, timestamps, "test", 1), ErrorKind::kData, "indptr must rise");
  }
}

TEST(time_order, samples_are_causal_and_the_same_for_any_number_of_threads) {
  const Graph graph(5000);
  const TimeOrder order(graph.indptr, graph.timestamps, "test", 2);
  std::vector<std::int64_t> seeds(5000);
  std::iota(seeds.begin(), seeds.end(), 0);
  NeighborRequest request;
  request.hops = 2;
  request.num_nodes = {5000};
  request.seeds = {seeds};
  request.disjoint = true;
  request.key = derive_key(Stream::kNeighbor, 1, 0, 0);
  for (const std::int64_t seed : seeds) {
    request.tree_times.push_back(seed % 120 - 10);
  }
  Relation relation;
  relation.adjacency = {graph.indptr.data(), nullptr, graph.indices.data(), 5000,
                        static_cast<std::int64_t>(graph.indices.size()), "test"};
  relation.num_neighbors = {6, 3};
  relation.times = &order;
  std::vector<float> weights;
  for (std::size_t edge = 0; edge < graph.indices.size(); ++edge) {
    weights.push_back(1.0F + static_cast<float>(edge % 9));
  }
  const WeightSums sums(order, graph.indptr, weights, "test", 2);
  enum class Way : std::uint8_t { kUniform, kWeighted, kLast };
  for (const Way way : {Way::kUniform, Way::kWeighted, Way::kLast}) {
    relation.weight_sums = way == Way::kWeighted ? &sums : nullptr;
    request.relations = {relation};
    request.take_last = way == Way::kLast;
    request.threads = 1;
    const NeighborSample one = sample_neighbors(request);
    request.threads = 2;
    const NeighborSample two = sample_neighbors(request);
    const SampledEdges& edges = one.relations[0];
    CHECK(edges.edge_ids.size() > 10000);
    CHECK(std::equal(edges.edge_ids.begin(), edges.edge_ids.end(), two.relations[0].edge_ids.begin(),
                     two.relations[0].edge_ids.end()));
    for (std::int64_t i = 0; i < edges.edge_ids.size(); ++i) {
      const std::int64_t tree = one.types[0].trees[edges.cols[i]];
      const auto edge = static_cast<std::size_t>(edges.edge_ids[i]);
      CHECK(graph.timestamps[edge] <= request.tree_times[static_cast<std::size_t>(tree)]);
      CHECK_EQUAL(graph.indices[edge], one.types[0].nodes[edges.rows[i]]);
    }
  }
  request.tree_times.pop_back();
  CHECK_THROWS(sample_neighbors(request), ErrorKind::kUsage, "a time for each");
}

TEST(time_order, sums_of_damaged_weights_are_refused) {
  const std::vector<std::int64_t> indptr = {0, 2, 3};
  const TimeOrder order(indptr, std::vector<std::int64_t>{3, 2, 1}, "test", 1);
  CHECK_THROWS(WeightSums(order, indptr, std::vector<float>{1, 0, 1}, "test", 1), ErrorKind::kData, "edge 1 of node 0");
  CHECK_THROWS(WeightSums(order, indptr, std::vector<float>{1, 1}, "test", 1), ErrorKind::kUsage, "a weight and a timestamp");
  const std::vector<std::int64_t> other = {0, 1, 3};
  CHECK_THROWS(WeightSums(order, other, std::vector<float>{1, 1, 1}, "test", 1), ErrorKind::kData, "indptr must rise");
}

}  // namespace
}  // namespace graphbox
