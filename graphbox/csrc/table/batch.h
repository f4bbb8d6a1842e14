// Division of a batch's keys among threads.
#pragma once

#include <cstdint>
#include <vector>

namespace graphbox {

inline constexpr std::int64_t kChunkKeys = 4096;     // keys that one thread takes at a time
inline constexpr std::int64_t kParallelKeys = 8192;  // smaller batches are not worth waking a thread

inline std::int64_t chunks_of(std::int64_t count) { return (count + kChunkKeys - 1) / kChunkKeys; }

inline int useful_threads(int threads, std::int64_t count) { return count >= kParallelKeys ? threads : 1; }

// Findings of the chunks, in their order.
inline std::vector<std::int64_t> joined(const std::vector<std::vector<std::int64_t>>& by_chunk) {
  std::vector<std::int64_t> all;
  for (const auto& found : by_chunk) {
    all.insert(all.end(), found.begin(), found.end());
  }
  return all;
}

}  // namespace graphbox
