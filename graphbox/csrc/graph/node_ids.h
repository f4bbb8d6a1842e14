// The ids of one node type while a graph is built: numbered, looked up and written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/degree.h"
#include "graph/id_table.h"
#include "graph/ids_view.h"
#include "graph/spilled_ids.h"
#include "io/array_file.h"

namespace graphbox {

// A row of a node table whose id was there already: the row that had it, and its own.
struct RepeatedId {
  std::int64_t first_row;
  std::int64_t row;
};

struct IdFiles {
  IdArrayPaths ids;
  std::string index;
};

struct WrittenIds {
  ArrayFile values;
  ArrayFile offsets;
  ArrayFile text;
  ArrayFile index;
  bool wide_index = false;
};

class NodeIds {
 public:
  NodeIds(IdKind kind, std::string scratch, std::size_t memory_bytes, int threads);

  IdKind kind() const { return kind_; }
  std::int64_t num_nodes() const { return spilled_ ? spilled_->size() : table_->size(); }

  // Whether the ids did not fit into memory: then they are numbered and looked up through logs.
  bool is_spilled() const { return spilled_ != nullptr; }

  // Memory held until the edges that refer to these ids are written.
  std::size_t held_bytes() const { return (spilled_ ? memory_bytes_ : table_->held_bytes()) + static_cast<std::size_t>(num_nodes() / 8); }

  // Adds the rows of a node table, in order.
  void add(const IdBatch& ids);
  const std::optional<RepeatedId>& first_repeated() const { return first_repeated_; }
  std::int64_t num_repeated() const { return num_repeated_; }

  // Numbers ids that are met at ends of edges; see IdTable. False, with nothing done, when they do not fit into memory:
  // they belong into a log then.
  bool discover(const IdBatch& ids, const std::uint8_t* valid, std::int64_t* found);
  bool discover_pairs(const IdBatch& sources, const IdBatch& targets, const std::uint8_t* valid, std::int64_t* found);

  // A log whose ids are numbered when all are there, behind those of the logs before it. Only the last one may be added
  // to: the order is that in which ids are met.
  std::shared_ptr<IdLog> discover_log();
  bool is_last(const std::shared_ptr<IdLog>& log) const { return !logs_.empty() && logs_.back() == log; }

  // All ids are there.
  void close();
  bool is_closed() const { return closed_; }

  // Both need closed ids when these are spilled.
  void find(const IdBatch& ids, const std::uint8_t* valid, std::int64_t* found) const;
  LogReplay find(IdLog& log) const { return spilled_->find(log); }

  // The ids at these numbers: integers, or strings as offsets and text.
  void take(const std::int64_t* index, std::int64_t count, std::vector<std::int64_t>& values, std::string& text) const;

  WrittenIds write(const IdFiles& files);

  // Nodes at an end of an edge of some builder that has finished.
  NodeBits& used() { return used_; }
  std::int64_t num_isolated() const { return num_nodes() - used_.count(); }

 private:
  bool reserve(std::int64_t count, std::size_t text_bytes);
  void check_open() const;
  void check_found(const char* what) const;
  void spill();
  void add_held(const IdBatch& ids);

  IdKind kind_;
  std::string scratch_;
  std::size_t memory_bytes_;
  int threads_;
  std::unique_ptr<IdTable> table_;        // one of these two
  std::unique_ptr<SpilledIds> spilled_;
  std::vector<std::shared_ptr<IdLog>> logs_;
  bool closed_ = false;
  std::int64_t rows_ = 0;         // of the node table
  std::int64_t logged_from_ = 0;  // the first of them that is in a log
  std::optional<RepeatedId> first_repeated_;
  std::int64_t num_repeated_ = 0;
  NodeBits used_;
};

}  // namespace graphbox
