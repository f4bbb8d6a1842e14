// The ids of one node type while a graph is built: numbered, looked up and written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/degree.h"
#include "graph/id_table.h"
#include "graph/ids_view.h"
#include "io/array_file.h"

namespace graphbox {

// A row of a node table whose id was there already: the row that had it, and its own.
struct RepeatedId {
  std::int64_t first_row;
  std::int64_t row;
};

struct IdFiles {
  std::string values;   // integers
  std::string offsets;  // strings
  std::string text;
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

  IdKind kind() const { return table_.kind(); }
  std::int64_t num_nodes() const { return table_.size(); }
  std::size_t held_bytes() const { return table_.held_bytes(); }

  // Adds the rows of a node table, in order.
  void add(const IdBatch& ids);
  const std::optional<RepeatedId>& first_repeated() const { return first_repeated_; }
  std::int64_t num_repeated() const { return num_repeated_; }

  // Numbers ids that are met at ends of edges; see IdTable.
  void discover(const IdBatch& ids, const std::uint8_t* valid, std::int64_t* found);
  void discover_pairs(const IdBatch& sources, const IdBatch& targets, const std::uint8_t* valid, std::int64_t* found);

  // All ids are there.
  void close();
  bool is_closed() const { return closed_; }

  void find(const IdBatch& ids, const std::uint8_t* valid, std::int64_t* found) const {
    table_.find(ids, valid, found);
  }

  // The ids at these numbers: integers, or strings as offsets and text.
  void take(const std::int64_t* index, std::int64_t count, std::vector<std::int64_t>& values, std::string& text) const;

  WrittenIds write(const IdFiles& files) const;

  // Nodes at an end of an edge of some builder that has finished.
  NodeBits& used() { return used_; }
  std::int64_t num_isolated() const { return num_nodes() - used_.count(); }

 private:
  void reserve(std::int64_t count, std::size_t text_bytes);

  std::size_t memory_bytes_;
  int threads_;
  IdTable table_;
  bool closed_ = false;
  std::int64_t rows_ = 0;
  std::optional<RepeatedId> first_repeated_;
  std::int64_t num_repeated_ = 0;
  NodeBits used_;
};

}  // namespace graphbox
