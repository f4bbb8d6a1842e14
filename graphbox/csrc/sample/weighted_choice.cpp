#include "sample/weighted_choice.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "errors/error.h"
#include "portability/cpu.h"
#include "random/exponential.h"

namespace graphbox {
namespace {

constexpr std::uint32_t kMaskDegree = 64;  // up to this degree a bit for each edge tells what is taken
constexpr std::uint32_t kFewChoices = 64;  // up to here comparing with all earlier choices beats a set

// Attempts of the generator's counter that key the exponential draws; draws from the alias table are attempt 0.
constexpr std::uint32_t kNarrowKeys = 1;
constexpr std::uint32_t kWideKeys = 2;

// Whether most edges are wanted, so that drawing would mostly repeat.
bool wants_most(std::int64_t degree, std::uint32_t count) { return degree <= 2 * std::int64_t{count}; }

// Draws after which the untaken rest is looked at as a whole: by then that costs less than was spent.
std::uint64_t draw_limit(std::int64_t degree, std::uint32_t count) {
  return wants_most(degree, count) ? 0 : 4 * std::uint64_t{count} + static_cast<std::uint64_t>(degree) / 4;
}

// Of up to 64 edges those with the `count` smallest keys, as bits; those in `taken` are left out.
GRAPHBOX_CLONES std::uint64_t smallest_keys(const std::uint32_t* words, const float* weights, std::uint32_t degree,
                                            std::uint64_t taken, std::uint32_t count) {
  double keys[kMaskDegree];
  const std::uint32_t padded = (degree + 7) / 8 * 8;
  for (std::uint32_t i = 0; i < degree; ++i) {
    keys[i] = exponential((words[i] + 0.5) * 0x1p-32) / static_cast<double>(weights[i]);
  }
  std::fill(keys + degree, keys + padded, std::numeric_limits<double>::infinity());
  for (std::uint64_t rest = taken; rest != 0; rest &= rest - 1) {
    keys[std::countr_zero(rest)] = std::numeric_limits<double>::infinity();
  }
  std::uint64_t chosen = 0;
  for (std::uint32_t i = 0; i < degree; ++i) {
    std::int64_t smaller = 0;
    for (std::uint32_t j = 0; j < padded; ++j) {
      smaller += keys[j] < keys[i] ? 1 : 0;
    }
    chosen |= std::uint64_t{smaller < count} << i;
  }
  while (static_cast<std::uint32_t>(std::popcount(chosen)) > count) {  // equal keys: the first edges
    std::uint32_t last = 0;
    for (std::uint32_t i = 0; i < degree; ++i) {
      last = (chosen >> i & 1) != 0 && ((chosen >> last & 1) == 0 || keys[i] >= keys[last]) ? i : last;
    }
    chosen &= ~(std::uint64_t{1} << last);
  }
  return chosen;
}

// The three ways to know what was taken; insert() is false for an edge that was.
struct TakenMask {
  std::uint64_t bits = 0;

  bool insert(std::uint32_t offset) {
    const bool is_new = (bits >> offset & 1) == 0;
    bits |= std::uint64_t{1} << offset;
    return is_new;
  }
  bool contains(std::uint32_t offset) const { return (bits >> offset & 1) != 0; }
};

struct TakenList {
  std::array<std::uint32_t, kFewChoices + 8> offsets;  // no edge has the offset UINT32_MAX
  std::uint32_t size = 0;

  bool insert(std::uint32_t offset) {
    const bool is_new = !contains(offset);
    if (size % 8 == 0) {
      std::fill_n(offsets.begin() + size, 8, UINT32_MAX);
    }
    offsets[size] = is_new ? offset : UINT32_MAX;
    size += is_new ? 1U : 0U;
    return is_new;
  }
  bool contains(std::uint32_t offset) const {
    std::uint32_t found = 0;
    for (std::uint32_t block = 0; block < size; block += 8) {
      for (std::uint32_t i = 0; i < 8; ++i) {
        found |= offsets[block + i] == offset ? 1U : 0U;
      }
    }
    return found != 0;
  }
};

}  // namespace

// A number of 64 bits times the degree: above the point the column, below it the fraction. What is lost to rounding
// is 2^-32 of what the thresholds lose, so nothing is rejected.
GRAPHBOX_INLINE void WeightedChooser::draw_two(const DrawSequence& sequence, std::uint32_t number, std::uint32_t degree,
                                               Draw* draws) {
  const PhiloxBlock words = sequence.block(number);
  for (std::uint32_t half = 0; half < 2; ++half) {
    const std::uint64_t word = std::uint64_t{words[2 * half]} << 32 | words[2 * half + 1];
    const Uint128 product = static_cast<Uint128>(word) * degree;
    draws[half] = {static_cast<std::uint32_t>(product >> 64), static_cast<std::uint32_t>(product >> 32)};
  }
}

GRAPHBOX_INLINE std::uint32_t WeightedChooser::resolve(const Node& node, Draw draw) {
  const AliasEntry entry = node.edges.entries[draw.column];
  const std::uint32_t offset = draw.fraction < entry.threshold ? draw.column : entry.alias;
  if (offset >= node.edges.span.degree) [[unlikely]] {
    throw Error(ErrorKind::kData, "indptr was changed after alias tables were built for it", "weights",
                "make a new adjacency instead of writing into the arrays of this one");
  }
  return offset;
}

void WeightedChooser::prepare_draws(Node& node, std::uint32_t count) {
  const auto degree = static_cast<std::uint32_t>(node.edges.span.degree);
  node.num_draws = std::min((count + 1) / 2 * 2, kDrawsAhead);
  for (std::uint32_t draw = 0; draw < node.num_draws; draw += 2) {
    draw_two(node.sequence, draw / 2, degree, node.draws.data() + draw);
    prefetch(node.edges.entries + node.draws[draw].column);
    prefetch(node.edges.entries + node.draws[draw + 1].column);
  }
}

void WeightedChooser::prepare(const DrawSequence& draws, const WeightedEdges& edges, std::int64_t wanted,
                              bool replace) {
  Node& node = nodes_[(first_ + num_nodes_) % kNodesAhead];
  ++num_nodes_;
  const std::int64_t degree = edges.span.degree;
  node.edges = edges;
  node.take_all = wanted < 0 || (!replace && edges.choosable() <= wanted);
  node.num_draws = 0;
  node.count = edges.choosable() == 0 || node.take_all ? 0 : static_cast<std::uint32_t>(wanted);
  if (node.count == 0) {
    return;
  }
  node.sequence = draws;
  node.replace = replace;
  if (replace) {
    prepare_draws(node, node.count);
  } else if (wants_most(degree, node.count)) {
    for (std::int64_t i = 0; i < std::min<std::int64_t>(degree, kMaskDegree); i += kCacheLineBytes / sizeof(float)) {
      prefetch(edges.weights + i);
    }
  } else {
    // As many as are needed where weights are equal, count + count^2 / (2 degree) and a little more, and some.
    const std::int64_t count = std::min<std::int64_t>(node.count, kDrawsAhead);
    prepare_draws(node, static_cast<std::uint32_t>(count + 1 + count * count / degree));
  }
  num_draws_ += node.num_draws;
}

void WeightedChooser::choose(std::int64_t* out) {
  const Node& node = nodes_[first_];
  first_ = (first_ + 1) % kNodesAhead;
  --num_nodes_;
  num_draws_ -= node.num_draws;
  if (node.take_all) {
    for (std::int64_t i = 0; i < node.edges.span.degree; ++i) {
      if (!node.edges.is_excluded(static_cast<std::uint32_t>(i))) {
        *out++ = node.edges.span.begin + i;
      }
    }
  } else if (node.count > 0 && !node.replace) {
    without_replacement(node, out);
  } else if (node.count > 0) {
    node.edges.excluded.empty() ? with_replacement(node, out) : with_replacement_among_choosable(node, out);
  }
}

void WeightedChooser::with_replacement(const Node& node, std::int64_t* out) {
  const std::int64_t begin = node.edges.span.begin;
  const auto degree = static_cast<std::uint32_t>(node.edges.span.degree);
  const std::uint32_t prepared = std::min(node.num_draws, node.count);
  for (std::uint32_t draw = 0; draw < prepared; ++draw) {
    out[draw] = begin + resolve(node, node.draws[draw]);
  }
  Draw draws[2];
  for (std::uint32_t draw = prepared; draw < node.count; ++draw) {
    if (draw % 2 == 0) {
      draw_two(node.sequence, draw / 2, degree, draws);
    }
    out[draw] = begin + resolve(node, draws[draw % 2]);
  }
}

void WeightedChooser::with_replacement_among_choosable(const Node& node, std::int64_t* out) {
  const std::int64_t begin = node.edges.span.begin;
  const auto degree = static_cast<std::uint32_t>(node.edges.span.degree);
  const std::uint64_t limit = 8 * std::uint64_t{node.count} + degree / 4;
  std::uint32_t found = 0;
  Draw draws[2];
  for (std::uint64_t draw = 0; draw < limit && found < node.count; ++draw) {
    if (draw % 2 == 0) {
      draw_two(node.sequence, static_cast<std::uint32_t>(draw / 2), degree, draws);
    }
    const std::uint32_t offset = resolve(node, draws[draw % 2]);
    if (!node.edges.is_excluded(offset)) {
      out[found++] = begin + offset;
    }
  }
  if (found == node.count) {
    return;
  }
  // Nearly all weight is excluded.
  sums_.resize(degree);
  double sum = 0;
  for (std::uint32_t i = 0; i < degree; ++i) {
    sum += node.edges.is_excluded(i) ? 0.0 : static_cast<double>(node.edges.weights[i]);
    sums_[i] = sum;
  }
  for (std::uint32_t number = 0; found < node.count; ++number) {
    const PhiloxBlock words = node.sequence.block(number, kWideKeys);
    for (std::uint32_t half = 0; half < 2 && found < node.count; ++half) {
      const std::uint64_t word = std::uint64_t{words[2 * half]} << 32 | words[2 * half + 1];
      const double u = (static_cast<double>(word >> 12) + 0.5) * 0x1p-52;
      // The first sum above, which no excluded edge has; rounding must not lead past the last.
      const auto above = std::upper_bound(sums_.begin(), sums_.end(), std::min(u * sum, std::nextafter(sum, 0.0)));
      out[found++] = begin + (above - sums_.begin());
    }
  }
}

void WeightedChooser::without_replacement(const Node& node, std::int64_t* out) {
  const std::uint64_t taken_at_most = node.count + node.edges.excluded.size();
  if (node.edges.span.degree <= kMaskDegree) {
    TakenMask taken;
    draw_distinct(node, taken, out);
  } else if (taken_at_most <= kFewChoices) {
    TakenList taken;
    draw_distinct(node, taken, out);
  } else {
    set_.start(taken_at_most);
    draw_distinct(node, set_, out);
  }
}

template <typename Taken>
void WeightedChooser::draw_distinct(const Node& node, Taken& taken, std::int64_t* out) {
  const std::int64_t begin = node.edges.span.begin;
  const auto degree = static_cast<std::uint32_t>(node.edges.span.degree);
  const std::uint64_t limit = draw_limit(degree, node.count);
  for (const std::uint32_t offset : node.edges.excluded) {
    taken.insert(offset);
  }
  std::uint32_t found = 0;
  std::uint64_t draw = 0;
  const auto take = [&](Draw drawn) {
    const std::uint32_t offset = resolve(node, drawn);
    out[found] = begin + offset;
    found += taken.insert(offset) ? 1U : 0U;
  };
  const std::uint64_t prepared = std::min<std::uint64_t>(node.num_draws, limit);
  for (; draw < prepared && found < node.count; ++draw) {
    take(node.draws[draw]);
  }
  Draw draws[2];
  for (; draw < limit && found < node.count; ++draw) {
    if (draw % 2 == 0 || draw == prepared) {
      draw_two(node.sequence, static_cast<std::uint32_t>(draw / 2), degree, draws);
    }
    take(draws[draw % 2]);
  }
  if (found < node.count) {
    take_rest(node, taken, node.count - found, out + found);
  }
}

// The `count` untaken edges with the smallest keys, by position.
template <typename Taken>
void WeightedChooser::take_rest(const Node& node, const Taken& taken, std::uint32_t count, std::int64_t* out) {
  const std::int64_t begin = node.edges.span.begin;
  const auto degree = static_cast<std::uint32_t>(node.edges.span.degree);
  if constexpr (std::is_same_v<Taken, TakenMask>) {
    std::uint32_t words[kMaskDegree];
    for (std::uint32_t i = 0; i < degree; i += 4) {
      const PhiloxBlock block = node.sequence.block(i / 4, kNarrowKeys);
      std::copy(block.begin(), block.end(), words + i);
    }
    for (std::uint64_t rest = smallest_keys(words, node.edges.weights, degree, taken.bits, count); rest != 0;
         rest &= rest - 1) {
      *out++ = begin + std::countr_zero(rest);
    }
    return;
  }
  keys_.clear();
  PhiloxBlock block{};
  for (std::uint32_t i = 0; i < degree; ++i) {
    if (i % 2 == 0) {
      block = node.sequence.block(i / 2, kWideKeys);
    }
    if (!taken.contains(i)) {
      const std::uint64_t word = std::uint64_t{block[i % 2 * 2]} << 32 | block[i % 2 * 2 + 1];
      const double u = (static_cast<double>(word >> 12) + 0.5) * 0x1p-52;
      keys_.emplace_back(exponential(u) / static_cast<double>(node.edges.weights[i]), i);
    }
  }
  const auto end = keys_.begin() + count;
  std::nth_element(keys_.begin(), end - 1, keys_.end());
  std::sort(keys_.begin(), end, [](const auto& left, const auto& right) { return left.second < right.second; });
  for (auto key = keys_.begin(); key != end; ++key) {
    *out++ = begin + key->second;
  }
}

}  // namespace graphbox
