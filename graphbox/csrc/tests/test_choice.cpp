#include "sample/choice.h"

#include <algorithm>
#include <vector>

#include "sample/lane_choice.h"
#include "tests/check.h"

namespace graphbox {
namespace {

// Floyd's algorithm as the book has it, drawing the same numbers.
std::vector<std::int64_t> reference(const DrawSequence& draws, std::int64_t begin, std::int64_t degree,
                                    std::int64_t count) {
  std::vector<std::int64_t> chosen;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t last = degree - count + i;
    const auto drawn = static_cast<std::int64_t>(
        draws.bounded_wide(static_cast<std::uint32_t>(i), static_cast<std::uint64_t>(last) + 1));
    const bool taken = std::find(chosen.begin(), chosen.end(), begin + drawn) != chosen.end();
    chosen.push_back(begin + (taken ? last : drawn));
  }
  return chosen;
}

TEST(choice, all_ways_without_replacement_agree_with_the_book) {
  EdgeChooser chooser;
  const PhiloxKey key = derive_key(Stream::kNeighbor, 5, 0, 0);
  for (const std::int64_t degree : {1, 2, 7, 63, 64, 65, 100, 1000, 70000}) {
    for (const std::int64_t wanted : {1, 5, 6, 63, 64, 65, 200, 999}) {
      if (wanted >= degree) {
        continue;
      }
      for (std::uint64_t node = 0; node < 20; ++node) {
        const DrawSequence draws(key, 1, 2, node);
        std::vector<std::int64_t> out(static_cast<std::size_t>(wanted), -1);
        chooser.choose(draws, {1000, degree}, wanted, false, out.data());
        CHECK(out == reference(draws, 1000, degree, wanted));
      }
    }
  }
}

TEST(choice, takes_all_there_are) {
  EdgeChooser chooser;
  const DrawSequence draws(derive_key(Stream::kNeighbor, 5, 0, 0), 0, 0, 0);
  for (const std::int64_t wanted : {-1, 3, 9}) {
    CHECK_EQUAL(choice_count(3, wanted, false), std::int64_t{3});
    std::int64_t out[3] = {};
    chooser.choose(draws, {5, 3}, wanted, false, out);
    CHECK(out[0] == 5 && out[1] == 6 && out[2] == 7);
  }
  CHECK_EQUAL(choice_count(3, 9, true), std::int64_t{9});
  CHECK_EQUAL(choice_count(0, 9, true), std::int64_t{0});
  CHECK_EQUAL(choice_count(3, 0, true), std::int64_t{0});
}

TEST(choice, degrees_beyond_32_bits) {
  EdgeChooser chooser;
  const DrawSequence draws(derive_key(Stream::kNeighbor, 5, 0, 0), 0, 0, 0);
  const std::int64_t degree = std::int64_t{1} << 40;
  std::vector<std::int64_t> out(100);
  for (const bool replace : {false, true}) {
    chooser.choose(draws, {3, degree}, 100, replace, out.data());
    CHECK(*std::max_element(out.begin(), out.end()) > std::int64_t{1} << 38);
    for (const std::int64_t edge : out) {
      CHECK(edge >= 3 && edge < 3 + degree);
    }
  }
}

// Every lane that reports no rejection holds what EdgeChooser chooses.
void check_lanes(LaneChooser choose, std::uint32_t count, bool replace, std::uint32_t largest_degree) {
  const PhiloxKey key = derive_key(Stream::kNeighbor, 5, 0, count);
  EdgeChooser chooser;
  LaneNodes nodes;
  LaneOffsets offsets;
  for (std::uint32_t round = 0; round < 20; ++round) {
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
      const PhiloxBlock words = philox4x32_10({round, lane, count, 0}, key);
      nodes.degree[lane] = count + 1 + words[0] % (lane % 2 == 0 ? 80 : largest_degree - count);
      nodes.position_low[lane] = words[1];
      nodes.position_high[lane] = words[2];
    }
    const std::uint32_t rejected = choose({key, 1, 3, count, replace}, nodes, offsets);
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
      const std::uint64_t position = std::uint64_t{nodes.position_high[lane]} << 32 | nodes.position_low[lane];
      std::vector<std::int64_t> expected(count);
      chooser.choose(DrawSequence(key, 1, 3, position), {0, nodes.degree[lane]}, count, replace, expected.data());
      for (std::uint32_t draw = 0; draw < count && (rejected >> lane & 1) == 0; ++draw) {
        CHECK_EQUAL(std::int64_t{offsets.values[draw][lane]}, expected[draw]);
      }
      CHECK((rejected >> lane & 1) == 0 || nodes.degree[lane] > 1000);
    }
  }
}

TEST(choice, lanes_choose_as_one_node_does) {
  for (const LaneChooser choose : lane_choosers()) {
    for (const std::uint32_t count : {1U, 2U, 4U, 5U, 15U, 63U, kMostLaneChoices}) {
      for (const bool replace : {false, true}) {
        check_lanes(choose, count, replace, 100'000);
        check_lanes(choose, count, replace, UINT32_MAX - 1);  // where many draws are rejected
      }
    }
  }
}

}  // namespace
}  // namespace graphbox
