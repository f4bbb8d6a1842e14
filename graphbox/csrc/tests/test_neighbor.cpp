#include "sample/neighbor.h"

#include <algorithm>
#include <set>
#include <vector>

#include "tests/check.h"

namespace graphbox {
namespace {

// A graph of one type where node v has the neighbours (v * 7 + i * i + 1) % n, i < v % 90.
struct Graph {
  explicit Graph(std::int64_t nodes) : num_nodes(nodes), indptr{0} {
    for (std::int64_t node = 0; node < nodes; ++node) {
      for (std::int64_t i = 0; i < node % 90; ++i) {
        indices.push_back((node * 7 + i * i + 1) % nodes);
      }
      indptr.push_back(static_cast<std::int64_t>(indices.size()));
    }
  }

  NeighborRequest request(std::vector<std::int64_t> num_neighbors, bool replace, int threads) const {
    NeighborRequest request;
    request.hops = static_cast<int>(num_neighbors.size());
    Relation relation;
    relation.adjacency = {indptr.data(), nullptr, indices.data(), num_nodes, static_cast<std::int64_t>(indices.size()),
                          "test"};
    relation.num_neighbors = std::move(num_neighbors);
    request.relations = {relation};
    request.num_nodes = {num_nodes};
    request.seeds = {seeds};
    request.replace = replace;
    request.key = derive_key(Stream::kNeighbor, 1, 0, 0);
    request.threads = threads;
    return request;
  }

  std::int64_t num_nodes;
  std::vector<std::int64_t> indptr;
  std::vector<std::int64_t> indices;
  std::vector<std::int64_t> seeds;
};

template <typename T>
bool same(const PooledArray<T>& left, const PooledArray<T>& right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end());
}

TEST(neighbor, edges_are_edges_of_the_graph) {
  Graph graph(5000);
  graph.seeds = {4999, 17, 89, 3000};
  for (const bool replace : {false, true}) {
    const NeighborSample sample = sample_neighbors(graph.request({10, 70, 3}, replace, 1));
    const SampledEdges& edges = sample.relations[0];
    const auto& nodes = sample.types[0].nodes;
    std::set<std::int64_t> distinct(nodes.begin(), nodes.end());
    CHECK_EQUAL(static_cast<std::int64_t>(distinct.size()), nodes.size());
    std::set<std::int64_t> edge_ids(edges.edge_ids.begin(), edges.edge_ids.end());
    CHECK(replace || static_cast<std::int64_t>(edge_ids.size()) == edges.edge_ids.size());
    for (std::int64_t i = 0; i < edges.rows.size(); ++i) {
      const std::int64_t target = nodes[edges.cols[i]];
      const std::int64_t edge = edges.edge_ids[i];
      CHECK_EQUAL(graph.indices[static_cast<std::size_t>(edge)], nodes[edges.rows[i]]);
      CHECK(graph.indptr[static_cast<std::size_t>(target)] <= edge &&
            edge < graph.indptr[static_cast<std::size_t>(target) + 1]);
    }
  }
}

TEST(neighbor, any_number_of_threads_gives_the_same) {
  Graph graph(60000);
  for (std::int64_t seed = 0; seed < 6000; ++seed) {
    graph.seeds.push_back(seed * 7);
  }
  const NeighborSample one = sample_neighbors(graph.request({8, 3}, false, 1));
  for (const int threads : {2, 4}) {
    const NeighborSample other = sample_neighbors(graph.request({8, 3}, false, threads));
    CHECK(same(one.types[0].nodes, other.types[0].nodes));
    CHECK(same(one.relations[0].rows, other.relations[0].rows));
    CHECK(same(one.relations[0].cols, other.relations[0].cols));
    CHECK(same(one.relations[0].edge_ids, other.relations[0].edge_ids));
    CHECK(one.relations[0].edges_per_hop == other.relations[0].edges_per_hop);
  }
}

TEST(neighbor, damaged_arrays_are_refused_and_not_followed) {
  for (const int threads : {1, 2}) {
    for (const std::int64_t bad : {std::int64_t{-5}, std::int64_t{1} << 60}) {
      Graph graph(6000);
      for (std::int64_t seed = 0; seed < 6000; ++seed) {
        graph.seeds.push_back(seed);
      }
      graph.indptr[3001] = bad;
      CHECK_THROWS(sample_neighbors(graph.request({4}, false, threads)), ErrorKind::kData, "at node 300");
    }
    for (const std::int64_t bad : {std::int64_t{-1}, std::int64_t{6000}, std::int64_t{1} << 60}) {
      Graph graph(6000);
      for (std::int64_t seed = 0; seed < 6000; ++seed) {
        graph.seeds.push_back(seed);
      }
      graph.indices[5] = bad;
      CHECK_THROWS(sample_neighbors(graph.request({-1}, false, threads)), ErrorKind::kData, "edge 5 leads to");
    }
  }
}

TEST(neighbor, values_of_the_edges) {
  Graph graph(20000);
  for (std::int64_t seed = 0; seed < 5000; ++seed) {
    graph.seeds.push_back(seed);
  }
  std::vector<float> weight;
  std::vector<std::int64_t> timestamp;
  for (std::size_t edge = 0; edge < graph.indices.size(); ++edge) {
    weight.push_back(static_cast<float>(edge % 1000));
    timestamp.push_back(static_cast<std::int64_t>(edge) * 3);
  }
  for (const int threads : {1, 2}) {
    NeighborRequest request = graph.request({20, 2}, false, threads);
    request.relations[0].weight = {weight, {}, true};
    request.relations[0].timestamp = {timestamp, {}, true};
    const NeighborSample sample = sample_neighbors(request);
    const SampledEdges& edges = sample.relations[0];
    CHECK(edges.edge_ids.size() > 65536);
    CHECK_EQUAL(edges.weight.size(), edges.edge_ids.size());
    for (std::int64_t i = 0; i < edges.edge_ids.size(); ++i) {
      CHECK(edges.weight[i] == static_cast<float>(edges.edge_ids[i] % 1000));
      CHECK(edges.timestamp[i] == edges.edge_ids[i] * 3);
    }
    weight.pop_back();
    request.relations[0].weight = {weight, {}, true};
    CHECK_THROWS(sample_neighbors(request), ErrorKind::kUsage, "weight must have an entry for each of");
    weight.push_back(0);
  }
  CHECK_EQUAL(sample_neighbors(graph.request({2}, false, 1)).relations[0].weight.size(), std::int64_t{0});
}

TEST(neighbor, disjoint_trees) {
  Graph graph(3000);
  for (std::int64_t seed = 0; seed < 5000; ++seed) {
    graph.seeds.push_back(seed % 1500);
  }
  NeighborRequest request = graph.request({3, 2}, false, 1);
  request.disjoint = true;
  const NeighborSample one = sample_neighbors(request);
  request.threads = 2;
  const NeighborSample two = sample_neighbors(request);
  const SampledNodes& nodes = one.types[0];
  CHECK(same(nodes.nodes, two.types[0].nodes));
  CHECK(same(nodes.trees, two.types[0].trees));
  CHECK_EQUAL(nodes.trees.size(), nodes.nodes.size());
  const SampledEdges& edges = one.relations[0];
  for (std::int64_t i = 0; i < edges.rows.size(); ++i) {
    CHECK_EQUAL(nodes.trees[edges.rows[i]], nodes.trees[edges.cols[i]]);
    CHECK_EQUAL(graph.indices[static_cast<std::size_t>(edges.edge_ids[i])], nodes.nodes[edges.rows[i]]);
  }
  std::set<std::pair<std::int64_t, std::int64_t>> distinct;
  for (std::int64_t i = 0; i < nodes.nodes.size(); ++i) {
    distinct.emplace(nodes.trees[i], nodes.nodes[i]);
  }
  CHECK_EQUAL(static_cast<std::int64_t>(distinct.size()), nodes.nodes.size());
}

TEST(neighbor, wrong_seeds_are_refused) {
  for (const std::int64_t bad : {std::int64_t{-1}, std::int64_t{100}, INT64_MIN, INT64_MAX}) {
    Graph graph(100);
    graph.seeds = {3, bad};
    CHECK_THROWS(sample_neighbors(graph.request({4}, false, 1)), ErrorKind::kUsage, "at position 1");
  }
}

TEST(neighbor, nothing_to_sample) {
  Graph graph(1);  // one node without edges
  CHECK_EQUAL(sample_neighbors(graph.request({5, 5}, true, 1)).types[0].nodes.size(), std::int64_t{0});
  graph.seeds = {0, 0, 0};
  const NeighborSample sample = sample_neighbors(graph.request({5, 5}, true, 1));
  CHECK_EQUAL(sample.types[0].nodes.size(), std::int64_t{3});
  CHECK_EQUAL(sample.relations[0].rows.size(), std::int64_t{0});
}

TEST(neighbor, all_nodes_of_a_type_without_seeds) {
  // Source type 0 has 3 nodes, all reached from the only target: the array of nodes is filled to its last place.
  const std::int64_t indptr[] = {0, 3};
  const std::int32_t indices[] = {2, 0, 1};
  NeighborRequest request;
  request.hops = 1;
  Relation relation;
  relation.adjacency = {indptr, indices, nullptr, 1, 3, "test"};
  relation.target_type = 1;
  relation.num_neighbors = {-1};
  request.relations = {relation};
  const std::vector<std::int64_t> seeds = {0};
  request.seeds = {{}, seeds};
  for (const std::int64_t known : {3, -1}) {
    request.num_nodes = {known, 1};
    const NeighborSample sample = sample_neighbors(request);
    CHECK_EQUAL(sample.types[0].nodes.size(), std::int64_t{3});
    CHECK_EQUAL(sample.types[0].nodes[0], std::int64_t{2});
  }
}

}  // namespace
}  // namespace graphbox
