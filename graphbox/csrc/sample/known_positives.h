// Negatives of queries whose positives are known: none of those is drawn.
#pragma once

#include <cstdint>
#include <span>

#include "random/philox.h"
#include "sample/adjacency.h"
#include "sample/negative.h"

namespace graphbox {

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

// Writes how many of `num_items` items are no known positives of each row, the row's own number apart if asked.
void count_remaining(const Adjacency& known, std::int64_t num_items, bool exclude_query, std::int64_t* out, int threads);

// Writes the number of edges of each row to `out`.
void row_degrees(const Adjacency& adjacency, std::int64_t* out, int threads);

}  // namespace graphbox
