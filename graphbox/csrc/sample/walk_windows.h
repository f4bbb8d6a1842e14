// The windows of the nodes of walks: which of them are near each other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "random/philox.h"

namespace graphbox {

struct SkipGramRequest {
  const std::int64_t* walks = nullptr;  // [num_walks, width]; a walk ends at its first negative entry
  std::int64_t num_walks = 0;
  std::int64_t width = 0;
  std::int64_t window = 1;
  const std::int64_t* column_offsets = nullptr;  // [paths, width] or null: added to the nodes of each column
  const std::int64_t* path_of = nullptr;  // [num_walks], or null where there is one path
  bool dynamic_window = false;  // a window drawn for each centre from 1 ... window (word2vec's way to favour the near)
  PhiloxKey key{};
  int threads = 1;
  // [num_keep] or null: the probability that an occurrence of a key stays on its walk (Mikolov et al., NIPS'13). Those
  // dropped leave before windows are laid, so that the ones beside them move closer.
  const double* keep = nullptr;
  std::int64_t num_keep = 0;
  std::int64_t first_position = 0;  // of the walks in the whole, when these are a part: they draw as they would in it
};

// The words of the draws of one walk, in rising order of their numbers.
class WalkWords {
 public:
  WalkWords(PhiloxKey key, std::uint32_t hop, std::int64_t position)
      : draws_(key, hop, 0, static_cast<std::uint64_t>(position)) {}
  const DrawSequence& draws() const { return draws_; }
  std::uint32_t operator[](std::uint32_t draw) {
    if (!known_ || draw / 4 != number_) {
      number_ = draw / 4;
      block_ = draws_.block(number_);
      known_ = true;
    }
    return block_[draw % 4];
  }

 private:
  DrawSequence draws_;
  PhiloxBlock block_{};
  std::uint32_t number_ = 0;
  bool known_ = false;
};

// Remaining keys of a walk, and the columns they stood in.
struct KeptWalk {
  std::int64_t position;
  std::span<const std::int64_t> keys;
  const std::int64_t* columns;  // null: 0, 1, 2, ...

  std::int64_t column(std::int64_t place) const { return columns != nullptr ? columns[place] : place; }
};

// Reads walk number `walk`; `keys` and `columns` are room for it.
KeptWalk read_walk(const SkipGramRequest& request, std::int64_t walk, std::vector<std::int64_t>& keys,
                   std::vector<std::int64_t>& columns);

// Calls visit(centre, first context, one past the last), places in walk.keys, for each centre of the walk.
template <typename Visit>
void for_each_center(const SkipGramRequest& request, const KeptWalk& walk, Visit visit) {
  const auto length = static_cast<std::int64_t>(walk.keys.size());
  WalkWords words(request.key, 0, walk.position);
  for (std::int64_t center = 0; center < length; ++center) {
    std::int64_t window = request.window;
    if (request.dynamic_window) {
      const auto draw = static_cast<std::uint32_t>(walk.column(center));
      window = 1 + words.draws().bounded(words[draw], draw, static_cast<std::uint32_t>(request.window));
    }
    visit(center, std::max<std::int64_t>(0, center - window), std::min(length, center + window + 1));
  }
}

}  // namespace graphbox
