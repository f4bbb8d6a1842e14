#include "random/philox_fill.h"

namespace graphbox {

GRAPHBOX_CLONES
void philox_fill(PhiloxKey key, std::uint32_t hop, std::uint64_t position, std::uint32_t groups, std::uint32_t* words) {
  using namespace philox_detail;
  constexpr std::uint32_t kLanes = 8;
  for (std::uint32_t group = 0; group < groups; ++group) {
    std::uint32_t word0[kLanes];
    std::uint32_t word1[kLanes];
    std::uint32_t word2[kLanes];
    std::uint32_t word3[kLanes];
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
      word0[lane] = group * kLanes + lane;
      word1[lane] = hop;
      word2[lane] = static_cast<std::uint32_t>(position);
      word3[lane] = static_cast<std::uint32_t>(position >> 32);
    }
    PhiloxKey round_key = key;
    for (int round = 0; round < 10; ++round) {
      for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
        const std::uint64_t product0 = std::uint64_t{kMultiplier0} * word0[lane];
        const std::uint64_t product1 = std::uint64_t{kMultiplier1} * word2[lane];
        word0[lane] = static_cast<std::uint32_t>(product1 >> 32) ^ word1[lane] ^ round_key.low;
        word1[lane] = static_cast<std::uint32_t>(product1);
        word2[lane] = static_cast<std::uint32_t>(product0 >> 32) ^ word3[lane] ^ round_key.high;
        word3[lane] = static_cast<std::uint32_t>(product0);
      }
      round_key.low += kWeyl0;
      round_key.high += kWeyl1;
    }
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
      *words++ = word0[lane];
      *words++ = word1[lane];
      *words++ = word2[lane];
      *words++ = word3[lane];
    }
  }
}

}  // namespace graphbox
