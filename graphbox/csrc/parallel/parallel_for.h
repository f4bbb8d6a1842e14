// Runs a loop on several threads of one persistent pool.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

namespace graphbox {

inline constexpr int kMostThreads = 256;

// The number of threads that `threads` of a caller means: what is made for each must not grow with absurd numbers.
inline int bounded_threads(int threads) { return std::clamp(threads, 1, kMostThreads); }

// Calls `body(chunk)` once for each chunk in [0, chunks), on at most `threads` threads, the calling one among them.
// Chunks run on any of the threads, so a body must write only what belongs to its chunk. If bodies throw, the exception
// of the lowest chunk is thrown here after all running chunks have ended; later chunks may be left out.
void parallel_for(int threads, std::int64_t chunks, const std::function<void(std::int64_t)>& body);

}  // namespace graphbox
