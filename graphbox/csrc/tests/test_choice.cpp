#include "sample/choice.h"

#include <algorithm>
#include <vector>

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

}  // namespace
}  // namespace graphbox
