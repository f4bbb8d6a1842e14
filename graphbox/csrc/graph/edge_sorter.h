// Sorts edges by target, then source, then the order in which they came, within a budget of memory: what does not fit
// is sorted in runs, which wait in a scratch file and are merged at the end, straight into the arrays of a graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graph/edge_emitter.h"
#include "graph/run_merge.h"
#include "io/scratch_file.h"
#include "memory/growing_array.h"

namespace graphbox {

class EdgeSorter {
 public:
  // What is held beside the edges.
  static constexpr std::size_t kWorkingBytes = std::size_t{4} << 20;
  static constexpr std::int64_t kFewestRows = std::int64_t{1} << 12;

  // `column_bytes` are the bytes of one row of each column that goes along; runs are spilled to the disk of `scratch`.
  EdgeSorter(std::vector<std::size_t> column_bytes, std::string scratch, std::size_t memory_bytes, int threads);

  // Adds the edges whose ends are both at least 0.
  void add(const std::int64_t* sources, const std::int64_t* targets, std::int64_t count,
           const std::vector<const std::byte*>& columns);

  std::int64_t num_edges() const { return total_; }
  std::uint64_t spilled_bytes() const { return scratch_ ? scratch_->bytes() : 0; }

  // Moves what is held in memory to the scratch file.
  void spill();

  // Spills, and holds at most so many bytes from now on.
  void limit(std::size_t memory_bytes);

  // Passes all edges on in order. Nothing can be added after it.
  void finish(EdgeEmitter& emitter);

 private:
  std::size_t record_bytes() const { return (wide_ ? 16 : 8) + (column_bytes_.empty() ? 0 : 4); }
  std::size_t row_bytes() const;
  void reserve();
  void widen();
  template <typename Record>
  void append(const std::int64_t* sources, const std::int64_t* targets, std::int64_t count,
              const std::vector<const std::byte*>& columns);
  template <typename Record>
  const Record* sort_held();
  template <typename Record>
  void write_run();
  void drop();
  template <typename Body>
  void with_record(Body&& body) const;

  std::vector<std::size_t> column_bytes_;
  std::string scratch_folder_;
  std::size_t memory_bytes_;
  int threads_;

  bool wide_ = false;
  std::int64_t capacity_ = 0;  // edges that fit at once
  std::int64_t held_ = 0;
  std::int64_t total_ = 0;
  GrowingArray<std::byte> records_;
  GrowingArray<std::byte> other_;
  std::vector<GrowingArray<std::byte>> columns_;
  std::unique_ptr<ScratchFile> scratch_;
  std::vector<EdgeRun> runs_;
};

}  // namespace graphbox
