// Which keys may have a row.
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

  std::uint64_t bytes() const { return sketch_.size() + exact_bytes(); }
  // While so many more keys are counted.
  std::uint64_t bytes_for(std::uint64_t more_keys) const;

  // All that was counted, to be kept with the table and added to another one of the same settings.
  std::vector<std::byte> state() const;
  // But for keys that are not of this table, where each key is told apart.
  void add_state(const std::byte* state, std::size_t bytes, const std::function<bool(std::int64_t)>& is_of_table);

 private:
  static constexpr std::size_t kDepth = 4;
  using Cells = std::array<std::uint64_t, kDepth>;

  std::uint64_t exact_bytes() const { return config_.admission == Admission::kCount ? counts_.bytes() : 0; }
  Cells cells_of(std::int64_t key) const;
  std::uint8_t estimate(const Cells& cells) const;
  void count_in_sketch(const std::int64_t* keys, const std::vector<std::int64_t>& positions);
  void count_exactly(std::int64_t key);
  void halve();

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
};

}  // namespace graphbox
