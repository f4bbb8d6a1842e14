#include "sample/known_positives.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "parallel/parallel_for.h"
#include "sample/list_search.h"

namespace graphbox {
namespace {

constexpr std::int64_t kSlots = 64;         // draws whose memory lines are asked for together
constexpr std::int64_t kChunkDraws = 8192;  // draws that one thread takes at a time
constexpr std::int64_t kChunkRows = 1 << 14;
constexpr std::int64_t kRowDistance = 24;
constexpr std::uint32_t kHop = 1;  // of the counter: hop 0 has the draws that know no queries
constexpr std::uint32_t kMostTries = 32;

// The edges from query number `number` to its known positives, checked.
EdgeSpan known_positives_of(const Adjacency& known, std::span<const std::int64_t> queries, std::int64_t number) {
  const std::int64_t query = queries[static_cast<std::size_t>(number)];
  if (query < 0 || query >= known.num_rows) {
    throw Error(ErrorKind::kUsage,
                "queries must be node indices in [0, " + std::to_string(known.num_rows) + "), received " +
                    std::to_string(query) + " at position " + std::to_string(number),
                "queries");
  }
  return edges_of(known, query);
}

// The items that are no known positives of one query, enumerated.
template <typename Index>
class RemainingItems {
 public:
  // `known` ascending.
  RemainingItems(const NegativeRequest& request, std::span<const Index> known, std::int64_t query)
      : size_(request.items->size()), weights_(request.weights) {
    taken_.reserve(known.size() + 1);
    for (const Index item : known) {
      if (item >= 0 && item < size_) {
        taken_.push_back(item);
      }
    }
    if (request.exclude_query && query >= 0 && query < size_) {
      taken_.insert(std::upper_bound(taken_.begin(), taken_.end(), query), query);
    }
    if (!std::is_sorted(taken_.begin(), taken_.end())) {
      std::sort(taken_.begin(), taken_.end());  // a damaged graph: its items must stay within range all the same
    }
    taken_.erase(std::unique(taken_.begin(), taken_.end()), taken_.end());
    if (!weights_.empty()) {
      for_each([&](std::int64_t, double weight) {
        total_ += weight;
        return true;
      });
    }
  }

  bool empty() const { return weights_.empty() ? static_cast<std::int64_t>(taken_.size()) == size_ : total_ == 0; }

  // Each in proportion to its weight.
  std::int64_t draw(const DrawSequence& draws, std::uint32_t number) const {
    if (weights_.empty()) {
      return nth(static_cast<std::int64_t>(
          draws.bounded_wide(number, static_cast<std::uint64_t>(size_) - taken_.size())));
    }
    const PhiloxBlock words = draws.block(number / 4);
    const double point = static_cast<double>((std::uint64_t{words[1]} << 32 | words[0]) >> 11) * 0x1p-53 * total_;
    double sum = 0;
    std::int64_t drawn = 0;
    for_each([&](std::int64_t item, double weight) {
      drawn = item;
      sum += weight;
      return sum <= point;
    });
    return drawn;
  }

 private:
  // Calls `visit(item, weight)` for each remaining item that has a weight, until it returns false.
  template <typename Visit>
  void for_each(Visit visit) const {
    std::size_t next_taken = 0;
    for (std::int64_t item = 0; item < size_; ++item) {
      if (next_taken < taken_.size() && taken_[next_taken] == item) {
        ++next_taken;
        continue;
      }
      const double weight = weights_[static_cast<std::size_t>(item)];
      if (weight > 0 && !visit(item, weight)) {
        return;
      }
    }
  }

  // The remaining item number `rank`: as many taken items lie below it as have no more than `rank` others before them.
  std::int64_t nth(std::int64_t rank) const {
    std::size_t low = 0;
    std::size_t high = taken_.size();
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      if (taken_[middle] - static_cast<std::int64_t>(middle) <= rank) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return rank + static_cast<std::int64_t>(low);
  }

  std::int64_t size_;
  std::span<const double> weights_;
  std::vector<std::int64_t> taken_;
  double total_ = 0;
};

// Some of the draws of a request. 64 are under way at once: each asks for the memory line it needs next and waits while
// the others do the same.
template <typename Index>
class NegativeDraws {
 public:
  NegativeDraws(const NegativeRequest& request, const Index* indices, std::int64_t* out)
      : request_(request), indices_(indices), out_(out), range_(static_cast<std::uint32_t>(request.items->size())) {}

  void run(std::int64_t begin, std::int64_t end) {
    for (; begin < end; begin += kSlots) {
      size_ = static_cast<std::uint32_t>(std::min(kSlots, end - begin));
      enter(begin);
      std::uint32_t waiting = size_;
      while (waiting > 0) {
        waiting = try_again(search(waiting));
      }
      draw_remaining();
    }
  }

 private:
  struct Slot {
    std::int64_t draw;  // its place in the output
    std::int64_t query;
    EdgeSpan known;
    std::uint32_t tries;
    std::uint32_t column;
    std::uint32_t coin;
    std::int64_t item;
    ListSearch<Index> search;
  };

  DrawSequence draws_of(const Slot& slot) const {
    return {request_.key, kHop, 0, static_cast<std::uint64_t>(slot.draw)};
  }
  const Index* list(EdgeSpan known) const { return neighbor_at(*request_.known_positives, indices_, known.begin); }

  void enter(std::int64_t begin) {
    std::int64_t number = -1;
    EdgeSpan known{0, 0};
    for (std::uint32_t i = 0; i < size_; ++i) {
      Slot& slot = slots_[i];
      slot.draw = begin + i;
      const std::int64_t its_number = slot.draw / request_.num_negatives;
      if (its_number != number) {
        number = its_number;
        if (request_.known_positives != nullptr) {
          prefetch_later_row(number);
          known = known_positives_of(*request_.known_positives, request_.queries, number);
        }
      }
      slot.query = request_.queries[static_cast<std::size_t>(number)];
      slot.known = known;
      slot.tries = 0;
      propose(slot);
      waiting_[i] = i;
    }
  }

  GRAPHBOX_INLINE void prefetch_later_row(std::int64_t number) const {
    const auto later = static_cast<std::size_t>(number + kRowDistance);
    if (later < request_.queries.size() && request_.queries[later] >= 0 &&
        request_.queries[later] < request_.known_positives->num_rows) {
      prefetch_row(*request_.known_positives, request_.queries[later]);
    }
  }

  // Two tries share a block: a column and a coin for each.
  void propose(Slot& slot) {
    const DrawSequence draws = draws_of(slot);
    const PhiloxBlock words = draws.block(slot.tries / 2);
    const std::uint32_t word = slot.tries % 2 * 2;
    slot.column = draws.bounded(words[word], slot.tries * 2, range_);
    slot.coin = words[word + 1];
    request_.items->prefetch_column(slot.column);
  }

  // Looks for the proposed items among the known positives. Leaves those that were found, returns how many.
  std::uint32_t search(std::uint32_t waiting) {
    std::uint32_t found = 0;
    std::uint32_t searching = 0;
    for (std::uint32_t i = 0; i < waiting; ++i) {
      Slot& slot = slots_[waiting_[i]];
      slot.item = request_.items->item(slot.column, slot.coin);
      if (request_.exclude_query && slot.item == slot.query) {
        found_[found++] = waiting_[i];
      } else if (slot.known.degree == 0) {
        out_[slot.draw] = slot.item;
      } else {
        slot.search.start(list(slot.known), slot.known.degree, slot.item, range_, 0);
        searching_[searching++] = waiting_[i];
      }
    }
    while (searching > 0) {
      std::uint32_t left = 0;
      for (std::uint32_t i = 0; i < searching; ++i) {
        Slot& slot = slots_[searching_[i]];
        switch (slot.search.advance()) {
          case SearchState::kGoesOn:
            searching_[left++] = searching_[i];
            break;
          case SearchState::kFound:
            found_[found++] = searching_[i];
            break;
          case SearchState::kAbsent:
            out_[slot.draw] = slot.item;
            break;
        }
      }
      searching = left;
    }
    return found;
  }

  // Returns how many of the found wait for another try.
  std::uint32_t try_again(std::uint32_t found) {
    std::uint32_t waiting = 0;
    for (std::uint32_t i = 0; i < found; ++i) {
      Slot& slot = slots_[found_[i]];
      if (++slot.tries < kMostTries) {
        propose(slot);
        waiting_[waiting++] = found_[i];
      } else {
        failed_[num_failed_++] = found_[i];
      }
    }
    return waiting;
  }

  void draw_remaining() {
    std::sort(failed_.begin(), failed_.begin() + num_failed_);
    for (std::uint32_t i = 0; i < num_failed_;) {
      const Slot& first = slots_[failed_[i]];
      const std::span<const Index> known =
          first.known.degree == 0 ? std::span<const Index>()
                                  : std::span(list(first.known), static_cast<std::size_t>(first.known.degree));
      const RemainingItems<Index> remaining(request_, known, first.query);
      if (remaining.empty() && !request_.allow_exhausted) {
        throw Error(ErrorKind::kData,
                    "every item that can be drawn is a known positive of query " + std::to_string(first.query) +
                        " at position " + std::to_string(first.draw / request_.num_negatives),
                    "queries", "leave such queries out, or let their negatives be -1 with exhausted='fill'");
      }
      const std::int64_t number = first.draw / request_.num_negatives;
      for (; i < num_failed_ && slots_[failed_[i]].draw / request_.num_negatives == number; ++i) {
        const Slot& slot = slots_[failed_[i]];
        out_[slot.draw] = remaining.empty() ? -1 : remaining.draw(draws_of(slot), kMostTries * 2);
      }
    }
    num_failed_ = 0;
  }

  const NegativeRequest& request_;
  const Index* indices_;
  std::int64_t* out_;
  std::uint32_t range_;
  std::uint32_t size_ = 0;
  std::uint32_t num_failed_ = 0;
  std::array<Slot, kSlots> slots_;
  std::array<std::uint32_t, kSlots> waiting_;
  std::array<std::uint32_t, kSlots> searching_;
  std::array<std::uint32_t, kSlots> found_;
  std::array<std::uint32_t, kSlots> failed_;
};

template <typename Index>
void draw_negatives(const NegativeRequest& request, const Index* indices, std::int64_t* out) {
  const std::int64_t draws = static_cast<std::int64_t>(request.queries.size()) * request.num_negatives;
  parallel_for(request.threads, (draws + kChunkDraws - 1) / kChunkDraws, [&](std::int64_t chunk) {
    NegativeDraws<Index>(request, indices, out).run(chunk * kChunkDraws, std::min((chunk + 1) * kChunkDraws, draws));
  });
}

// Calls `visit(row, edges)` for every row.
template <typename Visit>
void for_each_row(const Adjacency& adjacency, int threads, Visit visit) {
  parallel_for(threads, (adjacency.num_rows + kChunkRows - 1) / kChunkRows, [&](std::int64_t chunk) {
    const std::int64_t end = std::min((chunk + 1) * kChunkRows, adjacency.num_rows);
    for (std::int64_t row = chunk * kChunkRows; row < end; ++row) {
      visit(row, edges_of(adjacency, row));
    }
  });
}

template <typename Index>
void count_rows(const Adjacency& known, const Index* indices, std::int64_t num_items, bool exclude_query,
                std::int64_t* out, int threads) {
  for_each_row(known, threads, [&](std::int64_t row, EdgeSpan span) {
    const Index* const list = span.degree == 0 ? nullptr : neighbor_at(known, indices, span.begin);
    bool excluded = exclude_query && row < num_items;
    std::int64_t remaining = num_items;
    for (std::int64_t i = 0; i < span.degree; ++i) {
      const bool is_item = list[i] >= 0 && list[i] < num_items && (i == 0 || list[i] != list[i - 1]);
      remaining -= is_item ? 1 : 0;
      excluded = excluded && list[i] != row;
    }
    out[row] = remaining - (excluded ? 1 : 0);
  });
}

}  // namespace

void sample_negatives(const NegativeRequest& request, std::int64_t* out) {
  if (!request.weights.empty() && static_cast<std::int64_t>(request.weights.size()) != request.items->size()) {
    throw Error(ErrorKind::kUsage,
                "expected a weight for each of " + std::to_string(request.items->size()) + " items, received " +
                    std::to_string(request.weights.size()),
                "weights");
  }
  if (request.known_positives != nullptr && request.known_positives->wide_indices != nullptr) {
    draw_negatives(request, request.known_positives->wide_indices, out);
  } else {
    draw_negatives(request, request.known_positives == nullptr ? nullptr : request.known_positives->narrow_indices,
                   out);
  }
}

void count_remaining(const Adjacency& known, std::int64_t num_items, bool exclude_query, std::int64_t* out,
                     int threads) {
  if (known.wide_indices != nullptr) {
    count_rows(known, known.wide_indices, num_items, exclude_query, out, threads);
  } else {
    count_rows(known, known.narrow_indices, num_items, exclude_query, out, threads);
  }
}

void row_degrees(const Adjacency& adjacency, std::int64_t* out, int threads) {
  for_each_row(adjacency, threads, [&](std::int64_t row, EdgeSpan span) { out[row] = span.degree; });
}

}  // namespace graphbox
