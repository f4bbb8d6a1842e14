// Which rows changed and which keys were erased since a checkpoint: what the next delta holds.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace graphbox {

// Off until start(). A row's number may pass to another key: the row of a new key counts as changed, and the old key as
// erased. Changes are made with the table locked, but for mark(), which several threads may call at once.
class ChangeTracker {
 public:
  bool is_on() const { return is_on_; }
  bool has_changed(std::uint32_t row) const { return (now_.rows[row / 64] >> (row % 64) & 1) != 0; }
  const std::vector<std::uint64_t>& changed_rows() const { return now_.rows; }  // a bit for each
  const std::vector<std::int64_t>& erased_keys() const { return now_.erased; }
  // What it takes with `rows` rows.
  std::size_t bytes_for(std::uint64_t rows) const {
    return is_on_ ? ((rows + 63) / 64 + before_.rows.size() + now_.erased.capacity() + before_.erased.capacity()) * 8
                  : 0;
  }

  void start(std::uint64_t rows) {
    stop();
    is_on_ = true;
    grow(rows);
  }

  void stop() {
    now_ = {};
    before_ = {};
    is_on_ = false;
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

  void erase(std::int64_t key) {
    if (is_on_) {
      now_.erased.push_back(key);
    }
  }

  // What changed so far was written: what changes from now on is for the checkpoint after that one. Until confirm()
  // the old changes can be taken back by restore().
  void begin_next() {
    const std::size_t words = now_.rows.size();
    before_ = std::exchange(now_, {});
    now_.rows.resize(words);
  }
  void confirm() { before_ = {}; }
  void restore() {
    for (std::size_t word = 0; word < before_.rows.size(); ++word) {
      now_.rows[word] |= before_.rows[word];
    }
    now_.erased.insert(now_.erased.begin(), before_.erased.begin(), before_.erased.end());
    before_ = {};
  }

 private:
  struct Changes {
    std::vector<std::uint64_t> rows;
    std::vector<std::int64_t> erased;
  };

  bool is_on_ = false;
  Changes now_;
  Changes before_;
};

}  // namespace graphbox
