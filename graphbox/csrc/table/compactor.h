// The thread that rewrites segments of a table which hold mostly dead rows, while the table is used.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

namespace graphbox {

class Compactor {
 public:
  // Does a short part of the work and returns whether there may be more of it now. Never throws.
  using Step = std::function<bool()>;

  explicit Compactor(Step step);
  Compactor(const Compactor&) = delete;
  Compactor& operator=(const Compactor&) = delete;
  // Ends after the step that is being done. In a process that was forked from its own there is no thread to end.
  ~Compactor();

  // The same, but those who wait may still come back.
  void close();

  // There may be work.
  void wake();

  // Waits until a step ends, and returns whether there is more to do: so who makes work cannot run away from who does
  // it. The caller must hold no lock that a step takes.
  bool await_step();

  // Waits until there is nothing to do.
  void await_rest();

 private:
  void run();
  void wait_until(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done);

  Step step_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_work_ = false;
  bool is_closed_ = false;
  std::uint64_t wakes_ = 0;
  std::uint64_t steps_ = 0;  // that ended
  std::int64_t owner_;       // process that has the thread
  std::thread thread_;       // last: uses all of the above
};

}  // namespace graphbox
