#include "sample/weighted_choice.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "errors/error.h"
#include "tests/check.h"

namespace graphbox {
namespace {

// One node whose edges are the positions 0 ... weights.size() - 1.
struct Row {
  explicit Row(std::vector<float> values)
      : weights(std::move(values)),
        indptr{0, static_cast<std::int64_t>(weights.size())},
        tables(indptr, weights, "test", 1) {}

  WeightedEdges edges() const { return {{0, indptr[1]}, tables.entries(), tables.weights()}; }

  std::vector<float> weights;
  std::vector<std::int64_t> indptr;
  AliasTables tables;
};

std::vector<float> some_weights(std::int64_t degree) {
  std::vector<float> weights;
  for (std::int64_t i = 0; i < degree; ++i) {
    weights.push_back(0.01F + static_cast<float>(i * i % 17));
  }
  return weights;
}

PhiloxKey test_key() { return derive_key(Stream::kNeighbor, 5, 0, 0); }

// Probability of each edge by the tables.
std::vector<double> probabilities(const Row& row) {
  const auto degree = static_cast<double>(row.weights.size());
  std::vector<double> result(row.weights.size());
  for (std::size_t column = 0; column < row.weights.size(); ++column) {
    const AliasEntry entry = row.tables.entries()[column];
    const double own = entry.threshold * 0x1p-32;
    result[column] += own / degree;
    result[entry.alias] += (1 - own) / degree;
  }
  return result;
}

TEST(weighted_choice, tables_give_each_edge_its_share) {
  std::vector<std::vector<float>> cases = {{3}, {1, 1}, {1, 1e-30F}, {1e30F, 1e-30F, 1e30F}, {1e-44F, 3e38F, 1}};
  for (const std::int64_t degree : {7, 64, 1000, 100000}) {
    cases.push_back(some_weights(degree));
    cases.emplace_back(static_cast<std::size_t>(degree), 0.1F);
  }
  for (const std::vector<float>& weights : cases) {
    const Row row(weights);
    double total = 0;
    for (const float weight : weights) {
      total += weight;
    }
    const std::vector<double> given = probabilities(row);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      CHECK(std::abs(given[i] - weights[i] / total) < 0x1p-30);
      CHECK(given[i] > 0);
    }
  }
}

TEST(weighted_choice, bad_weights_are_refused) {
  const std::vector<std::int64_t> indptr = {0, 2, 4};
  for (const float bad : {0.0F, -1.0F, NAN, INFINITY, -INFINITY}) {
    const std::vector<float> weights = {1, 2, 3, bad};
    CHECK_THROWS(AliasTables(indptr, weights, "test", 1), ErrorKind::kData, "edge 3 of node 1");
  }
  const std::vector<float> weights = {1, 2, 3, 4};
  for (const std::vector<std::int64_t>& damaged :
       {std::vector<std::int64_t>{0, 5, 4}, std::vector<std::int64_t>{0, 3, 2}, std::vector<std::int64_t>{-1, 2, 4}}) {
    CHECK_THROWS(AliasTables(damaged, weights, "test", 2), ErrorKind::kData, "indptr must rise");
  }
}

TEST(weighted_choice, distinct_edges_whatever_degree_and_count) {
  WeightedChooser chooser;
  for (const std::int64_t degree : {1, 2, 7, 63, 64, 65, 100, 1000, 70000}) {
    const Row row(some_weights(degree));
    for (const std::int64_t wanted : {1, 5, 6, 63, 64, 65, 200, 999}) {
      const std::int64_t count = choice_count(degree, wanted, false);
      for (std::uint64_t node = 0; node < 20; ++node) {
        std::vector<std::int64_t> out(static_cast<std::size_t>(count) + 1, -1);
        chooser.prepare(DrawSequence(test_key(), 1, 2, node), row.edges(), wanted, false);
        chooser.choose(out.data());
        CHECK_EQUAL(out.back(), std::int64_t{-1});
        out.pop_back();
        const std::set<std::int64_t> distinct(out.begin(), out.end());
        CHECK_EQUAL(static_cast<std::int64_t>(distinct.size()), count);
        CHECK(*distinct.begin() >= 0 && *distinct.rbegin() < degree);
      }
    }
  }
}

// One edge has nearly all the weight, so that draws repeat until the rest is looked at as a whole.
TEST(weighted_choice, hubs_with_one_heavy_edge) {
  for (const std::int64_t degree : {40, 500, 100000}) {
    std::vector<float> weights(static_cast<std::size_t>(degree), 1e-6F);
    weights[17] = 1e9F;
    const Row row(weights);
    WeightedChooser chooser;
    std::int64_t low = 0;
    for (std::uint64_t node = 0; node < 50; ++node) {
      std::int64_t out[4];
      chooser.prepare(DrawSequence(test_key(), 0, 0, node), row.edges(), 4, false);
      chooser.choose(out);
      CHECK_EQUAL(std::set<std::int64_t>(out, out + 4).size(), std::size_t{4});
      CHECK(std::count(out, out + 4, 17) == 1);
      low += std::count_if(out, out + 4, [&](std::int64_t edge) { return edge != 17 && edge < degree / 2; });
    }
    CHECK(low > 40 && low < 110);  // of 150
  }
}

TEST(weighted_choice, preparing_ahead_changes_nothing) {
  for (const bool replace : {false, true}) {
    for (const std::int64_t wanted : {-1, 0, 3, 20, 70, 300}) {
      std::vector<Row> rows;
      for (const std::int64_t degree : {0, 1, 5, 50, 90, 400, 3}) {
        rows.emplace_back(some_weights(degree));
      }
      WeightedChooser ahead;
      std::size_t next = 0;
      const auto choose_next = [&] {
        const Row& row = rows[next % rows.size()];
        const std::int64_t count = choice_count(row.indptr[1], wanted, replace);
        std::vector<std::int64_t> out(static_cast<std::size_t>(count));
        std::vector<std::int64_t> alone(static_cast<std::size_t>(count));
        ahead.choose(out.data());
        WeightedChooser chooser;
        chooser.prepare(DrawSequence(test_key(), 0, 0, next), row.edges(), wanted, replace);
        chooser.choose(alone.data());
        CHECK(out == alone);
        ++next;
      };
      for (std::size_t node = 0; node < 100; ++node) {
        while (ahead.is_full()) {
          choose_next();
        }
        ahead.prepare(DrawSequence(test_key(), 0, 0, node), rows[node % rows.size()].edges(), wanted, replace);
      }
      while (next < 100) {
        choose_next();
      }
    }
  }
}

}  // namespace
}  // namespace graphbox
