// The edges of one edge type while a graph is built: their ends looked up, sorted, and written with their columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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

// The edges by source, then target: where they lie in the other order.
struct BySourceFiles {
  std::string indptr;
  std::string indices;
  std::string edge_ids;
};

struct EdgeFiles {
  std::string indptr;
  std::string indices;
  std::vector<std::string> columns;
  std::optional<BySourceFiles> by_source;
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

  ArrayFile source_indptr;  // by source, where asked for
  ArrayFile source_indices;
  ArrayFile source_edge_ids;
  bool wide_source_indices = false;
};

class EdgeBuilder {
 public:
  static constexpr std::int64_t kBatchRows = std::int64_t{1} << 16;
  static constexpr std::size_t kWorkingBytes = std::size_t{4} << 20;
  // Of a few edges that are kept: what finish() cannot do without.
  static constexpr std::size_t kLeastKeptBytes = std::size_t{28} << 20;

  EdgeBuilder(NodeIds& sources, NodeIds& targets, EdgeBuilderOptions options);

  // Adds edges; `valid` (when given) is 0 for a row with a missing end. Adds the rows that are left out to `dangling`;
  // false when that is only known after finish(), because ids do not fit into memory.
  bool add(const IdBatch& sources, const IdBatch& targets, const std::uint8_t* valid,
           const std::vector<const std::byte*>& columns, std::vector<std::int64_t>& dangling);

  const NodeIds& sources() const { return sources_.nodes; }
  const NodeIds& targets() const { return targets_.nodes; }
  const EdgeBuilderOptions& options() const { return options_; }

  // All edges were added, and finish() comes later: keeps them in memory if they take at most `most_bytes` until then,
  // else moves them to the disk. Returns what is kept.
  std::size_t keep(std::size_t most_bytes);

  BuiltEdges finish(const EdgeFiles& files, const std::vector<Recode>& recodes);

 private:
  // One end of the edges. Rows wait in a log from the first one on whose ids are not in memory.
  struct End {
    NodeIds& nodes;
    bool discover;
    std::vector<std::int64_t> index;  // of the batch
    std::shared_ptr<IdLog> log;
    std::int64_t logged_from = 0;  // row
  };

  bool find_ends(const IdBatch& sources, const IdBatch& targets, const std::uint8_t* valid);
  bool find_pairs(const IdBatch& sources, const IdBatch& targets, const std::uint8_t* valid);
  bool find_end(End& end, const IdBatch& ids, const std::uint8_t* valid);
  void log_of(End& end);
  void defer(std::int64_t count, const std::vector<const std::byte*>& columns);
  void add_found(std::int64_t first_row, std::int64_t count, const std::vector<const std::byte*>& columns,
                 std::vector<std::int64_t>* dangling);
  void add_deferred();
  void write_by_target(const EdgeFiles& files, const std::vector<Recode>& recodes, BuiltEdges& built);
  void write_by_source(const EdgeFiles& files, BuiltEdges& built) const;
  bool has_pairs() const { return &sources_.nodes == &targets_.nodes && sources_.discover; }

  End sources_;
  End targets_;
  EdgeBuilderOptions options_;
  EdgeSorter sorter_;
  bool finished_ = false;
  std::int64_t rows_ = 0;
  std::int64_t dangling_ = 0;
  std::vector<std::int64_t> dangling_examples_;
  std::vector<std::int64_t> pairs_;  // of the batch

  // Rows that wait: the indices of ends that were found, and the columns.
  std::unique_ptr<StreamFile> deferred_;
  std::int64_t deferred_from_ = 0;
};

}  // namespace graphbox
