// Many reads in flight at once, by io_uring or by threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace graphbox {

struct ReadRequest {
  int descriptor;
  std::uint32_t bytes;
  std::uint64_t offset;
  std::byte* target;
  std::uint64_t tag;
};

struct ReadResult {
  std::uint64_t tag;
  std::int64_t bytes;  // read, may be fewer than asked; -errno where it failed
};

// Belongs to one thread at a time. Destroy it only with nothing in flight.
class ReadQueue {
 public:
  virtual ~ReadQueue() = default;
  // At most `depth` may be in flight. It may begin as late as the next call of wait().
  virtual void push(const ReadRequest& request) = 0;
  // The next of those in flight to complete, in any order.
  virtual ReadResult wait() = 0;
};

enum class ReadBackend { kAuto, kUring, kThreads };

struct BackendChoice {
  ReadBackend backend;  // kUring or kThreads
  std::string text;     // its name, and why it is not io_uring
};

// Backend that this process can use with so many reads in flight: io_uring may be missing from the build, or refused by
// the kernel or a sandbox. kUring where that is not possible is an error of the kind kFailure.
BackendChoice choose_backend(ReadBackend wanted, unsigned depth);

std::unique_ptr<ReadQueue> open_read_queue(ReadBackend backend, unsigned depth);

// io/uring_queue.cpp; without liburing there is only the reason.
std::unique_ptr<ReadQueue> open_uring_queue(unsigned depth, std::string& refusal);

}  // namespace graphbox
