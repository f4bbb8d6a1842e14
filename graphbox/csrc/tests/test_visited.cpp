#include "table/visited.h"

#include <vector>

#include "random/philox.h"
#include "tests/check.h"

namespace graphbox {
namespace {

struct Bits {
  explicit Bits(std::uint64_t rows) : words((rows + 63) / 64) {}
  void set(std::uint64_t row, bool value) {
    const std::uint64_t bit = std::uint64_t{1} << (row % 64);
    words[row / 64] = value ? words[row / 64] | bit : words[row / 64] & ~bit;
  }
  bool has(std::uint64_t row) const { return (words[row / 64] >> (row % 64) & 1) != 0; }
  std::vector<std::uint64_t> words;
};

// The same hand, one row at a time.
std::vector<std::uint32_t> evict_plainly(std::uint64_t count, Bits& live, const Bits& pinned, Bits& marks,
                                         std::uint64_t rows, std::uint64_t& hand) {
  std::vector<std::uint32_t> left;
  const std::uint64_t steps = 2 * rows + 64;
  for (std::uint64_t step = 0; step < steps && left.size() < count; ++step) {
    hand = hand >= rows ? 0 : hand;
    if (live.has(hand) && !pinned.has(hand)) {
      if (marks.has(hand)) {
        marks.set(hand, false);
      } else {
        live.set(hand, false);
        left.push_back(static_cast<std::uint32_t>(hand));
      }
    }
    ++hand;
  }
  return left;
}

TEST(visited, evicts_as_a_hand_that_looks_at_one_row_after_another) {
  constexpr std::uint64_t kRows = 64 * 5;
  const PhiloxKey random = derive_key(Stream::kWalk, 8, 0, 0);
  VisitedRows visited;
  visited.resize(kRows);
  Bits live(kRows);
  Bits marks(kRows);
  std::uint64_t hand = 0;
  for (std::uint64_t round = 0; round < 3000; ++round) {
    const DrawSequence draws(random, 0, 0, round);
    Bits pinned(kRows);
    for (std::uint32_t draw = 0; draw < 40; ++draw) {
      const std::uint64_t row = draws.bounded_wide(draw, kRows);
      if (draw < 15) {
        live.set(row, true);
      } else if (draw < 32) {
        visited.visit(static_cast<std::uint32_t>(row));
        marks.set(row, true);
      } else {
        pinned.set(row, true);
      }
    }
    const std::uint64_t count = draws.bounded_wide(40, 20);
    Bits plain_live = live;
    const auto expected = evict_plainly(count, plain_live, pinned, marks, kRows, hand);
    std::vector<std::uint32_t> left;
    const std::uint64_t evicted = visited.evict(count, live.words, pinned.words, [&](std::uint32_t row) {
      left.push_back(row);
      live.set(row, false);
    });
    CHECK_EQUAL(evicted, left.size());
    CHECK(left == expected);
    CHECK(live.words == plain_live.words);
    if (left.size() == count && count > 0) {  // otherwise where the hand stops after its turns is its own affair
      CHECK_EQUAL(visited.hand() % kRows, hand % kRows);
    } else {
      hand = visited.hand();
    }
    for (std::uint32_t row = 0; row < kRows; ++row) {
      marks.set(row, visited.is_visited(row));
    }
  }
}

TEST(visited, nothing_leaves_where_nothing_is) {
  VisitedRows visited;
  CHECK_EQUAL(visited.evict(3, {}, {}, [](std::uint32_t) {}), 0U);
}

}  // namespace
}  // namespace graphbox
