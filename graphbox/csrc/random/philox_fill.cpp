#include "random/philox_fill.h"

#include "random/philox_lanes.h"

namespace graphbox {

GRAPHBOX_CLONES
void philox_fill(PhiloxKey key, std::uint32_t place, std::uint64_t position, std::uint32_t groups, std::uint32_t* words) {
  constexpr std::uint32_t kLanes = 8;
  for (std::uint32_t group = 0; group < groups; ++group) {
    PhiloxLanes<kLanes> lanes;
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
      lanes.start(lane, group * kLanes + lane, place, position);
    }
    lanes.run(key);
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
      for (std::uint32_t number = 0; number < 4; ++number) {
        *words++ = lanes.word(number, lane);
      }
    }
  }
}

}  // namespace graphbox
