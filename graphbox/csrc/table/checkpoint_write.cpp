// Writing checkpoints: rows are gathered into large buffers by several threads, which write them past the page cache.
#include <algorithm>
#include <bit>
#include <mutex>
#include <utility>

#include "errors/error.h"
#include "parallel/parallel_for.h"
#include "table/checkpoint.h"
#include "table/cold_rows.h"
#include "table/table.h"
#include "table/table_tier.h"
#include "table/tier_snapshot.h"

namespace graphbox {
namespace {

constexpr std::uint64_t kBatchBytes = std::uint64_t{4} << 20;   // gathered and written at a time by a thread
constexpr std::uint64_t kSmallestPartBytes = std::uint64_t{16} << 20;
constexpr std::uint64_t kLargestPartBytes = std::uint64_t{1} << 30;
constexpr std::uint64_t kUsualParts = 16;
constexpr int kWaitingThreads = 2;  // those that wait for the disk while others gather
constexpr std::uint64_t kParallelParts = 4;  // written side by side: systems let one write lengthen a file at a time
constexpr std::int64_t kGatherDistance = 8;

// Division of rows: a function of their number and size alone, so that equal tables become equal files.
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

// A part that is being written.
struct OpenPart {
  std::unique_ptr<SegmentWriter> writer;
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
    std::unique_ptr<SegmentWriter> finished;
    {
      const std::lock_guard lock(mutex_);
      OpenPart& part = open_[number];
      part.written += count;
      if (part.written == writer.info().rows) {
        finished = std::move(part.writer);
      }
    }
    if (finished != nullptr) {
      finished->commit(false);
      parts_[number].crc32c = finished->content_crc32c();
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
      parts_[number] = {name, info.rows, info.rows, info.file_bytes(), 0, false};
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

CheckpointPart write_erased(const std::string& folder, const std::vector<std::int64_t>& keys) {
  SegmentInfo info;
  info.kind = SegmentKind::kErasedKeys;
  info.rows = keys.size();
  const std::string name = part_name("erased", 0);
  SegmentWriter writer(folder + "/" + name, info);
  writer.write(0, keys.data(), nullptr, info.rows);
  writer.commit(false);
  return {name, info.rows, info.rows, info.file_bytes(), writer.content_crc32c(), true};
}

}  // namespace

// A table that is being saved, from the moment it is saved as of.
struct Table::Saving {
  const CheckpointRequest& request;
  std::unique_lock<std::mutex> one_at_a_time{};
  std::shared_lock<std::shared_mutex> unchanged{};  // of a table in memory, until all is written
  std::unique_ptr<TierSnapshot> snapshot{};
  std::vector<std::int64_t> erased{};
  WrittenCheckpoint written{};
};

// A table in memory does not change until it is written: whatever changes it waits, lookups of known keys go on. Of one
// with rows on SSD all changed rows go to segments, most of them before the moment, and what segments hold then is
// noted: that does not change, so everything else goes on.
WrittenCheckpoint Table::write_checkpoint(const CheckpointRequest& request) {
  if (request.folder.empty()) {
    throw Error(ErrorKind::kUsage, "expected the path of a folder, received nothing", "folder");
  }
  Saving saving{request};
  saving.one_at_a_time = std::unique_lock(saving_);
  if (tier_ != nullptr) {
    write_changed_in_parts();
    const std::unique_lock moving(tier_->moving);
    const std::unique_lock alone(mutex_);
    begin_saving(saving);
  } else {
    saving.unchanged = std::shared_lock(mutex_);
    begin_saving(saving);
  }
  finish_saving(saving);
  return std::move(saving.written);
}

// At the moment: notes what does not wait for the rows to be written.
void Table::begin_saving(Saving& saving) {
  const CheckpointRequest& request = saving.request;
  ChangeTracker* const changes = request.chain < 0 ? nullptr : &tracker(request.chain);
  if (request.is_delta && (changes == nullptr || !changes->is_on())) {
    throw Error(ErrorKind::kDoesNotFit,
                "the keys erased since the last checkpoint of the chain had no room in memory_bytes, so the changes are "
                "not known",
                {}, "save a base");
  }
  saving.written.lr = config_.optimizer.lr;
  saving.written.changes = updates_;
  if (request.is_delta) {
    saving.erased = erased_since(*changes);
  }
  if (tier_ != nullptr) {
    saving.snapshot = take_snapshot(request);
  }
  if (request.contents == RowContents::kRecords) {
    saving.written.policy_state = take_policy_state(request);
  }
  if (tier_ != nullptr && changes != nullptr) {
    begin_changes(*changes);
  }
}

void Table::finish_saving(Saving& saving) {
  const CheckpointRequest& request = saving.request;
  WrittenCheckpoint& written = saving.written;
  if (saving.snapshot != nullptr) {
    write_snapshot(request, *saving.snapshot, written);
    saving.snapshot = nullptr;
  } else {
    std::vector<std::uint64_t> selected = live_;
    ChangeTracker* const changes = request.chain < 0 ? nullptr : &tracker(request.chain);
    if (request.is_delta) {
      for (std::size_t word = 0; word < selected.size(); ++word) {
        selected[word] &= word < changes->changed_rows().size() ? changes->changed_rows()[word] : 0;
      }
    }
    written.parts = write_rows(request, selected);
    if (changes != nullptr) {
      // Nothing changes meanwhile: whatever changes rows waits for the lock.
      const std::lock_guard following(following_);
      begin_changes(*changes);
    }
    saving.unchanged.unlock();
  }
  if (!saving.erased.empty()) {
    written.parts.push_back(write_erased(request.folder, saving.erased));
  }
  saving.one_at_a_time.unlock();
}

// Assigns changes from now on to the next checkpoint of the chain, which may be its first.
void Table::begin_changes(ChangeTracker& changes) {
  if (changes.is_on()) {
    changes.begin_next(next_sequence());
    return;
  }
  follow(changes);
  changes.await_first();
}

void Table::follow(ChangeTracker& changes) {
  if (tier_ != nullptr) {
    changes.follow_segments(next_sequence());
  } else {
    changes.follow_rows(slab_.rows());
  }
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

// Erasing is never refused: where the key finds no room, the chain ends instead. Of a table that drops rows a share of
// memory is set aside for these keys; one with rows on SSD evicts some for them with the next batch.
void Table::note_erased(std::int64_t key, std::uint32_t row) {
  for (ChangeTracker& changes : trackers_) {
    if (!changes.is_on()) {
      continue;
    }
    if (const std::size_t growth = changes.growth_bytes(); growth > 0 && !is_room_to_follow(growth)) {
      changes.stop();
    } else if (row != kNoRow) {
      changes.erase(key, row);
    } else {
      changes.erase(key);
    }
  }
}

bool Table::is_room_to_follow(std::uint64_t more_bytes) const {
  if (tier_ != nullptr || drops_rows()) {
    return followed_bytes(slab_.rows()) + more_bytes <= most_followed_bytes();
  }
  return bytes_now() + more_bytes <= config_.memory_bytes;
}

void Table::track_changes(int chain) {
  std::unique_lock<std::mutex> moving;
  if (tier_ != nullptr) {
    moving = std::unique_lock(tier_->moving);
  }
  const std::unique_lock lock(mutex_);
  if (tier_ != nullptr) {
    write_changed(0, slab_.rows());  // what is there now is in segments that are older than those to come
    tier_->cold.seal_open();
  }
  follow(tracker(chain));
  if (chain == kTrainingChain) {
    admission_.follow(KeyAdmission::kChain);
  }
}

void Table::confirm_changes(int chain) {
  const std::unique_lock lock(mutex_);
  tracker(chain).confirm();
  if (chain == kTrainingChain) {
    admission_.confirm(KeyAdmission::kChain);
  }
}

void Table::restore_changes(int chain) {
  const std::unique_lock lock(mutex_);
  tracker(chain).restore();
  if (chain == kTrainingChain) {
    admission_.restore(KeyAdmission::kChain);
  }
}

}  // namespace graphbox
