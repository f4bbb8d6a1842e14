// Trains rows of tables by skip-gram with negative samples on walks, from the graph to the updated rows.
//
// A batch is some walks and the negatives that their pairs share. Its gradients are those of the mean loss of its pairs
// at the rows as they were before it; each row is updated once, with the sum of its gradients in the order of the walks.
// So rows are the same for any number of threads. Without locks, threads train whole batches side by side instead: rows
// may change while they are read, and changes may be lost (Niu et al., "Hogwild!", NIPS 2011).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sample/negative.h"
#include "sample/walk.h"
#include "sample/walk_windows.h"
#include "table/rows_in_place.h"
#include "table/table.h"
#include "train/skip_gram_batch.h"

namespace graphbox {

struct SkipGramSettings {
  const AliasTable* negatives = nullptr;  // over keys
  std::int64_t num_keys = 0;
  std::int64_t num_negatives = 0;  // of a batch
  float negative_weight = 0;       // how many negatives a pair is worth
};

// Some batches in a row.
struct SkipGramBatches {
  const WalkRequest* walks = nullptr;        // of all batches, one after another
  const SkipGramRequest* windows = nullptr;  // without the walks themselves
  std::span<const std::int64_t> offsets;     // [batches + 1]: the walkers of each
  std::uint64_t seed = 0;                    // of walks and windows
  std::uint64_t negative_seed = 0;
  std::uint32_t epoch = 0;
  std::uint64_t first_batch = 0;  // number of the first in its epoch
  float lr = 0;
  bool is_lock_free = false;
  int threads = 1;
};

struct SkipGramResult {
  double loss = 0;  // sum over pairs
  std::int64_t pairs = 0;
};

class SkipGram {
 public:
  // `center` and `context` may be the same table.
  SkipGram(const SkipGramSettings& settings, Table& center, Table& context);

  // Stops before the update of a batch whose loss is not finite, and returns that loss.
  SkipGramResult train(const SkipGramBatches& batches);

 private:
  class Step;
  struct Lent;

  void make(const SkipGramBatches& batches, std::int64_t number, SkipGramBatch& batch) const;
  void add_new(const SkipGramBatch& batch, bool are_contexts, std::vector<std::int64_t>& keys);
  void forget(const std::vector<std::int64_t>& keys);
  std::vector<std::int64_t> keys_of(std::span<const SkipGramBatch> batches, bool are_contexts);
  Lent lend(std::span<const SkipGramBatch> batches, int threads);
  std::size_t fitting(std::span<const SkipGramBatch> batches);
  SkipGramResult train_in_order(const SkipGramBatches& batches);
  SkipGramResult train_lock_free(const SkipGramBatches& batches);
  bool train_made(std::span<const SkipGramBatch> group, const Lent& rows, const SkipGramBatches& batches,
                  SkipGramResult& result) const;

  SkipGramSettings settings_;
  Table& center_;
  Table& context_;
  NumberedRows center_rows_;
  NumberedRows context_rows_;
  std::vector<std::uint64_t> seen_;  // a bit for each key, where rows may be on SSD; all 0 between uses
};

}  // namespace graphbox
