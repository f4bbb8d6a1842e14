// Philox4x32-10: the one random generator of graphbox.
//
// Counter based (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11): a block of four 32-bit
// words is a pure function of a 64-bit key and a 128-bit counter. So every draw has an address, and results do
// not depend on the number of threads, on the order of work, or on a restart.
//
//   key      Philox of (stream, epoch, batch) under the user's 64-bit seed, its first two words
//   counter  word 0: draw / 4   (draw % 4 picks the word of the block)
//            word 1: hop | relation << 8 | attempt << 24
//            words 2, 3: position, low and high half
//
// Where rows of a table are rounded, the position is the row's key and word 1 its number of steps.
//
// `attempt` counts the rejected draws of a bounded integer, so that a rejection moves no other draw.
#pragma once

#include <array>
#include <cstdint>

#include "portability/cpu.h"

namespace graphbox {

struct PhiloxKey {
  std::uint32_t low;
  std::uint32_t high;
};

using PhiloxBlock = std::array<std::uint32_t, 4>;

// Purpose of a key: equal seeds in two of these give unrelated numbers.
enum class Stream : std::uint32_t {
  kNeighbor = 1,
  kWalk = 2,
  kNegative = 3,
  kRowInitialization = 4,
  kPermutation = 5,
  kWindow = 6,
  kRowRounding = 8,
  kAdmission = 9,
};

namespace philox_detail {
inline constexpr std::uint32_t kMultiplier0 = 0xD2511F53U;
inline constexpr std::uint32_t kMultiplier1 = 0xCD9E8D57U;
inline constexpr std::uint32_t kWeyl0 = 0x9E3779B9U;
inline constexpr std::uint32_t kWeyl1 = 0xBB67AE85U;
}  // namespace philox_detail

GRAPHBOX_INLINE PhiloxBlock philox4x32_10(PhiloxBlock counter, PhiloxKey key) {
  using namespace philox_detail;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{kMultiplier0} * counter[0];
    const std::uint64_t product1 = std::uint64_t{kMultiplier1} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key.low, static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key.high,
               static_cast<std::uint32_t>(product0)};
    key.low += kWeyl0;
    key.high += kWeyl1;
  }
  return counter;
}

inline PhiloxKey derive_key(Stream stream, std::uint64_t seed, std::uint32_t epoch, std::uint64_t batch) {
  const PhiloxBlock block = philox4x32_10({static_cast<std::uint32_t>(stream), epoch, static_cast<std::uint32_t>(batch),
                                           static_cast<std::uint32_t>(batch >> 32)},
                                          {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  return {block[0], block[1]};
}

// The draws of one position (a node, a walker, a key): words and unbiased bounded integers, each by its number.
class DrawSequence {
 public:
  DrawSequence(PhiloxKey key, std::uint32_t hop, std::uint32_t relation, std::uint64_t position)
      : key_(key),
        place_(hop | relation << 8),
        position_low_(static_cast<std::uint32_t>(position)),
        position_high_(static_cast<std::uint32_t>(position >> 32)) {}

  // The four words of draws 4 * number ... 4 * number + 3.
  PhiloxBlock block(std::uint32_t number, std::uint32_t attempt = 0) const {
    return philox4x32_10({number, place_ | attempt << 24, position_low_, position_high_}, key_);
  }

  // An integer in [0, range), every value equally likely, 1 <= range < 2^32, from the draw's first word `word`.
  // Lemire, "Fast random integer generation in an interval", ACM TOMACS 29(1), 2019.
  GRAPHBOX_INLINE std::uint32_t bounded(std::uint32_t word, std::uint32_t draw, std::uint32_t range) const {
    const std::uint64_t product = std::uint64_t{word} * range;
    if (static_cast<std::uint32_t>(product) < range) [[unlikely]] {
      return bounded_slow(product, draw, range);
    }
    return static_cast<std::uint32_t>(product >> 32);
  }

  // The same for any range < 2^63; above 32 bits a draw takes two words of a block of its own.
  std::uint64_t bounded_wide(std::uint32_t draw, std::uint64_t range) const {
    if (range < (std::uint64_t{1} << 32)) {
      return bounded(block(draw / 4)[draw % 4], draw, static_cast<std::uint32_t>(range));
    }
    const std::uint64_t threshold = (0 - range) % range;
    for (std::uint32_t attempt = 0;; ++attempt) {
      const PhiloxBlock words = block(kWideDraws | draw, attempt & 0xFFU);
      const std::uint64_t word = std::uint64_t{words[1]} << 32 | words[0];
      const Uint128 product = static_cast<Uint128>(word) * range;
      if (static_cast<std::uint64_t>(product) >= threshold) {
        return static_cast<std::uint64_t>(product >> 64);
      }
    }
  }

 private:
  static constexpr std::uint32_t kWideDraws = 0x80000000U;

  std::uint32_t bounded_slow(std::uint64_t product, std::uint32_t draw, std::uint32_t range) const {
    const std::uint32_t threshold = (0U - range) % range;
    for (std::uint32_t attempt = 1; static_cast<std::uint32_t>(product) < threshold; ++attempt) {
      product = std::uint64_t{block(draw / 4, attempt & 0xFFU)[draw % 4]} * range;
    }
    return static_cast<std::uint32_t>(product >> 32);
  }

  PhiloxKey key_;
  std::uint32_t place_;
  std::uint32_t position_low_;
  std::uint32_t position_high_;
};

}  // namespace graphbox
