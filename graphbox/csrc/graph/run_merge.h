// Merges sorted runs of edges from a scratch file, streaming, within a budget of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "graph/edge_emitter.h"
#include "io/scratch_file.h"
#include "memory/growing_array.h"

namespace graphbox {

// A sorted part of the edges in a scratch file: all keys, then each column.
struct EdgeRun {
  std::int64_t size = 0;
  bool wide = false;       // keys of 128 bits instead of 64
  std::uint64_t keys = 0;  // where they start in the file
  std::vector<std::uint64_t> columns;
};

// Record is EdgeAlone or EdgeWithRow, of wide keys where one run has wide keys. Equal keys come in the order of runs.
//
// The next part of every run is held in memory. What is below the smallest last key that is held (or equal to it in the
// runs up to that one) can be passed on, whatever comes later; it is cut by key into slices, which threads merge.
template <typename Record>
class RunMerge {
 public:
  // Least number of rows of each run in memory, and the bytes held beside them.
  static constexpr std::int64_t kFewestRows = std::int64_t{1} << 6;
  static constexpr std::size_t kWorkingBytes = std::size_t{4} << 20;

  RunMerge(const ScratchFile& scratch, const std::vector<EdgeRun>& runs, const std::vector<std::size_t>& column_bytes,
           std::size_t memory_bytes, int threads);

  void emit_all(EdgeEmitter& emitter);

 private:
  using Key = typename Record::Key;

  // The part of a run in memory: rows [start, end) of its place in the arrays.
  struct Part {
    std::int64_t read = 0;  // rows of the run read so far
    std::int64_t start = 0;
    std::int64_t end = 0;
  };

  Key* keys_of(std::size_t run) { return keys_.data() + static_cast<std::int64_t>(run) * rows_; }
  void fill(std::size_t run);
  std::vector<std::int64_t> safe_ends();
  std::vector<std::vector<std::int64_t>> cut(const std::vector<std::int64_t>& ends);
  void merge_slice(const std::vector<std::int64_t>& firsts, const std::vector<std::int64_t>& ends, Record* to);

  const ScratchFile& scratch_;
  const std::vector<EdgeRun>& runs_;
  const std::vector<std::size_t>& column_bytes_;
  int threads_;

  std::int64_t rows_ = 0;  // of each run in memory
  std::vector<Part> parts_;
  GrowingArray<Key> keys_;
  std::vector<GrowingArray<std::byte>> columns_;
  GrowingArray<Record> merged_;
};

}  // namespace graphbox
