#include "sample/hop_lists.h"

#include <algorithm>
#include <numeric>

#include "parallel/parallel_for.h"
#include "portability/cpu.h"

namespace graphbox {
namespace {

// Prefetch distances of the memory lines that hold the places of a node's lists, and of the lists.
constexpr std::size_t kFirstsDistance = 64;
constexpr std::size_t kListsDistance = 32;

}  // namespace

IndexedHop::IndexedHop(const RelationIndex& index, const std::int64_t* nodes, std::int64_t count, int threads)
    : chunks_((count + kHopChunkNodes - 1) / kHopChunkNodes) {
  const std::size_t relations = index.num_edges().size();
  const auto chunks = static_cast<std::size_t>(chunks_);
  std::vector<std::int64_t> begins(chunks + 1, 0);  // of each chunk's lists by node, with room for what is read too much
  offsets_.assign(relations * chunks + 1, 0);
  const auto nodes_of = [&](std::int64_t chunk) {
    const std::int64_t first = chunk * kHopChunkNodes;
    return std::span(nodes + first, static_cast<std::size_t>(std::min(kHopChunkNodes, count - first)));
  };

  parallel_for(threads, chunks_, [&](std::int64_t chunk) {
    begins[static_cast<std::size_t>(chunk) + 1] = count_lists(index, nodes_of(chunk)) + RelationIndex::kRun;
  });
  std::partial_sum(begins.begin(), begins.end(), begins.begin());
  PooledArray<IndexedEdges> by_node(begins.back());
  PooledArray<std::uint32_t> row_of(begins.back());
  parallel_for(threads, chunks_, [&](std::int64_t chunk) {
    const std::int64_t begin = begins[static_cast<std::size_t>(chunk)];
    copy_lists(index, nodes_of(chunk), static_cast<std::uint32_t>(chunk * kHopChunkNodes), by_node.data() + begin,
               row_of.data() + begin);
    std::vector<std::int64_t> found(relations, 0);
    for (std::int64_t i = begin; i < begins[static_cast<std::size_t>(chunk) + 1] - RelationIndex::kRun; ++i) {
      ++found[by_node[i].relation];
    }
    for (std::size_t relation = 0; relation < relations; ++relation) {
      offsets_[relation * chunks + static_cast<std::size_t>(chunk) + 1] = found[relation];
    }
  });
  std::partial_sum(offsets_.begin(), offsets_.end(), offsets_.begin());
  spans_.resize(offsets_.back());
  rows_.resize(offsets_.back());
  parallel_for(threads, chunks_, [&](std::int64_t chunk) {
    std::vector<std::int64_t> next(relations);
    for (std::size_t relation = 0; relation < relations; ++relation) {
      next[relation] = offsets_[relation * chunks + static_cast<std::size_t>(chunk)];
    }
    EdgeSpan* const spans = spans_.data();
    std::uint32_t* const rows = rows_.data();
    const std::int64_t end = begins[static_cast<std::size_t>(chunk) + 1] - RelationIndex::kRun;
    for (std::int64_t i = begins[static_cast<std::size_t>(chunk)]; i < end; ++i) {
      const IndexedEdges edges = by_node[i];
      const std::int64_t place = next[edges.relation]++;
      spans[place] = {edges.begin, edges.degree};
      rows[place] = row_of[i];
    }
  });
}

std::int64_t IndexedHop::count_lists(const RelationIndex& index, std::span<const std::int64_t> nodes) {
  const std::int64_t* const firsts = index.firsts();
  std::int64_t lists = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    prefetch(firsts + nodes[std::min(i + kFirstsDistance, nodes.size() - 1)]);
    lists += firsts[nodes[i] + 1] - firsts[nodes[i]];
  }
  return lists;
}

void IndexedHop::copy_lists(const RelationIndex& index, std::span<const std::int64_t> nodes, std::uint32_t first_row,
                            IndexedEdges* lists, std::uint32_t* rows) {
  const std::int64_t* const firsts = index.firsts();
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const IndexedEdges* const ahead = index.lists() + firsts[nodes[std::min(i + kListsDistance, nodes.size() - 1)]];
    prefetch(ahead);
    prefetch(ahead + kCacheLineBytes / sizeof(IndexedEdges));
    const std::int64_t first = firsts[nodes[i]];
    const std::int64_t count = firsts[nodes[i] + 1] - first;
    // The number of a node's lists cannot be predicted: more are copied; those of the next node overwrite the surplus.
    for (std::int64_t copied = 0; copied < std::max<std::int64_t>(count, 1); copied += RelationIndex::kRun) {
      for (std::int64_t list = copied; list < copied + RelationIndex::kRun; ++list) {
        lists[list] = index.lists()[first + list];
        rows[list] = first_row + static_cast<std::uint32_t>(i);
      }
    }
    lists += count;
    rows += count;
  }
}

HopLists IndexedHop::lists(std::size_t relation) {
  const auto first = offsets_.begin() + static_cast<std::ptrdiff_t>(relation) * chunks_;
  return {spans_.data(), rows_.data(), {first, first + chunks_}, {first + 1, first + chunks_ + 1}};
}

}  // namespace graphbox
