// The hash functions of original ids. They are part of the format of graphs (docs/formats/graph.md, Ids).
#pragma once

#include <cstddef>
#include <cstdint>

#include "portability/cpu.h"

namespace graphbox {

// Of a 64-bit integer. Stafford, "Better bit mixing: improving on MurmurHash3's 64-bit finalizer", 2011, Mix13; also
// the finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
GRAPHBOX_INLINE std::uint64_t hash_integer(std::int64_t id) {
  auto bits = static_cast<std::uint64_t>(id);
  bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9ULL;
  bits = (bits ^ bits >> 27) * 0x94D049BB133111EBULL;
  return bits ^ bits >> 31;
}

// Of bytes: XXH64 with seed 0 (Collet, "xxHash fast digest algorithm", specification of version 0.1.1).
std::uint64_t hash_bytes(const void* data, std::size_t bytes);

}  // namespace graphbox
