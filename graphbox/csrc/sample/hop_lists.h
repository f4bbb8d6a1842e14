// Where the edges are of the nodes that one hop expands.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memory/buffer.h"
#include "sample/choice.h"
#include "sample/relation_index.h"

namespace graphbox {

// Nodes of a hop that one thread takes at a time.
inline constexpr std::int64_t kHopChunkNodes = 1024;

// Of one relation and a hop's nodes those with edges.
struct HopLists {
  EdgeSpan* spans = nullptr;
  std::uint32_t* rows = nullptr;     // which of the hop's nodes each is, ascending
  std::vector<std::int64_t> begins;  // of each chunk of nodes its part of the two ...
  std::vector<std::int64_t> ends;    // ... ends here

  bool is_empty() const { return begins == ends; }
};

// Finds the lists of a hop's nodes in all relations of an index.
class IndexedHop {
 public:
  // The nodes are rows of the index.
  IndexedHop(const RelationIndex& index, const std::int64_t* nodes, std::int64_t count, int threads);

  // Of a relation of the index; the arrays stay this object's.
  HopLists lists(std::size_t relation);

 private:
  static std::int64_t count_lists(const RelationIndex& index, std::span<const std::int64_t> nodes);
  // Writes the lists of some nodes, and the row of each; behind them RelationIndex::kRun more may be written.
  static void copy_lists(const RelationIndex& index, std::span<const std::int64_t> nodes, std::uint32_t first_row,
                         IndexedEdges* lists, std::uint32_t* rows);

  std::int64_t chunks_;
  std::vector<std::int64_t> offsets_;  // of each relation's chunks, one relation after the other, and the end of all
  PooledArray<EdgeSpan> spans_;
  PooledArray<std::uint32_t> rows_;
};

}  // namespace graphbox
