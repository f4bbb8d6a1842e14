#include "io/read_queue.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "errors/error.h"

namespace graphbox {
namespace {

class ThreadQueue;

struct Task {
  ReadRequest request;
  ThreadQueue* queue;
};

// The reading threads of this process.
class ReadingThreads {
 public:
  void add(const Task& task, unsigned depth) {
    {
      const std::lock_guard lock(mutex_);
      if (waiting_ <= tasks_.size() && threads_ < std::min(depth, kMostThreads)) {
        start_thread();
      }
      tasks_.push_back(task);
    }
    wake_.notify_one();
  }

 private:
  static constexpr unsigned kMostThreads = 64;

  // One more, unless the system gives none and there are others: then those read more.
  void start_thread() {
    try {
      std::thread(&ReadingThreads::run, this).detach();
    } catch (const std::system_error&) {
      if (threads_ == 0) {
        throw;
      }
      return;
    }
    ++threads_;
  }

  [[noreturn]] void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> tasks_;
  std::size_t waiting_ = 0;
  unsigned threads_ = 0;
};

// Never destroyed, since its threads are detached; made anew after a fork, which keeps only the forking thread.
ReadingThreads& reading_threads() {
  static std::mutex mutex;
  static ReadingThreads* current = nullptr;
  static pid_t owner = 0;
  const std::lock_guard lock(mutex);
  if (current == nullptr || owner != ::getpid()) {
    current = new ReadingThreads();
    owner = ::getpid();
  }
  return *current;
}

class ThreadQueue : public ReadQueue {
 public:
  explicit ThreadQueue(unsigned depth) : depth_(depth) {}

  void push(const ReadRequest& request) override { reading_threads().add({request, this}, depth_); }

  ReadResult wait() override {
    if (taken_.empty()) {
      std::unique_lock lock(mutex_);
      completed_.wait(lock, [this] { return !results_.empty(); });
      taken_.swap(results_);
    }
    const ReadResult result = taken_.back();
    taken_.pop_back();
    return result;
  }

  void complete(const ReadResult& result) {
    const std::lock_guard lock(mutex_);
    results_.push_back(result);
    completed_.notify_one();  // while locked: once the last result is taken this queue may be gone
  }

 private:
  unsigned depth_;
  std::mutex mutex_;
  std::condition_variable completed_;
  std::vector<ReadResult> results_;
  std::vector<ReadResult> taken_;  // by the thread this queue belongs to
};

void ReadingThreads::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++waiting_;
    wake_.wait(lock, [this] { return !tasks_.empty(); });
    --waiting_;
    const Task task = tasks_.front();
    tasks_.pop_front();
    lock.unlock();
    const ReadRequest& request = task.request;
    ssize_t got = 0;
    do {
      got = ::pread(request.descriptor, request.target, request.bytes, static_cast<off_t>(request.offset));
    } while (got < 0 && errno == EINTR);
    task.queue->complete({request.tag, got < 0 ? -static_cast<std::int64_t>(errno) : got});
    lock.lock();
  }
}

}  // namespace

BackendChoice choose_backend(ReadBackend wanted, unsigned depth) {
  if (wanted == ReadBackend::kThreads) {
    return {ReadBackend::kThreads, "threads"};
  }
  std::string refusal;
  if (open_uring_queue(depth, refusal) != nullptr) {
    return {ReadBackend::kUring, "io_uring"};
  }
  if (wanted == ReadBackend::kUring) {
    throw Error(ErrorKind::kFailure, "io_uring cannot be used: " + refusal, "backend",
                "use the backend `threads`, or `auto`, which falls back to it");
  }
  return {ReadBackend::kThreads, "threads (no io_uring: " + refusal + ")"};
}

std::unique_ptr<ReadQueue> open_read_queue(ReadBackend backend, unsigned depth) {
  if (backend == ReadBackend::kThreads) {
    return std::make_unique<ThreadQueue>(depth);
  }
  std::string refusal;
  auto queue = open_uring_queue(depth, refusal);
  if (queue == nullptr) {
    throw Error(ErrorKind::kFailure, "io_uring cannot be used: " + refusal);
  }
  return queue;
}

}  // namespace graphbox
