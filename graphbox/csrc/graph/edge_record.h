// Sort keys of edges: target, then source.
#pragma once

#include <cstdint>

#include "portability/cpu.h"

namespace graphbox {

// A key holds the target above the source: in 64 bits, until a node index needs more than 32.
using NarrowKey = std::uint64_t;
using WideKey = Uint128;

template <typename Key>
inline constexpr int kSourceBits = sizeof(Key) * 4;

template <typename Key>
GRAPHBOX_INLINE Key key_of(std::int64_t target, std::int64_t source) {
  return static_cast<Key>(static_cast<Key>(target) << kSourceBits<Key> | static_cast<Key>(source));
}

template <typename Key>
GRAPHBOX_INLINE std::int64_t target_of(Key key) {
  return static_cast<std::int64_t>(key >> kSourceBits<Key>);
}

template <typename Key>
GRAPHBOX_INLINE std::int64_t source_of(Key key) {
  return static_cast<std::int64_t>(key & ((Key{1} << kSourceBits<Key>) - 1));
}

// An edge without columns, and one whose columns lie at a row of the arrays that hold them. Packed: what is sorted is
// moved often.
template <typename KeyType>
struct EdgeAlone {
  using Key = KeyType;
  static constexpr bool kHasRow = false;
  Key key;
};

#pragma pack(push, 4)
template <typename KeyType>
struct EdgeWithRow {
  using Key = KeyType;
  static constexpr bool kHasRow = true;
  Key key;
  std::uint32_t row;
};
#pragma pack(pop)

static_assert(sizeof(EdgeWithRow<NarrowKey>) == 12 && sizeof(EdgeWithRow<WideKey>) == 20);

}  // namespace graphbox
