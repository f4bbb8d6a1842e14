// One step of many walkers whose lists lie elsewhere: which edge each takes, by the draws of random_walks().
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "random/philox.h"
#include "sample/alias.h"

namespace graphbox {

// The draws of the walkers of several batches, one batch after another.
class WalkerDraws {
 public:
  // Batches are numbered from `first_batch`; number i has walkers offsets[i] to offsets[i + 1] - 1, the first of which
  // draws at `first_position`. `offsets` ascend from 0.
  WalkerDraws(std::uint64_t seed, std::uint32_t epoch, std::uint64_t first_batch, std::span<const std::int64_t> offsets,
              std::int64_t first_position);

  std::int64_t num_walkers() const { return offsets_.back(); }
  // Of walker `number`, in [0, num_walkers()).
  DrawSequence of(std::int64_t number, std::uint32_t hop, std::uint32_t relation = 0) const;

 private:
  std::vector<PhiloxKey> keys_;
  std::vector<std::int64_t> offsets_;
  std::int64_t first_position_;
};

// The walkers that take a step.
struct StepRequest {
  const WalkerDraws* draws;
  std::int64_t step;
  std::span<const std::int64_t> numbers;  // of the walkers, in [0, draws->num_walkers())
  int threads = 1;
};

// Writes the position of the edge that each walker takes, all alike, -1 where there is none: `bounds` has where the list
// of the node that it is at begins and ends.
void choose_any(const StepRequest& request, const std::int64_t* bounds, std::int64_t* positions);

// The same in proportion to weights; `rows` has the row of the tables that each walker is at.
void choose_by_weight(const StepRequest& request, std::span<const std::int64_t> rows, const AliasTables& weights,
                      std::int64_t* positions);

}  // namespace graphbox
