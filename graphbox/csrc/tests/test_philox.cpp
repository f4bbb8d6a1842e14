#include "random/philox.h"

#include <cmath>
#include <vector>

#include "random/permutation.h"
#include "random/philox_fill.h"
#include "tests/check.h"

namespace graphbox {
namespace {

// The known answers of Random123 1.14, tests/kat_vectors, philox4x32 10.
TEST(philox, known_answers) {
  struct Answer {
    PhiloxBlock counter;
    PhiloxKey key;
    PhiloxBlock words;
  };
  const Answer answers[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const Answer& answer : answers) {
    CHECK(philox4x32_10(answer.counter, answer.key) == answer.words);
  }
}

TEST(philox, filling_is_the_same_as_drawing) {
  const PhiloxKey key = derive_key(Stream::kRowInitialization, 7, 1, 2);
  for (const std::uint64_t position : {std::uint64_t{0}, std::uint64_t{5}, ~std::uint64_t{0}}) {
    const DrawSequence draws(key, 3, 0, position);
    for (const std::uint32_t first_group : {0U, 5U}) {
      std::uint32_t words[96];
      philox_fill(key, 3, position, first_group, 3, words);
      for (std::uint32_t i = 0; i < 96; ++i) {
        const std::uint32_t draw = 32 * first_group + i;
        CHECK_EQUAL(words[i], draws.block(draw / 4)[draw % 4]);
      }
    }
  }
}

TEST(philox, keys_differ_in_every_part) {
  const auto number = [](PhiloxKey key) { return std::uint64_t{key.high} << 32 | key.low; };
  const std::uint64_t base = number(derive_key(Stream::kWalk, 1, 2, 3));
  CHECK(base != number(derive_key(Stream::kNeighbor, 1, 2, 3)));
  CHECK(base != number(derive_key(Stream::kWalk, std::uint64_t{1} << 40, 2, 3)));
  CHECK(base != number(derive_key(Stream::kWalk, 1, 3, 3)));
  CHECK(base != number(derive_key(Stream::kWalk, 1, 2, std::uint64_t{3} << 32)));
}

// With a range just above 2^31 almost half of all words are rejected: without rejection the first half of the range
// would be drawn twice as often.
TEST(philox, bounded_integers_are_not_biased) {
  const std::uint32_t range = (std::uint32_t{1} << 31) + (std::uint32_t{1} << 30);
  const PhiloxKey key = derive_key(Stream::kWalk, 0, 0, 0);
  const int draws = 60000;
  int thirds[3] = {0, 0, 0};
  for (int i = 0; i < draws; ++i) {
    const DrawSequence sequence(key, 0, 0, static_cast<std::uint64_t>(i));
    const std::uint64_t value = sequence.bounded_wide(0, range);
    CHECK(value < range);
    ++thirds[value / (std::uint32_t{1} << 30)];
  }
  for (const int third : thirds) {
    CHECK(std::abs(third - draws / 3) < 5 * 116);  // standard deviation 115.5
  }
}

TEST(philox, wide_ranges) {
  const PhiloxKey key = derive_key(Stream::kWalk, 0, 0, 0);
  const std::uint64_t range = (std::uint64_t{1} << 62) + 12345;
  double mean = 0;
  for (int i = 0; i < 4000; ++i) {
    const std::uint64_t value =
        DrawSequence(key, 0, 0, static_cast<std::uint64_t>(i)).bounded_wide(static_cast<std::uint32_t>(i), range);
    CHECK(value < range);
    mean += static_cast<double>(value) / static_cast<double>(range) / 4000;
  }
  CHECK(std::abs(mean - 0.5) < 5 * 0.0046);
}

TEST(philox, permutation_holds_each_once) {
  std::vector<std::int64_t> order(1000);
  permutation(derive_key(Stream::kPermutation, 3, 0, 0), order.data(), 1000);
  std::vector<int> seen(1000, 0);
  for (const std::int64_t item : order) {
    ++seen[static_cast<std::size_t>(item)];
  }
  for (const int count : seen) {
    CHECK_EQUAL(count, 1);
  }
}

}  // namespace
}  // namespace graphbox
