#include "sample/walk_step.h"

#include <algorithm>
#include <string>

#include "errors/error.h"
#include "parallel/parallel_for.h"
#include "sample/walk.h"

namespace graphbox {
namespace {

constexpr std::int64_t kChunkWalkers = 4096;

// Calls visit(i) for each walker of the request, on several threads.
template <typename Visit>
void for_each_walker(const StepRequest& request, Visit visit) {
  const std::int64_t count = std::ssize(request.numbers);
  parallel_for(request.threads, (count + kChunkWalkers - 1) / kChunkWalkers, [&](std::int64_t chunk) {
    const std::int64_t last = std::min((chunk + 1) * kChunkWalkers, count);
    for (std::int64_t i = chunk * kChunkWalkers; i < last; ++i) {
      visit(static_cast<std::size_t>(i));
    }
  });
}

}  // namespace

WalkerDraws::WalkerDraws(std::uint64_t seed, std::uint32_t epoch, std::uint64_t first_batch,
                         std::span<const std::int64_t> offsets, std::int64_t first_position)
    : offsets_(offsets.begin(), offsets.end()), first_position_(first_position) {
  if (offsets_.empty() || offsets_.front() != 0 || !std::is_sorted(offsets_.begin(), offsets_.end())) {
    throw Error(ErrorKind::kUsage, "expected offsets that rise from 0 to the number of walkers", "offsets");
  }
  for (std::size_t batch = 0; batch + 1 < offsets_.size(); ++batch) {
    keys_.push_back(derive_key(Stream::kWalk, seed, epoch, first_batch + batch));
  }
}

DrawSequence WalkerDraws::of(std::int64_t number, std::uint32_t hop, std::uint32_t relation) const {
  const auto batch = std::upper_bound(offsets_.begin(), offsets_.end(), number) - offsets_.begin() - 1;
  const std::int64_t position = first_position_ + number - offsets_[static_cast<std::size_t>(batch)];
  return DrawSequence(keys_[static_cast<std::size_t>(batch)], hop, relation, static_cast<std::uint64_t>(position));
}

void choose_any(const StepRequest& request, const std::int64_t* bounds, std::int64_t* positions) {
  const auto draw = static_cast<std::uint32_t>(request.step);
  for_each_walker(request, [&](std::size_t i) {
    const std::int64_t begin = bounds[2 * i];
    const std::int64_t degree = bounds[2 * i + 1] - begin;
    if (degree <= 0) {
      positions[i] = -1;
      return;
    }
    const DrawSequence draws = request.draws->of(request.numbers[i], kUniformHop);
    positions[i] = begin + draw_below(draws, draws.block(draw / 4)[draw % 4], draw, degree);
  });
}

void choose_by_weight(const StepRequest& request, std::span<const std::int64_t> rows, const AliasTables& weights,
                      std::int64_t* positions) {
  const std::uint32_t draw = pair_draw(request.step);
  const auto num_rows = std::ssize(weights.indptr()) - 1;
  for_each_walker(request, [&](std::size_t i) {
    if (rows[i] < 0 || rows[i] >= num_rows) [[unlikely]] {
      throw Error(ErrorKind::kUsage,
                  "expected rows in [0, " + std::to_string(num_rows) + "), received " + std::to_string(rows[i]), "rows");
    }
    const auto row = static_cast<std::size_t>(rows[i]);
    const std::int64_t begin = weights.indptr()[row];
    const std::int64_t degree = weights.indptr()[row + 1] - begin;
    if (degree == 0) {
      positions[i] = -1;
      return;
    }
    const DrawSequence draws = request.draws->of(request.numbers[i], kPairHop);
    const PhiloxBlock words = draws.block(draw / 4);
    const std::uint32_t column = draws.bounded(words[draw % 4], draw, static_cast<std::uint32_t>(degree));
    const AliasEntry entry = weights.entries()[begin + column];
    positions[i] = begin + (words[draw % 4 + 1] >= entry.threshold ? entry.alias : column);
  });
}

}  // namespace graphbox
