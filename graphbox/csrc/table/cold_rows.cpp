#include "table/cold_rows.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <system_error>
#include <utility>

#include "errors/error.h"
#include "io/block_reader.h"
#include "io/file.h"

namespace graphbox {
namespace {

// Files of erased keys from which on they are merged, and the most keys of one that is.
constexpr std::size_t kMostErasedFiles = 8;
constexpr std::uint64_t kMostMergedKeys = std::uint64_t{1} << 20;

std::uint64_t block_begin(std::uint64_t offset) { return offset / kBlockBytes * kBlockBytes; }
std::uint64_t block_end(std::uint64_t offset) { return block_begin(offset + kBlockBytes - 1); }

std::atomic<std::uint64_t> segments_of_process{0};

// Raises the limit of open files of this process as segments come, each of which has two, up to what the system allows:
// the usual limit of 1,024 would not do.
void make_room_for_segment(const std::string& folder) {
  constexpr std::uint64_t kOtherFiles = 256;
  const std::uint64_t needed = 2 * ++segments_of_process + kOtherFiles;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) {
    return;
  }
  const rlimit raised = {std::min<rlim_t>(limit.rlim_max, std::max<rlim_t>(2 * limit.rlim_cur, needed)), limit.rlim_max};
  if (raised.rlim_cur < needed || ::setrlimit(RLIMIT_NOFILE, &raised) != 0) {
    --segments_of_process;
    throw Error(ErrorKind::kDoesNotFit,
                "the segments of this process need " + std::to_string(needed) +
                    " open files, and the system allows at most " + std::to_string(limit.rlim_max),
                folder, "raise the limit of open files (ulimit -Hn), or memory_bytes (segments get larger)");
  }
}

// By the lower half of the location, then by the upper one: a pass has millions of rows, and comparing them takes several
// times as long.
void sort_by_location(std::vector<WantedRow>& rows) {
  constexpr std::size_t kFewRows = 4096;
  constexpr std::uint32_t kHalfBits = 16;
  if (rows.size() <= kFewRows) {
    std::sort(rows.begin(), rows.end(), [](const WantedRow& a, const WantedRow& b) { return a.location < b.location; });
    return;
  }
  std::vector<WantedRow> sorted(rows.size());
  std::vector<std::uint32_t> places(std::size_t{1} << kHalfBits);
  for (const std::uint32_t shift : {0U, kHalfBits}) {
    const auto half_of = [shift](const WantedRow& row) { return row.location >> shift & 0xFFFF; };
    std::fill(places.begin(), places.end(), 0);
    for (const WantedRow& row : rows) {
      ++places[half_of(row)];
    }
    std::exclusive_scan(places.begin(), places.end(), places.begin(), 0U);
    for (const WantedRow& row : rows) {
      sorted[places[half_of(row)]++] = row;
    }
    rows.swap(sorted);
  }
}

}  // namespace

void remove_segment_file(const std::string& path) { std::remove(path.c_str()); }

void sort_unique(std::vector<WantedRow>& rows) {
  sort_by_location(rows);
  rows.erase(std::unique(rows.begin(), rows.end(),
                         [](const WantedRow& a, const WantedRow& b) { return a.location == b.location; }),
             rows.end());
}

HeldLock::HeldLock(int descriptor) {
  if (descriptor >= 0) {
    descriptor_ = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (descriptor_ < 0) {
      throw Error(ErrorKind::kFailure, "cannot hold the lock of the table's folder: " +
                                           std::system_category().message(errno));
    }
  }
}

HeldLock::~HeldLock() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

SegmentMemory::SegmentMemory(const SegmentInfo& full)
    : records_offset_(static_cast<std::size_t>(full.records_offset() - full.keys_offset())),
      buffer_(static_cast<std::size_t>(block_end(full.file_bytes()) - full.keys_offset())) {}

ColdRows::ColdRows(ColdConfig config)
    : lock_(std::in_place, config.lock),
      config_(std::move(config)),
      backend_(choose_backend(ReadBackend::kAuto, kDepth).backend),
      shared_(std::make_shared<Shared>()),
      owner_(::getpid()) {
  info_ = info_of(config_.segment_rows, 0);
  std::error_code error;
  std::filesystem::create_directories(config_.folder, error);
  if (error) {
    throw Error(ErrorKind::kFailure, "cannot create the folder: " + error.message(), config_.folder,
                "choose a folder that this user may write to");
  }
  for (std::uint32_t i = 0; i < kMemories; ++i) {
    shared_->free.push_back(std::make_unique<SegmentMemory>(info_));
  }
  writer_ = std::thread(&ColdRows::run, this);
}

ColdRows::~ColdRows() {
  segments_of_process -= segments_.size();
  if (owner_ != ::getpid()) {
    if (writer_.joinable()) {
      writer_.detach();  // a fork: the thread is the parent's, and so are the files
    }
    return;
  }
  close();
}

void ColdRows::close() {
  if (!writer_.joinable()) {
    return;
  }
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->is_closed = true;
  }
  shared_->changed.notify_all();
  writer_.join();
  for (const auto& segment : segments_) {
    if (segment != nullptr && !segment->is_listed) {
      remove_segment_file(path_of(segment->sequence));
    }
  }
  for (const ErasedKeys& erased : erased_) {
    if (!erased.is_listed) {
      remove_segment_file(path_of(erased.sequence));
    }
  }
  lock_.reset();
}

std::string ColdRows::path_of(std::uint64_t sequence) const {
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(sequence));
  return config_.folder + "/" + digits.data() + ".segment";
}

SegmentInfo ColdRows::info_of(std::uint64_t rows, std::uint64_t sequence) const {
  SegmentInfo info;
  info.rows = rows;
  info.record_bytes = config_.record_bytes;
  info.layout_digest = config_.layout_digest;
  info.sequence = sequence;
  info.settings = config_.settings;
  return info;
}

// --- Writing ---------------------------------------------------------------------------------------------------------

// Waits until done(), or throws why the first segment in the queue cannot be written. Each call lets it be tried once
// more.
template <typename Done>
void ColdRows::wait_for(std::unique_lock<std::mutex>& lock, const Done& done) {
  if (owner_ != ::getpid()) {
    throw Error(ErrorKind::kUsage, "a table with rows on SSD belongs to the process that opened it, this is a fork of it",
                config_.folder, "use the table in that process, or open it after forking");
  }
  if (!shared_->is_closed && !done() && shared_->failure) {
    shared_->failure = nullptr;
    shared_->changed.notify_all();
  }
  shared_->changed.wait(lock, [&] { return done() || shared_->failure != nullptr || shared_->is_closed; });
  check_open();
  if (!done()) {
    std::rethrow_exception(shared_->failure);
  }
}

// Of a caller that holds the lock of `shared_`.
void ColdRows::check_open() const {
  if (shared_->is_closed) {
    throw Error(ErrorKind::kUsage, "the table is closed", config_.folder, "open it again with EmbeddingTable.open");
  }
}

// Returns to the free ones when nobody writes or reads it any more.
std::shared_ptr<SegmentMemory> ColdRows::take_memory() {
  std::unique_lock lock(shared_->mutex);
  wait_for(lock, [this] { return !shared_->free.empty(); });
  SegmentMemory* const memory = shared_->free.back().release();
  shared_->free.pop_back();
  return {memory, [shared = shared_](SegmentMemory* used) {
            {
              const std::lock_guard returning(shared->mutex);
              shared->free.emplace_back(used);
            }
            shared->changed.notify_all();
          }};
}

std::uint32_t ColdRows::take_slot() {
  if (!free_slots_.empty()) {
    const std::uint32_t slot = free_slots_.back();
    free_slots_.pop_back();
    return slot;
  }
  if (segments_.size() == kMostSegments && has_dead_segments_) {
    retire_dead();
    if (!free_slots_.empty()) {
      return take_slot();
    }
  }
  if (segments_.size() == kMostSegments) {
    throw Error(ErrorKind::kDoesNotFit,
                "a table can have at most " + std::to_string(kMostSegments) + " segments, of " +
                    std::to_string(config_.segment_rows) + " rows under this memory_bytes",
                config_.folder, "raise memory_bytes (segments get larger), or use several tables");
  }
  make_room_for_segment(config_.folder);
  segments_.push_back(nullptr);
  return static_cast<std::uint32_t>(segments_.size() - 1);
}

bool ColdRows::has_room_for(std::uint32_t rows) const {
  if (open_ != nullptr && rows <= config_.segment_rows - open_->rows) {
    return true;
  }
  const std::lock_guard lock(shared_->mutex);
  return !shared_->free.empty();
}

bool ColdRows::wait_for_memory() {
  std::unique_lock lock(shared_->mutex);
  shared_->changed.wait(lock, [&] { return !shared_->free.empty() || shared_->failure || shared_->is_closed; });
  return !shared_->free.empty();
}

void ColdRows::open_segment() {
  auto segment = std::make_shared<ColdSegment>();
  segment->memory = take_memory();
  segment->slot = take_slot();
  segment->sequence = next_sequence_++;
  segment->live.resize((config_.segment_rows + 63) / 64);
  live_bits_bytes_ += segment->live.size() * sizeof(std::uint64_t);
  segments_[segment->slot] = segment;
  open_ = std::move(segment);
}

void ColdRows::seal() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->queue.push_back(std::move(open_));
  }
  open_ = nullptr;
  shared_->changed.notify_all();
}

void ColdRows::run() {
  std::unique_lock lock(shared_->mutex);
  for (;;) {
    shared_->changed.wait(
        lock, [this] { return shared_->is_closed || (!shared_->queue.empty() && shared_->failure == nullptr); });
    if (shared_->is_closed) {
      return;
    }
    const std::shared_ptr<ColdSegment> segment = shared_->queue.front();
    lock.unlock();
    std::shared_ptr<const SegmentReader> file;
    std::shared_ptr<SegmentMemory> written;
    std::exception_ptr failure;
    try {
      write(*segment, file);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure) {
      shared_->failure = failure;
    } else {
      segment->file = std::move(file);
      written = std::move(segment->memory);
      shared_->queue.pop_front();
      shared_->bytes_written.fetch_add(segment->file->info().file_bytes(), std::memory_order_relaxed);
    }
    lock.unlock();
    written = nullptr;  // takes the lock
    shared_->changed.notify_all();
    lock.lock();
  }
}

void ColdRows::write(ColdSegment& segment, std::shared_ptr<const SegmentReader>& file) const {
  const std::string path = path_of(segment.sequence);
  SegmentWriter writer(path, info_of(segment.rows, segment.sequence));
  writer.write(0, segment.memory->keys(), segment.memory->records(), segment.rows);
  writer.commit(false);
  file = std::make_shared<SegmentReader>(path, kRepair);
}

void ColdRows::note_moved(std::uint32_t location, int chain) {
  ColdSegment& segment = *segments_[slot_of(location)];
  std::vector<std::uint64_t>& moved = segment.moved[static_cast<std::size_t>(chain)];
  if (moved.empty()) {
    moved.resize(segment.live.size());
    live_bits_bytes_ += moved.size() * sizeof(std::uint64_t);
  }
  moved[place_of(location) / 64] |= std::uint64_t{1} << (place_of(location) % 64);
}

bool ColdRows::is_moved(std::uint32_t location, int chain) const {
  const std::vector<std::uint64_t>& moved = segments_[slot_of(location)]->moved[static_cast<std::size_t>(chain)];
  return !moved.empty() && (moved[place_of(location) / 64] >> (place_of(location) % 64) & 1) != 0;
}

void ColdRows::drop(std::uint32_t location) {
  ColdSegment& segment = *segments_[slot_of(location)];
  const std::uint32_t place = place_of(location);
  segment.live[place / 64] &= ~(std::uint64_t{1} << (place % 64));
  --segment.live_rows;
  --live_rows_;
  segment.is_changed = true;
  has_dead_segments_ = has_dead_segments_ || segment.live_rows == 0;
}

void ColdRows::seal_open() {
  if (open_ != nullptr) {
    seal();
  }
}

std::shared_ptr<const SegmentReader> ColdRows::written(const ColdSegment& segment) {
  std::unique_lock lock(shared_->mutex);
  wait_for(lock, [&] { return segment.file != nullptr; });
  return segment.file;
}

ColdRows::HeldFiles ColdRows::hold_files() {
  const std::lock_guard lock(shared_->mutex);
  ++shared_->holders;
  return {shared_.get(), [shared = shared_](const void*) {
            std::vector<std::string> unused;
            {
              const std::lock_guard releasing(shared->mutex);
              if (--shared->holders == 0 && !shared->is_closed) {
                unused.swap(shared->unused);
              }
            }
            std::for_each(unused.begin(), unused.end(), remove_segment_file);
          }};
}

void ColdRows::write_all() {
  seal_open();
  {
    std::unique_lock lock(shared_->mutex);
    wait_for(lock, [this] { return shared_->queue.empty(); });
  }
  sync_folder_of(path_of(0));
}

void ColdRows::write_erased(std::vector<std::int64_t> keys, const IsErased& is_erased) {
  {
    const std::lock_guard lock(shared_->mutex);
    check_open();
  }
  std::vector<ErasedKeys> merged;
  if (erased_.size() >= kMostErasedFiles) {
    for (const ErasedKeys& erased : erased_) {
      if (erased.rows > kMostMergedKeys) {
        continue;
      }
      try {
        const std::vector<std::int64_t> earlier = SegmentReader(path_of(erased.sequence), kRepair).keys();
        std::copy_if(earlier.begin(), earlier.end(), std::back_inserter(keys), is_erased);
        merged.push_back(erased);
      } catch (const Error&) {
        // It is damaged: it stays, and whoever needs it is told.
      }
    }
  }
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  if (!keys.empty()) {
    SegmentInfo info = info_of(keys.size(), next_sequence_);
    info.kind = SegmentKind::kErasedKeys;
    info.record_bytes = 0;
    SegmentWriter writer(path_of(info.sequence), info);
    writer.write(0, keys.data(), nullptr, keys.size());
    writer.commit();
    ++next_sequence_;
    shared_->bytes_written.fetch_add(info.file_bytes(), std::memory_order_relaxed);
    erased_.push_back({info.sequence, keys.size(), false});
  }
  for (const ErasedKeys& each : merged) {
    retired_.push_back(each.sequence);
    std::erase_if(erased_, [&](const ErasedKeys& other) { return other.sequence == each.sequence; });
  }
}

// --- Reading ---------------------------------------------------------------------------------------------------------

std::shared_ptr<const SegmentReader> ColdRows::file_of(const ColdSegment& segment) const {
  const std::lock_guard lock(shared_->mutex);
  return segment.file;
}

std::vector<std::int64_t> ColdRows::live_keys_in_memory(const ColdSegment& segment) const {
  std::vector<std::int64_t> keys;
  const std::lock_guard lock(shared_->mutex);
  for (std::uint32_t place = 0; segment.memory != nullptr && place < segment.rows; ++place) {
    if (segment.is_live(place)) {
      keys.push_back(segment.memory->keys()[place]);
    }
  }
  return keys;
}

ColdReading ColdRows::reading(std::vector<WantedRow> rows) const {
  ColdReading reading;
  reading.rows = std::move(rows);
  sort_by_location(reading.rows);
  const std::lock_guard lock(shared_->mutex);
  for (std::size_t i = 0; i < reading.rows.size(); ++i) {
    const std::uint32_t slot = slot_of(reading.rows[i].location);
    if (i == 0 || slot != slot_of(reading.rows[i - 1].location)) {
      reading.parts.push_back({i, segments_[slot]->sequence, segments_[slot]->memory, segments_[slot]->file});
    }
    reading.parts.back().end = i + 1;
  }
  return reading;
}

void ColdRows::read(ColdReading& reading, const VisitRow& visit) const {
  const std::uint64_t stride = info_.stride();
  std::size_t begin = 0;
  std::vector<std::pair<std::size_t, const ColdReading::Part*>> on_disk;
  for (ColdReading::Part& part : reading.parts) {
    if (part.memory == nullptr) {
      on_disk.emplace_back(begin, &part);
      begin = part.end;
      continue;
    }
    for (; begin < part.end; ++begin) {
      visit(reading.rows[begin], part.memory->records() + place_of(reading.rows[begin].location) * stride);
    }
    part.memory = nullptr;  // whoever writes segments may wait for it
  }
  if (on_disk.empty()) {
    return;
  }
  struct Range {  // of rows that one stretch holds
    std::size_t begin;
    std::size_t end;
    const SegmentReader* file;
  };
  std::vector<Range> ranges;
  std::size_t part = 0;
  std::size_t next = on_disk[0].first;
  const std::lock_guard lock(reading_mutex_);
  const LentReader reader(backend_, kDepth);
  reader->read(
      [&](Stretch& stretch) {
        while (part < on_disk.size() && next == on_disk[part].second->end) {
          ++part;
          next = part < on_disk.size() ? on_disk[part].first : next;
        }
        if (part == on_disk.size()) {
          return false;
        }
        const SegmentReader& file = *on_disk[part].second->file;
        const SegmentInfo& info = file.info();
        const auto offset_of = [&](std::size_t i) { return info.record_offset(place_of(reading.rows[i].location)); };
        const std::size_t first = next++;
        const std::uint64_t start = block_begin(offset_of(first));
        std::uint64_t end = block_end(offset_of(first) + stride);
        for (; next < on_disk[part].second->end; ++next) {
          const std::uint64_t further = block_end(offset_of(next) + stride);
          if (block_begin(offset_of(next)) > end + ColdRows::kBridgedBytes ||
              further - start > BlockReader::kLargestStretchBytes) {
            break;
          }
          end = further;
        }
        end = std::min(end, info.file_bytes());
        stretch = {&file.file(), start, static_cast<std::uint32_t>(end - start), ranges.size()};
        ranges.push_back({first, next, &file});
        bytes_read_.fetch_add(end - start, std::memory_order_relaxed);
        return true;
      },
      [&](const Stretch& stretch, const std::byte* bytes) {
        const Range range = ranges[stretch.tag];
        for (std::size_t i = range.begin; i < range.end; ++i) {
          const WantedRow& row = reading.rows[i];
          const std::uint32_t place = place_of(row.location);
          const std::byte* const record = bytes + (range.file->info().record_offset(place) - stretch.offset);
          range.file->verify(place, row.key, record);
          visit(row, record);
        }
      });
}

// --- Figures ---------------------------------------------------------------------------------------------------------

std::uint64_t ColdRows::fixed_bytes() const {
  const std::uint64_t memory = block_end(info_.file_bytes()) - info_.keys_offset();
  const std::uint64_t whole = memory < kHugePageBytes ? memory : (memory + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  return kMemories * whole + BlockReader::kStagingBytes;
}

std::uint64_t ColdRows::bytes() const {
  return fixed_bytes() + segment_bytes();
}

std::uint64_t ColdRows::segment_bytes() const {
  return live_bits_bytes_ + segments_.size() * (sizeof(ColdSegment) + sizeof(SegmentReader));
}

std::uint64_t ColdRows::segment_bytes_for(std::uint64_t rows) const {
  const std::uint64_t segments = 2 * rows / config_.segment_rows + kSpareDeadSegments + 2;  // see is_mostly_dead()
  return segments * (sizeof(ColdSegment) + sizeof(SegmentReader) + (config_.segment_rows + 63) / 64 * 8);
}

TierFiles ColdRows::files() const {
  TierFiles files;
  for (const auto& segment : segments_) {
    if (segment != nullptr) {
      ++files.segments;
      files.rows += segment->rows;
      files.live_rows += segment->live_rows;
      files.bytes += info_of(segment->rows, 0).file_bytes();
    }
  }
  return files;
}

}  // namespace graphbox
