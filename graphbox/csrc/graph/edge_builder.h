// The edges of one edge type while a graph is built: their ends looked up, sorted, and written with their columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/degree.h"
#include "graph/edge_emitter.h"
#include "graph/edge_sorter.h"
#include "graph/node_ids.h"

namespace graphbox {

struct EdgeColumn {
  std::string dtype;
  std::vector<std::uint64_t> row_shape;

  std::size_t row_bytes() const;
};

struct EdgeBuilderOptions {
  bool discover_sources = false;
  bool discover_targets = false;
  std::vector<EdgeColumn> columns;
  bool keep_duplicates = false;
  std::string scratch;
  std::size_t memory_bytes = 0;
  int threads = 1;
};

// Codes of a column of int32 codes are replaced while they are written.
struct Recode {
  std::size_t column;
  const std::int32_t* codes;
  std::int64_t size;
};

struct EdgeFiles {
  std::string indptr;
  std::string indices;
  std::vector<std::string> columns;
};

struct BuiltEdges {
  EdgeCounts counts;
  std::int64_t rows = 0;
  std::int64_t dangling = 0;
  std::vector<std::int64_t> dangling_examples;
  DegreeHistogram in_degrees;
  DegreeHistogram out_degrees;
  ArrayFile indptr;
  ArrayFile indices;
  bool wide_indices = false;
  std::vector<ArrayFile> columns;
};

class EdgeBuilder {
 public:
  static constexpr std::int64_t kBatchRows = std::int64_t{1} << 16;
  static constexpr std::size_t kWorkingBytes = std::size_t{4} << 20;

  EdgeBuilder(NodeIds& sources, NodeIds& targets, EdgeBuilderOptions options);

  // Adds edges; `valid` (when given) is 0 for a row with a missing end. Adds the rows that are left out to `dangling`.
  void add(const IdBatch& sources, const IdBatch& targets, const std::uint8_t* valid,
           const std::vector<const std::byte*>& columns, std::vector<std::int64_t>& dangling);

  const NodeIds& sources() const { return sources_; }
  const NodeIds& targets() const { return targets_; }
  const EdgeBuilderOptions& options() const { return options_; }

  // Moves what is held in memory to the disk.
  void spill() { sorter_.spill(); }

  BuiltEdges finish(const EdgeFiles& files, const std::vector<Recode>& recodes);

 private:
  void find_ends(const IdBatch& sources, const IdBatch& targets, const std::uint8_t* valid);

  NodeIds& sources_;
  NodeIds& targets_;
  EdgeBuilderOptions options_;
  EdgeSorter sorter_;
  bool finished_ = false;
  std::int64_t rows_ = 0;
  std::int64_t dangling_ = 0;
  std::vector<std::int64_t> dangling_examples_;

  // Of one batch.
  std::vector<std::int64_t> source_index_;
  std::vector<std::int64_t> target_index_;
  std::vector<std::int64_t> pairs_;
};

}  // namespace graphbox
