// Random walks.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "random/philox.h"
#include "sample/adjacency.h"
#include "sample/alias.h"
#include "sample/time_order.h"

namespace graphbox {

// Where a walker can go at one step, and what its choice is by; any out-edge is equally likely unless there is more.
struct WalkStep {
  Adjacency edges;
  const AliasTables* weights = nullptr;          // of the base's edges: in proportion to their weights
  const AliasTables* overlay_weights = nullptr;  // of the overlay's edges, where there is one
  const TimeOrder* times = nullptr;              // of the base's edges: only those that are late enough
  const TimeOrder* overlay_times = nullptr;      // of the overlay's edges, where there is one
};

enum class TimeChoice : std::uint8_t {
  kUniform,
  kLinear,  // of k edges that may be taken the earliest has weight k, the next k - 1, the latest 1
};

// Rule for the time of an edge after the one at t: in [t, t + window], or (t, t + window].
struct TimeRule {
  static constexpr std::int64_t kAnyTime = std::numeric_limits<std::int64_t>::min();  // nothing came before
  static constexpr std::int64_t kNoWindow = -1;

  bool strictly_later = false;
  std::int64_t window = kNoWindow;
  TimeChoice choice = TimeChoice::kUniform;
};

struct WalkRequest {
  // Of each path its step 0, 1, ..., then again from 0. One path with one step is the plain walk.
  std::vector<std::vector<WalkStep>> paths;
  std::span<const std::int64_t> start;
  std::span<const std::int64_t> path_of;  // of each walker; empty where there is one path
  std::span<const std::int64_t> second;   // where each walker goes first, or empty: then it chooses
  std::span<const std::int64_t> times;    // of each walker: its first choice comes after it; or empty: any time
  std::int64_t length = 0;                // steps of a walk, at least 1 with `second`
  PhiloxKey key{};
  int threads = 1;
  double p = 1;  // node2vec's parameters, above 0; other than 1 only with one step, whose lists ascend
  double q = 1;
  std::int64_t most_parallel = 1;  // of that step's edges, see most_parallel_edges()
  double restart_probability = 0;  // below 1; above 0 only with one step ...
  bool restart_rounds = false;     // ... unless only whole rounds of steps start anew
  TimeRule time_rule;
  std::int64_t first_position = 0;  // of start in the whole, when this is a part: walkers draw as they would in it
  const std::int64_t* made = nullptr;  // [start.size(), length + 1]: the walks, where they were made before; or null
};

// Writes start.size() rows of length + 1 nodes, -1 after a dead end. Walker w draws at position w, so that walkers
// which meet do not go on together (Perozzi et al., "DeepWalk", KDD'14; with several steps: Dong et al.,
// "metapath2vec", KDD'17; by time: Nguyen et al., "Continuous-time dynamic network embeddings", WWW'18 companion).
//
// With a restart probability each step leads back to the walker's start with that probability, as does every step from
// a dead end. With `restart_rounds` a walker stands at its start again, with that probability, before the first step of
// each round but the first, and always after a dead end; the rest of the round with the dead end is -1.
void random_walks(const WalkRequest& request, std::int64_t* out);

// Hops of the counter. One draw a step chooses among equal edges, another decides whether to restart, and two choose by
// weight or by time. Hops 1 and 4 are node2vec's.
inline constexpr std::uint32_t kUniformHop = 0;
inline constexpr std::uint32_t kRestartHop = 2;
inline constexpr std::uint32_t kPairHop = 3;

// The first of the two draws of a step.
inline std::uint32_t pair_draw(std::int64_t step) { return static_cast<std::uint32_t>(step) * 2; }

// A number below `range`, of the draw whose first word is `word`.
GRAPHBOX_INLINE std::int64_t draw_below(const DrawSequence& draws, std::uint32_t word, std::uint32_t draw,
                                        std::int64_t range) {
  if (range < std::int64_t{1} << 32) [[likely]] {
    return draws.bounded(word, draw, static_cast<std::uint32_t>(range));
  }
  return static_cast<std::int64_t>(draws.bounded_wide(draw, static_cast<std::uint64_t>(range)));
}

// Words below it, of 2^32, mean a restart.
inline std::uint64_t restart_threshold(double probability) {
  return static_cast<std::uint64_t>(probability * 0x1p32 + 0.5);
}

inline void check_node(const Adjacency& edges, std::int64_t node, std::int64_t position, const char* where) {
  if (node < 0 || node >= edges.num_rows) [[unlikely]] {
    throw Error(ErrorKind::kUsage,
                std::string(where) + " must hold node indices in [0, " + std::to_string(edges.num_rows) +
                    "), received " + std::to_string(node) + " at position " + std::to_string(position),
                where);
  }
}

// Tables that were made of other rows lead out of these.
[[noreturn]] inline void throw_other_rows(const Adjacency& edges) {
  throw Error(ErrorKind::kData, "weights belong to rows other than these", edges.name,
              "make the tables of the same indptr, and do not write into it later");
}

inline void check_start(const Adjacency& edges, std::int64_t node, std::int64_t position) {
  check_node(edges, node, position, "start");
}

// The tables of the edges from `position` on, and how far their positions are from those of the adjacency.
template <typename Tables>
struct TablesAt {
  const Tables* tables;
  std::int64_t shift;
};

template <typename Tables>
GRAPHBOX_INLINE TablesAt<Tables> tables_at(const Adjacency& edges, const Tables* base, const Tables* overlay,
                                           std::int64_t position) {
  return edges.overlay == nullptr || position < edges.num_edges ? TablesAt<Tables>{base, 0}
                                                                : TablesAt<Tables>{overlay, edges.num_edges};
}

}  // namespace graphbox
