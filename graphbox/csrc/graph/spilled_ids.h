// The ids of one node type when they do not fit into memory: a hash join over scratch files.
//
// Ids are dealt out to partitions by their hash, each small enough for memory. A log keeps ids in the order in which
// they were met: their partition, one byte each, and in every partition the ids themselves. So a partition can be worked
// on alone, and what was found out of its ids is brought back into the order of the log without sorting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "graph/id_table.h"
#include "graph/ids_view.h"
#include "graph/stream_file.h"
#include "io/array_file.h"

namespace graphbox {

inline constexpr int kIdPartitionBits = 7;
inline constexpr std::size_t kIdPartitions = std::size_t{1} << kIdPartitionBits;

// Ids in the order in which they were met.
class IdLog {
 public:
  // Memory of a log, while it is written or read.
  static constexpr std::size_t kWorkingBytes = (kIdPartitions + 1) * StreamFile::kBufferBytes;

  IdLog(IdKind kind, const std::string& scratch) : kind_(kind), streams_(scratch, kIdPartitions + 1) {}

  // Rows whose `valid` (when given) is 0 are missing.
  void append(const IdBatch& ids, const std::uint8_t* valid);
  void append_pairs(const IdBatch& sources, const IdBatch& targets, const std::uint8_t* valid);
  std::int64_t size() const { return size_; }
  void flush() { streams_.flush(); }

 private:
  friend class SpilledIds;
  friend class LogReplay;
  static constexpr std::uint8_t kMissing = 0xFF;

  template <typename Ids>
  void append_row(const Ids& ids, std::int64_t row, bool valid);

  IdKind kind_;
  StreamFile streams_;  // the ids of each partition, then the partition of each row
  std::int64_t size_ = 0;
};

// The numbers of the ids of a log, in its order.
class LogReplay {
 public:
  LogReplay(const IdLog& log, std::unique_ptr<StreamFile> numbers);

  // The number of the next id, -1 when it is none or missing.
  std::int64_t next();

 private:
  StreamFile::Reader partitions_;
  std::unique_ptr<StreamFile> numbers_;
  std::vector<StreamFile::Reader> readers_;
};

// Where ids in the order of their numbers are written.
struct IdArrayPaths {
  std::string values;  // integers
  std::string offsets;
  std::string text;
};

class SpilledIds {
 public:
  // Memory of streams at a time, and the least memory to work with.
  static constexpr std::size_t kStreamBytes = 3 * IdLog::kWorkingBytes;
  static constexpr std::size_t kFewestBytes = kStreamBytes + (std::size_t{5} << 20);

  // Takes over the ids of `table`, which keep their numbers.
  SpilledIds(const IdTable& table, IdArrayPaths paths, std::string scratch, std::size_t memory_bytes, int threads);

  std::int64_t size() const { return size_; }

  // Numbers the new ids of a log by first appearance, behind those there are. Returns how many of its rows had an id
  // that was there already, the first of these rows, and the number of its id.
  struct Repeated {
    std::int64_t rows = 0;
    std::int64_t first_row = -1;
    std::int64_t first_number = -1;
  };
  Repeated number(IdLog& log);

  // Ends the arrays of ids. After it ids can be looked up.
  void close();
  const ArrayFile& values() const { return values_file_; }
  const ArrayFile& offsets() const { return offsets_file_; }
  const ArrayFile& text() const { return text_file_; }

  // Moves the arrays of ids to another place on the same disk.
  void move_to(IdArrayPaths paths);

  // Looks up all ids of a log.
  LogReplay find(IdLog& log) const;

  // The ids at these numbers: integers, or strings as offsets and text.
  void take(const std::int64_t* index, std::int64_t count, std::vector<std::int64_t>& values, std::string& text) const;

  // Writes the hash index of all ids: partitions that fit into memory at a time, each in one pass over the ids.
  ArrayFile write_index(const std::string& path) const;
  bool has_wide_index() const { return size_ > kMostNarrowNodes; }

 private:
  template <typename Value>
  void add(std::size_t partition, Value id);
  void put(std::int64_t id) { values_->append(&id, sizeof id); }
  void put(std::string_view id);
  IdTable load(std::size_t partition, std::vector<std::int64_t>* numbers) const;
  template <typename Value>
  Repeated number_as(IdLog& log);
  template <typename Body>
  void each_hash(const Body& body) const;
  template <typename Entry>
  void write_windows(ArrayFileWriter& file, const IndexLayout& layout) const;

  IdKind kind_;
  IdArrayPaths paths_;
  std::string scratch_;
  std::size_t memory_bytes_;
  int threads_;
  std::int64_t size_ = 0;

  std::unique_ptr<ArrayFileWriter> values_;
  std::unique_ptr<ArrayFileWriter> offsets_;
  std::unique_ptr<ArrayFileWriter> text_;
  std::int64_t text_bytes_ = 0;
  ArrayFile values_file_;
  ArrayFile offsets_file_;
  ArrayFile text_file_;
  std::unique_ptr<StreamFile> known_;  // by partition: number and id
};

}  // namespace graphbox
