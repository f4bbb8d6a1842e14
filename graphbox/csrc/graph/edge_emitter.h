// Writes sorted edges into the arrays of a graph: indptr, indices and columns, without the repetitions where they are
// not wanted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "io/array_file.h"

namespace graphbox {

// One column of the edges on its way to its file.
struct ColumnOutput {
  ArrayFileWriter* file = nullptr;
  std::size_t row_bytes = 0;
  const std::int32_t* recode = nullptr;  // new codes by old code, for a column of int32 codes; -1 stays
  std::int64_t num_codes = 0;
};

struct EdgeOutput {
  ArrayFileWriter* indptr = nullptr;
  ArrayFileWriter* indices = nullptr;  // of int32 when there are at most 2^31 sources, else of int64
  bool wide_indices = false;
  std::vector<ColumnOutput> columns;
};

// Counts of written edges.
struct EdgeCounts {
  static constexpr std::size_t kExamples = 5;

  std::int64_t edges = 0;
  std::int64_t duplicates = 0;  // edges whose (source, target) was there already, kept or not
  std::int64_t self_loops = 0;  // of those written
  std::vector<std::pair<std::int64_t, std::int64_t>> duplicate_examples;  // (source, target), the first in order
  std::vector<std::int64_t> self_loop_examples;
};

class EdgeEmitter {
 public:
  // Memory held while edges pass, for each thread.
  static constexpr std::size_t kBlockBytes = std::size_t{256} << 10;

  // `num_targets` is the number of target nodes; self-loops are looked for when both ends are of one node type.
  EdgeEmitter(EdgeOutput output, std::int64_t num_targets, bool keep_duplicates, bool one_type, int threads);

  // Writes the next edges, whose keys (of `Record`, see edge_sorter.h) ascend. Row i of the columns, in memory at
  // `columns`, belongs to the record with row i.
  template <typename Record>
  void emit(const Record* records, std::int64_t count, const std::vector<const std::byte*>& columns);

  // Writes the rest of indptr.
  EdgeCounts finish();

 private:
  struct Slice;
  template <typename Record>
  void count_slice(const Record* records, Slice& slice) const;
  template <typename Record, typename Index>
  void write_indices(const Record* records, const Slice& slice);
  template <typename Record>
  void write_column(const Record* records, const Slice& slice, const ColumnOutput& output, const std::byte* column);
  template <typename Record>
  void write_indptr(const Record* records, const Slice& slice);
  void add(const Slice& slice);

  EdgeOutput output_;
  std::int64_t num_targets_;
  bool keep_duplicates_;
  bool one_type_;
  int threads_;

  EdgeCounts counts_;
  std::int64_t last_source_ = -1;  // ends of the last edge that passed
  std::int64_t last_target_ = -1;
};

}  // namespace graphbox
