// The rows of a table where they are, for who reads and updates many of them again and again.
#pragma once

#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <vector>

#include "memory/buffer.h"
#include "table/optimizer.h"
#include "table/slab.h"

namespace graphbox {

class Table;

// The rows of keys 0, 1, ..., as one use found them and the next takes them up. Of a table with rows on SSD only those
// of the keys in use count.
struct NumberedRows {
  PooledArray<std::uint32_t> rows;
  std::uint64_t version = 0;  // of the table, see PulledRows
};

// Has the table for itself while it lives. Rows that are missing are created: of keys 0 ... num_keys - 1 where all rows
// are in memory, else of the keys that are named, whose rows are brought into memory.
//
// Rows must be float32: an error where the table keeps others, has policies, or averages gradients.
class RowsInPlace {
 public:
  // `keys`, each once, are those that will be read and updated. Not asked for where all rows are in memory.
  RowsInPlace(Table& table, std::int64_t num_keys, std::span<const std::int64_t> keys, NumberedRows& numbered,
              int threads);

  // Whether rows may be on SSD, so that keys must be named, and for how many rows there is room in memory then.
  static bool needs_keys(const Table& table);
  static std::uint64_t room(const Table& table);

  std::size_t dim() const { return dim_; }

  // Writes the row of a key to `values`. With `is_shared` others may update it meanwhile.
  void read(std::int64_t key, float* values, bool is_shared) const;
  GRAPHBOX_INLINE void ask_for(std::int64_t key) const { slab_.prefetch_row(numbered_.rows[key]); }

  // The updates that the table does, with another learning rate.
  RowUpdate update(float lr) const;

  // Applies gradients[keys.size(), stride] to the rows of different keys, at most kUpdatedRows. With `is_shared` others
  // may do so meanwhile, also to the same rows, of whose changes some may be lost.
  void apply(const RowUpdate& update, std::span<const std::int64_t> keys, const float* gradients, std::size_t stride,
             bool is_shared) const;

 private:
  void apply_shared(const RowUpdate& update, std::uint32_t row, const float* gradient) const;

  std::unique_lock<std::shared_mutex> lock_;
  Table& table_;
  const Slab& slab_;
  const NumberedRows& numbered_;
  std::size_t dim_;
};

}  // namespace graphbox
