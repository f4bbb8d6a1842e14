// Original ids in memory as others hold them: integers, or strings as offsets and text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "graph/id_hash.h"
#include "portability/cpu.h"

namespace graphbox {

enum class IdKind { kInteger, kString };

// Whether two strings are the same. Ids are short: most are compared here, without a call.
GRAPHBOX_INLINE bool is_same(std::string_view a, std::string_view b) {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  if (a.size() != b.size()) {
    return false;
  }
  if (a.size() < kWord || a.size() > 4 * kWord) {
    return a == b;
  }
  const auto differing = [&](std::size_t place) {
    std::uint64_t left;
    std::uint64_t right;
    std::memcpy(&left, a.data() + place, kWord);
    std::memcpy(&right, b.data() + place, kWord);
    return left ^ right;
  };
  std::uint64_t different = differing(a.size() - kWord);
  for (std::size_t place = 0; place + kWord < a.size(); place += kWord) {
    different |= differing(place);
  }
  return different == 0;
}
GRAPHBOX_INLINE bool is_same(std::int64_t a, std::int64_t b) { return a == b; }

// Integers of 64 bits.
struct IntegerIds {
  using Value = std::int64_t;
  const std::int64_t* values = nullptr;

  Value operator[](std::int64_t index) const { return values[index]; }
  std::uint64_t hash(std::int64_t index) const { return hash_integer(values[index]); }
  // Two steps of asking for an id well before it is read.
  GRAPHBOX_INLINE void prefetch_place(std::int64_t index) const { prefetch(values + index); }
  GRAPHBOX_INLINE void prefetch_value(std::int64_t) const {}
  bool holds(std::int64_t) const { return true; }
};

// String i is text[offsets[i]:offsets[i + 1]], UTF-8. Offsets that do not lie within the text are none of ours: the
// caller asks holds() before it reads a string of a file that may be damaged.
struct StringIds {
  using Value = std::string_view;
  const std::int64_t* offsets = nullptr;
  const char* text = nullptr;
  std::int64_t text_bytes = 0;

  Value operator[](std::int64_t index) const {
    return {text + offsets[index], static_cast<std::size_t>(offsets[index + 1] - offsets[index])};
  }
  std::uint64_t hash(std::int64_t index) const {
    const Value value = (*this)[index];
    return hash_bytes(value.data(), value.size());
  }
  GRAPHBOX_INLINE void prefetch_place(std::int64_t index) const { prefetch(offsets + index); }
  GRAPHBOX_INLINE void prefetch_value(std::int64_t index) const {
    prefetch(text + offsets[index]);
    prefetch(text + offsets[index + 1] - 1);  // it may reach into the next line
  }
  bool holds(std::int64_t index) const {
    return offsets[index] >= 0 && offsets[index] <= offsets[index + 1] && offsets[index + 1] <= text_bytes;
  }
};

// The ids at both ends of edges, in the order of the edges, each source before its target.
template <typename Ids>
struct PairedIds {
  using Value = typename Ids::Value;
  Ids sources;
  Ids targets;

  Value operator[](std::int64_t index) const { return (index & 1) == 0 ? sources[index >> 1] : targets[index >> 1]; }
  std::uint64_t hash(std::int64_t index) const {
    return (index & 1) == 0 ? sources.hash(index >> 1) : targets.hash(index >> 1);
  }
};

// Ids of either kind that a caller passes.
struct IdBatch {
  IdKind kind = IdKind::kInteger;
  std::int64_t size = 0;
  IntegerIds integers;
  StringIds strings;

  // Some of the rows.
  IdBatch slice(std::int64_t first, std::int64_t count) const {
    IdBatch part = *this;
    part.size = count;
    part.integers.values += first;
    part.strings.offsets += first;
    return part;
  }
  std::size_t text_bytes() const {
    return kind == IdKind::kString && size > 0
               ? static_cast<std::size_t>(strings.offsets[size] - strings.offsets[0])
               : 0;
  }
};

// Calls `body` with the ids of the batch's kind.
template <typename Body>
auto with_ids(const IdBatch& batch, Body&& body) {
  return batch.kind == IdKind::kInteger ? body(batch.integers) : body(batch.strings);
}

}  // namespace graphbox
