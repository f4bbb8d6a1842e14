#include "sample/choice.h"

#include <algorithm>
#include <array>

namespace graphbox {
namespace {

constexpr std::uint32_t kFewChoices = 64;  // up to here comparing with all earlier choices beats a set

// Calls `take(draw, word)` for the first word of each of `count` draws.
template <typename Take>
GRAPHBOX_INLINE void for_each_word(const DrawSequence& draws, std::uint32_t count, Take take) {
  for (std::uint32_t draw = 0; draw < count; draw += 4) {
    const PhiloxBlock words = draws.block(draw / 4);
    const std::uint32_t in_block = std::min(count - draw, 4U);
    for (std::uint32_t i = 0; i < in_block; ++i) {
      take(draw + i, words[i]);
    }
  }
}

void with_replacement(const DrawSequence& draws, EdgeSpan edges, std::uint32_t count, std::int64_t* out) {
  if (edges.degree >= std::int64_t{1} << 32) {
    for (std::uint32_t draw = 0; draw < count; ++draw) {
      out[draw] =
          edges.begin + static_cast<std::int64_t>(draws.bounded_wide(draw, static_cast<std::uint64_t>(edges.degree)));
    }
    return;
  }
  const auto degree = static_cast<std::uint32_t>(edges.degree);
  for_each_word(draws, count, [&](std::uint32_t draw, std::uint32_t word) {
    out[draw] = edges.begin + draws.bounded(word, draw, degree);
  });
}

// The three below are Floyd's algorithm (Bentley and Floyd, "A sample of brilliance", CACM 30(9), 1987): draw i picks
// among the first degree - count + i + 1 edges, and the last of those stands in for one that was taken before. They
// differ in how they know what was taken.

// Degree up to 64: a bit for each edge.
void with_mask(const DrawSequence& draws, EdgeSpan edges, std::uint32_t count, std::int64_t* out) {
  const std::uint32_t first = static_cast<std::uint32_t>(edges.degree) - count;
  std::uint64_t taken = 0;
  for_each_word(draws, count, [&](std::uint32_t draw, std::uint32_t word) {
    const std::uint32_t last = first + draw;
    const std::uint32_t drawn = draws.bounded(word, draw, last + 1);
    const std::uint32_t choice = (taken >> drawn & 1U) != 0 ? last : drawn;
    taken |= std::uint64_t{1} << choice;
    out[draw] = edges.begin + choice;
  });
}

// Few choices among many edges: compare with all earlier ones, eight at a time.
void with_comparison(const DrawSequence& draws, EdgeSpan edges, std::uint32_t count, std::int64_t* out) {
  const std::uint32_t first = static_cast<std::uint32_t>(edges.degree) - count;
  std::array<std::uint32_t, kFewChoices> taken;
  const std::uint32_t padded = (count + 7) / 8 * 8;
  std::fill_n(taken.begin(), padded, UINT32_MAX);  // no edge has this offset, since degree < 2^32
  for_each_word(draws, count, [&](std::uint32_t draw, std::uint32_t word) {
    const std::uint32_t last = first + draw;
    const std::uint32_t drawn = draws.bounded(word, draw, last + 1);
    std::uint32_t found = 0;
    for (std::uint32_t block = 0; block < draw; block += 8) {
      for (std::uint32_t i = 0; i < 8; ++i) {
        found |= taken[block + i] == drawn ? 1U : 0U;
      }
    }
    const std::uint32_t choice = found != 0 ? last : drawn;
    taken[draw] = choice;
    out[draw] = edges.begin + choice;
  });
}

}  // namespace

void EdgeChooser::choose(const DrawSequence& draws, EdgeSpan edges, std::int64_t wanted, bool replace,
                         std::int64_t* out) {
  if (wanted < 0 || (!replace && edges.degree <= wanted)) {
    for (std::int64_t i = 0; i < edges.degree; ++i) {
      out[i] = edges.begin + i;
    }
    return;
  }
  if (wanted == 0 || edges.degree == 0) {
    return;
  }
  const auto count = static_cast<std::uint32_t>(wanted);
  if (replace) {
    with_replacement(draws, edges, count, out);
  } else {
    without_replacement(draws, edges, count, out);
  }
}

void EdgeChooser::without_replacement(const DrawSequence& draws, EdgeSpan edges, std::uint32_t count,
                                      std::int64_t* out) {
  if (edges.degree <= 64) {
    with_mask(draws, edges, count, out);
  } else if (count <= kFewChoices && edges.degree < UINT32_MAX) {
    with_comparison(draws, edges, count, out);
  } else {
    with_set(draws, edges, count, out);
  }
}

// Many choices: a small hash set.
void EdgeChooser::with_set(const DrawSequence& draws, EdgeSpan edges, std::uint32_t count, std::int64_t* out) {
  taken_.start(count);
  const auto first = static_cast<std::uint64_t>(edges.degree) - count;
  for (std::uint32_t draw = 0; draw < count; ++draw) {
    const std::uint64_t last = first + draw;
    const std::uint64_t drawn = draws.bounded_wide(draw, last + 1);
    std::uint64_t choice = drawn;
    if (!taken_.insert(drawn)) {
      choice = last;
      taken_.insert(last);
    }
    out[draw] = edges.begin + static_cast<std::int64_t>(choice);
  }
}

}  // namespace graphbox
