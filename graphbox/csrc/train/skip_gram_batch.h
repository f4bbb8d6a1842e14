// Inputs of one batch of skip-gram, before any number is computed: its pairs and negatives, and the gradients that
// belong to each row.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "random/philox.h"
#include "sample/negative.h"
#include "sample/walk.h"
#include "sample/walk_windows.h"

namespace graphbox {

struct SkipGramBatchRequest {
  const WalkRequest* walks;          // of the batch
  const SkipGramRequest* windows;    // without the walks themselves
  const AliasTable* negatives;
  PhiloxKey negative_key;
  std::int64_t num_negatives;
  std::int64_t num_keys;
  bool has_one_table;  // centres and contexts are the same rows
};

// Rows of gradients by number: those of occurrences as centres, as contexts, those of different centres from negatives,
// then those of the negatives from each block of centres.
struct SkipGramBatch {
  static constexpr std::int64_t kBlockRows = 128;

  // Keys, each once, and the gradients of its row: sources[begins[i]] ... sources[begins[i + 1] - 1].
  struct Updates {
    std::vector<std::int64_t> keys;
    std::vector<std::uint32_t> begins;
    std::vector<std::uint32_t> sources;
  };

  void make(const SkipGramBatchRequest& request);

  std::int64_t num_blocks() const { return (std::ssize(centers) + kBlockRows - 1) / kBlockRows; }
  std::int64_t first_center_source() const { return 2 * num_rows; }
  std::int64_t first_negative_source() const { return first_center_source() + std::ssize(centers); }
  std::int64_t num_sources() const { return first_negative_source() + num_blocks() * std::ssize(negatives); }

  std::int64_t num_rows = 0;        // occurrences of keys on walks
  std::int64_t num_pairs = 0;
  std::vector<std::int32_t> keys;   // [num_rows], and room to be read beyond it
  std::vector<std::int32_t> first;  // [num_rows]: places of the contexts of each
  std::vector<std::int32_t> last;
  std::vector<std::int64_t> chunks;  // where parts of whole walks begin, and the end
  std::vector<std::int64_t> centers;  // different keys that are centres of pairs
  std::vector<float> center_pairs;    // of how many
  std::vector<std::int64_t> negatives;
  std::vector<Updates> updates;  // of centres and of contexts, or of the one table

 private:
  void add_windows(const SkipGramBatchRequest& request);
  void find_centers();
  void find_updates(bool has_one_table);

  std::vector<std::int64_t> walks_;
  std::vector<std::int32_t> center_uses_;   // [num_rows], pairs that each is in
  std::vector<std::int32_t> context_uses_;
};

}  // namespace graphbox
