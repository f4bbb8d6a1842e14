#include "sample/labor.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "random/exponential.h"
#include "random/philox_lanes.h"
#include "sample/excluded_edges.h"

namespace graphbox {
namespace {

constexpr std::size_t kGroup = 32;    // neighbours whose numbers are computed together
constexpr std::size_t kChunk = 512;   // that are looked at together, a multiple of it
constexpr std::size_t kFew = 64;      // candidates that are compared each with each
constexpr std::int64_t kNodesAhead = 4;  // whose lists are asked for

// The numbers of some neighbours: the first two words of their blocks, the first the more significant.
struct Numbers {
  std::array<std::uint32_t, kChunk> high;
  std::array<std::uint32_t, kChunk> low;
  std::array<std::uint32_t, kChunk / kGroup> lowest;  // first word of each group; padding counts too

  std::uint64_t operator[](std::size_t i) const { return std::uint64_t{high[i]} << 32 | low[i]; }
};

template <typename Index>
GRAPHBOX_INLINE void number_groups(PhiloxKey key, std::uint32_t place, const Index* nodes, std::size_t size,
                                   Numbers& numbers) {
  for (std::size_t first = 0; first < size; first += kGroup) {
    PhiloxLanes<kGroup> lanes;
    for (std::size_t lane = 0; lane < kGroup; ++lane) {
      lanes.start(lane, 0, place, static_cast<std::uint64_t>(static_cast<std::int64_t>(nodes[first + lane])));
    }
    lanes.run(key);
    std::uint32_t lowest = UINT32_MAX;
    for (std::size_t lane = 0; lane < kGroup; ++lane) {
      numbers.high[first + lane] = lanes.word(0, lane);
      numbers.low[first + lane] = lanes.word(1, lane);
      lowest = std::min(lowest, lanes.word(0, lane));
    }
    numbers.lowest[first / kGroup] = lowest;
  }
}

// `size` is a multiple of kGroup.
GRAPHBOX_CLONES
void number(PhiloxKey key, std::uint32_t place, const std::int32_t* nodes, std::size_t size, Numbers& numbers) {
  number_groups(key, place, nodes, size, numbers);
}

GRAPHBOX_CLONES
void number(PhiloxKey key, std::uint32_t place, const std::int64_t* nodes, std::size_t size, Numbers& numbers) {
  number_groups(key, place, nodes, size, numbers);
}

// In eight sums, which have an order of their own.
GRAPHBOX_CLONES
double sum(const float* values, std::int64_t count) {
  constexpr std::int64_t kSums = 8;
  std::array<double, kSums> sums{};
  const std::int64_t whole = count / kSums * kSums;
  for (std::int64_t i = 0; i < whole; i += kSums) {
    for (std::int64_t lane = 0; lane < kSums; ++lane) {
      sums[static_cast<std::size_t>(lane)] += static_cast<double>(values[i + lane]);
    }
  }
  double total = 0;
  for (const double part : sums) {
    total += part;
  }
  for (std::int64_t i = whole; i < count; ++i) {
    total += static_cast<double>(values[i]);
  }
  return total;
}

// How many of the keys are smaller than each.
GRAPHBOX_CLONES
void rank_keys(const std::uint64_t* keys, std::size_t count, std::uint64_t* ranks) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t smaller = 0;
    for (std::size_t j = 0; j < count; ++j) {
      smaller += keys[j] < keys[i] ? 1U : 0U;
    }
    ranks[i] = smaller;
  }
}

// Neighbours that may be chosen, in the order of the list.
class Candidates {
 public:
  std::size_t size() const { return size_; }
  void clear() { size_ = 0; }

  void make_room(std::size_t more) {
    if (keys_.size() < size_ + more) {
      keys_.resize((size_ + more) * 2);
      offsets_.resize(keys_.size());
    }
  }
  // There must be room, even if it is not wanted.
  GRAPHBOX_INLINE void add(std::uint64_t key, std::int64_t offset, bool wanted) {
    keys_[size_] = key;
    offsets_[size_] = offset;
    size_ += wanted ? 1 : 0;
  }

  template <typename IsUnwanted>
  void remove_if(IsUnwanted is_unwanted) {
    const std::size_t before = std::exchange(size_, 0);
    for (std::size_t i = 0; i < before; ++i) {
      add(keys_[i], offsets_[i], !is_unwanted(offsets_[i]));
    }
  }

  // Writes begin + offset of the `count` with the smallest keys, of equal ones the first. `count` <= size().
  void write_smallest(std::int64_t count, std::int64_t begin, std::int64_t* out) {
    if (size_ > kFew || !write_by_rank(static_cast<std::size_t>(count), begin, out)) {
      write_by_order(static_cast<std::size_t>(count), begin, out);
    }
  }

 private:
  // Fails where equal keys have one rank and not all of them are among the smallest.
  bool write_by_rank(std::size_t count, std::int64_t begin, std::int64_t* out) const {
    std::array<std::uint64_t, kFew> ranks;
    rank_keys(keys_.data(), size_, ranks.data());
    std::size_t written = 0;
    for (std::size_t i = 0; i < size_ && written <= count; ++i) {
      if (ranks[i] < count && written == count) {
        return false;
      }
      if (ranks[i] < count) {
        out[written++] = begin + offsets_[i];
      }
    }
    return true;
  }

  void write_by_order(std::size_t count, std::int64_t begin, std::int64_t* out) {
    order_.resize(size_);
    for (std::size_t i = 0; i < size_; ++i) {
      order_[i] = {keys_[i], offsets_[i]};
    }
    const auto last = order_.begin() + static_cast<std::ptrdiff_t>(count) - 1;
    std::nth_element(order_.begin(), last, order_.end());
    const std::pair<std::uint64_t, std::int64_t> largest = *last;
    for (std::size_t i = 0; i < size_; ++i) {
      if (std::pair(keys_[i], offsets_[i]) <= largest) {
        *out++ = begin + offsets_[i];
      }
    }
  }

  std::size_t size_ = 0;
  std::vector<std::uint64_t> keys_;
  std::vector<std::int64_t> offsets_;
  std::vector<std::pair<std::uint64_t, std::int64_t>> order_;
};

template <typename Index>
class LaborChooser : public NeighborChooser {
 public:
  LaborChooser(const Relation& relation, const Index* indices) : relation_(relation), indices_(indices) {}

  void narrow(const Frontier& frontier, std::int64_t begin, std::int64_t end, EdgeSpan* spans) const override {
    std::vector<std::int64_t> excluded;
    for (std::int64_t i = begin; relation_.excluded != nullptr && i < end; ++i) {
      find_excluded(frontier.node(i), excluded);
      spans[i].degree -= static_cast<std::int64_t>(excluded.size());
    }
  }

  void choose(const Frontier& frontier, std::int64_t begin, std::int64_t end, std::span<std::int64_t> room) override {
    std::int64_t* out = room.data();
    for (std::int64_t i = begin; i < end; ++i) {
      if (i + kNodesAhead < end) {
        prefetch(list(frontier.spans[i + kNodesAhead]));
      }
      find_excluded(frontier.node(i), excluded_);
      EdgeSpan span = frontier.spans[i];
      const std::int64_t count = frontier.count(i);
      const bool all = count == span.degree;
      span.degree += static_cast<std::int64_t>(excluded_.size());
      if (all) {
        take_all(span, out);
      } else if (count > 0) {
        choose_some(frontier, span, count);
        candidates_.write_smallest(count, span.begin, out);
      }
      out += count;
    }
  }

 private:
  const Index* list(EdgeSpan span) const { return neighbor_at(relation_.adjacency, indices_, span.begin); }

  const float* weights(EdgeSpan span) const {
    const std::int64_t base_edges = relation_.adjacency.num_edges;
    if (span.begin >= base_edges && relation_.overlay_weights != nullptr) {
      return relation_.overlay_weights->weights() + (span.begin - base_edges);
    }
    return relation_.weights->weights() + span.begin;
  }

  // The offsets of a node's edges that must not be chosen, ascending.
  void find_excluded(std::int64_t node, std::vector<std::int64_t>& offsets) const {
    offsets.clear();
    if (relation_.excluded != nullptr && relation_.excluded->may_touch(node)) {
      const EdgeSpan edges = edges_of(relation_.adjacency, node);
      relation_.excluded->for_each(0, edges, [&](std::int64_t position) { offsets.push_back(position - edges.begin); });
    }
  }

  bool is_excluded(std::int64_t offset) const {
    return !excluded_.empty() && std::binary_search(excluded_.begin(), excluded_.end(), offset);
  }

  void take_all(EdgeSpan span, std::int64_t* out) const {
    for (std::int64_t offset = 0; offset < span.degree; ++offset) {
      if (!is_excluded(offset)) {
        *out++ = span.begin + offset;
      }
    }
  }

  // Collects the neighbours below a bound that probably leaves a few more than wanted; below a higher one if it does
  // not.
  void choose_some(const Frontier& frontier, EdgeSpan span, std::int64_t count) {
    const auto wanted = static_cast<double>(count);
    const double enough = wanted + 3 * std::sqrt(wanted) + 3;
    const float* const edge_weights = relation_.weights == nullptr ? nullptr : weights(span);
    double bound = enough / (edge_weights == nullptr ? static_cast<double>(span.degree) : sum(edge_weights, span.degree));
    for (int attempt = 0;; ++attempt) {
      candidates_.clear();
      if (edge_weights == nullptr) {
        collect(frontier, span, bound);
      } else {
        collect_weighted(frontier, span, edge_weights, bound);
      }
      if (!excluded_.empty()) {
        candidates_.remove_if([&](std::int64_t offset) { return is_excluded(offset); });
      }
      if (static_cast<std::int64_t>(candidates_.size()) >= count) {
        return;
      }
      bound = attempt < 2 ? bound * 8 : std::numeric_limits<double>::infinity();
    }
  }

  // Keeps the neighbours whose number, as one in [0, 1), is not above the bound.
  void collect(const Frontier& frontier, EdgeSpan span, double bound) {
    const double scaled = bound * 0x1p32;
    const std::uint32_t most = scaled < UINT32_MAX ? static_cast<std::uint32_t>(scaled) : UINT32_MAX;
    for_each_chunk(frontier, span, [&](std::int64_t first, std::size_t size) {
      candidates_.make_room(size);
      for (std::size_t group = 0; group < size; group += kGroup) {
        if (numbers_.lowest[group / kGroup] > most) {
          continue;
        }
        const std::size_t end = std::min(group + kGroup, size);
        for (std::size_t i = group; i < end; ++i) {
          candidates_.add(numbers_[i], first + static_cast<std::int64_t>(i), numbers_.high[i] <= most);
        }
      }
    });
  }

  // The same for -log(1 - number) / weight. Where the number itself, which is smaller, is above, no logarithm is needed.
  void collect_weighted(const Frontier& frontier, EdgeSpan span, const float* edge_weights, double bound) {
    for_each_chunk(frontier, span, [&](std::int64_t first, std::size_t size) {
      candidates_.make_room(size);
      for (std::size_t i = 0; i < size; ++i) {
        const std::int64_t offset = first + static_cast<std::int64_t>(i);
        const auto weight = static_cast<double>(edge_weights[offset]);
        if (numbers_.high[i] * 0x1p-32 <= bound * weight) {
          const std::uint64_t from_one = (numbers_[i] ^ UINT64_MAX) >> 11;
          const double key = exponential((static_cast<double>(from_one) + 0.5) * 0x1p-53) / weight;
          candidates_.add(std::bit_cast<std::uint64_t>(key), offset, key <= bound);
        }
      }
    });
  }

  // Calls `visit(first, size)` when numbers_ has those of the neighbours [first, first + size).
  template <typename Visit>
  void for_each_chunk(const Frontier& frontier, EdgeSpan span, Visit visit) {
    const Index* const nodes = list(span);
    const auto type = static_cast<std::uint32_t>(relation_.source_type);
    const std::uint32_t place = frontier.hop | type << 8;
    std::uint32_t copies = 0;
    for (std::int64_t first = 0; first < span.degree; first += kChunk) {
      const std::size_t size = std::min(kChunk, static_cast<std::size_t>(span.degree - first));
      const std::size_t whole = size / kGroup * kGroup;
      number(frontier.key, place, nodes + first, whole, numbers_);
      if (whole < size) {
        number_rest(frontier.key, place, nodes + first, whole, size);
      }
      number_copies(frontier, nodes + first, first == 0, size, copies);
      visit(first, size);
    }
  }

  void number_rest(PhiloxKey key, std::uint32_t place, const Index* nodes, std::size_t whole, std::size_t size) {
    std::array<Index, kGroup> rest{};
    std::copy(nodes + whole, nodes + size, rest.begin());
    Numbers of_rest;
    number(key, place, rest.data(), kGroup, of_rest);
    std::copy_n(of_rest.high.begin(), kGroup, numbers_.high.begin() + static_cast<std::ptrdiff_t>(whole));
    std::copy_n(of_rest.low.begin(), kGroup, numbers_.low.begin() + static_cast<std::ptrdiff_t>(whole));
    numbers_.lowest[whole / kGroup] = of_rest.lowest[0];
  }

  // Gives parallel edges numbers of their own, each by how many are before it.
  void number_copies(const Frontier& frontier, const Index* nodes, bool is_first, std::size_t size,
                     std::uint32_t& copies) {
    std::uint32_t found = is_first || nodes[0] != nodes[-1] ? 0 : 1;
    for (std::size_t i = 1; i < size; ++i) {
      found |= nodes[i] == nodes[i - 1] ? 1U : 0U;
    }
    if (found == 0) {
      copies = 0;
      return;
    }
    const auto type = static_cast<std::uint32_t>(relation_.source_type);
    for (std::size_t i = 0; i < size; ++i) {
      const bool is_copy = (i > 0 || !is_first) && nodes[i] == *(nodes + i - 1);
      copies = is_copy ? copies + 1 : 0;
      if (is_copy) {
        const DrawSequence draws(frontier.key, frontier.hop, type, static_cast<std::uint64_t>(nodes[i]));
        const PhiloxBlock words = draws.block(copies);
        numbers_.high[i] = words[0];
        numbers_.low[i] = words[1];
        numbers_.lowest[i / kGroup] = std::min(numbers_.lowest[i / kGroup], words[0]);
      }
    }
  }

  const Relation& relation_;
  const Index* indices_;
  std::vector<std::int64_t> excluded_;
  Numbers numbers_;
  Candidates candidates_;
};

}  // namespace

std::unique_ptr<NeighborChooser> make_labor_chooser(const Relation& relation) {
  if (relation.adjacency.wide_indices != nullptr) {
    return std::make_unique<LaborChooser<std::int64_t>>(relation, relation.adjacency.wide_indices);
  }
  return std::make_unique<LaborChooser<std::int32_t>>(relation, relation.adjacency.narrow_indices);
}

}  // namespace graphbox
