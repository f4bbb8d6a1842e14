// The rows of a table that are on SSD: segments in a folder, those being written among them.
//
// Rows come one by one and are gathered in memory; a full segment is written by a thread of its own while its memory
// still serves reads. A segment knows which of its rows are the newest written ones of their keys; the others are
// dead. Nothing here knows of the rows in memory.
//
// The table's lock guards all of this, except that rows are read without it: see ColdReading.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "io/read_queue.h"
#include "memory/buffer.h"
#include "table/change_tracker.h"
#include "table/location.h"
#include "table/segment_file.h"

namespace graphbox {

struct ColdConfig {
  std::string folder;
  std::string settings;  // of the table, for the headers of segments
  std::uint64_t record_bytes = 0;
  std::uint64_t layout_digest = 0;
  std::uint32_t segment_rows = 0;
  int lock = -1;  // descriptor whose lock the folder has; -1: none
};

// Holds a file's lock, whoever else lets go of it.
class HeldLock {
 public:
  explicit HeldLock(int descriptor);
  HeldLock(const HeldLock&) = delete;
  HeldLock& operator=(const HeldLock&) = delete;
  ~HeldLock();

 private:
  int descriptor_ = -1;
};

// The memory in which a segment is gathered, laid out as its file.
class SegmentMemory {
 public:
  explicit SegmentMemory(const SegmentInfo& full);

  std::int64_t* keys() const { return reinterpret_cast<std::int64_t*>(buffer_.data()); }
  std::byte* records() const { return buffer_.data() + records_offset_; }
  std::size_t bytes() const { return buffer_.bytes(); }

 private:
  std::size_t records_offset_;
  Buffer buffer_;
};

struct ColdSegment {
  std::uint64_t sequence = 0;
  std::uint32_t slot = 0;
  std::uint32_t rows = 0;
  std::uint32_t live_rows = 0;
  std::vector<std::uint64_t> live;  // a bit for each row: whether it is the newest written one of its key
  // Where there are such rows, a bit for each: moved here, and as it was in the last checkpoint of the chain.
  std::array<std::vector<std::uint64_t>, kChains> moved;
  bool is_changed = true;           // `live`, since the catalogue was written
  bool is_listed = false;           // the catalogue names it: its file must stay
  bool is_damaged = false;          // its live rows cannot be moved

  // One of both; the writing thread exchanges them under the lock of ColdRows.
  std::shared_ptr<SegmentMemory> memory;
  std::shared_ptr<const SegmentReader> file;

  bool is_live(std::uint32_t place) const { return (live[place / 64] >> (place % 64) & 1) != 0; }
};

// Entry of a segment for the catalogue.
struct ListedSegment {
  std::uint64_t sequence = 0;
  SegmentKind kind = SegmentKind::kRows;
  std::uint64_t rows = 0;
  bool is_changed = false;
  std::vector<std::uint64_t> live;  // only where it changed
};

// Sizes of all segments.
struct TierFiles {
  std::uint64_t segments = 0;
  std::uint64_t bytes = 0;
  std::uint64_t rows = 0;
  std::uint64_t live_rows = 0;  // of these, the newest written ones of their keys
};

struct WantedRow {
  std::uint32_t location;
  std::uint32_t index;  // the caller's
  std::int64_t key;
};

// Another process, or the next opening, may have removed it already.
void remove_segment_file(const std::string& path);

// By location, each once.
void sort_unique(std::vector<WantedRow>& rows);

// Rows that are to be read, with what holds them: reading needs no lock, and gives the rows as they were when this was
// made, whatever happens to them meanwhile.
struct ColdReading {
  struct Part {  // of one segment
    std::size_t end;  // in `rows`
    std::uint64_t sequence;
    std::shared_ptr<SegmentMemory> memory;
    std::shared_ptr<const SegmentReader> file;
  };
  std::vector<WantedRow> rows;  // sorted by location
  std::vector<Part> parts;
};

class ColdRows {
 public:
  // Creates the folder unless it is there.
  explicit ColdRows(ColdConfig config);
  ColdRows(const ColdRows&) = delete;
  ColdRows& operator=(const ColdRows&) = delete;
  ~ColdRows();

  // Removes segments that no catalogue names, and lets go of the folder, for good: rows can still be read, and whatever
  // would write throws.
  void close();

  // --- Writing

  // Takes a place for the newest row of a key; `fill` writes its record. May wait for memory, and throws what went
  // wrong with writing: then the row was not taken. The next call tries again.
  template <typename Fill>
  std::uint32_t append(std::int64_t key, const Fill& fill) {
    if (open_ == nullptr) {
      open_segment();
    }
    ColdSegment& segment = *open_;
    const std::uint32_t place = segment.rows++;
    segment.memory->keys()[place] = key;
    fill(segment.memory->records() + place * info_.stride());
    segment.live[place / 64] |= std::uint64_t{1} << (place % 64);
    ++segment.live_rows;
    ++rows_;
    ++live_rows_;
    ++rows_appended_;
    const std::uint32_t location = cold_location(segment.slot, place);
    if (segment.rows == config_.segment_rows) {
      seal();
    }
    return location;
  }

  // Whether so many rows, at most those of a segment, can be appended without waiting.
  bool has_room_for(std::uint32_t rows) const;

  // Waits until memory is free for another segment; false where that is not to come, for segments cannot be written.
  // Needs no lock of the table.
  bool wait_for_memory();

  // The row there is as it was in the last checkpoint of the chain.
  void note_moved(std::uint32_t location, int chain);
  bool is_moved(std::uint32_t location, int chain) const;

  // The row there is no longer the newest written one of its key.
  void drop(std::uint32_t location);

  // Writes all that is in memory; throws what went wrong.
  void write_all();

  // Lets the writing thread have what was gathered so far.
  void seal_open();

  // Waits until the segment is a file; throws what went wrong. Needs no lock of the table.
  std::shared_ptr<const SegmentReader> written(const ColdSegment& segment);

  // As long as one of these lives, files of segments stay where they are: those that are not needed any more are
  // removed with the last one. Needs no lock of the table.
  using HeldFiles = std::shared_ptr<const void>;
  HeldFiles hold_files();

  // Writes keys that were erased, and of which segments may hold rows. Where there are many such files, the keys of
  // the small ones for which is_erased() holds are written with them, and those files are not needed any more.
  using IsErased = std::function<bool(std::int64_t key)>;
  void write_erased(std::vector<std::int64_t> keys, const IsErased& is_erased);
  bool has_erased() const { return !erased_.empty(); }

  // --- Reading

  ColdReading reading(std::vector<WantedRow> rows) const;

  // Calls visit(row, record) for each of them, in any order, with many reads in flight.
  using VisitRow = std::function<void(const WantedRow&, const std::byte* record)>;
  void read(ColdReading& reading, const VisitRow& visit) const;

  // --- Segments

  // The one to rewrite next: less than half live, or among too many small ones. Null if there is none.
  std::shared_ptr<ColdSegment> next_to_compact() const;

  // Whether so much of what segments hold is dead that whoever makes more should wait for compaction.
  bool is_mostly_dead() const { return rows_ > 2 * live_rows_ + kSpareDeadSegments * config_.segment_rows; }
  bool has_dead_segments() const { return has_dead_segments_; }

  const std::vector<std::shared_ptr<ColdSegment>>& segments() const { return segments_; }  // by slot; null: free
  std::shared_ptr<const SegmentReader> file_of(const ColdSegment& segment) const;  // null: still in memory
  std::vector<std::int64_t> live_keys_in_memory(const ColdSegment& segment) const;  // none: it is a file
  // Calls visit(key, location, record) for each live row of a segment on disk. A damaged one is marked as such, and
  // its error thrown.
  using VisitLive = std::function<void(std::int64_t key, std::uint32_t location, const std::byte* record)>;
  void visit_live(ColdSegment& segment, const VisitLive& visit) const;
  // Forgets all erased keys: no segment that stays holds rows of them.
  void retire_all_erased();
  // Forgets segments without live rows; those the catalogue names are removed once it no longer does.
  void retire_dead();

  // --- The catalogue

  // Entries for the catalogue from now on; after write_all().
  std::vector<ListedSegment> list();
  // The catalogue has the entries of list(): segments that it no longer names are removed.
  void listed();

  // Takes a segment that the catalogue names, with live rows as given (a bit each), or all if `live` is null, and
  // calls visit(key, location) for them. A segment of erased keys, not so given, calls visit(key, kNoRow).
  using VisitKey = std::function<void(std::int64_t key, std::uint32_t location)>;
  void restore(std::uint64_t sequence, const std::vector<std::uint64_t>* live, const VisitKey& visit);

  // After all restore(): removes files of segments that the catalogue did not name. Returns how many.
  std::uint64_t remove_left_over();

  std::string path_of(std::uint64_t sequence) const;

  // --- Figures

  std::uint64_t bytes() const;  // of memory: buffers, the reader's, live bits
  std::uint64_t fixed_bytes() const;
  // Of memory: what is known of the segments that there are, and of those that so many live rows may come to have.
  std::uint64_t segment_bytes() const;
  std::uint64_t segment_bytes_for(std::uint64_t rows) const;
  std::uint64_t stride() const { return info_.stride(); }  // bytes from record to record in a segment
  std::uint32_t segment_rows() const { return config_.segment_rows; }
  std::uint64_t next_sequence() const { return next_sequence_; }  // of the segment that is begun next
  std::uint64_t rows_appended() const { return rows_appended_; }
  std::uint64_t bytes_written() const { return shared_->bytes_written.load(std::memory_order_relaxed); }
  std::uint64_t bytes_read() const { return bytes_read_.load(std::memory_order_relaxed); }
  TierFiles files() const;

  static constexpr std::uint32_t kMemories = 2;  // one being filled, one being written
  static constexpr unsigned kDepth = 128;        // reads in flight
  static constexpr std::uint64_t kSpareDeadSegments = 4;
  // Reading on through rows that are not wanted costs less than another read, up to about so many bytes: so a segment
  // of which many rows are wanted is read from front to back.
  static constexpr std::uint64_t kBridgedBytes = std::uint64_t{16} << 10;

 private:
  std::optional<HeldLock> lock_;  // until it is let go of nobody else may have files here

  // State shared by the writing thread, readers and the table.
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::unique_ptr<SegmentMemory>> free;
    std::deque<std::shared_ptr<ColdSegment>> queue;
    std::exception_ptr failure;  // of the first in the queue
    bool is_closed = false;
    std::uint64_t holders = 0;        // of files
    std::vector<std::string> unused;  // files that go with the last of them
    std::atomic<std::uint64_t> bytes_written{0};
  };

  struct ErasedKeys {
    std::uint64_t sequence;
    std::uint64_t rows;
    bool is_listed;
  };

  template <typename Done>
  void wait_for(std::unique_lock<std::mutex>& lock, const Done& done);
  void check_open() const;
  std::shared_ptr<SegmentMemory> take_memory();
  std::uint32_t take_slot();
  void open_segment();
  void seal();
  void run();
  void write(ColdSegment& segment, std::shared_ptr<const SegmentReader>& file) const;
  SegmentInfo info_of(std::uint64_t rows, std::uint64_t sequence) const;
  void retire_erased();
  void discard(std::uint64_t sequence);

  static constexpr const char* kRepair = "load a checkpoint of the table, or erase the keys whose rows are damaged";

  ColdConfig config_;
  SegmentInfo info_;  // of a full segment
  ReadBackend backend_;
  std::shared_ptr<Shared> shared_;
  std::vector<std::shared_ptr<ColdSegment>> segments_;
  std::vector<std::uint32_t> free_slots_;
  std::vector<ErasedKeys> erased_;
  std::vector<std::uint64_t> retired_;  // that the catalogue still names
  std::vector<std::uint64_t> unlisted_;  // that list() left out
  bool is_catalogued_ = true;            // what list() said last was written
  std::shared_ptr<ColdSegment> open_;
  std::uint64_t next_sequence_ = 1;
  std::uint64_t rows_appended_ = 0;
  std::uint64_t rows_ = 0;       // in segments,
  std::uint64_t live_rows_ = 0;  // and of these, the newest written ones of their keys
  bool has_dead_segments_ = false;
  std::uint64_t live_bits_bytes_ = 0;
  mutable std::mutex reading_mutex_;  // one reader at a time: its memory is counted once
  mutable std::atomic<std::uint64_t> bytes_read_{0};
  std::thread writer_;
  std::int64_t owner_;  // process that has the writing thread
};

}  // namespace graphbox
