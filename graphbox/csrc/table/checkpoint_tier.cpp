// Checkpoints of tables with rows on SSD: segments are immutable, so they are linked where they mostly count, and what
// else must be written is read from them, while the table goes on.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "errors/error.h"
#include "io/block_reader.h"
#include "io/file.h"
#include "io/read_queue.h"
#include "parallel/parallel_for.h"
#include "table/checkpoint.h"
#include "table/cold_rows.h"
#include "table/table.h"
#include "table/table_tier.h"
#include "table/tier_snapshot.h"

namespace graphbox {
namespace {

constexpr std::uint64_t kCopiedPartBytes = std::uint64_t{16} << 20;
constexpr unsigned kDepth = 8;      // large reads in flight for each thread
constexpr int kWaitingThreads = 2;  // those that wait for the disk while others copy

// Makes `to` another name of the file. False where the file system cannot, or not between these two places.
bool link_file(const std::string& from, const std::string& to) {
  if (::link(from.c_str(), to.c_str()) == 0) {
    return true;
  }
  constexpr std::array<int, 6> kImpossible = {EXDEV, EPERM, EMLINK, EOPNOTSUPP, ENOSYS, EACCES};
  if (std::find(kImpossible.begin(), kImpossible.end(), errno) == kImpossible.end()) {
    throw_system_error("cannot link the segment " + from, to);
  }
  return false;
}

// Reading past the rest costs less than its room on the disk is worth.
bool is_worth_linking(const SegmentAtMoment& segment) { return segment.live_rows * 2 >= segment.rows; }

}  // namespace

namespace {

// The rows of the segment that count; of a delta those that changed.
SegmentAtMoment at_moment(const std::shared_ptr<ColdSegment>& segment, const CheckpointRequest& request) {
  SegmentAtMoment rows{segment, segment->rows, 0, segment->is_damaged, segment->live};
  rows.live.resize((segment->rows + 63) / 64);
  if (request.is_delta) {
    const std::vector<std::uint64_t>& moved = segment->moved[static_cast<std::size_t>(request.chain)];
    for (std::size_t word = 0; word < std::min(moved.size(), rows.live.size()); ++word) {
      rows.live[word] &= ~moved[word];
    }
  }
  for (const std::uint64_t word : rows.live) {
    rows.live_rows += static_cast<std::uint32_t>(std::popcount(word));
  }
  return rows;
}

}  // namespace

// Of the moment: the table is locked for this.
std::unique_ptr<TierSnapshot> Table::take_snapshot(const CheckpointRequest& request) {
  write_changed(0, slab_.rows());
  ColdRows& cold = tier_->cold;
  cold.seal_open();
  const std::uint64_t first_sequence = request.is_delta ? tracker(request.chain).first_sequence() : 0;
  auto snapshot = std::make_unique<TierSnapshot>();
  snapshot->held = cold.hold_files();
  snapshot->has_erased = !tier_->erased.empty() || cold.has_erased();
  for (const auto& segment : cold.segments()) {
    if (segment != nullptr && segment->live_rows > 0 && segment->sequence >= first_sequence) {
      SegmentAtMoment rows = at_moment(segment, request);
      if (rows.live_rows > 0) {
        snapshot->segments.push_back(std::move(rows));
      }
    }
  }
  std::sort(snapshot->segments.begin(), snapshot->segments.end(),
            [](const auto& a, const auto& b) { return a.segment->sequence < b.segment->sequence; });
  return snapshot;
}

// Whether rows that do not count are of keys that are not in the table any more: a checkpoint must not hold them.
bool Table::holds_erased(const SegmentReader& file, const std::vector<std::uint64_t>& live) const {
  bool holds = false;
  file.scan_keys([&](std::uint64_t first, const std::int64_t* keys, std::uint64_t count) {
    const std::shared_lock lock(mutex_);
    for (std::uint64_t i = 0; i < count && !holds; ++i) {
      const std::uint64_t place = first + i;
      holds = (live[place / 64] >> (place % 64) & 1) == 0 && find(keys[i]) == kNoRow;
    }
  });
  return holds;
}

// Without the table's lock: nothing here changes any more.
void Table::write_snapshot(const CheckpointRequest& request, const TierSnapshot& snapshot,
                           WrittenCheckpoint& written) {
  std::vector<const SegmentAtMoment*> copied;
  bool can_link = request.contents == RowContents::kRecords;
  for (const SegmentAtMoment& segment : snapshot.segments) {
    const std::shared_ptr<const SegmentReader> file = tier_->cold.written(*segment.segment);
    const bool has_dead = segment.live_rows < segment.rows;
    const bool is_worth = request.contents == RowContents::kRecords && is_worth_linking(segment) &&
                          !segment.is_damaged && !(has_dead && snapshot.has_erased && holds_erased(*file, segment.live));
    const std::string name = part_name("cold", written.linked_files);
    can_link = can_link && (!is_worth || link_file(file->path(), request.folder + "/" + name));
    if (!is_worth || !can_link) {
      written.copied_files += is_worth ? 1 : 0;
      copied.push_back(&segment);
      continue;
    }
    ++written.linked_files;
    written.parts.push_back({name, segment.rows, segment.live_rows, file->info().file_bytes(), file->content_crc32c(),
                             false, has_dead ? segment.live : std::vector<std::uint64_t>()});
  }
  const std::vector<CheckpointPart> parts = copy_segments(request, copied);
  written.parts.insert(written.parts.end(), parts.begin(), parts.end());
}

namespace {

// Segments whose rows that count become one part.
struct CopiedPart {
  std::size_t begin;
  std::size_t end;
  std::uint64_t rows;
};

std::vector<CopiedPart> divide(const std::vector<const SegmentAtMoment*>& segments, std::uint64_t stride) {
  std::vector<CopiedPart> parts;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    if (parts.empty() || parts.back().rows * stride >= kCopiedPartBytes) {
      parts.push_back({i, i, 0});
    }
    parts.back().end = i + 1;
    parts.back().rows += segments[i]->live_rows;
  }
  return parts;
}

// Number of live rows before each word of the bits.
std::vector<std::uint64_t> counts_before(const std::vector<std::uint64_t>& live) {
  std::vector<std::uint64_t> before(live.size());
  std::uint64_t count = 0;
  for (std::size_t word = 0; word < live.size(); ++word) {
    before[word] = count;
    count += static_cast<std::uint64_t>(std::popcount(live[word]));
  }
  return before;
}

}  // namespace

std::vector<CheckpointPart> Table::copy_segments(const CheckpointRequest& request,
                                                 const std::vector<const SegmentAtMoment*>& segments) const {
  const PartRecords records = part_records(request.contents);
  const std::uint64_t stride = records.bytes + sizeof(std::uint32_t);
  const std::vector<CopiedPart> divided = divide(segments, stride);
  std::vector<CheckpointPart> parts(divided.size());
  const int threads = bounded_threads(request.threads) + kWaitingThreads;
  parallel_for(threads, static_cast<std::int64_t>(parts.size()), [&](std::int64_t number) {
    const CopiedPart& part = divided[static_cast<std::size_t>(number)];
    SegmentInfo info;
    info.rows = part.rows;
    info.record_bytes = records.bytes;
    info.layout_digest = records.digest;
    const std::string name = part_name("copied", static_cast<std::uint64_t>(number));
    SegmentWriter writer(request.folder + "/" + name, info);
    std::uint64_t first = 0;
    for (std::size_t i = part.begin; i < part.end; ++i) {
      copy_segment(*segments[i], request.contents, first, writer);
      first += segments[i]->live_rows;
    }
    writer.commit(false);
    parts[static_cast<std::size_t>(number)] = {name, info.rows, info.rows, info.file_bytes(), writer.content_crc32c(), false};
  });
  return parts;
}

// Writes the rows of a segment that count, from place `first` of the new one on.
void Table::copy_segment(const SegmentAtMoment& segment, RowContents contents, std::uint64_t first,
                         SegmentWriter& writer) const {
  const std::shared_ptr<const SegmentReader> file = tier_->cold.file_of(*segment.segment);
  const std::uint64_t stride = writer.info().stride();
  const std::vector<std::uint64_t> before = counts_before(segment.live);
  std::vector<std::int64_t> kept;
  PooledArray<std::byte> rows;
  std::vector<float> values(config_.dim);
  const LentReader reader(choose_backend(ReadBackend::kAuto, kDepth).backend, kDepth);
  file->scan(*reader.get(), 0, segment.rows,
             [&](std::uint64_t begin, const std::int64_t* keys, const std::byte* data, std::uint64_t count) {
               kept.clear();
               rows.resize(static_cast<std::int64_t>(count * stride));
               for (std::uint64_t i = 0; i < count; ++i) {
                 const std::uint64_t place = begin + i;
                 if ((segment.live[place / 64] >> (place % 64) & 1) == 0) {
                   continue;
                 }
                 std::byte* const row = rows.data() + kept.size() * stride;
                 const std::byte* const record = data + i * file->info().stride();
                 kept.push_back(keys[i]);
                 if (contents == RowContents::kRecords) {
                   std::memcpy(row, record, writer.info().record_bytes);
                   continue;
                 }
                 slab_.copy_record_values(record, values.data());
                 encode_row(keys[i], values, contents, row);
               }
               if (!kept.empty()) {
                 const std::uint64_t below = segment.live[begin / 64] & ((std::uint64_t{1} << (begin % 64)) - 1);
                 const std::uint64_t rank = before[begin / 64] + static_cast<std::uint64_t>(std::popcount(below));
                 writer.write(first + rank, kept.data(), rows.data(), kept.size());
               }
             });
}

// --- Going through the keys ------------------------------------------------------------------------------------------

KeyScan Table::begin_key_scan() const {
  const std::shared_lock lock(mutex_);
  KeyScan scan;
  for (std::uint32_t row = 0; row < slab_.rows(); ++row) {
    if (is_live(row) && tier_->homes[row] == kNoRow) {
      scan.keys_.push_back(slab_.key(row));
    }
  }
  for (const auto& segment : tier_->cold.segments()) {
    if (segment == nullptr || segment->live_rows == 0) {
      continue;
    }
    const std::vector<std::int64_t> keys = tier_->cold.live_keys_in_memory(*segment);
    scan.keys_.insert(scan.keys_.end(), keys.begin(), keys.end());
    if (keys.empty()) {
      scan.segments_.push_back({tier_->cold.file_of(*segment), segment->live, segment->sequence});
    }
  }
  std::sort(scan.segments_.begin(), scan.segments_.end(),
            [](const auto& a, const auto& b) { return a.sequence < b.sequence; });
  return scan;
}

std::vector<std::int64_t> KeyScan::next(std::size_t most) {
  while (keys_.size() - begin_ < most && segment_ < segments_.size()) {
    keys_.erase(keys_.begin(), keys_.begin() + static_cast<std::ptrdiff_t>(begin_));
    begin_ = 0;
    Segment& segment = segments_[segment_++];
    segment.file->scan_keys([&](std::uint64_t first, const std::int64_t* keys, std::uint64_t count) {
      for (std::uint64_t i = 0; i < count; ++i) {
        if ((segment.live[(first + i) / 64] >> ((first + i) % 64) & 1) != 0) {
          keys_.push_back(keys[i]);
        }
      }
    });
    segment = {};
  }
  const std::size_t count = std::min(most, keys_.size() - begin_);
  const auto first = keys_.begin() + static_cast<std::ptrdiff_t>(begin_);
  begin_ += count;
  return {first, first + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace graphbox
