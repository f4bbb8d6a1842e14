// Which rows changed and which keys were erased since a checkpoint: what the next delta holds.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace graphbox {

// Rows on SSD are known by their segments: what changed since and went there is in segments written since. That may be
// more than changed, never less.
//
// Off until start(). A row's number may pass to another key: the row of a new key counts as changed, and the old key as
// erased. Changes are made with the table locked, but for mark(), which several threads may call at once.
class ChangeTracker {
 public:
  bool is_on() const { return is_on_; }
  bool has_changed(std::uint32_t row) const { return (now_.rows[row / 64] >> (row % 64) & 1) != 0; }
  const std::vector<std::uint64_t>& changed_rows() const { return now_.rows; }  // a bit for each
  const std::vector<std::int64_t>& erased_keys() const { return now_.erased; }
  // Segments from this sequence number on were written since.
  std::uint64_t first_sequence() const { return now_.first_sequence; }
  // The same, also if the old changes are taken back.
  std::uint64_t oldest_sequence() const { return before_ ? before_->first_sequence : now_.first_sequence; }
  // What it takes with `rows` rows.
  std::size_t bytes_for(std::uint64_t rows) const {
    const std::size_t before = before_ ? before_->rows.size() + before_->erased.capacity() : 0;
    return is_on_ ? ((rows + 63) / 64 + now_.erased.capacity() + before) * 8 : 0;
  }

  void start(std::uint64_t rows, std::uint64_t next_sequence) {
    stop();
    is_on_ = true;
    now_.first_sequence = next_sequence;
    grow(rows);
  }

  // The same with a checkpoint that is not whole yet: restore() ends it again, for there is none to go on from.
  void begin_first(std::uint64_t rows, std::uint64_t next_sequence) {
    start(rows, next_sequence);
    is_first_ = true;
  }

  void stop() {
    now_ = {};
    before_.reset();
    is_on_ = false;
    is_first_ = false;
  }

  void grow(std::uint64_t rows) {
    if (is_on_ && now_.rows.size() * 64 < rows) {
      now_.rows.resize((rows + 63) / 64);
    }
  }

  void mark(std::uint32_t row) {
    if (!is_on_) {
      return;
    }
    std::atomic_ref<std::uint64_t> word(now_.rows[row / 64]);
    const std::uint64_t bit = std::uint64_t{1} << (row % 64);
    if ((word.load(std::memory_order_relaxed) & bit) == 0) {
      word.fetch_or(bit, std::memory_order_relaxed);
    }
  }

  // The row was read from a segment that is older than all changes.
  void unmark(std::uint32_t row) {
    if (is_on_) {
      now_.rows[row / 64] &= ~(std::uint64_t{1} << (row % 64));
    }
  }

  void erase(std::int64_t key) {
    if (is_on_) {
      now_.erased.push_back(key);
    }
  }

  // What changed so far was written: what changes from now on is for the checkpoint after that one. Until confirm()
  // the old changes can be taken back by restore().
  void begin_next(std::uint64_t next_sequence) {
    const std::size_t words = now_.rows.size();
    before_ = std::exchange(now_, {});
    now_.rows.resize(words);
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
    }
    now_.erased.insert(now_.erased.begin(), before_->erased.begin(), before_->erased.end());
    now_.first_sequence = before_->first_sequence;
    before_.reset();
  }

 private:
  struct Changes {
    std::vector<std::uint64_t> rows;
    std::vector<std::int64_t> erased;
    std::uint64_t first_sequence = 0;
  };

  bool is_on_ = false;
  bool is_first_ = false;  // begun with a checkpoint that may not become whole
  Changes now_;
  std::optional<Changes> before_;
};

}  // namespace graphbox
