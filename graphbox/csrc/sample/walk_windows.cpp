#include "sample/walk_windows.h"

#include <cstddef>
#include <string>

#include "errors/error.h"

namespace graphbox {
namespace {

constexpr std::uint32_t kKeepHop = 1;  // of the counter; hop 0 has the draws of windows

[[noreturn]] void throw_no_probability(const SkipGramRequest& request, std::int64_t key, std::int64_t walk) {
  const std::string of_walk = ", walk " + std::to_string(walk) + " has key " + std::to_string(key);
  if (key < 0 || key >= request.num_keep) {
    throw Error(ErrorKind::kUsage,
                "expected probabilities for all keys; it has " + std::to_string(request.num_keep) + of_walk,
                "subsample");
  }
  throw Error(ErrorKind::kUsage,
              "expected probabilities, 0 to 1, received " + std::to_string(request.keep[key]) + of_walk, "subsample",
              "keep_probability(visits, threshold) makes them");
}

}  // namespace

KeptWalk read_walk(const SkipGramRequest& request, std::int64_t walk, std::vector<std::int64_t>& keys,
                   std::vector<std::int64_t>& columns) {
  const std::int64_t* const nodes = request.walks + walk * request.width;
  const std::int64_t length = std::find_if(nodes, nodes + request.width, [](auto node) { return node < 0; }) - nodes;
  const std::int64_t position = request.first_position + walk;
  const std::int64_t first_column = request.path_of != nullptr ? request.path_of[walk] * request.width : 0;
  if (request.column_offsets == nullptr && request.keep == nullptr) {
    return {position, {nodes, static_cast<std::size_t>(length)}, nullptr};
  }
  const std::int64_t* const offsets =
      request.column_offsets != nullptr ? request.column_offsets + first_column : nullptr;
  keys.clear();
  columns.clear();
  WalkWords words(request.key, kKeepHop, position);
  for (std::int64_t column = 0; column < length; ++column) {
    const std::int64_t key = nodes[column] + (offsets != nullptr ? offsets[column] : 0);
    if (request.keep != nullptr) {
      if (key < 0 || key >= request.num_keep || !(request.keep[key] >= 0 && request.keep[key] <= 1)) [[unlikely]] {
        throw_no_probability(request, key, position);
      }
      if (static_cast<double>(words[static_cast<std::uint32_t>(column)]) >= request.keep[key] * 0x1p32) {
        continue;
      }
    }
    keys.push_back(key);
    columns.push_back(column);
  }
  return {position, keys, columns.data()};
}

}  // namespace graphbox
