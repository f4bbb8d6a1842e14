// Bookkeeping of segments: those to be rewritten, those without live rows, and their entries in the catalogue.
#include <algorithm>
#include <filesystem>
#include <limits>
#include <utility>

#include "errors/error.h"
#include "io/block_reader.h"
#include "table/cold_rows.h"

namespace graphbox {
namespace {

// Segments that may exist besides twice as many as the rows would fill.
constexpr std::size_t kSpareSegments = 64;

}  // namespace

std::shared_ptr<ColdSegment> ColdRows::next_to_compact() const {
  std::shared_ptr<ColdSegment> sparsest;
  std::shared_ptr<ColdSegment> smallest;
  std::uint64_t live_rows = 0;
  std::size_t count = 0;
  const std::lock_guard lock(shared_->mutex);
  for (const auto& segment : segments_) {
    if (segment == nullptr) {
      continue;
    }
    live_rows += segment->live_rows;
    ++count;
    if (segment->file == nullptr || segment->is_damaged || segment->live_rows == 0) {
      continue;
    }
    const auto share = [](const ColdSegment& of) { return static_cast<double>(of.live_rows) / of.rows; };
    if (segment->live_rows * 2 < segment->rows && (sparsest == nullptr || share(*segment) < share(*sparsest))) {
      sparsest = segment;
    }
    if (smallest == nullptr || segment->live_rows < smallest->live_rows) {
      smallest = segment;
    }
  }
  const std::size_t needed = live_rows / config_.segment_rows + 1;
  return sparsest != nullptr || count <= 2 * needed + kSpareSegments ? sparsest : smallest;
}

void ColdRows::visit_live(ColdSegment& segment, const VisitLive& visit) const {
  const std::shared_ptr<const SegmentReader> file = file_of(segment);
  try {
    const std::lock_guard lock(reading_mutex_);
    const LentReader reader(backend_, kDepth);
    bytes_read_.fetch_add(file->info().file_bytes(), std::memory_order_relaxed);
    const std::uint64_t stride = file->info().stride();
    file->scan(*reader.get(), 0, segment.rows,
               [&](std::uint64_t first, const std::int64_t* keys, const std::byte* records, std::uint64_t count) {
                 for (std::uint64_t i = 0; i < count; ++i) {
                   const auto place = static_cast<std::uint32_t>(first + i);
                   if (segment.is_live(place)) {
                     visit(keys[i], cold_location(segment.slot, place), records + i * stride);
                   }
                 }
               });
  } catch (const Error& error) {
    segment.is_damaged = segment.is_damaged || error.where() == file->path();
    throw;
  }
}

// Removes the file of a segment, unless somebody holds it, or it may be another table's by now.
void ColdRows::discard(std::uint64_t sequence) {
  {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->is_closed) {
      return;
    }
    if (shared_->holders > 0) {
      shared_->unused.push_back(path_of(sequence));
      return;
    }
  }
  remove_segment_file(path_of(sequence));
}

void ColdRows::retire_dead() {
  std::vector<std::shared_ptr<ColdSegment>> dead;
  {
    const std::lock_guard lock(shared_->mutex);
    has_dead_segments_ = false;
    for (const auto& segment : segments_) {
      if (segment != nullptr && segment->live_rows == 0) {
        segment->file != nullptr ? dead.push_back(segment) : void(has_dead_segments_ = true);
      }
    }
  }
  for (const auto& segment : dead) {
    rows_ -= segment->rows;
    segments_[segment->slot] = nullptr;
    free_slots_.push_back(segment->slot);
    live_bits_bytes_ -= segment->live.size() * sizeof(std::uint64_t);
    for (const std::vector<std::uint64_t>& moved : segment->moved) {
      live_bits_bytes_ -= moved.size() * sizeof(std::uint64_t);
    }
    if (segment->is_listed) {
      retired_.push_back(segment->sequence);
    } else {
      discard(segment->sequence);
    }
  }
}

void ColdRows::retire_all_erased() {
  for (const ErasedKeys& erased : erased_) {
    retired_.push_back(erased.sequence);
  }
  erased_.clear();
}

// Erased keys are of no use once no segment is left that could hold rows of them.
void ColdRows::retire_erased() {
  std::uint64_t oldest = std::numeric_limits<std::uint64_t>::max();
  for (const auto& segment : segments_) {
    oldest = segment != nullptr ? std::min(oldest, segment->sequence) : oldest;
  }
  std::erase_if(erased_, [&](const ErasedKeys& erased) {
    if (erased.sequence > oldest) {
      return false;
    }
    retired_.push_back(erased.sequence);  // though perhaps not named: removed after the segments it is about
    return true;
  });
}

// --- The catalogue ---------------------------------------------------------------------------------------------------

std::vector<ListedSegment> ColdRows::list() {
  retire_dead();
  retire_erased();
  std::vector<ListedSegment> all;
  for (const auto& segment : segments_) {
    if (segment == nullptr) {
      continue;
    }
    const bool is_changed = segment->is_changed || !is_catalogued_;
    all.push_back({segment->sequence, SegmentKind::kRows, segment->rows, is_changed,
                   is_changed ? segment->live : std::vector<std::uint64_t>()});
    segment->is_changed = false;
    segment->is_listed = true;  // from now on: when it is written is not known here
  }
  for (ErasedKeys& erased : erased_) {
    all.push_back({erased.sequence, SegmentKind::kErasedKeys, erased.rows, !erased.is_listed || !is_catalogued_, {}});
    erased.is_listed = true;
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.sequence < b.sequence; });
  unlisted_.insert(unlisted_.end(), retired_.begin(), retired_.end());
  retired_.clear();
  is_catalogued_ = false;
  return all;
}

void ColdRows::listed() {
  is_catalogued_ = true;
  std::sort(unlisted_.begin(), unlisted_.end());  // rows before the keys that were erased of them
  for (const std::uint64_t sequence : unlisted_) {
    discard(sequence);
  }
  unlisted_.clear();
}

void ColdRows::restore(std::uint64_t sequence, const std::vector<std::uint64_t>* live, const VisitKey& visit) {
  const auto file = std::make_shared<SegmentReader>(path_of(sequence), kRepair);
  const SegmentInfo& info = file->info();
  const bool has_rows = info.kind == SegmentKind::kRows;
  if (info.sequence != sequence || (has_rows && (info.layout_digest != config_.layout_digest ||
                                                 info.record_bytes != config_.record_bytes || info.rows == 0 ||
                                                 info.rows > kMostRowsOfSegment))) {
    throw Error(ErrorKind::kFormat, "the segment is not one of this table: its name, layout or size differ",
                path_of(sequence), kRepair);
  }
  next_sequence_ = std::max(next_sequence_, sequence + 1);
  is_catalogued_ = is_catalogued_ && live != nullptr;
  if (!has_rows) {
    if (live == nullptr) {
      file->scan_keys([&](std::uint64_t, const std::int64_t* keys, std::uint64_t count) {
        std::for_each_n(keys, count, [&](std::int64_t key) { visit(key, kNoRow); });
      });
    }
    erased_.push_back({sequence, info.rows, true});
    return;
  }
  const std::size_t words = (info.rows + 63) / 64;
  if (live != nullptr && live->size() < words) {
    throw Error(ErrorKind::kFormat, "the catalogue knows fewer rows than the segment has", path_of(sequence), kRepair);
  }
  auto segment = std::make_shared<ColdSegment>();
  segment->sequence = sequence;
  segment->slot = take_slot();
  segment->rows = static_cast<std::uint32_t>(info.rows);
  segment->live.assign(words, 0);
  segment->is_changed = live == nullptr;
  segment->is_listed = true;
  segment->file = file;
  live_bits_bytes_ += words * sizeof(std::uint64_t);
  segments_[segment->slot] = segment;
  rows_ += segment->rows;
  has_dead_segments_ = true;  // perhaps: none of its rows may count
  file->scan_keys([&](std::uint64_t first, const std::int64_t* keys, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto place = static_cast<std::uint32_t>(first + i);
      const std::uint64_t bit = std::uint64_t{1} << (place % 64);
      if (live == nullptr || ((*live)[place / 64] & bit) != 0) {
        segment->live[place / 64] |= bit;
        ++segment->live_rows;
        ++live_rows_;
        visit(keys[i], cold_location(segment->slot, place));
      }
    }
  });
}

// Files that were being written when a process ended, or written after the catalogue.
std::uint64_t ColdRows::remove_left_over() {
  std::vector<std::string> known;
  for (const auto& segment : segments_) {
    if (segment != nullptr) {
      known.push_back(path_of(segment->sequence));
    }
  }
  for (const ErasedKeys& erased : erased_) {
    known.push_back(path_of(erased.sequence));
  }
  std::sort(known.begin(), known.end());
  std::uint64_t removed = 0;
  for (const auto& entry : std::filesystem::directory_iterator(config_.folder)) {
    const std::string name = entry.path().filename().string();
    const std::string path = config_.folder + "/" + name;
    if (name.find(".segment") != std::string::npos && !std::binary_search(known.begin(), known.end(), path)) {
      remove_segment_file(path);
      ++removed;
    }
  }
  return removed;
}

}  // namespace graphbox
