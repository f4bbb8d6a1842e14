#include "sample/alias.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "errors/error.h"
#include "parallel/parallel_for.h"
#include "sample/rows_check.h"

namespace graphbox {
namespace {

constexpr std::int64_t kChunkRows = 4096;

[[noreturn]] void throw_bad_weight(float weight, std::int64_t edge, std::int64_t row, const std::string& name) {
  throw Error(ErrorKind::kData,
              "weights must be positive finite numbers; edge " + std::to_string(edge) + " of node " +
                  std::to_string(row) + " has " + std::to_string(weight),
              name, "leave edges without weight out, or sample without weights");
}

[[noreturn]] void throw_bad_indptr(std::int64_t begin, std::int64_t end, std::int64_t row, std::int64_t edges,
                                   const std::string& name) {
  throw Error(ErrorKind::kData,
              "indptr must rise from 0 to the number of weights, " + std::to_string(edges) + "; it goes from " +
                  std::to_string(begin) + " to " + std::to_string(end) + " at node " + std::to_string(row),
              name, "the graph is damaged: import it again");
}

// A share of a column as a threshold, never so small that its edge could not be drawn.
std::uint32_t threshold_of(double share) {
  return static_cast<std::uint32_t>(std::clamp(share * 0x1p32, 1.0, double{UINT32_MAX}));
}

// Builds the tables of one row after the other.
class RowBuilder {
 public:
  void build(std::span<const float> weights, double total, AliasEntry* entries) {
    const std::size_t degree = weights.size();
    shares_.resize(degree);
    pending_.resize(degree);
    // Columns that are not full wait at the front of `pending_`, overfull ones at its end.
    std::size_t low = 0;
    std::size_t high = degree;
    for (std::size_t column = 0; column < degree; ++column) {
      shares_[column] = weights[column] / total * static_cast<double>(degree);
      pending_[shares_[column] < 1.0 ? low++ : --high] = static_cast<std::uint32_t>(column);
    }
    while (low > 0 && high < degree) {
      const std::uint32_t small = pending_[--low];
      const std::uint32_t large = pending_[high];
      entries[small] = {threshold_of(shares_[small]), large};
      shares_[large] = shares_[large] + shares_[small] - 1.0;
      if (shares_[large] < 1.0) {
        ++high;
        pending_[low++] = large;
      }
    }
    for (std::size_t i = 0; i < low; ++i) {
      fill(entries, pending_[i]);
    }
    for (std::size_t i = high; i < degree; ++i) {
      fill(entries, pending_[i]);
    }
  }

 private:
  static void fill(AliasEntry* entries, std::uint32_t column) { entries[column] = {UINT32_MAX, column}; }

  std::vector<double> shares_;
  std::vector<std::uint32_t> pending_;
};

}  // namespace

AliasTables::AliasTables(std::span<const std::int64_t> indptr, std::span<const float> weights, const std::string& name,
                         int threads)
    : indptr_(indptr), weights_(weights), entries_(weights.size() * sizeof(AliasEntry)) {
  const auto rows = static_cast<std::int64_t>(indptr.size()) - 1;
  auto* const entries = reinterpret_cast<AliasEntry*>(entries_.data());
  parallel_for(threads, (rows + kChunkRows - 1) / kChunkRows, [&](std::int64_t chunk) {
    RowBuilder builder;
    const std::int64_t end_row = std::min((chunk + 1) * kChunkRows, rows);
    for (std::int64_t row = chunk * kChunkRows; row < end_row; ++row) {
      const std::int64_t begin = indptr[static_cast<std::size_t>(row)];
      const std::int64_t end = indptr[static_cast<std::size_t>(row) + 1];
      if (begin < 0 || end < begin || end > num_edges()) {
        throw_bad_indptr(begin, end, row, num_edges(), name);
      }
      if (end - begin > std::int64_t{UINT32_MAX}) {
        throw Error(ErrorKind::kDoesNotFit,
                    "nodes can have at most 2^32 - 1 weighted edges, node " + std::to_string(row) + " has " +
                        std::to_string(end - begin),
                    name, "sample without weights");
      }
      double total = 0;
      for (std::int64_t edge = begin; edge < end; ++edge) {
        const float weight = weights[static_cast<std::size_t>(edge)];
        if (!(weight > 0) || !std::isfinite(weight)) {
          throw_bad_weight(weight, edge, row, name);
        }
        total += weight;
      }
      builder.build(weights.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)), total,
                    entries + begin);
    }
  });
  check_rows_have_all(indptr, num_edges(), "weight", name);
}

}  // namespace graphbox
