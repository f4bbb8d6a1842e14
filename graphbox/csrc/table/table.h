// The embedding table in memory: rows of float32 for any 64-bit keys, with their optimizer state.
//
// Layout of a row: header (key, row-wise state), values, state of each value. Rows are dense: the row of an erased
// key is filled with the last row. So the table can be written, listed and checkpointed in one sweep.
//
// Same results for any number of threads: new keys get rows in the order of the batch, gradients of a key are summed
// in the order of the batch, and a new row is a function of (seed, key) alone.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <shared_mutex>
#include <string>
#include <vector>

#include "memory/buffer.h"
#include "random/philox.h"
#include "table/optimizer.h"
#include "table/row_index.h"
#include "table/slab.h"

namespace graphbox {

class FileReader;

struct TableConfig {
  std::uint64_t dim = 0;
  OptimizerConfig optimizer;
  float init_scale = 0.0F;  // new values are uniform in [-init_scale, init_scale)
  std::uint64_t seed = 0;
  std::uint64_t memory_bytes = std::numeric_limits<std::uint64_t>::max();
};

// Thread safe: pulls go on side by side, whatever changes the table waits for them.
class Table {
 public:
  explicit Table(const TableConfig& config);

  // Writes the rows of `count` keys to out[count, dim]. Unknown keys get a row, or with create = false only their
  // initial values are written.
  void pull(const std::int64_t* keys, std::int64_t count, float* out, bool create, int threads);

  // Sums (or averages) the gradients[count, dim] of equal keys and applies them; unknown keys get a row first.
  void push(const std::int64_t* keys, const float* gradients, std::int64_t count, int threads);

  void contains(const std::int64_t* keys, std::int64_t count, bool* out, int threads) const;
  std::int64_t erase(const std::int64_t* keys, std::int64_t count);
  PooledArray<std::int64_t> keys() const;  // in the order of rows

  std::uint64_t rows() const;
  std::uint64_t bytes() const;
  TableConfig config() const;
  void set_lr(float lr);

  void save(const std::string& path) const;
  static std::unique_ptr<Table> load(const std::string& path, std::uint64_t memory_bytes);

 private:
  template <bool kWholeRow, typename Visit>
  void locate(const std::int64_t* keys, std::int64_t begin, std::int64_t end, Visit visit) const;
  std::uint32_t find(std::int64_t key) const;
  std::uint32_t find(std::int64_t key, std::uint32_t fingerprint) const;

  void insert_missing(const std::int64_t* keys, const std::vector<std::int64_t>& missing, std::uint32_t* rows,
                      int threads);
  void make_room(std::uint64_t rows);
  void remove_rows_from(std::uint64_t first);
  void check_budget(std::uint64_t bytes, std::uint64_t rows) const;
  std::uint64_t load_block(const FileReader& file, std::uint64_t offset, std::uint64_t begin, std::uint64_t end);
  void initialize_values(std::int64_t key, float* values) const;
  void initialize_rows(std::uint64_t begin, std::uint64_t end, int threads);
  RowState state(std::uint32_t row) const;
  void apply(const std::uint32_t* rows, const float* gradients, std::int64_t count, int threads);
  void apply_group(const std::uint32_t* rows, const float* gradients, const std::uint32_t* positions,
                   std::int64_t count);

  TableConfig config_;
  PhiloxKey init_key_;
  RowUpdate update_;
  RowIndex index_;
  Slab slab_;
  mutable std::shared_mutex mutex_;
};

}  // namespace graphbox
