#include "train/skip_gram.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "memory/buffer.h"
#include "parallel/parallel_for.h"
#include "table/optimizer.h"
#include "train/lanes.h"
#include "train/skip_gram_batch.h"
#include "train/skip_gram_loss.h"

namespace graphbox {
namespace {

constexpr std::int64_t kBatchesAhead = 32;   // that are made before they are trained
constexpr std::int64_t kBatchesOfLoad = 128;  // likewise, where rows are on SSD: the more, the fewer rows are read twice
constexpr std::int64_t kUpdatedGroups = 8;   // of kUpdatedRows rows, that one thread takes at a time

// Rows of `stride` numbers, the last of which are zeros.
void read_rows(const RowsInPlace& rows, const std::int64_t* keys, std::size_t count, std::size_t stride, bool is_shared,
               float* out) {
  constexpr std::size_t kAhead = 8;
  for (std::size_t i = 0; i < count; ++i) {
    if (i + kAhead < count) {
      rows.ask_for(keys[i + kAhead]);
    }
    float* const values = out + i * stride;
    rows.read(keys[i], values, is_shared);
    std::fill(values + rows.dim(), values + stride, 0.0F);
  }
}

// Buffers of a thread besides a batch.
struct Workspace {
  std::vector<std::int64_t> keys;
  std::vector<std::int32_t> first;
  std::vector<std::int32_t> last;
  std::vector<float> centers;
  std::vector<float> contexts;
  std::vector<float> weights;
  LossWorkspace loss;
};

Workspace& workspace() {
  thread_local Workspace own;
  return own;
}

}  // namespace

// One batch: its gradients, then its updates, each in parts that several threads may do.
class SkipGram::Step {
 public:
  Step(const SkipGramSettings& settings, const RowsInPlace& center, const RowsInPlace& context, bool is_shared)
      : settings_(settings),
        center_(center),
        context_(context),
        is_shared_(is_shared),
        stride_(whole_lanes(center.dim())) {}

  void begin(const SkipGramBatch& batch, float lr) {
    batch_ = &batch;
    gradients_.resize(batch.num_sources() * static_cast<std::int64_t>(stride_));
    losses_.assign(static_cast<std::size_t>(gradient_parts()), 0.0);
    center_update_.emplace(center_.update(lr));
    context_update_.emplace(context_.update(lr));
    const std::size_t count = batch.negatives.size();
    negatives_.resize(count * stride_);
    transposed_.resize(whole_lanes(count) * stride_);
    read_rows(context_, batch.negatives.data(), count, stride_, is_shared_, negatives_.data());
    transpose(negatives_.data(), count, stride_, transposed_.data(), whole_lanes(count));
  }

  std::int64_t gradient_parts() const { return chunks() + batch_->num_blocks(); }

  void compute(std::int64_t part) {
    losses_[static_cast<std::size_t>(part)] = part < chunks() ? compute_walks(part) : compute_negatives(part - chunks());
  }

  double loss() const {
    double sum = 0;
    for (const double part : losses_) {
      sum += part;
    }
    return sum;
  }

  std::int64_t update_parts() const {
    std::int64_t parts = 0;
    for (const auto& updates : batch_->updates) {
      parts += parts_of(updates);
    }
    return parts;
  }

  void update(std::int64_t part) {
    const bool is_first = part < parts_of(batch_->updates.front());
    const auto& updates = is_first ? batch_->updates.front() : batch_->updates.back();
    const RowsInPlace& rows = is_first ? center_ : context_;
    const RowUpdate& rule = is_first ? *center_update_ : *context_update_;
    const std::int64_t number = is_first ? part : part - parts_of(batch_->updates.front());
    const std::int64_t begin = number * kUpdatedGroups * static_cast<std::int64_t>(kUpdatedRows);
    const std::int64_t end =
        std::min(begin + kUpdatedGroups * static_cast<std::int64_t>(kUpdatedRows), std::ssize(updates.keys));
    std::vector<float>& sums = workspace().centers;
    sums.resize(kUpdatedRows * stride_);
    for (std::int64_t first = begin; first < end; first += static_cast<std::int64_t>(kUpdatedRows)) {
      const auto count = static_cast<std::size_t>(std::min<std::int64_t>(end - first, kUpdatedRows));
      const std::span keys(updates.keys.data() + first, count);
      for (std::size_t i = 0; i < count; ++i) {
        rows.ask_for(keys[i]);
      }
      for (std::size_t i = 0; i < count; ++i) {
        add_sources(updates, static_cast<std::size_t>(first) + i, sums.data() + i * stride_);
      }
      rows.apply(rule, keys, sums.data(), stride_, is_shared_);
    }
  }

 private:
  std::int64_t chunks() const { return std::ssize(batch_->chunks) - 1; }
  static std::int64_t parts_of(const SkipGramBatch::Updates& updates) {
    constexpr auto kPart = kUpdatedGroups * static_cast<std::int64_t>(kUpdatedRows);
    return (std::ssize(updates.keys) + kPart - 1) / kPart;
  }
  float* gradient(std::int64_t source) { return gradients_.data() + source * static_cast<std::int64_t>(stride_); }
  float scale() const { return 1.0F / static_cast<float>(batch_->num_pairs); }

  void add_sources(const SkipGramBatch::Updates& updates, std::size_t row, float* sum) {
    const std::uint32_t* source = updates.sources.data() + updates.begins[row];
    const std::uint32_t* const end = updates.sources.data() + updates.begins[row + 1];
    std::copy_n(gradient(*source), stride_, sum);
    while (++source != end) {
      add_gradient(sum, gradient(*source), stride_);
    }
  }

  double compute_walks(std::int64_t chunk) {
    const std::int64_t begin = batch_->chunks[static_cast<std::size_t>(chunk)];
    const auto count = static_cast<std::size_t>(batch_->chunks[static_cast<std::size_t>(chunk) + 1] - begin);
    Workspace& own = workspace();
    own.keys.assign(batch_->keys.begin() + begin, batch_->keys.begin() + begin + static_cast<std::int64_t>(count));
    own.centers.resize(count * stride_);
    own.contexts.resize(count * stride_);
    read_rows(center_, own.keys.data(), count, stride_, is_shared_, own.centers.data());
    read_rows(context_, own.keys.data(), count, stride_, is_shared_, own.contexts.data());
    own.first.resize(count);
    own.last.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      own.first[i] = batch_->first[static_cast<std::size_t>(begin) + i] - static_cast<std::int32_t>(begin);
      own.last[i] = batch_->last[static_cast<std::size_t>(begin) + i] - static_cast<std::int32_t>(begin);
    }
    const WalkRows rows = {count,           stride_,          own.centers.data(), own.contexts.data(),
                           batch_->keys.data() + begin, own.first.data(), own.last.data(),    scale()};
    return walk_loss(rows, gradient(begin), gradient(batch_->num_rows + begin), own.loss);
  }

  double compute_negatives(std::int64_t block) {
    const std::int64_t begin = block * SkipGramBatch::kBlockRows;
    const auto count = static_cast<std::size_t>(
        std::min(SkipGramBatch::kBlockRows, std::ssize(batch_->centers) - begin));
    const std::size_t num_negatives = batch_->negatives.size();
    Workspace& own = workspace();
    own.centers.resize(count * stride_);
    read_rows(center_, batch_->centers.data() + begin, count, stride_, is_shared_, own.centers.data());
    own.weights.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      own.weights[i] = batch_->center_pairs[static_cast<std::size_t>(begin) + i] * settings_.negative_weight /
                       static_cast<float>(num_negatives);
    }
    const NegativeRows rows = {count,         stride_,           own.centers.data(),  own.weights.data(),
                               num_negatives, negatives_.data(), transposed_.data(), scale()};
    const std::int64_t source = batch_->first_negative_source() + block * static_cast<std::int64_t>(num_negatives);
    return negative_loss(rows, gradient(batch_->first_center_source() + begin), gradient(source), own.loss);
  }

  const SkipGramSettings& settings_;
  const RowsInPlace& center_;
  const RowsInPlace& context_;
  bool is_shared_;
  std::size_t stride_;
  const SkipGramBatch* batch_ = nullptr;
  std::optional<RowUpdate> center_update_;
  std::optional<RowUpdate> context_update_;
  PooledArray<float> gradients_;
  std::vector<double> losses_;
  std::vector<float> negatives_;
  std::vector<float> transposed_;
};

namespace {

template <typename Value>
std::span<const Value> part_of(std::span<const Value> whole, std::int64_t begin, std::int64_t end) {
  return whole.empty() ? whole : whole.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
}

}  // namespace

SkipGram::SkipGram(const SkipGramSettings& settings, Table& center, Table& context)
    : settings_(settings), center_(center), context_(context) {}

// The tables, each once, while rows of some batches are trained.
struct SkipGram::Lent {
  const RowsInPlace& context_rows() const { return context ? *context : *center; }

  std::unique_ptr<RowsInPlace> center;
  std::unique_ptr<RowsInPlace> context;  // none where it is the same
};

// Adds the keys of a batch that `seen` has not.
void SkipGram::add_new(const SkipGramBatch& batch, bool are_contexts, std::vector<std::int64_t>& keys) {
  const auto add = [&](std::int64_t key) {
    std::uint64_t& word = seen_[static_cast<std::size_t>(key / 64)];
    const std::uint64_t bit = std::uint64_t{1} << (key % 64);
    if ((word & bit) == 0) {
      word |= bit;
      keys.push_back(key);
    }
  };
  std::for_each_n(batch.keys.begin(), batch.num_rows, add);
  if (are_contexts) {
    std::for_each(batch.negatives.begin(), batch.negatives.end(), add);
  }
}

void SkipGram::forget(const std::vector<std::int64_t>& keys) {
  for (const std::int64_t key : keys) {
    seen_[static_cast<std::size_t>(key / 64)] = 0;
  }
}

// The keys of the rows of a table that batches read, each once.
std::vector<std::int64_t> SkipGram::keys_of(std::span<const SkipGramBatch> batches, bool are_contexts) {
  seen_.resize(static_cast<std::size_t>(settings_.num_keys + 63) / 64);
  std::vector<std::int64_t> keys;
  for (const SkipGramBatch& batch : batches) {
    add_new(batch, are_contexts, keys);
  }
  forget(keys);
  return keys;
}

SkipGram::Lent SkipGram::lend(std::span<const SkipGramBatch> batches, int threads) {
  const bool has_one_table = &center_ == &context_;
  const auto named = [&](const Table& table, bool are_contexts) {
    return RowsInPlace::needs_keys(table) ? keys_of(batches, are_contexts) : std::vector<std::int64_t>();
  };
  const std::vector<std::int64_t> centers = named(center_, has_one_table);
  const std::vector<std::int64_t> contexts = has_one_table ? std::vector<std::int64_t>() : named(context_, true);
  // Both tables read at once; what follows finds their rows in memory.
  parallel_for(2, has_one_table ? 0 : 2, [&](std::int64_t which) {
    Table& table = which == 0 ? center_ : context_;
    const std::vector<std::int64_t>& keys = which == 0 ? centers : contexts;
    table.promote_rows(keys.data(), std::ssize(keys), 1);
  });
  const auto take = [&](Table& table, NumberedRows& numbered, const std::vector<std::int64_t>& keys) {
    return std::make_unique<RowsInPlace>(table, settings_.num_keys, keys, numbered, threads);
  };
  Lent lent;
  // In one order, so that nobody who holds one waits for the other.
  if (!has_one_table && &context_ < &center_) {
    lent.context = take(context_, context_rows_, contexts);
  }
  lent.center = take(center_, center_rows_, centers);
  if (!has_one_table && !lent.context) {
    lent.context = take(context_, context_rows_, contexts);
  }
  return lent;
}

// Number of the batches whose rows fit in memory together: all where rows are never on SSD, at least one.
std::size_t SkipGram::fitting(std::span<const SkipGramBatch> batches) {
  const bool has_one_table = &center_ == &context_;
  std::size_t count = batches.size();
  for (const bool are_contexts : {false, true}) {
    const Table& table = are_contexts ? context_ : center_;
    if (!RowsInPlace::needs_keys(table)) {
      continue;
    }
    const std::uint64_t room = RowsInPlace::room(table) / 8 * 7;  // the more rows a group has, the fewer are read twice
    seen_.resize(static_cast<std::size_t>(settings_.num_keys + 63) / 64);
    std::vector<std::int64_t> keys;
    for (std::size_t i = 0; i < count; ++i) {
      add_new(batches[i], are_contexts || has_one_table, keys);
      if (keys.size() > room) {
        count = std::max<std::size_t>(i, 1);
      }
    }
    forget(keys);
  }
  return count;
}

void SkipGram::make(const SkipGramBatches& batches, std::int64_t number, SkipGramBatch& batch) const {
  const std::int64_t begin = batches.offsets[static_cast<std::size_t>(number)];
  const std::int64_t end = batches.offsets[static_cast<std::size_t>(number) + 1];
  const std::uint64_t in_epoch = batches.first_batch + static_cast<std::uint64_t>(number);
  WalkRequest walks = *batches.walks;
  walks.start = part_of(walks.start, begin, end);
  walks.second = part_of(walks.second, begin, end);
  walks.path_of = part_of(walks.path_of, begin, end);
  walks.times = part_of(walks.times, begin, end);
  walks.made = walks.made != nullptr ? walks.made + begin * (walks.length + 1) : nullptr;
  walks.key = derive_key(Stream::kWalk, batches.seed, batches.epoch, in_epoch);
  walks.threads = 1;
  SkipGramRequest windows = *batches.windows;
  windows.key = derive_key(Stream::kWindow, batches.seed, batches.epoch, in_epoch);
  batch.make({&walks, &windows, settings_.negatives,
              derive_key(Stream::kNegative, batches.negative_seed, batches.epoch, in_epoch), settings_.num_negatives,
              settings_.num_keys, &center_ == &context_});
}

SkipGramResult SkipGram::train(const SkipGramBatches& batches) {
  return batches.is_lock_free ? train_lock_free(batches) : train_in_order(batches);
}

SkipGramResult SkipGram::train_lock_free(const SkipGramBatches& batches) {
  for (const Table* table : {&center_, &context_}) {
    if (RowsInPlace::needs_keys(*table)) {
      throw Error(ErrorKind::kUsage, "expected tables in memory, whose rows threads change without locks, received one "
                                     "with rows on SSD",
                  "lock_free", "train without it: rows are the same for any number of threads then");
    }
  }
  const Lent rows = lend({}, batches.threads);
  const std::int64_t count = std::ssize(batches.offsets) - 1;
  std::vector<SkipGramResult> results(static_cast<std::size_t>(count));
  std::atomic<bool> is_stopped{false};
  parallel_for(batches.threads, count, [&](std::int64_t number) {
    if (is_stopped.load(std::memory_order_relaxed)) {
      return;
    }
    SkipGramBatch batch;
    make(batches, number, batch);
    if (batch.num_pairs == 0) {
      return;
    }
    Step step(settings_, *rows.center, rows.context_rows(), true);
    step.begin(batch, batches.lr);
    for (std::int64_t part = 0; part < step.gradient_parts(); ++part) {
      step.compute(part);
    }
    results[static_cast<std::size_t>(number)] = {step.loss(), batch.num_pairs};
    if (!std::isfinite(step.loss())) {
      is_stopped.store(true, std::memory_order_relaxed);
      return;
    }
    for (std::int64_t part = 0; part < step.update_parts(); ++part) {
      step.update(part);
    }
  });
  SkipGramResult result;
  for (const SkipGramResult& each : results) {
    result.loss += each.loss;
    result.pairs += each.pairs;
  }
  return result;
}

SkipGramResult SkipGram::train_in_order(const SkipGramBatches& batches) {
  const bool are_named = RowsInPlace::needs_keys(center_) || RowsInPlace::needs_keys(context_);
  Lent rows = are_named ? Lent() : lend({}, batches.threads);
  const std::int64_t count = std::ssize(batches.offsets) - 1;
  const std::int64_t most = std::min(count, are_named ? kBatchesOfLoad : kBatchesAhead);
  std::vector<SkipGramBatch> ahead(static_cast<std::size_t>(most));
  SkipGramResult result;
  for (std::int64_t first = 0; first < count; first += most) {
    const std::int64_t made = std::min(most, count - first);
    parallel_for(batches.threads, made,
                 [&](std::int64_t i) { make(batches, first + i, ahead[static_cast<std::size_t>(i)]); });
    for (std::span<const SkipGramBatch> left(ahead.data(), static_cast<std::size_t>(made)); !left.empty();) {
      std::span group = left;
      if (are_named) {
        rows = Lent();  // others have the tables in between
        group = left.first(fitting(left));
        rows = lend(group, batches.threads);
      }
      if (!train_made(group, rows, batches, result)) {
        return result;
      }
      left = left.subspan(group.size());
    }
  }
  return result;
}

// Trains batches whose rows are there, adding to `result`; false where the loss is not finite.
bool SkipGram::train_made(std::span<const SkipGramBatch> group, const Lent& rows, const SkipGramBatches& batches,
                          SkipGramResult& result) const {
  Step step(settings_, *rows.center, rows.context_rows(), false);
  for (const SkipGramBatch& batch : group) {
    if (batch.num_pairs == 0) {
      continue;
    }
    step.begin(batch, batches.lr);
    parallel_for(batches.threads, step.gradient_parts(), [&](std::int64_t part) { step.compute(part); });
    result.loss += step.loss();
    result.pairs += batch.num_pairs;
    if (!std::isfinite(result.loss)) {
      return false;
    }
    parallel_for(batches.threads, step.update_parts(), [&](std::int64_t part) { step.update(part); });
  }
  return true;
}

}  // namespace graphbox
