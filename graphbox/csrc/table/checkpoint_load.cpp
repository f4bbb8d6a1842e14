// Loading checkpoints: the keys of a part get their rows in order, then several threads fill the rows of several parts.
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>

#include "errors/error.h"
#include "io/block_reader.h"
#include "io/crc32c.h"
#include "io/read_queue.h"
#include "parallel/parallel_for.h"
#include "table/checkpoint.h"
#include "table/location.h"
#include "table/table.h"
#include "table/table_tier.h"

namespace graphbox {
namespace {

constexpr unsigned kDepth = 8;      // large reads in flight for each thread
constexpr int kWaitingThreads = 2;  // those that wait for the disk while others place keys and fill rows
constexpr std::uint64_t kPlacedRows = 64;  // at a time, which there is room for in any memory beside rows on SSD

// Lets threads through one after another, in the order of their numbers.
class Turns {
 public:
  // False where an earlier one failed: then there is nothing to do any more.
  bool wait(std::int64_t number) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return next_ == number || has_failed_; });
    return !has_failed_;
  }
  void end(std::int64_t number, bool has_failed) {
    {
      const std::lock_guard lock(mutex_);
      next_ = std::max(next_, number + 1);
      has_failed_ = has_failed_ || has_failed;
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t next_ = 0;
  bool has_failed_ = false;
};

[[noreturn]] void throw_twice(std::int64_t key, const std::string& path) {
  throw Error(ErrorKind::kFormat, "key " + std::to_string(key) + " appears twice in the checkpoint", path,
              kRestoreCheckpoint);
}

BackendChoice backend() { return choose_backend(ReadBackend::kAuto, kDepth); }

// Calls visit(first, keys, records, count) for parts of the rows in any order; whoever changes something with them must
// undo it when this throws.
void scan_rows(const SegmentReader& segment, const CheckpointPart& part, const SegmentReader::VisitRows& visit) {
  LentReader reader(backend().backend, kDepth);
  PartChecksum checksum;
  segment.scan(*reader.get(), 0, part.rows,
               [&](std::uint64_t first, const std::int64_t* keys, const std::byte* records, std::uint64_t count) {
                 checksum.add(first, count, sizeof(std::uint32_t),
                              checksum_of_records(records, segment.info().stride(), count));
                 visit(first, keys, records, count);
               });
  if (checksum.value() != part.crc32c) {
    throw_other_content(segment.path(), checksum.value(), part.crc32c);
  }
}

std::vector<std::int64_t> erased_keys(const SegmentReader& segment, const CheckpointPart& part) {
  std::vector<std::int64_t> keys = segment.keys();
  const std::uint32_t checksum = crc32c(0, keys.data(), keys.size() * sizeof(std::int64_t));
  if (checksum != part.crc32c) {
    throw_other_content(segment.path(), checksum, part.crc32c);
  }
  return keys;
}

}  // namespace

void Table::reserve(std::uint64_t rows) {
  std::unique_lock<std::mutex> moving;
  if (tier_ != nullptr) {
    moving = std::unique_lock(tier_->moving);
    const std::unique_lock lock(mutex_);
    make_index_room(rows);
    return;
  }
  const std::unique_lock lock(mutex_);
  make_room(live_rows() + rows);
}

void Table::load_checkpoint(const std::string& folder, const std::vector<CheckpointPart>& parts, bool is_delta,
                            const Shard& shard, int threads) {
  if (shard.number >= shard.count) {
    throw Error(ErrorKind::kUsage,
                "expected the number of a shard and how many there are, received " + std::to_string(shard.number) +
                    " and " + std::to_string(shard.count),
                "shard");
  }
  const PartRecords records = part_records(RowContents::kRecords);
  if (tier_ != nullptr) {
    load_through_tier(folder, parts, is_delta, shard);
    return;
  }
  const std::unique_lock lock(mutex_);
  std::uint64_t most_rows = slab_.rows();
  for (const CheckpointPart& part : parts) {
    most_rows += part.live_rows;
  }
  slab_.reserve(most_rows);  // rows are filled while those of later parts are placed
  Turns turns;
  parallel_for(bounded_threads(threads) + kWaitingThreads, static_cast<std::int64_t>(parts.size()), [&](std::int64_t number) {
    const CheckpointPart& part = parts[static_cast<std::size_t>(number)];
    std::unique_ptr<SegmentReader> segment;
    PooledArray<std::uint32_t> rows;
    try {
      segment = open_part(folder + "/" + part.name, part, records);
      if (!turns.wait(number)) {
        return;
      }
      if (part.is_erased) {
        forget(erased_keys(*segment, part));
      } else {
        rows = place_keys(*segment, part, is_delta, shard);
      }
      turns.end(number, false);
    } catch (...) {
      turns.end(number, true);
      throw;
    }
    if (!part.is_erased) {
      scan_rows(*segment, part,
                [&](std::uint64_t first, const std::int64_t* keys, const std::byte* data, std::uint64_t count) {
                  const std::uint64_t stride = segment->info().stride();
                  for (std::uint64_t i = 0; i < count; ++i) {
                    const std::uint32_t row = rows[static_cast<std::int64_t>(first + i)];
                    if (row != kNoRow) {
                      slab_.key(row) = keys[i];
                      slab_.read_record(row, data + i * stride);
                    }
                  }
                });
    }
  });
}

// Rows leave memory for SSD while others come.
void Table::load_through_tier(const std::string& folder, const std::vector<CheckpointPart>& parts, bool is_delta,
                              const Shard& shard) {
  const PartRecords records = part_records(RowContents::kRecords);
  const std::lock_guard moving(tier_->moving);
  const std::unique_lock lock(mutex_);
  std::fill(tier_->pinned.begin(), tier_->pinned.end(), 0);
  for (const CheckpointPart& part : parts) {
    const auto segment = open_part(folder + "/" + part.name, part, records);
    if (part.is_erased) {
      forget(erased_keys(*segment, part));
      continue;
    }
    const std::uint64_t stride = segment->info().stride();
    scan_rows(*segment, part,
              [&](std::uint64_t first, const std::int64_t* keys, const std::byte* data, std::uint64_t count) {
                for (std::uint64_t i = 0; i < count; ++i) {
                  if (i % kPlacedRows == 0) {
                    const std::uint64_t coming = std::min(count - i, kPlacedRows);
                    make_index_room(coming);
                    make_space(coming, 0);
                  }
                  if (!part.counts(first + i) ||
                      (shard.count > 1 && shard_of(keys[i], shard.count) != shard.number)) {
                    continue;
                  }
                  if (!is_delta && find(keys[i]) != kNoRow) {
                    throw_twice(keys[i], segment->path());
                  }
                  put_record(keys[i], data + i * stride);
                }
              });
  }
}

// Gives the key this row, whatever it had. There must be room.
void Table::put_record(std::int64_t key, const std::byte* record) {
  const std::uint64_t hash = index_.hash(key);
  const std::uint32_t location = index_.find(key, hash);
  std::uint32_t row = location;
  if (!is_hot(location)) {
    row = take_row(is_cold(location) ? 0 : 1);
    slab_.key(row) = key;
    if (is_cold(location)) {
      index_.replace(key, hash, row);
      tier_->cold.drop(location);
      --tier_->cold_rows;
    } else {
      index_.insert(key, hash, row);
    }
  }
  slab_.read_record(row, record);
  note_changed(&row, 1);
}

// The rows of a segment's keys, new ones for those that have none, to be filled with key and record; kNoRow for keys of
// other shards, and for rows that do not count.
PooledArray<std::uint32_t> Table::place_keys(const SegmentReader& segment, const CheckpointPart& part, bool is_delta,
                                             const Shard& shard) {
  PooledArray<std::uint32_t> rows(static_cast<std::int64_t>(segment.info().rows));
  std::fill_n(rows.data(), rows.size(), kNoRow);
  PooledArray<std::int64_t> wanted;
  PooledArray<std::int64_t> places;
  PooledArray<std::uint32_t> wanted_rows;
  segment.scan_keys([&](std::uint64_t first, const std::int64_t* keys, std::uint64_t count) {
    wanted.resize(0);
    places.resize(0);
    std::uint64_t created = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      if (part.counts(first + i) && (shard.count == 1 || shard_of(keys[i], shard.count) == shard.number)) {
        wanted.append(keys[i]);
        places.append(static_cast<std::int64_t>(first + i));
        created += !is_delta || find(keys[i]) == kNoRow ? 1 : 0;
      }
    }
    make_room(live_rows() + created);
    wanted_rows.resize(wanted.size());
    const IsNew is_new = place_together(wanted.data(), wanted.size(), wanted_rows.data(), 1);
    for (std::int64_t i = 0; i < wanted.size(); ++i) {
      if (!is_delta && !is_new[i]) {
        throw_twice(wanted[i], segment.path());
      }
      rows[places[i]] = wanted_rows[i];
    }
  });
  return rows;
}

void Table::forget(const std::vector<std::int64_t>& keys) {
  for (const std::int64_t key : keys) {
    const std::uint32_t row = find(key);
    if (is_hot(row)) {
      give_back(row);
    } else if (is_cold(row)) {
      forget_cold(key, row);
    }
  }
  version_ = new_version();
  ++updates_;
}

// Rows of int8 cannot hold NaN or infinity.
void Table::check_packable(std::int64_t key, const std::byte* record, RowContents contents,
                           std::vector<float>& values) const {
  if (config_.value_type != ValueType::kInt8 || contents == RowContents::kInt8) {
    return;
  }
  decode_values(record, contents, values);
  if (!all_finite(values.data(), values.size())) {
    throw Error(ErrorKind::kData, "the row holds NaN or infinity, which rows of int8 cannot", "key " + std::to_string(key),
                "hold the rows as float32 or float16");
  }
}

// --- Serving ---------------------------------------------------------------------------------------------------------

std::uint64_t Table::check_values(const std::string& folder, const std::vector<CheckpointPart>& parts,
                                  const PartRecords& records, int threads) const {
  if (records.values == RowContents::kRecords || records.bytes < served_bytes(config_.dim, records.values)) {
    throw Error(ErrorKind::kUsage, "expected records with " + std::to_string(config_.dim) +
                                       " values, received those of a table of another dim", "records");
  }
  std::atomic<std::uint64_t> unknown{0};
  parallel_for(threads, static_cast<std::int64_t>(parts.size()), [&](std::int64_t number) {
    const CheckpointPart& part = parts[static_cast<std::size_t>(number)];
    const auto segment = open_part(folder + "/" + part.name, part, records);
    if (part.is_erased) {
      erased_keys(*segment, part);
      return;
    }
    std::vector<float> values(config_.dim);
    scan_rows(*segment, part,
              [&](std::uint64_t first, const std::int64_t* keys, const std::byte* data, std::uint64_t count) {
                const std::shared_lock lock(mutex_);
                for (std::uint64_t i = 0; i < count; ++i) {
                  if (part.counts(first + i)) {
                    unknown += find(keys[i]) == kNoRow ? 1 : 0;
                    check_packable(keys[i], data + i * segment->info().stride(), records.values, values);
                  }
                }
              });
  });
  return unknown;
}

void Table::apply_values(const std::string& folder, const std::vector<CheckpointPart>& parts,
                         const PartRecords& records, int threads) {
  reserve(check_values(folder, parts, records, threads));
  parallel_for(threads, static_cast<std::int64_t>(parts.size()), [&](std::int64_t number) {
    const CheckpointPart& part = parts[static_cast<std::size_t>(number)];
    const auto segment = open_part(folder + "/" + part.name, part, records);
    if (part.is_erased) {
      const std::vector<std::int64_t> keys = erased_keys(*segment, part);
      const std::unique_lock lock(mutex_);
      forget(keys);
      return;
    }
    std::vector<float> values(config_.dim);
    scan_rows(*segment, part,
              [&](std::uint64_t first, const std::int64_t* keys, const std::byte* data, std::uint64_t count) {
                const std::unique_lock lock(mutex_);
                for (std::uint64_t i = 0; i < count; ++i) {
                  if (!part.counts(first + i)) {
                    continue;
                  }
                  const std::byte* const record = data + i * segment->info().stride();
                  decode_values(record, records.values, values);
                  const std::uint32_t row = set_row(keys[i], values.data());
                  if (config_.value_type == ValueType::kInt8 && records.values == RowContents::kInt8) {
                    std::memcpy(slab_.data(row), record, slab_.layout().value_bytes);  // rounded once is enough
                  }
                }
              });
  });
}

// Gives the key these values, and the state that new rows have.
std::uint32_t Table::set_row(std::int64_t key, const float* values) {
  std::uint32_t row = find(key);
  if (row == kNoRow) {
    row = take_row();
    slab_.key(row) = key;
    index_.insert(key, index_.hash(key), row);
  }
  slab_.set_values(row, values);
  initialize_state(row);
  ++updates_;
  return row;
}

}  // namespace graphbox
