// Sorts edges by target, then source, then the order in which they came, within a budget of memory: what does not fit
// is sorted in runs, which wait in a scratch file and are merged at the end, straight into the arrays of a graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graph/edge_buckets.h"
#include "graph/edge_emitter.h"
#include "graph/run_merge.h"
#include "io/scratch_file.h"
#include "memory/growing_array.h"

namespace graphbox {

class EdgeSorter {
 public:
  // Memory held beside the edges.
  static constexpr std::size_t kWorkingBytes = std::size_t{4} << 20;
  // Least number of rows that are added at a time: each may begin a block.
  static constexpr std::int64_t kFewestRows = std::int64_t{1} << 11;

  // `column_bytes` are the bytes of one row of each column that goes along; runs are spilled to the disk of `scratch`.
  EdgeSorter(std::vector<std::size_t> column_bytes, std::string scratch, std::size_t memory_bytes, int threads);

  // Adds the edges whose ends are both at least 0.
  void add(const std::int64_t* sources, const std::int64_t* targets, std::int64_t count,
           const std::vector<const std::byte*>& columns);

  std::int64_t num_edges() const { return total_; }
  std::uint64_t spilled_bytes() const { return scratch_ ? scratch_->bytes() : 0; }

  // Memory held now, and until finish() has passed all on if nothing is added.
  std::size_t held_bytes() const;

  // Moves what is held in memory to the scratch file.
  void spill();

  // Spills, and holds at most so many bytes from now on.
  void limit(std::size_t memory_bytes);

  // Passes all edges on in order. Nothing can be added after it.
  void finish(EdgeEmitter& emitter);

 private:
  std::size_t record_bytes() const { return (wide_ ? 16 : 8) + (column_bytes_.empty() ? 0 : 4); }
  std::size_t column_bytes() const;
  std::size_t fixed_bytes() const { return kWorkingBytes + (3 + column_bytes_.size()) * kHugePageBytes; }
  std::int64_t batch_rows() const;
  std::int64_t wave_edges() const;
  void begin();
  void widen();
  void add_batch(const std::int64_t* sources, const std::int64_t* targets, std::int64_t count,
                 const std::vector<const std::byte*>& columns);
  bool fits() const;
  void append_columns(const std::int64_t* sources, const std::int64_t* targets,
                      const std::vector<const std::byte*>& columns);
  template <typename Record, typename Body>
  void each_wave(Body&& body);
  template <typename Record>
  void sort_wave(std::size_t first, std::size_t end, Record* sorted, Record* other) const;
  template <typename Record>
  void write_run();
  template <typename Record>
  void write_wave(const EdgeRun& run, const Record* records, std::int64_t first, std::int64_t count) const;
  std::vector<const std::byte*> column_data() const;
  void drop();
  template <typename Body>
  void with_record(Body&& body) const;

  std::vector<std::size_t> column_bytes_;
  std::string scratch_folder_;
  std::size_t memory_bytes_;
  int threads_;

  bool wide_ = false;
  bool begun_ = false;  // whether addresses for edges were taken
  std::int64_t total_ = 0;
  EdgeBuckets edges_;
  EdgeBuckets::Falling falling_;
  std::vector<GrowingArray<std::byte>> columns_;
  std::unique_ptr<ScratchFile> scratch_;
  std::vector<EdgeRun> runs_;
};

}  // namespace graphbox
