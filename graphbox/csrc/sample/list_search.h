// Finds a value in an ascending list one cache line at a time, so that many searches can wait for memory together.
#pragma once

#include <algorithm>
#include <cstdint>

#include "portability/cpu.h"

namespace graphbox {

enum class SearchState : std::uint8_t { kGoesOn, kFound, kAbsent };

// The first lines are guessed from the values (interpolation search: two or three lines where the ids in a list are
// spread evenly, however long it is), later ones halve what is left. start() and advance() ask for the line that the
// next advance() reads.
template <typename Index>
class ListSearch {
 public:
  // `list` ascending, values in [0, limit). Looks for the copy number `rank` (from 0) of `target`. length > 0.
  GRAPHBOX_INLINE void start(const Index* list, std::int64_t length, std::int64_t target, std::int64_t limit,
                             std::int64_t rank) {
    list_ = list;
    length_ = length;
    target_ = target;
    rank_ = rank;
    low_ = 0;
    high_ = length;
    low_value_ = -1;
    high_value_ = limit;
    lines_ = 0;
    aim();
  }

  // Reads a line. kGoesOn: call it again.
  GRAPHBOX_INLINE SearchState advance() {
    const std::int64_t last = end_ - 1;
    if (list_[last] < target_) {
      low_ = end_;
      low_value_ = list_[last];
    } else if (list_[begin_] > target_) {
      high_ = begin_;
      high_value_ = list_[begin_];
    } else {
      return in_line();
    }
    if (low_ >= high_) {
      return SearchState::kAbsent;
    }
    aim();
    return SearchState::kGoesOn;
  }

 private:
  static constexpr std::int64_t kLineValues = static_cast<std::int64_t>(kCacheLineBytes / sizeof(Index));
  static constexpr int kGuessedLines = 4;

  // Chooses the line to read within [low_, high_).
  GRAPHBOX_INLINE void aim() {
    std::int64_t middle = low_;
    const std::int64_t left = high_ - low_;
    if (left > kLineValues) {
      // A damaged list may not ascend, and then the guess lies anywhere: it is clamped.
      middle = low_ + left / 2;
      if (lines_ < kGuessedLines && high_value_ > low_value_) {
        const auto below = static_cast<double>(low_value_);
        const double share = (static_cast<double>(target_) - below) / (static_cast<double>(high_value_) - below);
        middle = std::clamp(low_ + static_cast<std::int64_t>(share * static_cast<double>(left)), low_, high_ - 1);
      }
    }
    ++lines_;
    const auto offset = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(list_ + middle) / sizeof(Index) %
                                                  static_cast<std::uintptr_t>(kLineValues));
    begin_ = std::max(low_, middle - offset);
    end_ = std::min(high_, middle - offset + kLineValues);
    prefetch(list_ + begin_);
  }

  // The target is not below the first value of the line and not above its last.
  GRAPHBOX_INLINE SearchState in_line() const {
    if (rank_ == 0) {
      bool found = false;
      for (std::int64_t i = begin_; i < end_; ++i) {
        found |= list_[i] == target_;
      }
      return found ? SearchState::kFound : SearchState::kAbsent;
    }
    // Copies may begin in a line before.
    const Index* const first = std::lower_bound(list_ + low_, list_ + end_, target_);
    const std::int64_t wanted = first - list_ + rank_;
    return wanted < length_ && list_[wanted] == target_ ? SearchState::kFound : SearchState::kAbsent;
  }

  const Index* list_;
  std::int64_t length_;
  std::int64_t target_;
  std::int64_t rank_;
  std::int64_t low_;  // the first copy is in [low_, high_), if there is one
  std::int64_t high_;
  std::int64_t low_value_;
  std::int64_t high_value_;
  std::int64_t begin_;  // the line to read is [begin_, end_)
  std::int64_t end_;
  int lines_;
};

}  // namespace graphbox
