// Writing checkpoints: rows are gathered into large buffers by several threads, which write them past the page cache.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "errors/error.h"
#include "io/crc32c.h"
#include "io/file.h"
#include "parallel/parallel_for.h"
#include "table/checkpoint.h"
#include "table/cold_rows.h"
#include "table/table.h"
#include "table/table_tier.h"

namespace graphbox {
namespace {

constexpr std::uint64_t kBatchBytes = std::uint64_t{4} << 20;   // gathered and written at a time by a thread
constexpr std::uint64_t kSmallestPartBytes = std::uint64_t{16} << 20;
constexpr std::uint64_t kLargestPartBytes = std::uint64_t{1} << 30;
constexpr std::uint64_t kUsualParts = 16;
constexpr int kWaitingThreads = 2;  // those that wait for the disk while others gather
constexpr std::uint64_t kParallelParts = 4;  // written side by side: systems let one write lengthen a file at a time
constexpr std::int64_t kGatherDistance = 8;

// How rows are divided: a function of their number and size alone, so that equal tables become equal files.
struct Division {
  Division(std::uint64_t rows, std::uint64_t stride) : all_rows(rows) {
    const std::uint64_t aligned = SegmentWriter::kAlignedRows;
    batch_rows = std::max<std::uint64_t>(kBatchBytes / (aligned * stride), 1) * aligned;
    if (batch_rows * stride > 8 * kBatchBytes) {  // rows so large that batches need not begin at aligned places
      batch_rows = std::max<std::uint64_t>(kBatchBytes / stride, 1);
    }
    const std::uint64_t part_bytes =
        std::clamp(rows * stride / kUsualParts, kSmallestPartBytes, kLargestPartBytes);
    batches_of_part = std::max<std::uint64_t>(part_bytes / (batch_rows * stride), 1);
  }

  std::uint64_t part_rows() const { return batch_rows * batches_of_part; }
  std::uint64_t batches() const { return (all_rows + batch_rows - 1) / batch_rows; }
  std::uint64_t parts() const { return (all_rows + part_rows() - 1) / part_rows(); }
  std::uint64_t rows_of_part(std::uint64_t part) const {
    return std::min(part_rows(), all_rows - part * part_rows());
  }
  // The batch to be written as number `number`: in turn one of each of the next parts. Or batches() and more: none.
  std::uint64_t batch_at(std::uint64_t number) const {
    const std::uint64_t group = number / (kParallelParts * batches_of_part);
    const std::uint64_t place = number % (kParallelParts * batches_of_part);
    const std::uint64_t part = group * kParallelParts + place % kParallelParts;
    return part * batches_of_part + place / kParallelParts;
  }
  // Of batch_at().
  std::uint64_t numbers() const {
    return (parts() + kParallelParts - 1) / kParallelParts * kParallelParts * batches_of_part;
  }

  std::uint64_t all_rows;
  std::uint64_t batch_rows;
  std::uint64_t batches_of_part;
};

std::string part_name(const char* kind, std::uint64_t number) {
  std::array<char, 64> name;
  std::snprintf(name.data(), name.size(), "%s-%05llu.segment", kind, static_cast<unsigned long long>(number));
  return name.data();
}

// A part that is being written.
struct OpenPart {
  std::unique_ptr<SegmentWriter> writer;
  PartChecksum checksum;
  std::uint64_t written = 0;
};

// The parts of a checkpoint, each opened with its first batch and made durable after its last.
class PartsWriter {
 public:
  PartsWriter(std::string folder, const PartRecords& records, const Division& division)
      : folder_(std::move(folder)), records_(records), division_(division), open_(division.parts()),
        parts_(division.parts()) {}

  void write(std::uint64_t batch, const std::int64_t* keys, std::byte* rows, std::uint64_t count) {
    const std::uint64_t number = batch / division_.batches_of_part;
    const std::uint64_t first = batch % division_.batches_of_part * division_.batch_rows;
    SegmentWriter& writer = open(number);
    writer.write(first, keys, rows, count);
    const std::uint32_t checksum = checksum_of_records(rows, writer.info().stride(), count);
    std::unique_ptr<SegmentWriter> finished;
    {
      const std::lock_guard lock(mutex_);
      OpenPart& part = open_[number];
      part.checksum.add(first, count, sizeof(std::uint32_t), checksum);
      part.written += count;
      if (part.written == writer.info().rows) {
        finished = std::move(part.writer);
        parts_[number].crc32c = part.checksum.value();
      }
    }
    if (finished != nullptr) {
      finished->commit(false);
    }
  }

  std::vector<CheckpointPart> parts() const { return parts_; }

 private:
  SegmentWriter& open(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    OpenPart& part = open_[number];
    if (part.writer == nullptr) {
      SegmentInfo info;
      info.rows = division_.rows_of_part(number);
      info.record_bytes = records_.bytes;
      info.layout_digest = records_.digest;
      const std::string name = part_name("rows", number);
      part.writer = std::make_unique<SegmentWriter>(folder_ + "/" + name, info);
      parts_[number] = {name, info.rows, info.file_bytes(), 0, false};
    }
    return *part.writer;
  }

  std::string folder_;
  PartRecords records_;
  Division division_;
  std::mutex mutex_;
  std::vector<OpenPart> open_;
  std::vector<CheckpointPart> parts_;
};

// The row that each batch begins with: those of the set bits, in their order.
std::vector<std::uint32_t> first_rows(const std::vector<std::uint64_t>& selected, std::uint64_t batch_rows) {
  std::vector<std::uint32_t> first;
  std::uint64_t before = 0;
  for (std::size_t word = 0; word < selected.size(); ++word) {
    std::uint64_t bits = selected[word];
    const auto count = static_cast<std::uint64_t>(std::popcount(bits));
    while (first.size() * batch_rows < before + count) {
      const std::uint64_t skipped = first.size() * batch_rows - before;
      std::uint64_t rest = bits;
      for (std::uint64_t i = 0; i < skipped; ++i) {
        rest &= rest - 1;
      }
      first.push_back(static_cast<std::uint32_t>(word * 64 + static_cast<std::size_t>(std::countr_zero(rest))));
    }
    before += count;
  }
  return first;
}

// The numbers of `count` rows from `first` on.
std::vector<std::uint32_t> rows_from(const std::vector<std::uint64_t>& selected, std::uint32_t first,
                                     std::uint64_t count) {
  std::vector<std::uint32_t> rows;
  rows.reserve(count);
  std::size_t word = first / 64;
  std::uint64_t bits = selected[word] & (~std::uint64_t{0} << (first % 64));
  while (rows.size() < count) {
    for (; bits != 0 && rows.size() < count; bits &= bits - 1) {
      rows.push_back(static_cast<std::uint32_t>(word * 64 + static_cast<std::size_t>(std::countr_zero(bits))));
    }
    if (rows.size() < count) {
      bits = selected[++word];
    }
  }
  return rows;
}

void encode_row(std::int64_t key, const std::vector<float>& values, RowContents contents, std::byte* record) {
  if (!encode_values(values, contents, record)) {
    throw Error(ErrorKind::kData, "the row holds NaN or infinity, which cannot be saved for serving as this type",
                "key " + std::to_string(key), "save float32 rows, or erase the key");
  }
}

CheckpointPart write_erased(const std::string& folder, const std::vector<std::int64_t>& keys) {
  SegmentInfo info;
  info.kind = SegmentKind::kErasedKeys;
  info.rows = keys.size();
  const std::string name = part_name("erased", 0);
  SegmentWriter writer(folder + "/" + name, info);
  writer.write(0, keys.data(), nullptr, info.rows);
  writer.commit(false);
  return {name, info.rows, info.file_bytes(), crc32c(0, keys.data(), keys.size() * sizeof(std::int64_t)), true};
}

}  // namespace

std::vector<CheckpointPart> Table::write_checkpoint(const CheckpointRequest& request) {
  if (request.folder.empty()) {
    throw Error(ErrorKind::kUsage, "expected the path of a folder, received nothing", "folder");
  }
  const std::lock_guard saving(saving_);
  std::unique_lock<std::mutex> moving;
  if (tier_ != nullptr) {
    moving = std::unique_lock(tier_->moving);  // rows on SSD stay where they are, and all of them are in files
    const std::unique_lock lock(mutex_);
    tier_->cold.write_all();
  }
  const std::shared_lock lock(mutex_);
  ChangeTracker* const changes = request.chain < 0 ? nullptr : &tracker(request.chain);
  if (request.is_delta && (changes == nullptr || !changes->is_on())) {
    throw Error(ErrorKind::kDoesNotFit,
                "the keys erased since the last checkpoint of the chain had no room in memory_bytes, so the changes are "
                "not known",
                {}, "save a base");
  }
  std::vector<std::uint64_t> selected = live_;
  if (request.is_delta) {
    for (std::size_t word = 0; word < selected.size(); ++word) {
      selected[word] &= word < changes->changed_rows().size() ? changes->changed_rows()[word] : 0;
    }
  }
  std::vector<CheckpointPart> parts = write_rows(request, selected);
  if (tier_ != nullptr) {
    const std::vector<CheckpointPart> cold =
        write_cold_rows(request, request.is_delta ? changes->first_sequence() : 0);
    parts.insert(parts.end(), cold.begin(), cold.end());
  }
  if (request.is_delta) {
    const std::vector<std::int64_t> erased = erased_since(*changes);
    if (!erased.empty()) {
      parts.push_back(write_erased(request.folder, erased));
    }
  }
  if (changes != nullptr) {
    // Nothing changes meanwhile: whatever changes rows waits for the lock.
    const std::lock_guard following(following_);
    changes->is_on() ? changes->begin_next(next_sequence()) : changes->begin_first(slab_.rows(), next_sequence());
  }
  return parts;
}

// Writes the rows of the set bits.
std::vector<CheckpointPart> Table::write_rows(const CheckpointRequest& request,
                                              const std::vector<std::uint64_t>& selected) const {
  const PartRecords records = part_records(request.contents);
  const std::uint64_t stride = records.bytes + sizeof(std::uint32_t);
  std::uint64_t count = 0;
  for (const std::uint64_t word : selected) {
    count += static_cast<std::uint64_t>(std::popcount(word));
  }
  const Division division(count, stride);
  const std::vector<std::uint32_t> first = first_rows(selected, division.batch_rows);
  PartsWriter writer(request.folder, records, division);
  const int threads = bounded_threads(request.threads) + kWaitingThreads;
  parallel_for(threads, static_cast<std::int64_t>(division.numbers()), [&](std::int64_t number) {
    const std::uint64_t batch = division.batch_at(static_cast<std::uint64_t>(number));
    if (batch >= division.batches()) {
      return;
    }
    const std::vector<std::uint32_t> rows = rows_from(
        selected, first[batch], std::min(division.batch_rows, count - batch * division.batch_rows));
    PooledArray<std::int64_t> keys(static_cast<std::int64_t>(rows.size()));
    PooledArray<std::byte> bytes(static_cast<std::int64_t>(rows.size() * stride));
    gather(rows, request.contents, stride, keys.data(), bytes.data());
    writer.write(batch, keys.data(), bytes.data(), rows.size());
  });
  return writer.parts();
}

// Writes the rows that are on SSD in segments from a sequence number on: a part for each, with those of its rows that
// are not in memory as well.
std::vector<CheckpointPart> Table::write_cold_rows(const CheckpointRequest& request,
                                                   std::uint64_t first_sequence) const {
  const PartRecords records = part_records(request.contents);
  const std::uint64_t stride = records.bytes + sizeof(std::uint32_t);
  std::vector<CheckpointPart> parts;
  std::vector<float> values(config_.dim);
  for (const auto& segment : tier_->cold.segments()) {
    if (segment == nullptr || segment->live_rows == 0 || segment->sequence < first_sequence) {
      continue;
    }
    std::vector<std::int64_t> keys;
    PooledArray<std::byte> rows(static_cast<std::int64_t>(segment->live_rows * stride));
    tier_->cold.visit_live(*segment, [&](std::int64_t key, std::uint32_t location, const std::byte* record) {
      if (find(key) != location) {
        return;
      }
      std::byte* const row = rows.data() + keys.size() * stride;
      keys.push_back(key);
      if (request.contents == RowContents::kRecords) {
        std::memcpy(row, record, records.bytes);
        return;
      }
      slab_.copy_record_values(record, values.data());
      encode_row(key, values, request.contents, row);
    });
    if (keys.empty()) {
      continue;
    }
    SegmentInfo info;
    info.rows = keys.size();
    info.record_bytes = records.bytes;
    info.layout_digest = records.digest;
    const std::string name = part_name("cold", parts.size());
    SegmentWriter writer(request.folder + "/" + name, info);
    writer.write(0, keys.data(), rows.data(), info.rows);
    writer.commit(false);
    parts.push_back({name, info.rows, info.file_bytes(), checksum_of_records(rows.data(), stride, info.rows), false});
  }
  return parts;
}

void Table::gather(const std::vector<std::uint32_t>& rows, RowContents contents, std::uint64_t stride,
                   std::int64_t* keys, std::byte* records) const {
  std::vector<float> values(config_.dim);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i + kGatherDistance < rows.size()) {
      slab_.prefetch_row(rows[i + kGatherDistance]);
    }
    keys[i] = slab_.key(rows[i]);
    std::byte* const record = records + i * stride;
    if (contents == RowContents::kRecords) {
      slab_.write_record(rows[i], record);
      continue;
    }
    slab_.copy_values(rows[i], values.data());
    encode_row(keys[i], values, contents, record);
  }
}

// The keys that were there and are not any more, each once, in order.
std::vector<std::int64_t> Table::erased_since(const ChangeTracker& changes) const {
  std::vector<std::int64_t> erased = changes.erased_keys();
  std::sort(erased.begin(), erased.end());
  erased.erase(std::unique(erased.begin(), erased.end()), erased.end());
  std::erase_if(erased, [&](std::int64_t key) { return find(key) != kNoRow; });
  return erased;
}

// --- Who follows the changes -----------------------------------------------------------------------------------------

ChangeTracker& Table::tracker(int chain) {
  if (chain < 0 || chain >= kChains) {
    throw Error(ErrorKind::kUsage, "expected a chain from 0 to " + std::to_string(kChains - 1) + ", received " +
                                       std::to_string(chain));
  }
  return trackers_[static_cast<std::size_t>(chain)];
}

std::uint64_t Table::next_sequence() const { return tier_ != nullptr ? tier_->cold.next_sequence() : 0; }

std::uint64_t Table::followed_bytes(std::uint64_t rows) const {
  std::uint64_t bytes = 0;
  for (const ChangeTracker& changes : trackers_) {
    bytes += changes.bytes_for(rows);
  }
  return bytes;
}

// Erasing is never refused: where the budget has no room for the key, the chain ends instead.
void Table::note_erased(std::int64_t key) {
  for (ChangeTracker& changes : trackers_) {
    changes.erase(key);
  }
  // A table with rows on SSD evicts some for it with the next batch.
  if (tier_ == nullptr && bytes_now() > config_.memory_bytes) {
    for (ChangeTracker& changes : trackers_) {
      changes.stop();
    }
  }
}

void Table::track_changes(int chain) {
  std::unique_lock<std::mutex> moving;
  if (tier_ != nullptr) {
    moving = std::unique_lock(tier_->moving);
  }
  const std::unique_lock lock(mutex_);
  if (tier_ != nullptr) {
    tier_->cold.write_all();  // what is there now is in segments that are older than those to come
  }
  tracker(chain).start(slab_.rows(), next_sequence());
}

void Table::confirm_changes(int chain) {
  const std::unique_lock lock(mutex_);
  tracker(chain).confirm();
}

void Table::restore_changes(int chain) {
  const std::unique_lock lock(mutex_);
  tracker(chain).restore();
}

}  // namespace graphbox
