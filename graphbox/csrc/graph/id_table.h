// The ids of one node type in memory, numbered by first appearance, and found by their hash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "graph/id_buckets.h"
#include "graph/id_index_build.h"
#include "graph/ids_view.h"
#include "memory/growing_array.h"

namespace graphbox {

// Ids are added in batches and keep their numbers; the same ids in the same order give the same numbers, however they
// are cut into batches and whatever the number of threads. Never holds more than `memory_bytes`.
class IdTable {
 public:
  // Memory of a table beside the ids and their buckets.
  static constexpr std::size_t kWorkingBytes = std::size_t{4} << 20;

  IdTable(IdKind kind, std::size_t memory_bytes, int threads);

  std::int64_t size() const { return size_; }
  IdKind kind() const { return kind_; }
  std::size_t held_bytes() const { return bytes_with(capacity_, size_, text_.size()); }

  // Makes sure of room for `count` ids more of `text_bytes` bytes of text; false when they could not be held.
  bool reserve(std::int64_t count, std::size_t text_bytes);

  // Numbers the ids that are new, in their order, and writes the number of each id to `found`. Rows whose `valid` (when
  // given) is 0 get -1 and are not added. There must be room for all rows.
  void insert(const IdBatch& batch, const std::uint8_t* valid, std::int64_t* found);

  // The same of the ids at both ends of edges, each source before its target: `found` gets two numbers for each row.
  void insert_pairs(const IdBatch& sources, const IdBatch& targets, const std::uint8_t* valid, std::int64_t* found);

  // Writes the number of each id to `found`, -1 where there is none.
  void find(const IdBatch& batch, const std::uint8_t* valid, std::int64_t* found) const;

  // All ids.
  IdBatch ids() const;

  // Makes the index that is written to disk, in place of the buckets: nothing can be added or found after it.
  IdIndex into_index();

 private:
  struct NewRow {
    std::uint64_t hash;
    std::int64_t row;
  };

  static std::size_t bytes_with(std::int64_t capacity, std::int64_t ids, std::size_t text_bytes);
  std::int64_t capacity_for(std::int64_t wanted, std::size_t text_bytes) const;
  void grow();
  template <typename Asked, typename Valid>
  void insert_rows(const Asked& asked, std::int64_t count, const Valid& valid, std::int64_t* found);
  template <typename Held, typename Asked, typename Valid>
  void insert_block(const Held& held, const Asked& asked, std::int64_t first, std::int64_t count, const Valid& valid,
                    std::int64_t* found);
  template <typename Held, typename Asked, typename Missing>
  void search(const Held& held, const Asked& asked, std::int64_t first, std::int64_t end, std::int64_t* found,
              const Missing& missing) const;
  void take(std::int64_t id) { integers_.append(id); }
  void take(std::string_view id);

  IdKind kind_;
  std::size_t memory_bytes_;
  int threads_;
  std::int64_t size_ = 0;

  GrowingArray<std::int64_t> integers_;
  GrowingArray<std::int64_t> offsets_;
  GrowingArray<char> text_;

  std::int64_t capacity_ = 0;  // ids that the buckets are meant for
  std::int64_t reserved_ = 0;  // ids that were promised room
  IdBuckets buckets_;
  std::vector<std::vector<NewRow>> new_rows_;  // of each chunk of a block
};

}  // namespace graphbox
