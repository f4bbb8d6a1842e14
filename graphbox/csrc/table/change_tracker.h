// Rows that changed and keys that were erased since a checkpoint: the content of the next delta.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace graphbox {

// Followers of a table's changes: each is written to deltas of its own.
inline constexpr int kChains = 2;
inline constexpr int kTrainingChain = 0;  // of whole rows

// Rows in memory are known by a bit for each. Of a table with rows on SSD, changed rows are those in segments that were
// written since, but for rows that were only moved there.
//
// Off until it is begun. A row's number may pass to another key: the row of a new key counts as changed, and the old key
// as erased, unless that had come since. Changes are made with the table locked, but for mark(), which several threads
// may call at once.
class ChangeTracker {
 public:
  bool is_on() const { return is_on_; }
  bool has_changed(std::uint32_t row) const { return has_bit(now_.rows, row); }
  const std::vector<std::uint64_t>& changed_rows() const { return now_.rows; }  // a bit for each
  const std::vector<std::int64_t>& erased_keys() const { return now_.erased; }
  // Segments from this sequence number on were written since.
  std::uint64_t first_sequence() const { return now_.first_sequence; }
  // The same, also if the old changes are taken back.
  std::uint64_t oldest_sequence() const { return before_ ? before_->first_sequence : now_.first_sequence; }

  // Memory of the tracker with `rows` rows in memory.
  std::size_t bytes_for(std::uint64_t rows) const {
    const std::size_t before = before_ ? before_->words() : 0;
    return is_on_ ? ((follows_rows_ ? 2 * ((rows + 63) / 64) : 0) + now_.erased.capacity() + before) * 8 : 0;
  }
  // Growth of that with the next erased key.
  std::size_t growth_bytes() const {
    return is_on_ && now_.erased.size() == now_.erased.capacity() ? grown_size() * 8 - now_.erased.capacity() * 8 : 0;
  }

  void follow_rows(std::uint64_t rows) {
    stop();
    is_on_ = follows_rows_ = true;
    grow(rows);
  }
  void follow_segments(std::uint64_t next_sequence) {
    stop();
    is_on_ = true;
    now_.first_sequence = next_sequence;
  }
  // The checkpoint that it was begun with is not whole yet: restore() ends it again, for there is none to go on from.
  void await_first() { is_first_ = true; }

  void stop() {
    now_ = {};
    before_.reset();
    is_on_ = follows_rows_ = is_first_ = false;
  }

  void grow(std::uint64_t rows) {
    if (follows_rows_ && now_.rows.size() * 64 < rows) {
      now_.rows.resize((rows + 63) / 64);
      now_.created.resize(now_.rows.size());
    }
  }

  void mark(std::uint32_t row) {
    if (!follows_rows_) {
      return;
    }
    std::atomic_ref<std::uint64_t> word(now_.rows[row / 64]);
    const std::uint64_t bit = std::uint64_t{1} << (row % 64);
    if ((word.load(std::memory_order_relaxed) & bit) == 0) {
      word.fetch_or(bit, std::memory_order_relaxed);
    }
  }

  // The row is that of a key which had none.
  void mark_created(std::uint32_t row) {
    if (follows_rows_) {
      mark(row);
      now_.created[row / 64] |= std::uint64_t{1} << (row % 64);
    }
  }

  // Notes a key; of one whose row is in memory, see the next.
  void erase(std::int64_t key) {
    if (!is_on_) {
      return;
    }
    if (now_.erased.size() == now_.erased.capacity()) {
      now_.drop_repetitions();
      now_.erased.reserve(grown_size());
    }
    now_.erased.push_back(key);
  }
  // So no more keys are noted than the table had rows.
  void erase(std::int64_t key, std::uint32_t row) {
    if (follows_rows_ && has_bit(now_.created, row)) {
      now_.created[row / 64] &= ~(std::uint64_t{1} << (row % 64));
      return;
    }
    erase(key);
  }

  // Marks the changes so far as written: later ones are for the checkpoint after that one. Until confirm() restore()
  // can take the old changes back.
  void begin_next(std::uint64_t next_sequence) {
    const std::size_t words = now_.rows.size();
    before_ = std::exchange(now_, {});
    now_.rows.resize(words);
    now_.created.resize(words);
    now_.first_sequence = next_sequence;
  }
  void confirm() {
    before_.reset();
    is_first_ = false;
  }
  void restore() {
    if (is_first_) {
      stop();
    }
    if (!before_) {
      return;
    }
    for (std::size_t word = 0; word < before_->rows.size(); ++word) {
      now_.rows[word] |= before_->rows[word];
      now_.created[word] |= before_->created[word];
    }
    now_.erased.insert(now_.erased.begin(), before_->erased.begin(), before_->erased.end());
    now_.first_sequence = before_->first_sequence;
    before_.reset();
  }

 private:
  static constexpr std::size_t kFewestErased = 128;  // that there is room for, once there is one

  struct Changes {
    std::vector<std::uint64_t> rows;
    std::vector<std::uint64_t> created;
    std::vector<std::int64_t> erased;
    std::uint64_t first_sequence = 0;

    std::size_t words() const { return rows.size() + created.size() + erased.capacity(); }
    void drop_repetitions() {
      std::sort(erased.begin(), erased.end());
      erased.erase(std::unique(erased.begin(), erased.end()), erased.end());
    }
  };

  static bool has_bit(const std::vector<std::uint64_t>& bits, std::uint32_t row) {
    return (bits[row / 64] >> (row % 64) & 1) != 0;
  }
  // Room for a quarter more than there are, so that repetitions are looked for seldom.
  std::size_t grown_size() const { return std::max(kFewestErased, now_.erased.size() + now_.erased.size() / 4 + 1); }

  bool is_on_ = false;
  bool follows_rows_ = false;
  bool is_first_ = false;  // begun with a checkpoint that may not become whole
  Changes now_;
  std::optional<Changes> before_;
};

}  // namespace graphbox
