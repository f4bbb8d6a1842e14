// Negatives of queries whose positives are known: none of those is drawn, or counts as a negative.
#pragma once

#include <cstdint>
#include <span>

#include "random/philox.h"
#include "sample/adjacency.h"
#include "sample/negative.h"

namespace graphbox {

// The edges from query number `number` to its known positives, checked.
EdgeSpan known_positives_of(const Adjacency& known, std::span<const std::int64_t> queries, std::int64_t number);

struct NegativeRequest {
  const AliasTable* items = nullptr;
  std::span<const double> weights;             // of the items, as the table's; empty where they are equally likely
  const Adjacency* known_positives = nullptr;  // a row for each query, ascending; null: none are known
  std::span<const std::int64_t> queries;
  std::int64_t num_negatives = 0;  // for each query
  bool exclude_query = false;      // queries are items too, and none is a negative of itself
  bool allow_exhausted = false;    // -1 where no item is left, else an error
  PhiloxKey key{};
  int threads = 1;
};

// Writes num_negatives items for each query to `out`, each in proportion to its weight among those that are no known
// positives of the query. Draws that hit a known positive are repeated, a bounded number of times; then the items that
// are left are enumerated, which has the same distribution.
void sample_negatives(const NegativeRequest& request, std::int64_t* out);

struct CollisionRequest {
  std::span<const std::int64_t> queries;       // none: all are different, and nothing more is known of them
  std::span<const std::int64_t> positives;     // the item of each query
  std::span<const std::int64_t> candidates;    // candidate i stands for the positive of query i, as far as there are
  const Adjacency* known_positives = nullptr;  // a row for each query, ascending; null: none are known
  int threads = 1;
};

// Writes for each query and each candidate whether it must not be a negative: it is the query's positive again, that
// of another place with the same query, or another known positive. A query's own place is no collision.
void find_collisions(const CollisionRequest& request, bool* out);

// Writes how many of `num_items` items are no known positives of each row, the row's own number apart if asked.
void count_remaining(const Adjacency& known, std::int64_t num_items, bool exclude_query, std::int64_t* out, int threads);

// Writes the number of edges of each row to `out`.
void row_degrees(const Adjacency& adjacency, std::int64_t* out, int threads);

}  // namespace graphbox
