#include "random/philox_fill.h"

#include "random/philox_lanes.h"

namespace graphbox {
namespace {

template <std::uint32_t kLanes>
GRAPHBOX_INLINE void fill(PhiloxKey key, std::uint32_t place, std::uint64_t position, std::uint32_t block,
                          std::uint32_t* words) {
  PhiloxLanes<kLanes> lanes;
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
    lanes.start(lane, block + lane, place, position);
  }
  lanes.run(key);
  lanes.store(words);
}

}  // namespace

GRAPHBOX_CLONES
void philox_fill(PhiloxKey key, std::uint32_t place, std::uint64_t position, std::uint32_t first_group,
                 std::uint32_t groups, std::uint32_t* words) {
  constexpr std::uint32_t kBlocks = kPhiloxGroupWords / 4;
  const std::uint32_t end = first_group + groups;
  std::uint32_t group = first_group;
  for (; group + 2 <= end; group += 2) {  // two take hardly longer than one: instructions wait for each other less
    fill<2 * kBlocks>(key, place, position, group * kBlocks, words);
    words += 2 * kPhiloxGroupWords;
  }
  if (group < end) {
    fill<kBlocks>(key, place, position, group * kBlocks, words);
  }
}

}  // namespace graphbox
