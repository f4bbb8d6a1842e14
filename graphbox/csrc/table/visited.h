// Mark bits of rows that were looked up lately, and the choice of the row to evict when there is no room.
//
// CLOCK (Corbato, "A paging experiment with the Multics system", 1968): a hand goes round over the rows; a row that was
// looked up since the hand passed it stays and loses its mark, another leaves. A new row has no mark and stands just
// behind the hand where it took the place of one that left, so it has a whole turn to be looked up again.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "portability/cpu.h"

namespace graphbox {

class VisitedRows {
 public:
  // New rows have no mark. Nothing else may go on meanwhile.
  void resize(std::uint64_t rows) { words_.resize((rows + 63) / 64); }

  std::uint64_t bytes() const { return words_.size() * sizeof(std::uint64_t); }

  // Threads may mark rows side by side: what is marked in the end does not depend on their order.
  GRAPHBOX_INLINE void visit(std::uint32_t row) {
    const std::atomic_ref<std::uint64_t> word(words_[row / 64]);
    const std::uint64_t bit = std::uint64_t{1} << (row % 64);
    if ((word.load(std::memory_order_relaxed) & bit) == 0) {
      word.fetch_or(bit, std::memory_order_relaxed);
    }
  }
  bool is_visited(std::uint32_t row) const { return (words_[row / 64] >> (row % 64) & 1) != 0; }
  void forget(std::uint32_t row) { words_[row / 64] &= ~(std::uint64_t{1} << (row % 64)); }

  // Calls leave(row) for the next `count` rows that leave, of those whose bits are set in `live` and not in `pinned`
  // (as many words as there are here; leave() clears the bit in `live`). Returns how many left: fewer only if no others
  // may. Nothing else may go on meanwhile.
  template <typename Leave>
  std::uint64_t evict(std::uint64_t count, const std::vector<std::uint64_t>& live,
                      const std::vector<std::uint64_t>& pinned, Leave leave) {
    const std::uint64_t rows = words_.size() * 64;
    std::uint64_t left = 0;
    if (words_.empty()) {
      return left;
    }
    // One turn to take marks away, one to find who has none; the word that the hand stands in is met in two parts.
    for (std::uint64_t met = 0; left < count && met < 2 * words_.size() + 1; ++met) {
      hand_ = hand_ >= rows ? 0 : hand_;
      const std::size_t place = hand_ / 64;
      const std::uint64_t ahead = ~std::uint64_t{0} << (hand_ % 64);
      const std::uint64_t may_leave = live[place] & ~pinned[place] & ahead;
      std::uint64_t unmarked = may_leave & ~words_[place];
      std::uint64_t passed = ahead;  // by the hand, in this word
      while (unmarked != 0 && left < count) {
        const auto bit = static_cast<std::uint32_t>(std::countr_zero(unmarked));
        unmarked &= unmarked - 1;
        leave(static_cast<std::uint32_t>(place * 64 + bit));
        if (++left == count) {
          passed = bit == 63 ? ahead : ahead & ((std::uint64_t{1} << (bit + 1)) - 1);
        }
      }
      words_[place] &= ~(may_leave & passed);
      hand_ = place * 64 + static_cast<std::uint64_t>(64 - std::countl_zero(passed));
    }
    return left;
  }

  std::uint64_t hand() const { return hand_; }
  void set_hand(std::uint64_t row) { hand_ = row; }

 private:
  std::vector<std::uint64_t> words_;
  std::uint64_t hand_ = 0;  // the row that it looks at next
};

}  // namespace graphbox
