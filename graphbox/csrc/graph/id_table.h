// The ids of one node type in memory, numbered by first appearance, with their hash index.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "graph/id_index.h"
#include "graph/id_index_build.h"
#include "graph/ids_view.h"
#include "memory/growing_array.h"

namespace graphbox {

// Ids are added in batches and keep their numbers; the same ids in the same order give the same numbers and the same
// index, however they are cut into batches and whatever the number of threads. Never holds more than `memory_bytes`.
class IdTable {
 public:
  // What a table holds beside the ids and their index.
  static constexpr std::size_t kWorkingBytes = std::size_t{4} << 20;

  IdTable(IdKind kind, std::size_t memory_bytes, int threads);

  std::int64_t size() const { return size_; }
  IdKind kind() const { return kind_; }
  std::size_t held_bytes() const;

  // Makes room for `count` ids more of `text_bytes` bytes of text; false when they could not be held.
  bool reserve(std::int64_t count, std::size_t text_bytes);

  // Numbers the ids that are new, in their order, and writes the number of each id to `found`. Rows whose `valid` (when
  // given) is 0 get -1 and are not added. There must be room for all rows.
  void insert(const IdBatch& batch, const std::uint8_t* valid, std::int64_t* found);

  // The same of the ids at both ends of edges, each source before its target: `found` gets two numbers for each row.
  void insert_pairs(const IdBatch& sources, const IdBatch& targets, const std::uint8_t* valid, std::int64_t* found);

  // Writes the number of each id to `found`, -1 where there is none.
  void find(const IdBatch& batch, const std::uint8_t* valid, std::int64_t* found) const;

  // Gives the index the layout that belongs to the number of ids, in which it is written to disk.
  void settle();

  // All ids, and their index, whose entries are int32, or int64 where there are more than 2^31 ids.
  IdBatch ids() const;
  const IdIndex& index() const { return index_; }

 private:
  std::size_t bytes_with(std::int64_t capacity, std::int64_t ids, std::size_t text_bytes) const;
  std::int64_t capacity_for(std::int64_t wanted, std::size_t text_bytes) const;
  void rebuild(const IndexLayout& layout, bool wide);
  template <typename Held, typename Asked, typename Valid>
  void insert_rows(const Held& held, const Asked& asked, std::int64_t count, const Valid& valid, std::int64_t* found);
  template <typename Entry, typename Held, typename Asked, typename Valid>
  void insert_block(const Held& held, const Asked& asked, const Valid& valid, std::int64_t first, std::int64_t count,
                    std::int64_t* found);
  template <typename Entry, typename Held, typename Asked>
  bool probe_new(const Held& held, const Asked& asked, std::int64_t first, const std::vector<std::uint32_t>& rows,
                 std::int64_t* found);
  void take(std::int64_t id) { integers_.append(id); }
  void take(std::string_view id);

  IdKind kind_;
  std::size_t memory_bytes_;
  int threads_;
  std::int64_t size_ = 0;

  GrowingArray<std::int64_t> integers_;
  GrowingArray<std::int64_t> offsets_;
  GrowingArray<char> text_;

  std::int64_t capacity_ = 0;  // ids up to which the layout of the index is meant to go
  IdIndex index_;
  HashedBlock block_;
  std::vector<std::int64_t> slots_;  // where the new ids of a block have their entries
};

}  // namespace graphbox
