#include "sample/relation_index.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <string>

#include "parallel/parallel_for.h"

namespace graphbox {
namespace {

constexpr std::int64_t kChunkRows = 4096;

// Calls `visit(relation, row, edges)` for the lists of the rows [begin, end) that are not empty, relation by relation.
template <typename Visit>
void for_each_list(const std::vector<Adjacency>& relations, std::int64_t begin, std::int64_t end, Visit visit) {
  for (std::size_t relation = 0; relation < relations.size(); ++relation) {
    for (std::int64_t row = begin; row < end; ++row) {
      const EdgeSpan edges = edges_of(relations[relation], row);
      if (edges.degree > 0) {
        visit(static_cast<std::uint32_t>(relation), row, edges);
      }
    }
  }
}

}  // namespace

RelationIndex::RelationIndex(const std::vector<Adjacency>& relations, int threads)
    : num_rows_(relations.front().num_rows) {
  for (const Adjacency& relation : relations) {
    num_edges_.push_back(relation.num_edges);
  }
  const auto rows = static_cast<std::size_t>(num_rows_);
  const std::int64_t chunks = (num_rows_ + kChunkRows - 1) / kChunkRows;
  const auto end_of = [&](std::int64_t chunk) { return std::min((chunk + 1) * kChunkRows, num_rows_); };

  firsts_ = Buffer((rows + 1) * sizeof(std::int64_t));
  auto* const firsts = reinterpret_cast<std::int64_t*>(firsts_.data());
  std::fill_n(firsts, rows + 1, 0);
  std::atomic<bool> has_long_list = false;
  parallel_for(threads, chunks, [&](std::int64_t chunk) {
    for_each_list(relations, chunk * kChunkRows, end_of(chunk), [&](std::uint32_t, std::int64_t row, EdgeSpan edges) {
      ++firsts[row + 1];
      if (edges.degree > std::int64_t{UINT32_MAX}) {
        has_long_list = true;
      }
    });
  });
  std::partial_sum(firsts, firsts + rows + 1, firsts);
  const std::size_t bytes = static_cast<std::size_t>(firsts[rows]) * sizeof(IndexedEdges) + firsts_.bytes();
  if (has_long_list || bytes > relations.size() * firsts_.bytes()) {
    throw Error(ErrorKind::kDoesNotFit,
                "expected fewer lists with edges, of up to 2^32 - 1 edges each: an index over " +
                    std::to_string(relations.size()) + " relations would take " + std::to_string(bytes) + " bytes",
                relations.front().name, "sample without");
  }
  lists_ = Buffer(static_cast<std::size_t>(firsts[rows] + kRun) * sizeof(IndexedEdges));
  auto* const lists = reinterpret_cast<IndexedEdges*>(lists_.data());
  std::fill_n(lists + firsts[rows], kRun, IndexedEdges{});
  parallel_for(threads, chunks, [&](std::int64_t chunk) {
    const std::int64_t begin = chunk * kChunkRows;
    std::vector<std::int64_t> next(firsts + begin, firsts + end_of(chunk));
    for_each_list(relations, begin, end_of(chunk), [&](std::uint32_t relation, std::int64_t row, EdgeSpan edges) {
      lists[next[static_cast<std::size_t>(row - begin)]++] = {edges.begin, static_cast<std::uint32_t>(edges.degree),
                                                              relation};
    });
  });
}

}  // namespace graphbox
