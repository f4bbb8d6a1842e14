// Admission of keys to rows.
//
// By count: how often keys without a row were pulled is counted exactly, or in a count-min sketch (Cormode and
// Muthukrishnan, "An improved data stream summary: the count-min sketch and its applications", J. Algorithms 55, 2005)
// with conservative update (Estan and Varghese, SIGCOMM 2002): four rows of counters, of which a key has one in each; the
// least of them is the estimate, and only those that are as low are raised. It never says less than was counted; with
// width w (a quarter of its bytes) and N counted it says more than e * N / w too much for at most e^-4 =
// 1.8 % of keys. All counts are halved now and then, so that it goes on for ever (Einziger, Friedman and Manes, "TinyLFU", ACM TOS 13, 2017).
//
// By probability: a draw for each key and pass.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "random/philox.h"
#include "table/policy.h"
#include "table/row_index.h"

namespace graphbox {

class KeyAdmission {
 public:
  KeyAdmission(const PolicyConfig& config, std::uint64_t seed);

  bool admits_all() const { return config_.admission == Admission::kAll; }
  bool admits(std::int64_t key, std::uint32_t pass) const;

  // Counts the keys at these positions, until keep() for good; take_back() undoes it.
  void count(const std::int64_t* keys, const std::vector<std::int64_t>& positions);
  void keep();
  void take_back();

  // Keys that have a row now, or that are to be forgotten.
  void forget(std::int64_t key);

  std::uint64_t bytes() const { return sketch_.size() + exact_bytes() + followed_bytes(); }
  // However much of the sketch changes, and whoever follows that: beginning to is never refused.
  std::uint64_t most_bytes() const;
  // While so many more keys are counted.
  std::uint64_t bytes_for(std::uint64_t more_keys) const;

  // All that was counted, to be kept with the table.
  std::vector<std::byte> state() const;

  // Changes since the state was last kept, for followers that keep counts in steps: they begin with all of it, and
  // begin_next() with each step. Until confirm(), restore() lets the next step have the changes of this one, too.
  enum Follower : std::size_t { kChain = 0, kFolder = 1 };  // deltas; the folder of a table with rows on SSD
  void follow(Follower follower);
  bool has_changed(Follower follower) const;
  std::vector<std::byte> changes(Follower follower) const;  // or all, where that is smaller
  void begin_next(Follower follower);
  void confirm(Follower follower);
  void restore(Follower follower);

  // Takes the steps of another table of the same settings, in their order: all of it, which stands instead of what is
  // there, then changes; but for keys that are not of this table,
  // where each key is told apart.
  using IsOfTable = std::function<bool(std::int64_t)>;
  void add_state(const std::byte* state, std::size_t bytes, const IsOfTable& is_of_table);

 private:
  static constexpr std::size_t kDepth = 4;
  static constexpr std::size_t kFollowers = 2;
  // In the counts of keys: changed since the last delta.
  static constexpr std::uint32_t kChangedCount = std::uint32_t{1} << 30;

  struct Changes {
    std::vector<std::uint64_t> cells;   // a bit for each of the sketch
    std::vector<std::int64_t> removed;  // keys whose exact counts went
    std::uint32_t halvings = 0;
    std::uint64_t pulls = 0;  // when they began
  };
  struct Following {
    bool is_on = false;
    Changes now;
    std::optional<Changes> before;           // since begin_next()
    std::vector<std::int64_t> changed_then;  // keys whose counts had changed
  };

  using Cells = std::array<std::uint64_t, kDepth>;

  std::uint64_t exact_bytes() const { return config_.admission == Admission::kCount ? counts_.bytes() : 0; }
  Cells cells_of(std::int64_t key) const;
  std::uint8_t estimate(const Cells& cells) const;
  void count_in_sketch(const std::int64_t* keys, const std::vector<std::int64_t>& positions);
  void count_exactly(std::int64_t key);
  void halve();
  std::uint64_t cell_words() const { return (sketch_.size() + 63) / 64; }  // of a bit for each cell
  std::uint64_t followed_bytes() const;
  void note_cell(std::uint64_t cell);
  std::vector<std::byte> cell_changes(const Changes& changes) const;
  std::vector<std::byte> count_changes(const Changes& changes) const;
  void add_cell_changes(const std::byte* state, std::size_t bytes);
  void add_counts(const std::byte* pairs, std::size_t bytes, const IsOfTable& is_of_table);
  void drop_count(std::int64_t key);

  PolicyConfig config_;
  PhiloxKey random_;
  std::uint64_t threshold_;  // of 32 random bits, for admission by probability
  std::vector<std::uint8_t> sketch_;
  RowIndex counts_;          // of a key instead of its row
  std::uint64_t counted_keys_ = 0;
  std::uint64_t pulls_ = 0;  // counted since the last halving, but for those that are not kept yet
  std::uint64_t pending_pulls_ = 0;
  std::vector<std::pair<std::uint64_t, std::uint8_t>> raised_;  // cells and what they were
  std::vector<std::int64_t> counted_;                           // keys, exactly
  std::array<Following, kFollowers> following_;
};

}  // namespace graphbox
