// The embedding table in memory: rows for any 64-bit keys, with their optimizer state.
//
// A row stays where it is as long as its key does; the rows of erased keys are given to new ones. So a pull can say
// which rows it found, and a push to them looks no key up again.
//
// Same results for any number of threads: new keys get rows in the order of the batch, gradients of a key are summed
// in the order of ordered_sum.h, a new row is a function of (seed, key) alone, and how its values are rounded to 16 bits
// one of (seed, key, its steps).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "memory/buffer.h"
#include "random/philox.h"
#include "table/admission.h"
#include "table/bag.h"
#include "table/change_tracker.h"
#include "table/checkpoint.h"
#include "table/optimizer.h"
#include "table/policy.h"
#include "table/pulled_rows.h"
#include "table/row_index.h"
#include "table/slab.h"
#include "table/visited.h"

namespace graphbox {

class Compactor;
struct ColdReading;
struct ColdSegment;
struct ListedSegment;
struct TableTier;
struct TierSnapshot;
struct SegmentAtMoment;
class KeyScan;
struct WantedRow;

struct TableConfig {
  std::uint64_t dim = 0;
  ValueType value_type = ValueType::kFloat32;
  OptimizerConfig optimizer;
  float init_scale = 0.0F;  // new values are uniform in [-init_scale, init_scale)
  std::uint64_t seed = 0;
  std::uint64_t memory_bytes = std::numeric_limits<std::uint64_t>::max();
  bool skip_nonfinite = false;  // leave gradients that hold NaN or infinity out, instead of refusing the batch
  PolicyConfig policies;
};

// Operands of a push to the rows of a batch.
struct Push {
  const float* gradients;
  std::int64_t count;                          // of keys
  std::int64_t gradient_count;                 // of gradients, dim values each
  const std::uint32_t* gradient_of = nullptr;  // of each key: its gradient; null: there is one for each
  const float* scale_of = nullptr;             // of each key: what its gradient is multiplied by; null: 1
  const float* shows = nullptr;                // of each key; null: 1
  const float* clicks = nullptr;               // of each key; null: 0

  const float* gradient(std::int64_t key, std::size_t dim) const {
    return gradients + static_cast<std::size_t>(gradient_of != nullptr ? gradient_of[key] : key) * dim;
  }
  float scale(std::int64_t key) const { return scale_of != nullptr ? scale_of[key] : 1.0F; }
  float shows_at(std::int64_t key) const { return shows != nullptr ? shows[key] : 1.0F; }
  float clicks_at(std::int64_t key) const { return clicks != nullptr ? clicks[key] : 0.0F; }
};

// Policy counters of some keys: arrays of as many entries.
struct KeyCounters {
  bool* has_row;
  float* shows;  // decayed to this pass
  float* clicks;
  float* scores;
  std::uint32_t* unseen_passes;
  std::uint32_t* last_seen_second;
};

// Thread safe: pulls go on side by side, whatever changes the table waits for them.
class Table {
 public:
  explicit Table(const TableConfig& config);
  ~Table();

  // Writes the rows of `count` keys to out[count, dim]. Unknown keys get a row if they are admitted; of others, and
  // with create = false, only their initial values are written.
  void pull(const std::int64_t* keys, std::int64_t count, float* out, bool create, int threads);

  // The same, and says where the rows are.
  PulledRows pull_rows(const std::int64_t* keys, std::int64_t count, float* out, bool create, int threads);

  // The same with sums of rows: out[bags.count, dim].
  PulledRows pull_bags(const std::int64_t* keys, std::int64_t count, const Bags& bags, float* out, bool create,
                       int threads);

  // Sums (or averages) the gradients of equal keys and applies them; unknown keys get a row first. Those of keys that
  // are not admitted are dropped.
  void push(const std::int64_t* keys, const Push& push, int threads);

  // The same for the keys of a pull of this table, which are looked up only if keys were erased since.
  void push_rows(const PulledRows& pulled, const Push& push, int threads);

  // The same for gradients[bags.count, dim] of sums.
  void push_bags(const PulledRows& pulled, const Bags& bags, const float* gradients, int threads);

  // Gives the keys values[count, dim], and a row if they have none: table_assign.cpp.
  void assign(const std::int64_t* keys, std::int64_t count, const float* values, int threads);

  // --- Whole rows, for a tier above this table: table_records.cpp

  // Gives keys rows as a pull or a push of them does. Of a push, counts those that are not admitted as dropped.
  void admit(const std::int64_t* keys, std::int64_t count, bool is_pull, int threads);

  // Writes the records of keys to records[count, record_bytes()], and whether each has a row; those of keys without one
  // are what a new row would be.
  void read_records(const std::int64_t* keys, std::int64_t count, std::byte* records, bool* has_row, int threads) const;

  // Different keys get these records instead of what their rows hold. Returns how many; keys without a row get none.
  std::int64_t write_records(const std::int64_t* keys, std::int64_t count, const std::byte* records, int threads);

  std::size_t record_bytes() const { return slab_.layout().record_bytes(); }

  void contains(const std::int64_t* keys, std::int64_t count, bool* out, int threads) const;
  std::int64_t erase(const std::int64_t* keys, std::int64_t count);
  PooledArray<std::int64_t> keys() const;  // in the order of rows

  // The next `count` rows from number `begin` on: writes their keys and values, and returns how many there were and
  // the number to go on from. A key that stays in the table stays where it is, so whoever goes on until none are left
  // meets each such key once.
  struct Scanned {
    std::int64_t count;
    std::uint64_t next;
  };
  Scanned scan(std::uint64_t begin, std::int64_t count, std::int64_t* keys, float* values) const;

  // The keys there are now, of a table with rows on SSD: tier_snapshot.h.
  KeyScan begin_key_scan() const;

  // --- Rows on SSD: table_tier.h

  // Lets rows that find no room in memory go to segments in this folder. The table must be empty. `settings` are
  // written with each segment. As long as there are files to be written or removed, the lock that the descriptor
  // `folder_lock` holds is held on (-1: there is none).
  void attach_tier(const std::string& folder, const std::string& settings, int folder_lock = -1);
  // Lets go of the folder, so that another table may have it. This one is of no use then, but others may be using it
  // still.
  void detach_tier();
  bool has_tier() const { return tier_ != nullptr; }

  // Takes the rows of a segment in the folder: those whose bits are set in `live`, or where that is null all of them,
  // instead of rows that earlier calls gave the same keys. In the order of sequence numbers; then opened() removes
  // the files of other segments and returns how many there were.
  void restore_segment(std::uint64_t sequence, const std::vector<std::uint64_t>* live);
  std::uint64_t opened();

  // Writes all rows that changed, and returns what the catalogue must say for the folder to hold the table as it is
  // now. Once it says so, flushed() removes what is no longer needed.
  std::vector<ListedSegment> flush();
  void flushed();

  // Reads rows of the keys that are on SSD into memory, all of them or none where there is no room. Makes no new ones,
  // and changes nothing in a table whose rows are all in memory.
  void promote_rows(const std::int64_t* keys, std::int64_t count, int threads);

  // Reads rows of the keys that are on SSD into memory, evicting rows of neither this nor the last call, until there
  // is no more room or `is_stopped`. Returns how many of the keys have rows in memory then, and how many were read.
  struct Prefetched {
    std::int64_t in_memory;
    std::int64_t read;
  };
  Prefetched prefetch_rows(const std::int64_t* keys, std::int64_t count, int threads,
                           const std::atomic<bool>& is_stopped);

  // Waits until no segment is to be rewritten in the background, as far as is known now.
  void await_compaction();

  // Rewrites segments that hold rows of erased keys; the next flush removes the old ones. Returns how many.
  std::int64_t purge();

  struct TierFigures {
    std::uint64_t hot_rows;
    std::uint64_t room_rows;  // the most that memory has room for, beside the index as it is
    std::uint64_t cold_rows;
    std::uint64_t hits;
    std::uint64_t misses;
    std::uint64_t evicted_rows;
    std::uint64_t compacted_rows;
    std::uint64_t bytes_read;
    std::uint64_t bytes_written;
    std::uint64_t segments;
    std::uint64_t segment_bytes;
    std::uint64_t segment_rows;       // in them,
    std::uint64_t live_segment_rows;  // and of these, the newest written ones of their keys
  };
  TierFigures tier_figures() const;

  // Policies. The time, in seconds since 1970, is that of whatever comes next.
  void set_time(std::uint32_t seconds) { seconds_.store(seconds, std::memory_order_relaxed); }
  std::uint32_t time() const { return seconds_.load(std::memory_order_relaxed); }
  void end_pass();
  std::uint32_t pass() const;
  ShrinkCounts shrink(int threads);  // drops rows that are expired or of low score
  PolicyEvents policy_events() const;
  void counters(const std::int64_t* keys, std::int64_t count, const KeyCounters& out, int threads) const;

  // State of policies besides the counters of rows: all of it, or the changes since it was last taken, if there are
  // any. Until it is confirmed to be kept, restore_state() lets the next one have it too.
  std::optional<std::vector<std::byte>> take_state(bool is_whole);
  void confirm_state();
  void restore_state();
  // States of a table whose rows are in this one, in the order they were taken, the first one whole.
  void add_policy_state(const std::byte* state, std::size_t bytes, const Shard& shard);

  std::uint64_t rows() const;
  std::uint64_t bytes() const;

  // Number of times that values of rows changed, or rows lost their keys.
  std::uint64_t changes() const;
  std::uint64_t skipped_gradients() const { return skipped_gradients_.load(std::memory_order_relaxed); }
  TableConfig config() const;
  void set_lr(float lr);
  void set_memory_bytes(std::uint64_t memory_bytes);

  // Checkpoints: checkpoint_write.cpp. Pulls of known keys go on while one is written. One that takes the changes of a
  // chain is followed by confirm_changes(), or by restore_changes() where it did not become whole.
  WrittenCheckpoint write_checkpoint(const CheckpointRequest& request);
  void track_changes(int chain);
  void confirm_changes(int chain);
  void restore_changes(int chain);

  // checkpoint_load.cpp. After an error of load_checkpoint() the table is to be dropped.
  void reserve(std::uint64_t rows);  // room for that many more
  // The least budget with which reserve(keys) finds room beside so many rows in memory; of a table with rows on SSD.
  std::uint64_t least_memory_bytes(std::uint64_t keys, std::uint64_t batch_rows) const;
  void load_checkpoint(const std::string& folder, const std::vector<CheckpointPart>& parts, bool is_delta,
                       const Shard& shard, int threads);

  PartRecords part_records(RowContents contents) const {
    return records_of(slab_.layout(), config_.optimizer.kind, contents);
  }

  // For serving: values of rows whose state is lost. All is verified before the first row changes; then rows change
  // one after another, while pulls go on.
  void apply_values(const std::string& folder, const std::vector<CheckpointPart>& parts, const PartRecords& records,
                    int threads);

 private:
  friend class RowsInPlace;
  struct Workspace;  // of a thread that updates rows
  struct Saving;
  class GroupUpdate;

  std::uint32_t find(std::int64_t key) const { return index_.find(key, index_.hash(key)); }

  static std::uint64_t new_version();
  std::uint64_t changes_now() const { return updates_; }  // of a caller that holds the lock
  // The rows of a batch: those that were found before, and whether keys without one are counted as pulled.
  struct Batch {
    const std::int64_t* keys;
    std::int64_t count;
    std::uint32_t* rows;
    bool is_pull;
    bool creates = true;  // rows for keys without one
    bool admits_all = false;  // whatever admission says
  };
  std::vector<std::int64_t> missing_keys(const std::int64_t* keys, std::int64_t count, std::uint32_t* rows,
                                         bool marks, int threads) const;
  bool is_worth_streaming(const float* out, std::int64_t count) const;
  enum class Found { kAll, kInMemory, kOnDisk };  // all rows; those that there are; those that are in memory
  Found sum_rows(PulledRows& pulled, const Bags& bags, float* out, int threads) const;
  void mark_visited(const std::uint32_t* rows, std::int64_t begin, std::int64_t end) const;
  void read(const std::int64_t* keys, std::int64_t count, float* out, bool create, int threads, PulledRows* pulled);
  std::unique_lock<std::shared_mutex> lock_with_rows(const Batch& batch, int threads);
  void locate_or_create(const Batch& batch, int threads);
  std::uint64_t* reason_to_drop(const RowCounters& counters, std::uint32_t now, ShrinkCounts& counts) const;
  std::uint64_t shrink_hot(std::uint32_t now, ShrinkCounts& total, int threads);
  std::uint64_t shrink_cold(std::uint32_t now, ShrinkCounts& total);
  void count_pulled(const Batch& batch, const std::vector<std::int64_t>& missing);
  void give_back(std::uint32_t row);
  std::uint64_t bytes_with(std::uint64_t rows, std::uint64_t counted_keys = 0) const;
  void make_room(std::uint64_t rows, int threads = 1);
  std::uint64_t bytes_now() const;
  void check_budget(std::uint64_t bytes, std::uint64_t rows) const;
  std::uint64_t live_rows() const { return slab_.rows() - free_rows_.size(); }
  bool is_live(std::uint32_t row) const { return (live_[row / 64] >> (row % 64) & 1) != 0; }
  void set_live(std::uint32_t row, bool is_live);

  // table_create.cpp
  using IsNew = PooledArray<bool>;  // of each key of some
  void create_missing(const Batch& batch, const std::vector<std::int64_t>& missing, std::uint32_t* rows, int threads,
                      float* out = nullptr);
  IsNew place_together(const std::int64_t* keys, std::int64_t count, std::uint32_t* rows, int threads);
  IsNew place_in_turn(const Batch& batch, const std::vector<std::int64_t>& missing, std::uint32_t* rows);
  void fill_rows(const Batch& batch, const std::vector<std::int64_t>& missing, const std::uint32_t* rows,
                 const IsNew& is_new, int threads, float* out);
  std::uint32_t take_row(std::uint64_t new_keys = 1);
  void take_rows(std::uint32_t* rows, std::uint64_t count);
  void initial_values(std::int64_t key, float* values) const;
  void initialize_values(std::int64_t key, std::uint32_t row);
  void initialize_state(std::uint32_t row);
  void initial_record(std::int64_t key, std::byte* record) const;  // table_records.cpp

  std::vector<std::int64_t> nonfinite_positions(const std::int64_t* keys, const Push& push, int threads) const;
  std::vector<std::int64_t> nonfinite_gradients(const Push& push, int threads) const;
  void check_shows(const std::int64_t* keys, const Push& push) const;
  void count_dropped(const std::uint32_t* rows, std::int64_t count);
  void leave_out(const std::vector<std::int64_t>& positions, std::uint32_t* rows);
  // Dropping rows where there is no room: table_drop.cpp.
  struct Pins {
    std::vector<std::uint64_t> words;  // a bit for each row that must stay
    std::size_t created = 0;           // so many of the created rows are among them
  };
  bool drops_rows() const { return config_.policies.eviction != Eviction::kNone && tier_ == nullptr; }
  bool marks_visits() const { return config_.policies.eviction == Eviction::kClock && tier_ == nullptr; }
  bool is_room_for(std::uint64_t rows) const;
  std::uint64_t most_rows() const;
  void drop_for(const Batch& batch, const std::vector<std::int64_t>& missing, const std::vector<std::uint32_t>& created,
                Pins& pins);
  void pin_batch(const Batch& batch, const std::vector<std::int64_t>& missing, Pins& pins) const;
  std::uint64_t drop_by_clock(std::uint64_t count, const Pins& pins);
  std::uint64_t drop_by_score(std::uint64_t count, const Pins& pins);
  float score(std::uint32_t row) const;
  void count_push(std::uint32_t row, float shows, float clicks) const;

  void apply(const std::uint32_t* rows, const Push& push, int threads);

  ChangeTracker& tracker(int chain);
  void begin_saving(Saving& saving);
  void finish_saving(Saving& saving);
  void begin_changes(ChangeTracker& changes);
  void follow(ChangeTracker& changes);
  std::vector<std::byte> take_policy_state(const CheckpointRequest& request);
  void note_erased(std::int64_t key, std::uint32_t row = kNoRow);  // the row that it had, if that was in memory
  bool is_room_to_follow(std::uint64_t more_bytes) const;
  std::uint64_t most_followed_bytes() const { return config_.memory_bytes / kFollowedShare; }
  std::uint64_t followed_bytes(std::uint64_t rows) const;
  std::vector<CheckpointPart> write_rows(const CheckpointRequest& request,
                                         const std::vector<std::uint64_t>& selected) const;
  void gather(const std::vector<std::uint32_t>& rows, RowContents contents, std::uint64_t stride, std::int64_t* keys,
              std::byte* records) const;
  std::uint64_t next_sequence() const;
  std::vector<std::int64_t> erased_since(const ChangeTracker& changes) const;
  PooledArray<std::uint32_t> place_keys(const SegmentReader& segment, const CheckpointPart& part, bool is_delta,
                                        const Shard& shard);
  void load_through_tier(const std::string& folder, const std::vector<CheckpointPart>& parts, bool is_delta,
                         const Shard& shard);
  void put_record(std::int64_t key, const std::byte* record);
  void forget(const std::vector<std::int64_t>& keys);
  std::uint64_t check_values(const std::string& folder, const std::vector<CheckpointPart>& parts,
                             const PartRecords& records, int threads) const;
  void check_packable(std::int64_t key, const std::byte* record, RowContents contents,
                      std::vector<float>& values) const;
  std::uint32_t set_row(std::int64_t key, const float* values);

  // table_cold.cpp
  void copy_cold(const std::int64_t* keys, const std::vector<std::int64_t>& missing, float* out, PulledRows* pulled,
                 std::shared_lock<std::shared_mutex> lock) const;
  void read_through(const std::int64_t* keys, std::int64_t count, const std::vector<std::int64_t>& missing, float* out,
                    int threads, PulledRows* pulled);
  std::unique_lock<std::shared_mutex> lock_with_hot_rows(const Batch& batch, int threads);
  void make_hot(const Batch& batch, int threads, std::unique_lock<std::shared_mutex>& lock);
  void locate_again(std::vector<WantedRow>& cold) const;
  std::uint64_t pin(const std::uint32_t* rows, std::int64_t count);
  void promote(const std::vector<WantedRow>& rows, int threads, std::unique_lock<std::shared_mutex>& lock);
  template <typename Seen>
  void take_in(const ColdReading& reading, std::size_t begin, std::size_t end, const std::byte* records, int threads,
               const Seen& seen);
  bool take_row_in(const WantedRow& wanted, std::uint64_t sequence, std::uint32_t& location);
  void copy_cold_keys(std::int64_t* keys) const;
  void note_created(const std::vector<std::uint32_t>& rows);
  void note_changed(const std::uint32_t* rows, std::int64_t count);
  void forget_cold(std::int64_t key, std::uint32_t location);
  void forget_home(std::uint32_t row);

  // checkpoint_tier.cpp
  std::unique_ptr<TierSnapshot> take_snapshot(const CheckpointRequest& request);
  void write_snapshot(const CheckpointRequest& request, const TierSnapshot& snapshot, WrittenCheckpoint& written);
  bool holds_erased(const SegmentReader& file, const std::vector<std::uint64_t>& live) const;
  std::vector<CheckpointPart> copy_segments(const CheckpointRequest& request,
                                            const std::vector<const SegmentAtMoment*>& segments) const;
  void copy_segment(const SegmentAtMoment& segment, RowContents contents, std::uint64_t first,
                    SegmentWriter& writer) const;

  // table_evict.cpp
  std::uint64_t bytes_beside_disk(std::uint64_t index_bytes, std::uint64_t rows, std::uint64_t keys) const;
  std::uint64_t hot_limit(std::uint64_t index_bytes, std::uint64_t keys = 0) const;
  std::uint64_t index_rows() const;
  bool make_index_room(std::uint64_t more);
  void make_space(std::uint64_t rows, std::uint64_t pinned);
  std::uint64_t space() const;
  void check_hot_room(std::uint64_t new_keys) const;
  std::uint64_t evict(std::uint64_t count, const std::vector<std::uint64_t>& pinned);
  void move_out(const std::vector<std::uint32_t>& rows);
  void move_out_row(std::uint32_t row);
  void write_home(std::uint32_t row);
  void evict_from(std::uint64_t limit);
  void write_erased_keys();
  std::uint64_t write_changed(std::uint64_t word, std::uint64_t most);
  void write_changed_in_parts();

  // Of memory_bytes: what the notes of changed rows and erased keys may take where rows make room for each other.
  static constexpr std::uint64_t kFollowedShare = 32;

  // table_prefetch.cpp
  struct PassPart;
  std::vector<WantedRow> begin_pass(const std::int64_t* keys, std::int64_t count, Prefetched& result,
                                    const std::atomic<bool>& is_stopped);
  std::vector<WantedRow> bring_in(const std::vector<WantedRow>& rows, int threads, Prefetched& result,
                                  const std::atomic<bool>& is_stopped);
  PassPart read_part(const WantedRow* rows, std::size_t count, std::byte* records, const std::atomic<bool>& is_stopped);
  bool place_part(const PassPart& part, int threads, std::vector<WantedRow>& moved, Prefetched& result,
                  const std::atomic<bool>& is_stopped);
  std::uint64_t make_space_beside_passes(std::uint64_t rows, std::unique_lock<std::mutex>& moving,
                                         std::unique_lock<std::shared_mutex>& lock);
  void wait_for_others(const std::atomic<bool>& is_stopped) const;

  // table_compact.cpp
  void wake_compactor();
  void give_way_to_compaction();
  bool compact_some();
  bool begin_compaction();
  void read_compacted();
  bool move_compacted();
  void move_compacted(std::size_t begin, std::size_t end);
  void move_cold_row(std::int64_t key, std::uint32_t location, const std::byte* record);

  TableConfig config_;
  PhiloxKey init_key_;
  PhiloxKey rounding_key_;
  RowUpdate update_;
  RowIndex index_;
  Slab slab_;
  std::vector<std::uint64_t> live_;        // a bit for each row: whether it has a key
  std::vector<std::uint32_t> free_rows_;   // those that have none, the next one to be used last
  std::uint64_t version_ = new_version();  // another one whenever numbers of rows lose their keys
  std::uint64_t updates_ = 0;              // how often values of rows changed, or rows lost their keys for good
  KeyAdmission admission_;
  mutable VisitedRows visited_;  // since the hand of the clock passed; only where rows are dropped by it
  std::uint32_t pass_ = 0;
  std::uint32_t taken_pass_ = 0;  // when the state was last taken
  std::uint32_t confirmed_pass_ = 0;
  std::atomic<std::uint32_t> seconds_{0};
  PolicyEvents events_;
  std::atomic<std::uint64_t> skipped_gradients_{0};
  std::array<ChangeTracker, kChains> trackers_;
  std::mutex saving_;             // one checkpoint at a time
  mutable std::mutex following_;  // the trackers, where the lock is shared
  std::unique_ptr<TableTier> tier_;  // where rows may be on SSD
  mutable std::shared_mutex mutex_;
  std::unique_ptr<Compactor> compactor_;  // last: its thread uses all of the above
};

}  // namespace graphbox
