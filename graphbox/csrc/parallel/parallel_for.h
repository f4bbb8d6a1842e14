// Runs a loop on several threads of one persistent pool.
#pragma once

#include <cstdint>
#include <functional>

namespace graphbox {

// Calls `body(chunk)` once for each chunk in [0, chunks), on at most `threads` threads, the calling one among them.
// Which thread runs a chunk is not determined, so a body must write only what belongs to its chunk. If bodies throw,
// the exception of the lowest chunk is thrown here after all running chunks have ended; later chunks may be left out.
void parallel_for(int threads, std::int64_t chunks, const std::function<void(std::int64_t)>& body);

}  // namespace graphbox
